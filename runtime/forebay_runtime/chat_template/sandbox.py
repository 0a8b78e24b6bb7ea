"""The box that templates run in: Jinja's immutable sandbox, with every operation metered.

The compiled template looks at the clock before each statement and each turn of a filtered loop,
and counts what it writes, also where it writes into a macro or a block. Operations that can make
more than they are given go through this environment, which asks `operations` first.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from datetime import datetime
from functools import update_wrapper, wraps
from typing import Any, NoReturn

import jinja2
import jinja2.parser
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace, pass_context

from forebay_runtime.chat_template.meter import METER, TemplateLimit
from forebay_runtime.chat_template.operations import (
    REMOVED_FILTERS,
    check_filter,
    check_method,
    check_operator,
)
from forebay_runtime.chat_template.rewriting import rewrite

_MAX_FORMAT_CHARS = 256
_MAX_INDENT = 64
_COMPARING_TESTS = frozenset(
    "== eq equalto != ne < lt lessthan <= le > gt greaterthan >= ge in".split()
)
_BUILT_IN = (str, int, float, bytes, list, tuple, dict, range)


class Sandbox(ImmutableSandboxedEnvironment):
    """What templates can reach. The names without underscore are called by rewritten templates."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        """As `transformers` sets it up, and without folding constants before anyone counts."""
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _GenerationBlock],
            finalize=_finalize,
            optimized=False,
        )
        self.filters["tojson"] = to_json
        self.filters = {
            name: _meter_filter(name, function)
            for name, function in self.filters.items()
            if name not in REMOVED_FILTERS
        }
        self.tests = {
            name: _meter_test(function) if name in _COMPARING_TESTS else function
            for name, function in self.tests.items()
        }
        del self.globals["lipsum"]
        self.globals["dict"] = lambda *args, **values: dict(*args, **values)
        self.globals["namespace"] = _Namespace
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self._own = (self.charge, self.glue, self.cut, self.sized)

    def compile_template(self, source: str) -> jinja2.Template:
        """Compile, with the meter built in."""
        return self.from_string(rewrite(self.parse(source)))

    @property
    def clock(self) -> bool:
        """True, or TemplateLimit."""
        METER.get().look_at_clock()
        return True

    def charge(self, num_bytes: int) -> None:
        """Count text of the template itself that is about to be written."""
        METER.get().charge(num_bytes)

    def glue(self, *values: Any) -> str:
        """The operator ~."""
        return "".join([_to_text(value) for value in values])

    def cut(self, value: Any, *bounds: Any) -> Any:
        """A slice, which is a copy."""
        part = value[slice(*bounds)]
        METER.get().charge(8 * len(part) if not isinstance(part, str) else 4 * len(part))
        return part

    def sized(self, value: Any) -> Any:
        """A value that is about to be compared or hashed, which looks at all that it holds."""
        if isinstance(value, list | tuple | dict | Namespace):
            METER.get().size(value)
        return value

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Subscription."""
        return super().getitem(obj, self.sized(argument))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Operators that make something."""
        check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805, B902
        """Calls of whatever the template can name."""
        if __obj in __self._own:
            return __obj(*args, **{})
        meter = METER.get()
        meter.look_at_clock()
        owner = getattr(__obj, "__self__", None)
        if isinstance(__obj, types.BuiltinMethodType) and isinstance(owner, _BUILT_IN):
            if __obj.__name__ == "join" and len(args) == 1 and not isinstance(args[0], tuple):
                args = (list(args[0]),)
            check_method(owner, __obj.__name__, args, _plain(kwargs))
        elif not isinstance(__obj, Macro):
            meter.size([*args, *_plain(kwargs).values()])
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """str.format and format_map, without giant widths and without reaching attributes."""
        if super().wrap_str_format(value) is None:
            return None
        form: str = value.__self__
        formatter = _Formatter(self)
        if value.__name__ == "format_map":
            return update_wrapper(lambda values: formatter.vformat(form, (), values), value)
        return update_wrapper(lambda *args, **kwargs: formatter.vformat(form, args, kwargs), value)


class _Formatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        if sum(char.isdigit() for char in format_spec) > 3:
            raise TemplateLimit("it formats to a width that no prompt needs")
        meter = METER.get()
        meter.charge(meter.size(value) + 1000)
        return super().format_field(value, format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        METER.get().charge(METER.get().size(value))
        return super().convert_field(value, conversion)


class _Namespace(Namespace):
    """Jinja's, without names that start with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: B902, N805
        values = dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; for a prompt it is nothing."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> list[nodes.Node]:
        """Give the block's content as it stands."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter tojson; Jinja's own escapes for HTML, which would put \\u003c into prompts."""
    if (len(indent) if isinstance(indent, str) else indent or 0) > _MAX_INDENT:
        raise TemplateLimit(f"it indents by more than {_MAX_INDENT}")
    if separators is not None and max(map(len, separators)) > _MAX_INDENT:
        raise TemplateLimit(f"its separators are longer than {_MAX_INDENT}")
    meter = METER.get()
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    meter.charge(meter.size(value))
    if indent is None and separators is None:
        text = encoder.encode(value)
        meter.charge(len(text))
        return text
    pieces = []
    for piece in encoder.iterencode(value):
        meter.charge(8 + len(piece))
        pieces.append(piece)
    return "".join(pieces)


def _to_text(value: Any) -> str:
    meter = METER.get()
    meter.charge(meter.size(value))
    return str(value)


@pass_context  # so that nothing is finalized while the template is compiled
def _finalize(context: Context, value: Any) -> str:
    return _to_text(value)


def _meter_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def metered(*args: Any, **kwargs: Any) -> Any:
        check_filter(name, args[skipped], args[skipped + 1 :], kwargs)
        return function(*args, **kwargs)

    return metered


def _meter_test(function: Any) -> Any:
    @wraps(function)
    def metered(*args: Any) -> Any:
        METER.get().size(args)
        return function(*args)

    return metered


def _plain(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Without what the compiled template adds of its own."""
    return {name: value for name, value in kwargs.items() if not name.startswith("_")}


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.TemplateError(f"a namespace cannot hold {name[:64]!r}")


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form[:_MAX_FORMAT_CHARS])
