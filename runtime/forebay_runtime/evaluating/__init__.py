"""`forebay evaluate`: what a model makes of a user's golden set, beside what another makes of it.

`flags` and `command` are the command's surface, `golden` reads the set, `answering` runs a model
over it in this process, `measures` compares and holds against `bounds`, and `table` prints.
"""
