"""Why a quantisation cannot be done. Imports nothing."""


class QuantizeError(ValueError):
    """It cannot be done as asked; the message is one sentence that leads to the cause."""
