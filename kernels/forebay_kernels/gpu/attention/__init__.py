"""Paged attention: `paged_attention` picks `decode` or `prefill`, which share `tile` and `form`."""
