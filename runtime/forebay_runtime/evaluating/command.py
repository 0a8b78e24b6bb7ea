"""`forebay evaluate`: from settings to a table and a verdict."""

from __future__ import annotations

import json
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

from forebay_budget.inspection import ModelError
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.ending import print_whole
from forebay_runtime.evaluating.answering import measure
from forebay_runtime.evaluating.flags import EvaluateSettings
from forebay_runtime.evaluating.golden import Golden, GoldenError, read_golden
from forebay_runtime.evaluating.measures import Measured, check, compare
from forebay_runtime.evaluating.table import to_document, to_table
from forebay_runtime.loading.description import Description, describe_model
from forebay_runtime.loading.hub import find_model
from forebay_runtime.text.tokenizer import TokenizerError

_REFUSALS = (GoldenError, ModelError, StartError, TokenizerError)


def run_evaluate(settings: EvaluateSettings) -> int:
    """Measure and print; returns the exit status, which is 1 for nothing but a broken bound."""
    try:
        return _evaluate(settings)
    except _REFUSALS as error:
        print(f"forebay evaluate: {error}", file=sys.stderr)
    except OSError as error:
        print(f"forebay evaluate: what is needed could not be read: {error}", file=sys.stderr)
    except Exception:
        traceback.print_exc()
    return 2


def _evaluate(settings: EvaluateSettings) -> int:
    golden = read_golden(settings.golden)
    _tell_unknown(settings.golden, golden)
    model = describe_model(find_model(settings.model))
    other = None if settings.other is None else describe_model(find_model(settings.other))
    # Both read texts by the same windows, which the shorter one has positions for.
    lengths = (each.inspection.config.max_position_embeddings for each in (model, other) if each)
    settings = replace(settings, max_model_len=min(settings.max_model_len, *lengths))
    before = None if other is None else _measure(settings, golden, other, is_other=True)
    after = _measure(settings, golden, model, is_other=False)
    if before is not None:
        _check_alike(after, before)
    comparison = None if before is None else compare(after, before)
    checks = check(after, comparison, settings.bounds)
    if settings.is_json:
        document = to_document(after, before, comparison, checks)
        text = json.dumps(document, ensure_ascii=False)
    else:
        counts = f"{after.num_tokens} tokens of text, {len(after.answers)} questions"
        table = to_table(after, before, comparison, checks)
        text = f"{settings.golden}: {counts}\n{table}"
    if not print_whole(text):
        return 2
    return 0 if all(each.is_held for each in checks) else 1


def _measure(
    settings: EvaluateSettings, golden: Golden, model: Description, *, is_other: bool
) -> Measured:
    start = time.monotonic()
    config = EngineConfig(
        model.path,
        device=settings.device,
        dtype=settings.dtype,
        quantization="None" if is_other else settings.quantization,
        kv_cache_dtype="auto" if is_other else settings.kv_cache_dtype,
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs,
        # A batch for each sequence's prompt would hold more states than a laptop likes.
        max_num_batched_tokens=max(1024, settings.max_num_seqs),
        enable_prefix_caching=False,
    )
    progress = _Progress(str(settings.other if is_other else settings.model))
    measured = measure(config, model, golden, settings.max_tokens, progress.note)
    progress.say(f"{time.monotonic() - start:.0f} s")
    return measured


def _tell_unknown(path: Path, golden: Golden) -> None:
    """A field that is misspelt would else make a question a text, or another match."""
    for name, count in golden.unknown.items():
        print(f"{path}: the field {name!r} says nothing (lines: {count})", file=sys.stderr)


def _check_alike(after: Measured, before: Measured) -> None:
    """Two tokenizers cut texts differently, so nothing of the two could be compared."""
    if [text.token_ids for text in after.texts] != [text.token_ids for text in before.texts]:
        raise GoldenError("the two models' tokenizers differ, so their scores do not compare")


class _Progress:
    """Tells on stderr, each fifth of the way."""

    def __init__(self, model: str) -> None:
        self._model, self._fifths = model, 0

    def note(self, num_done: int, num_all: int) -> None:
        """So many of all requests have ended."""
        fifths = 5 * num_done // num_all
        if fifths > self._fifths:
            self._fifths = fifths
            self.say(f"{num_done} of {num_all} done")

    def say(self, text: str) -> None:
        """A line of its own."""
        print(f"{self._model}: {text}", file=sys.stderr, flush=True)
