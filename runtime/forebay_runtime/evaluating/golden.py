"""A golden set: JSON lines of texts that are to be likely, and of questions with their answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

Match = Literal["begins", "equals", "contains"]


class GoldenError(ValueError):
    """A golden set cannot be used; the message is one sentence that names the line."""


@dataclass(frozen=True)
class Text:
    """What is scored token by token: text, or messages that the model's chat template renders."""

    where: str
    text: str = ""
    messages: tuple[dict[str, Any], ...] = ()


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


def read_golden(path: Path) -> Golden:
    """Read a golden set.

    Raises: GoldenError if the file or a line of it is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise GoldenError(f"--golden {path} cannot be read: {error}") from error
    entries = [
        _read_line(line, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not entries:
        raise GoldenError(f"--golden {path} has no lines")
    return Golden(
        tuple(entry for entry in entries if isinstance(entry, Text)),
        tuple(entry for entry in entries if isinstance(entry, Question)),
    )


def _read_line(line: str, where: str) -> Text | Question:
    try:
        fields: Any = json.loads(line)
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
        if kinds[0] == "prompt":
            raise GoldenError(f"{where}: a prompt needs an answer; a text that is scored is a text")
        return Text(where, content, messages)
    if kinds[0] == "text":
        raise GoldenError(f"{where}: a text has no answer; write prompt and answer")
    return _question(fields, where, content, messages)


def _question(
    fields: dict[str, Any], where: str, prompt: str, messages: tuple[dict[str, Any], ...]
) -> Question:
    answer, match = fields["answer"], fields.get("match", "begins")
    if not isinstance(answer, str) or not answer.strip():
        raise GoldenError(f"{where}: answer is no text, or empty")
    if match not in get_args(Match):
        raise GoldenError(f"{where}: match is {match!r}; possible are {', '.join(get_args(Match))}")
    return Question(where, answer, match, prompt, messages)
