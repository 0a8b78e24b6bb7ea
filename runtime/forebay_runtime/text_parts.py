"""A model's tokenizer and chat template, of a folder or a GGUF."""

from __future__ import annotations

from pathlib import Path

from forebay_budget.gguf import read_gguf_header
from forebay_budget.locate import is_gguf
from forebay_runtime.chat_template import ChatTemplate, read_folder_template, read_gguf_template
from forebay_runtime.text.gguf_tokenizer import build_gguf_tokenizer
from forebay_runtime.text.tokenizer import Tokenizer, TokenizerError, read_folder_tokenizer


def read_text_parts(
    path: Path, template_file: Path | None = None
) -> tuple[Tokenizer, ChatTemplate]:
    """Read tokenizer and chat template of what locate_model found.

    template_file: read instead of the model's own template.
    Raises: TokenizerError.
    """
    if is_gguf(path):
        metadata = read_gguf_header(path).metadata
        tokenizer = build_gguf_tokenizer(metadata)
        sources = read_gguf_template(metadata)
    else:
        tokenizer = read_folder_tokenizer(path)
        sources = read_folder_template(path)
    if template_file is not None:
        sources = {"default": _read_template(template_file)}
    return tokenizer, ChatTemplate(sources, tokenizer.special.names)


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise TokenizerError(f"--chat-template {path} cannot be read: {exc}") from exc
