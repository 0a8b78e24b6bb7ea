"""What each rank does from its first line to its first step: choose, measure, load, compile, warm.

`assembly`, a level up, has rank 0 go through it and leads the other ranks, who do the same as
`parallel` tells them.
"""
