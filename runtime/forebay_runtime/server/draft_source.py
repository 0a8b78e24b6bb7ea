"""Where a draft model lies, and whether it means by its tokens what the served model means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.loading.hub import find_model
from forebay_runtime.text.tokenizer import Tokenizer


def find_draft(
    config: EngineConfig, served: Tokenizer, read_tokenizer: Callable[[Path], Tokenizer]
) -> EngineConfig:
    """The configuration with the draft model's path, where one is asked for.

    Raises: StartError if its tokens are others; ModelError or TokenizerError if it cannot be read.
    """
    asked = config.speculative
    if asked is None or asked.model is None:
        return config
    path = find_model(asked.model)
    fault = explain_other_tokens(served.vocabulary(), read_tokenizer(path).vocabulary())
    if fault is not None:
        raise StartError(
            f"--speculative-config: the draft model {asked.model} {fault}, so its guesses mean "
            "something else; choose a smaller model of the same family, or method ngram"
        )
    return replace(config, speculative=replace(asked, model=str(path)))


def explain_other_tokens(served: dict[str, int], draft: dict[str, int]) -> str | None:
    """Where a draft's vocabulary says something else than the served model's; tokens that only one
    of them names, as added ones often are, do no harm. Both: token ids by texts."""
    texts = {token_id: text for text, token_id in served.items()}
    for text, token_id in sorted(draft.items(), key=lambda item: item[1]):
        if texts.get(token_id, text) != text:
            return f"means {text!r} by token {token_id}, and the model {texts[token_id]!r}"
    return None
