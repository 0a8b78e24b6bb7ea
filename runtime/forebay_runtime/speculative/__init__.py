"""Speculative decoding: several tokens a step, the same tokens as without it.

A proposer guesses what comes next: `ngram` finds it earlier in the text, and what asks a smaller
model lies in forebay_runtime.drafting. The model computes the guesses beside the last known token
in one step, and `acceptance` keeps those that are what would have been sampled anyway. `worth` says
how many are worth trying. scheduling.speculation puts it together.
"""
