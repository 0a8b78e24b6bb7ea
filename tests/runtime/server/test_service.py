"""A service around the fake engine, in this process."""

import asyncio
import gc

from fake_engine import TEMPLATE, FakeEngine, build_byte_tokenizer
from forebay_runtime.chat_template import ChatTemplate
from forebay_runtime.server.options import ServeOptions
from forebay_runtime.server.service import Model, Service


def load() -> Model:
    tokenizer = build_byte_tokenizer()
    return Model(FakeEngine(), tokenizer, ChatTemplate(TEMPLATE, tokenizer.special.names))


async def start() -> None:
    service = Service(ServeOptions(served_model_name="m"), load)
    service.loop.start()
    while not service.is_warm:
        await asyncio.sleep(0.01)
    assert service.loop.stop(60)


def test_what_was_loaded_is_not_searched_for_garbage_again() -> None:
    gc.unfreeze()
    try:
        asyncio.run(start())
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
