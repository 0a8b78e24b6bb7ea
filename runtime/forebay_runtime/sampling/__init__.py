"""From scores to tokens, one file a concern.

`sampler` leads a step through it: `edits` (with `penalties`) change a request's scores, `draw`
picks a token from them, `scores` tells how likely tokens were, `pooling` makes embeddings.
"""
