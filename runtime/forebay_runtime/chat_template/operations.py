"""What a template's operations cost, counted before they are carried out.

A table for each kind: operators, methods of built-in types, filters. A method that is in no table
is not there for templates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forebay_runtime.chat_template.meter import METER, TemplateLimit, text_bytes

_POINTER_BYTES = 8
_TEXT_OBJECT_BYTES = 64
_MAX_INT_BITS = 4096
_MAX_SEARCH = 10**9
_MAX_STRIP_CHARS = 256
_MAX_WIDTH = 4096
_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_WIDTH = re.compile(r"\d+")


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Count an operator that is about to be applied.

    Raises: TemplateLimit.
    """
    if isinstance(left, int) and isinstance(right, int):
        _check_integers(operator, left, right)
    elif operator == "+":
        METER.get().charge(_shallow_bytes(left) + _shallow_bytes(right))
    elif operator == "*":
        times, value = (left, right) if isinstance(left, int) else (right, left)
        METER.get().charge(_shallow_bytes(value) * max(0, times if isinstance(times, int) else 1))
    elif operator == "%" and isinstance(left, str):
        check_percent(left, right)


def check_percent(form: str, values: Any) -> None:
    """Count `form % values`.

    Raises: TemplateLimit.
    """
    if "*" in form or any(int(width[:9]) > _MAX_WIDTH for width in _WIDTH.findall(form)):
        raise TemplateLimit("it formats to a width that no prompt needs")
    meter = METER.get()
    meter.charge(len(form) + form.count("%") * (_MAX_WIDTH + meter.size(values)))


