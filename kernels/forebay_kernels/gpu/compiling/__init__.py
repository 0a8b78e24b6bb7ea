"""Which compilations there are, and how they come about before a launch asks for one.

`preparation` does it at a start, on a GPU; `compilation` ahead of time and without one, for the
tests and the kernels' report.
"""
