"""Scheduling: who runs in a step, with how many tokens, in which KV blocks, and when each ends.

The engine calls `scheduler`; runner and sampler read its `batch`. Both sides see a request as
forebay_runtime.request has it. All here is about counts and ids: nothing knows tensors.
"""
