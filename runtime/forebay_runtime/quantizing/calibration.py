"""The text that a quantisation is calibrated by, as token sequences of one length."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from forebay_runtime.chat_template import ChatTemplate, ChatTemplateError
from forebay_runtime.quantizing.excerpt import DEFAULT_SAMPLES, LEAST_TOKENS, Excerpt
from forebay_runtime.quantizing.refusal import QuantizeError
from forebay_runtime.text.json_lines import parse_line, split_lines
from forebay_runtime.text.tokenizer import Tokenizer


def read_samples(
    path: Path, tokenizer: Tokenizer, template: ChatTemplate, excerpt: Excerpt
) -> list[list[int]]:
    """Sequences of excerpt.sequence_length tokens, of documents in an order of chance.

    Documents follow each other, each with an end token behind it; what is left over is dropped.
    Raises: QuantizeError if the file cannot be read, or has too little text.
    """
    documents = [tokenizer.encode(text) for text in read_documents(path, template)]
    random.Random(excerpt.seed).shuffle(documents)
    end = sorted(tokenizer.eos_token_ids)[:1]
    token_ids = [token for document in documents for token in (*document, *end)]
    length = excerpt.sequence_length
    num_found, asked = len(token_ids) // length, excerpt.num_samples
    if asked is not None and num_found < asked:
        raise QuantizeError(
            f"--calibration {path} has {len(token_ids)} tokens, which make {num_found} sequences "
            f"of --sequence-length {length}; --num-samples asks for {asked}: give more text, or "
            "lower one of the two"
        )
    num_samples = min(num_found, DEFAULT_SAMPLES) if asked is None else asked
    if not num_samples:
        raise QuantizeError(
            f"--calibration {path} has {len(token_ids)} tokens, less than one sequence of "
            f"--sequence-length {length}; give more text, 30,000 tokens and better more"
        )
    if num_samples * length < LEAST_TOKENS:
        raise QuantizeError(
            f"calibration would see {num_samples * length} tokens of {path} (--num-samples "
            f"{num_samples}, --sequence-length {length}); at least {LEAST_TOKENS} are needed, "
            "better 30,000 and more"
        )
    return [token_ids[place * length : (place + 1) * length] for place in range(num_samples)]


def read_documents(path: Path, template: ChatTemplate) -> Iterator[str]:
    """The texts of a file: of JSON lines one each, of any other file the whole.

    Raises: QuantizeError naming the line that is none.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise QuantizeError(f"--calibration {path} cannot be read as text: {error}") from error
    if path.suffix.lower() not in (".jsonl", ".ndjson"):
        yield text
        return
    for number, line in split_lines(text):
        yield _document(line, template, f"{path}, line {number},")


def _document(line: str, template: ChatTemplate, where: str) -> str:
    try:
        value = parse_line(line)
    except ValueError as error:
        raise QuantizeError(f"{where} is not JSON: {error}") from error
    fields = value if isinstance(value, dict) else {}
    if isinstance(fields.get("messages"), list):
        try:
            return template.render(fields["messages"], add_generation_prompt=False)
        except (ChatTemplateError, TypeError, AttributeError) as error:
            raise QuantizeError(f"{where} has messages that cannot be used: {error}") from error
    if isinstance(fields.get("text"), str):
        return str(fields["text"])
    if isinstance(fields.get("prompt"), str):
        return f"{fields['prompt']}{fields.get('answer', '')}"
    raise QuantizeError(f"{where} has none of text, messages and prompt")
