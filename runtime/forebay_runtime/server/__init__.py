"""The HTTP server around an engine: API, probes, metrics, from load to drain."""
