"""How much a structure may cost, in one place for the trial and for the server."""

from __future__ import annotations

from llguidance import LLParserLimits

MAX_CPU_SECONDS = 1.5
"""Of trying a structure out. It is built once more in the server, at the same cost."""

MAX_WALL_SECONDS = 8.0
"""Of trying a structure out, on a machine whose processors are taken."""

MAX_MEMORY_BYTES = 256 * 2**20
"""Of one structure beside the vocabulary."""

MAX_STEP_CPU_SECONDS = 0.25
"""Of finding the tokens that may come next; the library's own limits act before, nearly always."""

NICENESS = 5
"""Of what tries and builds structures: the engine goes before it."""

_MAX_LEXER_STATES = 50_000
"""About 1 kB each, kept as long as the structure is."""


def parser_limits() -> LLParserLimits:
    """The library's own limits; those for a single step are its defaults (some 15 ms)."""
    return LLParserLimits(max_lexer_states=_MAX_LEXER_STATES, verbose_errors=False)
