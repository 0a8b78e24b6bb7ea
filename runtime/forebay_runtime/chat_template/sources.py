"""Where a model's chat template is found: its own file, its tokenizer's settings, a GGUF header.

A model may have several, by name: `default`, and `tool_use` for chats with tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay_runtime.text.tokenizer import TokenizerError, read_json

Sources = Mapping[str, str]
"""Templates by name; "default" among them wherever there is any."""


def read_folder_template(folder: Path) -> Sources:
    """The chat templates of a Hugging Face folder; empty if it has none.

    Raises: TokenizerError if a file that should hold one cannot be read.
    """
    files = {path.stem: path for path in (folder / "additional_chat_templates").glob("*.jinja")}
    if (folder / "chat_template.jinja").is_file():
        files["default"] = folder / "chat_template.jinja"
    if files:
        return {name: _read_text(path) for name, path in sorted(files.items())}
    return _to_sources(read_json(folder / "tokenizer_config.json").get("chat_template"))


def read_gguf_template(metadata: Mapping[str, Any]) -> Sources:
    """The chat templates of a GGUF file's metadata; empty if it has none."""
    prefix = "tokenizer.chat_template"
    named = {
        key.removeprefix(prefix).removeprefix(".") or "default": value
        for key, value in metadata.items()
        if key == prefix or key.startswith(f"{prefix}.")
    }
    return {name: text for name, text in named.items() if isinstance(text, str)}


def _to_sources(value: Any) -> Sources:
    if isinstance(value, list):
        entries = [entry for entry in value if isinstance(entry, dict)]
        named = {str(entry.get("name")): entry.get("template") for entry in entries}
    else:
        named = {"default": value}
    return {name: text for name, text in named.items() if isinstance(text, str)}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as exc:
        raise TokenizerError(f"{path} could not be read as text: {exc}") from exc
