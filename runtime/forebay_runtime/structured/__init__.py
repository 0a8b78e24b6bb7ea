"""Answers of a given form: JSON by schema, regular expressions, choices, grammars.

The server makes a `StructureSpec` of a request's fields, has it compiled off the event loop, and
gives the request a constraint; the sampler then draws only tokens that keep to the form.
"""

from forebay_runtime.structured.compiled import Compiled
from forebay_runtime.structured.compiler import StructureCompiler
from forebay_runtime.structured.grammar import literal
from forebay_runtime.structured.spec import StructureError, StructureSpec

__all__ = ["Compiled", "StructureCompiler", "StructureError", "StructureSpec", "literal"]
