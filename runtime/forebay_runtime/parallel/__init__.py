"""One model on several ranks: processes that each hold a part of it.

Rank 0 is the engine's own process, with scheduler, sampler and server. `followers` spawns the
others, watches whether one dies or hangs, and `rank_loss` says so in a sentence. They run
`follower`, and do what they are told by `messages`: load their part, then compute the same steps at
the same time. Tensors go between the ranks by `rank_link`, which models know as a Link.
"""
