"""A server with everything but a model, which sleeps: `python sleeping_server.py SECONDS SEATS`."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import BPE

from forebay_kernels.cpu.score_rows import ScoreRows
from forebay_runtime.chat_template import ChatTemplate
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine, Warmth, Widths
from forebay_runtime.runner.step_inputs import describe_step
from forebay_runtime.sampling.sampler import Sampler
from forebay_runtime.scheduling.batch import Batch, Limits
from forebay_runtime.scheduling.blocks import BlockPool
from forebay_runtime.scheduling.scheduler import Scheduler
from forebay_runtime.server.options import ServeOptions
from forebay_runtime.server.process import leave, run_server
from forebay_runtime.server.service import Listener, Model
from forebay_runtime.step_result import StepResult
from forebay_runtime.text.tokenizer import SpecialTokens, Tokenizer

_NUM_TOKENS = 49_152
_BLOCK_SIZE = 16


def serve(step_seconds: float, max_num_seqs: int) -> None:
    """Serve a model that sleeps, until told to stop."""
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    limits = Limits(max_num_seqs, 2048, 4096)
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"

    def load_model(listener: Listener) -> Model:
        tokenizer = build_tokenizer()
        pool = BlockPool(max_num_seqs * limits.max_model_len // _BLOCK_SIZE, _BLOCK_SIZE)
        scheduler = Scheduler(pool, limits, frozenset())
        runner = SleepingRunner(limits, step_seconds)
        engine = Engine(scheduler, runner, Sampler(), Warmth, Widths(_NUM_TOKENS, 1))
        return Model(engine, tokenizer, ChatTemplate(template, {}), EngineConfig(Path("bench")))

    options = ServeOptions(
        "bench",
        host="127.0.0.1",
        port=0,
        max_num_seqs=max_num_seqs,
        lame_duck_seconds=0.0,
        prepares_structures=False,
        termination_log=Path("/dev/null"),
    )
    leave(run_server(options, load_model))


def build_tokenizer() -> Tokenizer:
    """A byte a token, and as many words as make the vocabulary a usual one."""
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet())]
    words += [f"Ġw{index:x}" for index in range(_NUM_TOKENS - len(words))]
    backend = Backend(BPE(vocab={word: id_ for id_, word in enumerate(words)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, SpecialTokens({}, frozenset(), None, False))


class SleepingRunner:
    """Describes each step, and sleeps while a model would compute it."""

    num_cold = 0

    def __init__(self, limits: Limits, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        generator = torch.Generator().manual_seed(0)
        logits = 3 * torch.randn(limits.max_num_seqs, _NUM_TOKENS, generator=generator)
        self._logits = ScoreRows.of(logits)

    def run(self, batch: Batch) -> StepResult:
        inputs = describe_step(batch, _BLOCK_SIZE)
        time.sleep(self._step_seconds)
        return StepResult(self._logits.first(inputs.num_sampled))

    def carry(self, token_ids: object) -> None:
        """Nothing is in flight here."""


if __name__ == "__main__":
    serve(float(sys.argv[1]), int(sys.argv[2]))
