"""Matrices in few bits: read as a checkpoint packs them, or rounded while a plain one is read.

`formats` picks for each matrix; what it gives is a tensor or a QuantMatrix, of this rank's part.
"""
