"""From a spec's text to a grammar in the library's Lark dialect. Pure; runs in the trial process.

Tokenization is never forced (`no_forcing`): where only one text can follow, the model still draws
its tokens by their chances, and no step costs more because that text is long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from llguidance import regex_to_lark
from llguidance.gbnf_to_lark import gbnf_to_lark

from forebay_runtime.structured.endless import has_finite_value
from forebay_runtime.structured.spec import TITLES, Kind, StructureError

WHITESPACE = r"(\x20|\x0A[\x20\x09]{0,32})"
"""Between JSON's parts: a space, or a line break and indentation. It is enough for compact and for
indented JSON, and a model that likes blanks cannot go on with them for ever."""

_ASCII_CLASSES = "d"
"""`\\d` is 0 to 9: what every other engine for regular expressions accepts too. `\\w` and `\\s` are
Unicode's."""

_GBNF = re.compile(r"^[ \t]*[\w-]+\s*::=", re.MULTILINE)
_HEAD = '%llguidance {"no_forcing": true}\n'
_LITERAL = re.compile(r'%literal\s*("(?:[^"\\\n]|\\.)*")')


def literal(text: str) -> str:
    """Grammar text that stands for a text in which special tokens may occur by name.

    Where the model's tokenizer has such a token, only that token will do; else its characters.
    """
    return f"%literal {json.dumps(text)}"


def build_grammar(kind: Kind, text: str, special_ids: Mapping[str, int]) -> str:
    """Build the grammar.

    Raises: StructureError naming what is wrong.
    """
    if kind == "json_object":
        return f"{_HEAD}start: {_json_rule({'type': 'object'})}\n"
    if kind == "json_schema":
        return f"{_HEAD}start: {_json_rule(_read_schema(text))}\n"
    if kind == "regex":
        return f"{_HEAD}start: /{regex_to_lark(text, _ASCII_CLASSES)}/\n"
    if kind == "choice":
        return f"{_HEAD}start: CHOICE\nCHOICE: {' | '.join(map(_quote, json.loads(text)))}\n"
    return _HEAD + _expand_literals(_read_grammar(text), special_ids)


def _json_rule(schema: dict[str, Any]) -> str:
    options = {"whitespace_pattern": WHITESPACE}
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


def _read_schema(text: str) -> dict[str, Any]:
    title = TITLES["json_schema"]
    try:
        schema = json.loads(text)
        if schema is True:
            return {}
        if schema is False:
            raise StructureError(f"The {title} cannot be met by any text")
        if not isinstance(schema, dict):
            raise StructureError(f"The {title} is no JSON object")
        if not has_finite_value(schema):
            raise StructureError(f"The {title} requires itself: no text can meet it")
    except json.JSONDecodeError as exc:
        raise StructureError(f"The {title} is no JSON: {exc}") from None
    except RecursionError:
        raise StructureError(f"The {title} is nested too deeply") from None
    return schema


def _read_grammar(text: str) -> str:
    if not _GBNF.search(text):
        return text
    try:
        return gbnf_to_lark(text)
    except RecursionError:
        raise StructureError("The grammar is nested too deeply") from None
    except Exception as exc:  # the converter raises plain Exception
        raise StructureError(f"The grammar cannot be read as GBNF: {exc}") from None


def _expand_literals(grammar: str, special_ids: Mapping[str, int]) -> str:
    return _LITERAL.sub(lambda m: _spell_literal(json.loads(m[1]), special_ids), grammar)


def _spell_literal(text: str, special_ids: Mapping[str, int]) -> str:
    names = sorted((name for name in special_ids if name in text), key=len, reverse=True)
    pieces = re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
    spelt = [
        f"<[{special_ids[piece]}]>" if piece in special_ids else _quote(piece)
        for piece in pieces
        if piece
    ]
    return f"({' '.join(spelt) or _quote('')})"


def _quote(text: str) -> str:
    return json.dumps(text)  # the library reads JSON's escapes, and DEL only so
