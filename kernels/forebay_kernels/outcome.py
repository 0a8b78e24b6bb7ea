"""What comes of a row of scores when a token is to be drawn from it."""

DRAWN, NOTHING_LEFT, BROKEN = range(3)
"""A token; none, as edits left only -inf; none, as the model's own scores are NaN or infinite."""
