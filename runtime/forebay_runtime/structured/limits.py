"""How much a structure may cost, in one place for the trial and for the server."""

from __future__ import annotations

from llguidance import LLParserLimits

QUICK_CPU_SECONDS = 0.1
"""Of trying a structure out at first: nearly all need a tenth of it. What needs more begins again
in the other queue, where it cannot hold up those that need less."""

MAX_CPU_SECONDS = 1.0
"""Of trying a structure out. It is built once more in the server, at the same cost."""

MAX_WALL_SECONDS = 4.0
"""Of trying a structure out, on a machine whose processors are taken."""

MAX_MEMORY_BYTES = 256 * 2**20
"""Of trying a structure out, beside the vocabulary."""

NICENESS = 5
"""Of what tries and builds structures: the engine goes before it."""

MAX_STEP_CPU_SECONDS = 0.25
"""Of finding the tokens that may come next. The library's own limits act before, nearly always."""

MAX_WALK_CPU_SECONDS = 3.0
MAX_TOKEN_CPU_SECONDS = 0.002
"""Of one request's steps together: so much, and so much for each token. What takes longer keeps
growing, some 30 MB with each second."""


def parser_limits() -> LLParserLimits:
    """The library's own limits.

    Wider than its defaults, which end an object of 500 optional properties: a step may take some
    30 ms at the most.
    """
    return LLParserLimits(
        max_items_in_row=20_000, step_max_items=200_000, step_lexer_fuel=1_000_000
    )
