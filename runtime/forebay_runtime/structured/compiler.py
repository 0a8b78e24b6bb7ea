"""From specs to structures: tried out in a process of its own, then built here, and kept a while.

Called by the server on the event loop, which nothing here holds up: spelling, trying and building
run elsewhere. The structures are walked by the engine's thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from llguidance import LLMatcher, LLTokenizer

from forebay_runtime.structured.compiled import Compiled, CompiledCache
from forebay_runtime.structured.limits import (
    MAX_CPU_SECONDS,
    NICENESS,
    QUICK_CPU_SECONDS,
    parser_limits,
)
from forebay_runtime.structured.spec import Kind, StructureError, StructureSpec
from forebay_runtime.structured.trial_process import TooCostly, TrialProcess, Verdict
from forebay_runtime.structured.vocabulary import (
    TokenSpelling,
    Vocabulary,
    build_library_tokenizer,
    read_vocabulary,
)

_NUM_QUICK, _NUM_SLOW = 4, 1
"""Structures that are tried at the same time; others wait their turn."""


class StructureCompiler:
    """Compiles for one model. Its process and threads start with the first structure."""

    def __init__(
        self, tokenizer: TokenSpelling, eos_token_ids: Iterable[int], vocab_size: int
    ) -> None:
        """eos_token_ids: all that end an answer. vocab_size: the model's, padding included."""
        self._tokenizer = tokenizer
        self._eos_token_ids = frozenset(eos_token_ids)
        self._vocab_size = vocab_size
        self._words: tuple[Vocabulary, LLTokenizer] | None = None
        self._trials: TrialProcess | None = None
        self._preparing = asyncio.Lock()
        self._quick_turns = asyncio.Semaphore(_NUM_QUICK)
        self._slow_turns = asyncio.Semaphore(_NUM_SLOW)
        self._threads = ThreadPoolExecutor(_NUM_SLOW + 1, "structure", _yield_to_others)
        self._cache = CompiledCache()
        self._running: dict[bytes, asyncio.Task[Compiled | str]] = {}

    async def prepare(self) -> None:
        """Start all that compiling needs, and compile the simplest structure.

        Called before a server is ready, it makes the first request's structure as quick as others.
        """
        await self.compile(StructureSpec("json_object"))

    @property
    def trial_process_id(self) -> int | None:
        """The process that tries structures out, once it was started."""
        return self._trials.process_id if self._trials is not None else None

    def close(self) -> None:
        """End the process; structures that were compiled go on to work."""
        if self._trials is not None:
            self._trials.close()
            self._trials = None

    async def compile(self, spec: StructureSpec) -> Compiled:
        """Build a structure, or find it built.

        Raises: StructureError with a sentence for the client.
        """
        text = await asyncio.to_thread(spec.to_text)
        key = hashlib.sha256(f"{spec.kind}\0{text}".encode()).digest()
        found = self._cache.find(key)
        if found is None:
            found = await asyncio.shield(self._join(key, spec.kind, text))
        if isinstance(found, str):
            raise StructureError(found)
        return found

    def _join(self, key: bytes, kind: Kind, text: str) -> asyncio.Task[Compiled | str]:
        """The task that compiles this structure, whoever asked for it first."""
        if key not in self._running:
            task = asyncio.create_task(self._compile_and_keep(key, kind, text))
            task.add_done_callback(lambda _: self._running.pop(key))
            self._running[key] = task
        return self._running[key]

    async def _compile_and_keep(self, key: bytes, kind: Kind, text: str) -> Compiled | str:
        """Build a structure; where that cannot be, the sentence that says why is kept as well."""
        built: Compiled | str
        try:
            built = await self._compile(kind, text)
        except StructureError as exc:
            built = str(exc)
            if isinstance(exc, TooCostly) and exc.by_the_clock:
                return built  # the machine was busy; another time it may do
        self._cache.keep(key, built)
        return built

    async def _compile(self, kind: Kind, text: str) -> Compiled:
        """Build a structure in the queue of quick ones, and if it is none in that of slow ones."""
        try:
            async with self._quick_turns:
                return await self._build(await self._try_out(kind, text, QUICK_CPU_SECONDS))
        except TooCostly:
            async with self._slow_turns:
                return await self._build(await self._try_out(kind, text, MAX_CPU_SECONDS))

    async def _try_out(self, kind: Kind, text: str, cpu_seconds: float) -> Verdict:
        for _ in range(2):  # a process that was ended from outside is started anew
            trials = await self._get_ready()
            try:
                return await trials.try_out(kind, text, cpu_seconds)
            except OSError:
                trials.close()
        raise RuntimeError("The process that tries structures out ends as soon as it is started")

    async def _build(self, verdict: Verdict) -> Compiled:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._build_here, verdict)

    async def _get_ready(self) -> TrialProcess:
        async with self._preparing:
            if self._words is None:
                loop = asyncio.get_running_loop()
                self._words = await loop.run_in_executor(self._threads, self._spell)
            if self._trials is not None and not self._trials.is_alive:
                self.close()
            if self._trials is None:
                self._trials = TrialProcess(self._words[0])
            return self._trials

    def _spell(self) -> tuple[Vocabulary, LLTokenizer]:
        vocabulary = read_vocabulary(self._tokenizer, self._eos_token_ids, self._vocab_size)
        return vocabulary, build_library_tokenizer(vocabulary)

    def _build_here(self, verdict: Verdict) -> Compiled:
        if self._words is None:
            raise RuntimeError("structures are built after the vocabulary was spelt")
        vocabulary, tokenizer = self._words
        matcher = LLMatcher(tokenizer, verdict.grammar, log_level=0, limits=parser_limits())
        return Compiled(matcher, vocabulary, verdict.memory_bytes)


def _yield_to_others() -> None:
    """Have the engine's threads go before this one, where processors are scarce."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
