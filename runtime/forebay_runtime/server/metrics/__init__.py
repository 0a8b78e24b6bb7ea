"""What /metrics says, by vLLM's names where vLLM has them; updated on the asyncio loop alone.

`server_metrics` holds all of it: `families` and `request_record` count requests as they go,
`engine_figures` and `gpu_figures` are read when Prometheus scrapes.
"""
