"""Render a chat's messages into the prompt that the model was trained on.

Called by the server. A template is code that came with the model: it runs in Jinja's immutable
sandbox, sees the messages and the special tokens' texts, and can reach nothing else. Loops and
macros look at the clock, so that one without an end is stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.nodes
import jinja2.parser
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from forebay_runtime.tokenizer import TokenizerError, read_json

MAX_SECONDS = 10.0
"""A template that takes longer for one prompt is taken to have no end."""

_deadline: ContextVar[float] = ContextVar("deadline")


class ChatTemplateError(ValueError):
    """The messages cannot be rendered; the message is one sentence for the client."""


class ChatTemplate:
    """One model's template, or the lack of one."""

    def __init__(self, source: str | None, special_tokens: Mapping[str, str]) -> None:
        """source: the template's text, None where the model has none.

        A template that does not compile is no error before the first chat: completions work
        without one.
        """
        self._special_tokens = dict(special_tokens)
        self._template: jinja2.Template | None = None
        self._flaw = (
            "The model has no chat template; use /v1/completions, or add a chat_template.jinja "
            "to the model's folder (tokenizer.chat_template to a GGUF file)"
        )
        if source is not None:
            try:
                self._template = _compile(source)
            except jinja2.TemplateError as exc:
                self._flaw = f"The model's chat template does not compile: {exc}"

    def render(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool) -> str:
        """Render messages into a prompt.

        Raises: ChatTemplateError if the template is absent, or refuses the messages.
        """
        if self._template is None:
            raise ChatTemplateError(self._flaw)
        _deadline.set(time.monotonic() + MAX_SECONDS)
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **self._special_tokens,
            )
        except Exception as exc:  # a template is foreign code: whatever it raises is its refusal
            raise ChatTemplateError(
                f"The model's chat template refused the messages: {exc}"
            ) from exc


def read_folder_template(folder: Path) -> str | None:
    """The chat template of a Hugging Face folder: its own file, or in tokenizer_config.json.

    Raises: TokenizerError if the file that should hold it cannot be read.
    """
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as exc:
            raise TokenizerError(f"{path} could not be read as text: {exc}") from exc
    value = read_json(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(value, list):  # several, by name
        entries = [entry for entry in value if isinstance(entry, dict)]
        named = {str(entry.get("name")): entry.get("template") for entry in entries}
        value = named.get("default")
    return value if isinstance(value, str) else None


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, and the clock that compiled templates ask for by the name look_at_clock."""

    @staticmethod
    def look_at_clock() -> None:
        """Stop a template whose time is over.

        Raises: jinja2.TemplateError.
        """
        if time.monotonic() > _deadline.get():
            raise jinja2.TemplateError(f"it took longer than {MAX_SECONDS:g} seconds")


def _compile(source: str) -> jinja2.Template:
    environment = _build_environment()
    tree = environment.parse(source)
    endless: list[jinja2.nodes.For | jinja2.nodes.Macro]
    endless = [*tree.find_all(jinja2.nodes.For), *tree.find_all(jinja2.nodes.Macro)]
    for node in endless:
        clock = jinja2.nodes.EnvironmentAttribute("look_at_clock")
        look = jinja2.nodes.ExprStmt(jinja2.nodes.Call(clock, [], [], None, None))
        node.body.insert(0, look.set_lineno(node.lineno))
    return environment.from_string(tree)


def _build_environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML, which would put \\u003c into prompts.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; for a prompt it is nothing."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """Give the block's content as it stands."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
