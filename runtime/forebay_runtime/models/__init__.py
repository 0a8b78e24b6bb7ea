"""The model families that the runtime runs, one entry each in `registry`."""
