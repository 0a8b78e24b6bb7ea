"""What the pods are made of, and how a changed template reaches them."""
