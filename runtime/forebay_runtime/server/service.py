"""The one object that the endpoints work on: the model, the engine's thread, and the counts.

Made once a process, on the asyncio loop. The model's parts are there once it has been loaded; the
front lets no request in before.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from forebay_runtime.chat_template import ChatTemplate
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import EngineLike
from forebay_runtime.request import Request
from forebay_runtime.server.connection import Connection
from forebay_runtime.server.engine_loop import Callbacks, EngineLoop, OnLoss
from forebay_runtime.server.errors import ModelNotFound, Unavailable
from forebay_runtime.server.event_stream import Manners
from forebay_runtime.server.generation import Generation, Telling, Workshop
from forebay_runtime.server.last_words import is_for_people
from forebay_runtime.server.lifecycle import Lifecycle, Phase
from forebay_runtime.server.metrics.engine_figures import Gauges
from forebay_runtime.server.metrics.gpu_figures import open_nvml
from forebay_runtime.server.metrics.gpu_utilization import GpuUtilization
from forebay_runtime.server.metrics.server_metrics import ServerMetrics
from forebay_runtime.server.options import ServeOptions
from forebay_runtime.server.output_stream import Deadline
from forebay_runtime.server.queue_gate import QueueGate
from forebay_runtime.structured import StructureCompiler
from forebay_runtime.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Model:
    """What loading gives: an engine as configured, and what turns text into tokens and back."""

    engine: EngineLike
    tokenizer: Tokenizer
    template: ChatTemplate
    config: EngineConfig


@dataclass(frozen=True)
class Words:
    """What is known of a model's tokens before its weights are read.

    end_ids: those that end an answer. vocab_size: the model's, padding included.
    """

    tokenizer: Tokenizer
    end_ids: frozenset[int]
    vocab_size: int


@dataclass(frozen=True)
class Listener:
    """Whom a load tells, on any thread: what the model's words are, and that its engine is lost."""

    on_words: Callable[[Words], None]
    on_loss: OnLoss


