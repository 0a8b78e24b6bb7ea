"""Speculative decoding: several tokens a step, the same tokens as without it.

A proposer guesses what comes next (`ngram` finds it earlier in the text, `draft_model` asks a
smaller model), the model computes the guesses beside the last known token in one step, and
`acceptance` keeps those that are what would have been sampled anyway. `worth` decides how many are
tried, and `speculation` is all of it as the scheduler sees it.
"""
