"""The operations a decoder is made of, each with its shapes, its reference and its fast forms.

`ops` is the one door: what it names is the fastest implementation for the tensors at hand.
`reference` says what each operation means, in the plainest torch; every other implementation is
tested against it. Nothing here knows of requests, schedulers or models.

Letters, in all shapes: T tokens, S sequences, H query heads, K KV heads, D head_dim, P blocks,
B block_size, M most blocks a sequence, N and I matrix columns.
"""