class Service:
    """One model being served."""

    def __init__(self, options: ServeOptions, load: Callable[[Listener], Model]) -> None:
        """load runs on the engine's thread, when start is called; see EngineLoop."""
        self.options = options
        self.lifecycle = Lifecycle(options)
        self.connections: Iterable[Connection] = ()
        self.failure: BaseException | None = None
        self.created = int(time.time())
        self._load = load
        self._seeds = None if options.seed is None else random.Random(options.seed)
        self._model: Model | None = None
        self._engine: EngineLike | None = None  # once warm
        self._gpus: GpuUtilization | None = None
        self._structures: StructureCompiler | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        callbacks = Callbacks(
            self._on_warm, self._on_failure, lambda load: self.metrics.observe_step(load)
        )
        self.loop = EngineLoop(self._load_engine, callbacks, options.min_stall_seconds)
        self.metrics = ServerMetrics(
            options.served_model_name, Gauges(self.loop.load_now, lambda: self._engine)
        )
        self.manners = Manners(options.keep_alive_seconds, self.metrics.count_error)
        self._gate = QueueGate(options, self.loop, self.metrics.count_rejected)

    def _load_engine(self, on_loss: OnLoss) -> EngineLike:
        self._model = self._load(Listener(self._on_words, on_loss))
        return self._model.engine

    def _on_words(self, words: Words) -> None:
        self.loop.post(self._begin_structures, words)

    def _begin_structures(self, words: Words) -> None:
        """Prepare structured output while the engine's thread reads weights."""
        if self.options.prepares_structures:
            self._structures = StructureCompiler(words.tokenizer, words.end_ids, words.vocab_size)
            self._preparing = asyncio.create_task(self._prepare_structures())

    def _on_warm(self, engine: EngineLike) -> None:
        self._engine = engine
        # What is here now stays: to look through it for garbage, time and again while a large
        # request is read, would cost five times what the reading does.
        gc.collect()
        gc.freeze()
        config, num_kv_tokens = self.model.config, self.loop.load_now().free_kv_tokens
        self.metrics.begin(engine.max_model_len, _cache_labels(config, num_kv_tokens))
        self.metrics.observe_warmup(self.loop.warmup_seconds)
        if nvml := open_nvml():
            self.metrics.watch_gpus(nvml)
            self._gpus = GpuUtilization(nvml)
        self._begin(self._become_ready(num_kv_tokens))

    async def _become_ready(self, num_kv_tokens: int) -> None:
        if self.options.prepares_structures:
            await (self._preparing or self._prepare_structures())
        self.metrics.observe_start(seconds := time.monotonic() - self.options.started_at)
        self.lifecycle.become_ready()
        config = self.model.config
        logger.info(
            "Became ready seconds=%.1f max_model_len=%d kv_cache_tokens=%d max_num_seqs=%d "
            "max_num_batched_tokens=%d prefix_caching=%s policy=%s batch_invariant=%s",
            seconds,
            self.model.engine.max_model_len,
            num_kv_tokens,
            self.options.max_num_seqs,
            config.max_num_batched_tokens,
            config.enable_prefix_caching,
            config.scheduling_policy,
            config.batch_invariant,
        )

    async def _prepare_structures(self) -> None:
        """Spell the vocabulary, so that the first structure costs no more than the next."""
        try:
            await self.structures.prepare()
        except Exception:  # everything else works without, and it may work once it is needed
            logger.exception("Prepared no structured output")

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_failure(self, cause: BaseException) -> None:
        self.failure = cause
        if not self.was_refused:
            logger.error("Lost the engine", exc_info=None if is_for_people(cause) else cause)
        self._begin(self.lifecycle.fail())

    @property
    def model(self) -> Model:
        """The model's parts.

        Raises: Unavailable before it was loaded.
        """
        if self._model is None:
            raise Unavailable("The model is being loaded", code="loading", retry_after_seconds=5)
        return self._model

    @property
    def structures(self) -> StructureCompiler:
        """Compiles the forms that answers are held to."""
        if self._structures is None:
            vocab_size = self.model.engine.vocab_size
            self._structures = StructureCompiler(self.model.tokenizer, self.end_ids, vocab_size)
        return self._structures

    def close(self) -> None:
        """End what was begun beside the engine."""
        if self._structures is not None:
            self._structures.close()

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return self.model.tokenizer.eos_token_ids | self.model.engine.eos_token_ids

    @property
    def is_warm(self) -> bool:
        """Has warm-up ended?"""
        return self._engine is not None

    @property
    def was_refused(self) -> bool:
        """Did the start end with a sentence that says all: the last words?"""
        return self.failure is not None and not self.is_warm and is_for_people(self.failure)

    @property
    def warm_engine(self) -> EngineLike | None:
        """The engine, once it is warm."""
        return self._engine

    def gpu_utilization(self) -> float | None:
        """How busy the GPUs are, from 0 to 1; None on a CPU, and where no GPU tells."""
        is_on_gpu = self._engine is not None and self._engine.device == "cuda"
        return self._gpus.read() if self._gpus is not None and is_on_gpu else None

    @property
    def is_healthy(self) -> bool:
        """Does the engine make progress, or is it still on its way to?"""
        return self.lifecycle.phase is not Phase.FAILED and not self.is_stalled

    @property
    def is_stalled(self) -> bool:
        """Is a step stuck?"""
        return self.loop.is_stalled

    def draw_seed(self) -> int | None:
        """The seed of a request that came without one; None is chance, without --seed."""
        return None if self._seeds is None else self._seeds.getrandbits(63)

    def cut_all(self) -> int:
        """End every answer with an error; returns how many there were."""
        error = Unavailable(
            "The server shut down before this answer was complete",
            code="shutdown",
            retry_after_seconds=1,
        )
        num_cut = self.loop.cut_all(error)
        self.metrics.count_cut(num_cut)
        return num_cut

    def check_model_name(self, name: str | None) -> None:
        """Serve only the one model there is; no name means that one.

        Raises: ModelNotFound.
        """
        if name is not None and name != self.options.served_model_name:
            raise ModelNotFound(
                f"The model {name[:128]!r} does not exist; this server has "
                f"{self.options.served_model_name!r}",
                param="model",
                code="model_not_found",
            )

    def check_queue(self, num_requests: int) -> None:
        """Say no to requests as long as nothing was done for them yet; submit asks once more.

        Raises: QueueFull.
        """
        self._gate.check(num_requests, num_tokens=0)

    def submit(
        self,
        requests: list[Request],
        telling: Telling,
        n: int = 1,
        timeout_seconds: float | None = None,
    ) -> list[Generation]:
        """Hand requests to the engine, all or none; each n in a row answer the same prompt.

        timeout_seconds: what the client allows; --max-request-seconds bounds it.
        Raises: QueueFull.
        """
        self._gate.check(len(requests), sum(len(each.prompt_token_ids) for each in requests))
        limits = (timeout_seconds, self.options.max_request_seconds)
        timeout = min((seconds for seconds in limits if seconds is not None), default=None)
        deadline = None if timeout is None else Deadline.after(timeout)
        workshop = Workshop(self.loop, self._gate, self.model.tokenizer)
        records = self.metrics.open_requests(requests, n)
        return [
            Generation(workshop, request, telling, record, deadline)
            for request, record in zip(requests, records, strict=True)
        ]


def _cache_labels(config: EngineConfig, num_kv_tokens: int) -> dict[str, str]:
    """What vllm:cache_config_info says, in vLLM's words."""
    labels = {
        "block_size": config.block_size,
        "cache_dtype": config.kv_cache_dtype,
        "enable_prefix_caching": config.enable_prefix_caching,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "kv_cache_memory_bytes": config.kv_cache_memory_bytes,
        "kv_cache_size_tokens": num_kv_tokens,
        "num_gpu_blocks": num_kv_tokens // config.block_size,
    }
    return {name: str(value) for name, value in labels.items()}
