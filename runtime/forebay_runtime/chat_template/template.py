"""One model's chat template, compiled once and rendered for each chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from forebay_runtime.chat_template.continuing import cut_open, mark_open
from forebay_runtime.chat_template.messages import prepare_messages
from forebay_runtime.chat_template.meter import METER, ChatTemplateError, Meter
from forebay_runtime.chat_template.sandbox import Sandbox

_MAX_SOURCE_CHARS = 1 << 20
_RESERVED = frozenset(
    "messages tools documents add_generation_prompt continue_final_message chat_template "
    "tokenize conversation".split()
)
_ABSENT = (
    "The model has no chat template; use /v1/completions, or add a chat_template.jinja "
    "to the model's folder (tokenizer.chat_template to a GGUF file)"
)


class ChatTemplate:
    """One model's template, or the lack of one; safe to use from several threads."""

    def __init__(
        self, source: str | Mapping[str, str] | None, special_tokens: Mapping[str, str]
    ) -> None:
        """source: the template's text, or several by name; None or empty where there is none.

        A template that does not compile is no error before the first chat: completions work
        without one.
        """
        self._special_tokens = dict(special_tokens)
        sources = {"default": source} if isinstance(source, str) else dict(source or {})
        self.source = "\n".join(sources.values()) or None
        """The text of all of them, for its markers."""
        self._compiled = {name: _compile(text) for name, text in sources.items()}

    @property
    def fault(self) -> str | None:
        """Why chats are refused although the model has a template: the first that is broken."""
        return next((each for each in self._compiled.values() if isinstance(each, str)), None)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Render a chat into a prompt. Blocks for up to MAX_SECONDS: call it on a thread.

        messages: content is text; arguments of tool calls may be JSON text.
        add_generation_prompt: end where the assistant begins to speak.
        continue_final_message: end within the last message, for the model to go on with it;
        excludes add_generation_prompt.
        template_kwargs: further variables, as in the request's chat_template_kwargs.

        Raises: ChatTemplateError if the template is absent, refuses the messages, or was stopped.
        """
        template = self._choose(bool(tools))
        plain = prepare_messages(messages)
        mark = mark_open(plain) if continue_final_message else None
        variables = self._special_tokens | _check_kwargs(template_kwargs or {})
        variables |= {
            "messages": plain,
            "add_generation_prompt": add_generation_prompt,
            "tools": [dict(tool) for tool in tools] if tools else None,
            "documents": [dict(document) for document in documents] if documents else None,
        }
        text = _render(template, variables)
        return text if mark is None else cut_open(text, mark)

    def _choose(self, has_tools: bool) -> jinja2.Template:
        chosen = self._compiled.get("tool_use") if has_tools else None
        chosen = chosen or self._compiled.get("default")
        if chosen is None:
            names = ", ".join(sorted(self._compiled))
            raise ChatTemplateError(
                f"The model has no default chat template, only {names}" if names else _ABSENT
            )
        if isinstance(chosen, str):
            raise ChatTemplateError(chosen)
        return chosen


def _compile(source: str) -> jinja2.Template | str:
    """The compiled template, or why there is none."""
    if len(source) > _MAX_SOURCE_CHARS:
        return f"The model's chat template is longer than {_MAX_SOURCE_CHARS} characters"
    METER.set(Meter())
    try:
        return Sandbox().compile_template(source)
    except Exception as exc:  # foreign code: nesting breaks the parser or Python's compiler
        return f"The model's chat template does not compile: {_to_sentence(exc)}"


def _render(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    METER.set(Meter(Meter().size(variables)))
    try:
        return "".join(template.generate(**variables))
    except Exception as exc:  # a template is foreign code: whatever it raises is its refusal
        raise ChatTemplateError(
            f"The model's chat template refused the messages: {_to_sentence(exc)}"
        ) from exc


def _to_sentence(exc: Exception) -> str:
    if isinstance(exc, RecursionError):
        return "it nests without an end"
    return str(exc)[:2000] or type(exc).__name__


def _check_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    for name in kwargs:
        if name in _RESERVED:
            raise ChatTemplateError(f"chat_template_kwargs.{name} cannot be set there")
    return dict(kwargs)
