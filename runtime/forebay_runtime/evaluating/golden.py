"""A golden set: JSON lines of texts that are to be likely, and of questions with their answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from forebay_runtime.text.json_lines import parse_line, split_lines

Match = Literal["begins", "equals", "contains"]
_FIELDS = ("text", "prompt", "messages", "answer", "match")


class GoldenError(ValueError):
    """A golden set cannot be used; the message is one sentence that names the line."""


@dataclass(frozen=True)
class Text:
    """What is scored token by token: text, or messages that the model's chat template renders."""

    where: str
    text: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    unknown: tuple[str, ...] = ()
    """Fields of the line that say nothing here."""


@dataclass(frozen=True)
class Question:
    """What is answered greedily.

    prompt: as it is, or messages. match: how the answer must stand in what the model says, once
    both are stripped: at its beginning, as all of it, or anywhere.
    """

    where: str
    answer: str
    match: Match
    prompt: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    unknown: tuple[str, ...] = ()

    def is_right(self, said: str) -> bool:
        """Does it count as the answer?"""
        said, answer = said.strip(), self.answer.strip()
        if self.match == "equals":
            return said == answer
        if self.match == "contains":
            return answer in said
        rest = said.removeprefix(answer)
        # A word that goes on is another word.
        return said.startswith(answer) and not (answer[-1].isalnum() and rest[:1].isalnum())


@dataclass(frozen=True)
class Golden:
    """All of a file."""

    texts: tuple[Text, ...]
    questions: tuple[Question, ...]

    @property
    def unknown(self) -> dict[str, int]:
        """Fields that say nothing here, and in how many lines each stands."""
        entries: tuple[Text | Question, ...] = (*self.texts, *self.questions)
        return Counter(name for entry in entries for name in entry.unknown)


def read_golden(path: Path) -> Golden:
    """Read a golden set.

    Raises: GoldenError if the file or a line of it is none.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise GoldenError(f"--golden {path} cannot be read: {error}") from error
    entries = [_read_line(line, f"{path}, line {number}") for number, line in split_lines(text)]
    if not entries:
        raise GoldenError(f"--golden {path} has no lines")
    return Golden(
        tuple(entry for entry in entries if isinstance(entry, Text)),
        tuple(entry for entry in entries if isinstance(entry, Question)),
    )


def _read_line(line: str, where: str) -> Text | Question:
    try:
        fields = parse_line(line)
    except ValueError as error:
        raise GoldenError(f"{where}: this is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise GoldenError(f"{where}: this is no JSON object")
    kinds = [kind for kind in ("text", "prompt", "messages") if kind in fields]
    if len(kinds) != 1:
        raise GoldenError(f"{where}: one of text, prompt and messages is needed, and no two")
    content = fields[kinds[0]]
    messages: tuple[dict[str, Any], ...] = ()
    if kinds[0] == "messages":
        if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
            raise GoldenError(f"{where}: messages is no list of objects")
        messages, content = tuple(content), ""
    if not isinstance(content, str) or not (content or messages):
        raise GoldenError(f"{where}: {kinds[0]} is no text, or empty")
    if "answer" not in fields:
        return _text(fields, where, content, messages)
    if kinds[0] == "text":
        raise GoldenError(f"{where}: a text has no answer; write prompt and answer")
    return _question(fields, where, content, messages)


def _text(
    fields: dict[str, Any], where: str, text: str, messages: tuple[dict[str, Any], ...]
) -> Text:
    if "prompt" in fields:
        raise GoldenError(f"{where}: a prompt needs an answer; a text that is scored is a text")
    if "match" in fields:
        raise GoldenError(f"{where}: match says how an answer must stand, and there is none")
    return Text(where, text, messages, _unknown(fields))


def _question(
    fields: dict[str, Any], where: str, prompt: str, messages: tuple[dict[str, Any], ...]
) -> Question:
    answer, match = fields["answer"], fields.get("match", "begins")
    if not isinstance(answer, str) or not answer.strip():
        raise GoldenError(f"{where}: answer is no text, or empty")
    if match not in get_args(Match):
        raise GoldenError(f"{where}: match is {match!r}; possible are {', '.join(get_args(Match))}")
    return Question(where, answer, match, prompt, messages, _unknown(fields))


def _unknown(fields: dict[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in fields if name not in _FIELDS)