def check_method(owner: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Count a method of a built-in type that is about to be called.

    Raises: TemplateLimit, also for methods that templates may not call.
    """
    meter = METER.get()
    meter.charge(meter.size([*args, *kwargs.values()]))
    if isinstance(owner, str) and name in _TEXT_METHODS:
        meter.charge(_TEXT_METHODS[name](owner, *args, **kwargs))
    elif isinstance(owner, str) and (name in _FREE_TEXT_METHODS or name.startswith("is")):
        return
    elif isinstance(owner, str) or name not in _FREE_METHODS:
        raise TemplateLimit(f"it calls {name[:32]}(), which templates may not")
    elif name in ("index", "count", "copy"):
        meter.charge(meter.size(owner))


def check_filter(name: str, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Count a filter that is about to be applied to value.

    Raises: TemplateLimit.
    """
    meter = METER.get()
    meter.look_at_clock()
    if name not in _SHALLOW_FILTERS:
        meter.charge(2 * meter.size(value))
    if args or kwargs:
        meter.charge(meter.size([*args, *kwargs.values()]))
    check = _FILTERS.get(name)
    if check is not None:
        meter.charge(check(value, *args, **kwargs))


def _check_integers(operator: str, left: int, right: int) -> None:
    bits = 0
    if operator == "*":
        bits = left.bit_length() + right.bit_length()
    elif operator == "**":
        bits = left.bit_length() * max(0, right)
    if bits > _MAX_INT_BITS:
        raise TemplateLimit("it computes numbers that no prompt needs")


def _shallow_bytes(value: Any) -> int:
    if isinstance(value, str):
        return text_bytes(value)
    return _POINTER_BYTES * len(value) if isinstance(value, list | tuple) else 0


def _count_lines(text: str) -> int:
    return 1 + sum(map(text.count, _LINE_ENDS))


def _count(values: Any) -> int:
    return len(values) if hasattr(values, "__len__") else 0


# Methods of str, with str's own names of their parameters.


def _width(text: str, width: int = 80, *_: Any) -> int:
    return text_bytes(text) + 4 * max(0, width)


def _same(text: str, *_: Any, **__: Any) -> int:
    return 3 * text_bytes(text)


def _strip(text: str, chars: str | None = None) -> int:
    if chars is not None and len(chars) > _MAX_STRIP_CHARS:
        raise TemplateLimit("it strips more kinds of characters than a prompt can need")
    return text_bytes(text)


def _replace(text: str, old: str, new: str, count: Any = None) -> int:
    return text_bytes(text) + text.count(old) * text_bytes(new)


def _split(text: str, sep: str | None = None, maxsplit: int = -1) -> int:
    num_parts = len(text) // 2 if sep is None else text.count(sep)
    return text_bytes(text) + _TEXT_OBJECT_BYTES * (1 + num_parts)


def _search_back(text: str, part: str, *_: Any) -> int:
    if len(text) * len(part) > _MAX_SEARCH:  # from the end, Python's search may be quadratic
        raise TemplateLimit("it searches for more text than a prompt can need")
    return text_bytes(text)


def _split_back(text: str, sep: str | None = None, maxsplit: int = -1) -> int:
    return _search_back(text, sep or "") + _split(text, sep)


def _split_lines(text: str, keepends: bool = False) -> int:
    return text_bytes(text) + _TEXT_OBJECT_BYTES * _count_lines(text)


def _join(text: str, values: Any) -> int:
    return text_bytes(text) * _count(values)


def _expand_tabs(text: str, tabsize: int = 8) -> int:
    return text_bytes(text) + text.count("\t") * max(0, tabsize)


_TEXT_METHODS: dict[str, Callable[..., int]] = {
    **dict.fromkeys("center ljust rjust zfill".split(), _width),
    **dict.fromkeys("capitalize casefold encode lower partition swapcase".split(), _same),
    **dict.fromkeys("removeprefix removesuffix title upper".split(), _same),
    **dict.fromkeys("lstrip rstrip strip".split(), _strip),
    **dict.fromkeys("rfind rindex rpartition".split(), _search_back),
    "expandtabs": _expand_tabs,
    "join": _join,
    "replace": _replace,
    "rsplit": _split_back,
    "split": _split,
    "splitlines": _split_lines,
}
_FREE_TEXT_METHODS = frozenset("count endswith find index startswith".split())
_FREE_METHODS = frozenset("copy count decode get index is_integer items keys values".split())


# Filters, with their own names of their parameters.


def _filter_batch(value: Any, linecount: int, fill_with: Any = None) -> int:
    return _POINTER_BYTES * max(0, linecount)


def _filter_slice(value: Any, slices: int, fill_with: Any = None) -> int:
    return _TEXT_OBJECT_BYTES * max(0, slices)


def _filter_indent(
    value: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> int:
    pad = len(width) if isinstance(width, str) else max(0, width)
    return 4 * pad * _count_lines(str(value))


def _filter_join(value: Any, d: Any = "", attribute: Any = None) -> int:
    return _count(value) * METER.get().size(d)


def _filter_list(value: Any) -> int:
    each = _TEXT_OBJECT_BYTES if isinstance(value, str) else _POINTER_BYTES
    return _count(value) * each


def _filter_format(value: Any, *args: Any, **kwargs: Any) -> int:
    check_percent(str(value), args or kwargs)
    return 0


def _filter_round(value: Any, precision: int = 0, method: str = "common") -> int:
    if abs(precision) > 64:
        raise TemplateLimit("it rounds to more digits than there are")
    return 0


def _filter_sum(value: Any, attribute: Any = None, start: Any = 0) -> int:
    if not isinstance(start, int | float):
        raise TemplateLimit("it sums what are no numbers")
    return 0


_FILTERS: dict[str, Callable[..., int]] = {
    "batch": _filter_batch,
    "center": lambda value, width=80: _width(str(value), width),
    "format": _filter_format,
    "indent": _filter_indent,
    "join": _filter_join,
    "list": _filter_list,
    "replace": lambda value, old, new, count=None: _replace(str(value), str(old), str(new)),
    "round": _filter_round,
    "slice": _filter_slice,
    "sum": _filter_sum,
    "trim": lambda value, chars=None: _strip(str(value), chars),
}
_SHALLOW_FILTERS = frozenset(
    "abs attr batch count d default first float int items last length list map reject rejectattr "
    "reverse round safe select selectattr slice tojson".split()
)
REMOVED_FILTERS = frozenset(
    "filesizeformat pprint random striptags urlize wordwrap xmlattr".split()
)
"""For web pages; no prompt needs them, and each would need a bound of its own."""
