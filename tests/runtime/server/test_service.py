"""A service around the fake engine, in this process."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from fake_engine import TEMPLATE, FakeEngine, build_byte_tokenizer
from forebay_runtime.chat_template import ChatTemplate
from forebay_runtime.config import EngineConfig
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.server.api.app import build_app
from forebay_runtime.server.errors import Unavailable
from forebay_runtime.server.generation import Telling
from forebay_runtime.server.options import ServeOptions
from forebay_runtime.server.service import Listener, Model, Service, Words
from forebay_runtime.structured import StructureCompiler, StructureSpec
from forebay_runtime.text.tokenizer import TokenizerError
from forebay_runtime.text_parts import read_text_parts
from smollm2 import smollm2_path


def load(template: ChatTemplate | None = None) -> Model:
    tokenizer = build_byte_tokenizer()
    template = template or ChatTemplate(TEMPLATE, tokenizer.special.names)
    return Model(FakeEngine(), tokenizer, template, EngineConfig(Path("fake")))


@asynccontextmanager
async def ready(template: ChatTemplate | None = None, **options: Any) -> AsyncIterator[Service]:
    """A service that became ready."""
    given = {"prepares_structures": False} | options
    service = Service(ServeOptions(served_model_name="m", **given), lambda listener: load(template))
    service.loop.start()
    while not service.lifecycle.is_ready:
        await asyncio.sleep(0.01)
    yield service
    service.close()
    assert service.loop.stop(60)


class SlowTemplate(ChatTemplate):
    """Takes until it is let go."""

    def __init__(self) -> None:
        super().__init__(None, {})
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def render(self, *_: Any, **__: Any) -> str:
        self.has_begun.set()
        assert self.may_end.wait(60)
        return "ab"


async def start() -> None:
    async with ready():
        pass


def test_what_was_loaded_is_not_searched_for_garbage_again() -> None:
    gc.unfreeze()
    try:
        asyncio.run(start())
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()


async def test_structured_output_is_prepared_while_weights_are_read() -> None:
    compiled: list[StructureCompiler] = []

    def load_slowly(listener: Listener) -> Model:
        model = load()
        listener.on_words(Words(model.tokenizer, frozenset({0}), model.engine.vocab_size))
        while not compiled:
            time.sleep(0.01)
        return model

    service = Service(ServeOptions("m"), load_slowly)
    service.loop.start()
    async with asyncio.timeout(60):
        while not compiled:
            await asyncio.sleep(0.01)
            with suppress(Unavailable):  # until the words are known
                if service.structures.trial_process_id is not None:
                    compiled.append(service.structures)
        while not service.lifecycle.is_ready:
            await asyncio.sleep(0.01)
    service.close()
    assert service.loop.stop(60)
    assert compiled == [service.structures]


@pytest.mark.parametrize("seed", [None, 3], ids=["chance", "seed"])
async def test_seeds_come_from_the_servers_own_where_it_has_one(seed: int | None) -> None:
    drawn = []
    for _ in range(2):
        async with ready(seed=seed) as service:
            drawn.append([service.draw_seed() for _ in range(3)])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == (1 if seed is None else 3)


async def test_a_ready_server_has_its_vocabulary_spelt() -> None:
    async with ready(prepares_structures=True) as service:
        compiled = await service.structures.compile(StructureSpec("choice", ["a", "b"]))
        assert not compiled.start().is_complete


async def test_prompts_of_one_request_count_their_own_choices() -> None:
    async with ready() as service:
        requests = [Request(str(n), [1], SamplingParams(max_tokens=1)) for n in range(4)]
        for generation in service.submit(requests, Telling(), n=2):
            generation.close()
        text = service.metrics.to_text().decode()
        assert 'vllm:request_params_n_sum{engine="0",model_name="m"} 4.0' in text


async def test_a_slow_template_holds_up_only_the_chat_that_it_renders() -> None:
    template = SlowTemplate()
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    async with (
        ready(template) as service,
        httpx.AsyncClient(transport=httpx.ASGITransport(build_app(service))) as client,
    ):
        chat = asyncio.create_task(client.post("http://m/v1/chat/completions", json=body))
        await asyncio.to_thread(template.has_begun.wait, 60)
        assert (await client.get("http://m/v1/models")).status_code == 200
        assert not chat.done()
        template.may_end.set()
        assert (await chat).json()["choices"][0]["message"]["content"] == "ab"


def test_a_template_file_is_taken_instead_of_the_models_own(tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text("{{ messages[0].content }}!")
    _, template = read_text_parts(smollm2_path(), path)
    assert template.source == "{{ messages[0].content }}!"


def test_a_template_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match=r"--chat-template .*own\.jinja"):
        read_text_parts(smollm2_path(), path)
