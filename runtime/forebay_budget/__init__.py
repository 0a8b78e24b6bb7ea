"""What a model needs of a GPU's (or a pod's) memory: read from its headers, then divided.

Standard library only: the operator plans with it, the inspection Job runs it, the runtime measures
against it, and `python -m forebay_budget` works on a bare interpreter.
"""
