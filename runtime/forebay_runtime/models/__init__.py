"""The decoder that all model families share, built by what forebay_budget reads of a model.

A family is described once, in forebay_budget.families; nothing here asks for one by name.
"""
