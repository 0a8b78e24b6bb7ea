"""Getting to know the model: its inspection Job, what that came to, and the uri that pins it."""
