"""A second, smaller model that guesses what the served one will say, and what it takes to have one.

`draft_model` is it as scheduling.speculation asks it, and `draft_start` builds and checks it.
"""
