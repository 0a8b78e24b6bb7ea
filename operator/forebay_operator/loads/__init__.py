"""What pods say they hold: how they are asked, and which of their answers are news."""
