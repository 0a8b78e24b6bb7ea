"""Draws a token a row without sorting: a survey of the row, a search for a threshold, a race.

The survey splits each row among programs and keeps of every heat (256 tokens in a row) its best
score and the sum of its chances. The draw is one program a row. A greedy row ends with the best
score; a row without filters races by heats, then within the heat that won; in others a threshold is
found between what top_k and top_p keep and what not, by passes over the row that each tell three
thresholds apart, and those that it keeps race. Among equals at the threshold the lower ids are
kept. Rows see nothing of each other, so a batch does not show.
Source of the race and of its chance: see the portable form, whose tokens these are.
"""
