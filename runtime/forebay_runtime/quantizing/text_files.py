"""The files beside the weights that a tokenizer and a chat template are read from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from forebay_budget.gguf import read_gguf_header
from forebay_runtime.chat_template import read_gguf_template
from forebay_runtime.quantizing.output import TEXT_FILES, OutputFolder
from forebay_runtime.text.tokenizer import Tokenizer


def copy_text_files(folder: Path, output: OutputFolder) -> None:
    """Copy what a Hugging Face folder has of them."""
    for pattern in TEXT_FILES:
        for path in sorted(folder.glob(pattern)):
            shutil.copyfile(path, output.file(str(path.relative_to(folder))))


def write_text_files(gguf: Path, tokenizer: Tokenizer, output: OutputFolder) -> None:
    """Write what a GGUF's metadata says as a Hugging Face folder has it."""
    special = tokenizer.special
    tokenizer.save(output.file("tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": special.adds_bos,
        "clean_up_tokenization_spaces": False,
        **special.names,
    }
    output.add_json("tokenizer_config.json", config)
    output.add_json("generation_config.json", end_tokens(tokenizer))
    for name, source in read_gguf_template(read_gguf_header(gguf).metadata).items():
        default = name == "default"
        file = "chat_template.jinja" if default else f"additional_chat_templates/{name}.jinja"
        output.file(file).write_text(source, encoding="utf-8")


def end_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    """What configs say of the tokens that begin and end a text."""
    ends = sorted(tokenizer.eos_token_ids)
    stated: dict[str, Any] = {"eos_token_id": ends[0] if len(ends) == 1 else ends}
    if tokenizer.special.bos_token_id is not None:
        stated["bos_token_id"] = tokenizer.special.bos_token_id
    return stated
