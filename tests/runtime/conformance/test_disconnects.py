"""A client that goes away: its request is gone, its blocks are free, and metrics count an abort."""

import asyncio
from typing import Any

import httpx
import pytest

from server_metrics import read_metrics, wait_for_rest
from server_process import ServerProcess

pytestmark = pytest.mark.component
LONG: dict[str, Any] = {
    "prompt": "Once upon a time",
    "max_tokens": 900,
    "ignore_eos": True,
    "temperature": 1,
}
PATIENCE_SECONDS = 60.0
ABORTED = 'vllm:request_success_total{finished_reason="abort"}'


async def wait_for_load(url: str, num_requests: int) -> None:
    """Wait until the server holds so many requests."""
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as watching:
        async with asyncio.timeout(PATIENCE_SECONDS):
            load = {"running": 0, "waiting": 0}
            while load["running"] + load["waiting"] < num_requests:
                await asyncio.sleep(0.02)
                load = (await watching.get("/load")).json()


async def start_and_leave(
    url: str, path: str, body: dict[str, Any], num_requests: int, num_bytes: int
) -> None:
    """Send requests, read so many bytes of the answers where they stream, and close."""
    async with httpx.AsyncClient(
        base_url=url, timeout=PATIENCE_SECONDS, limits=httpx.Limits(max_connections=None)
    ) as leaving:

        async def ask() -> None:
            async with leaving.stream("POST", path, json=body) as response:
                num_read = 0
                async for chunk in response.aiter_bytes():
                    num_read += len(chunk)
                    if num_read >= num_bytes:
                        return

        tasks = [asyncio.create_task(ask()) for _ in range(num_requests)]
        if num_bytes:
            await asyncio.gather(*tasks)
            return
        await wait_for_load(url, num_requests)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("path", "fields", "num_requests", "num_bytes"),
    [
        pytest.param("/v1/completions", {"stream": True}, 1, 1, id="a stream"),
        pytest.param("/v1/completions", {}, 1, 0, id="a whole answer"),
        pytest.param("/v1/completions", {}, 24, 0, id="more than run at once"),
        pytest.param("/v1/completions", {"stream": True}, 8, 1, id="eight streams"),
        pytest.param("/v1/completions", {"n": 4, "stream": True}, 2, 1, id="several choices"),
        pytest.param(
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "Tell a long story."}], "stream": True},
            2,
            1,
            id="chats",
        ),
    ],
)
async def test_whoever_leaves_costs_nothing_more(
    server: ServerProcess,
    http: httpx.Client,
    path: str,
    fields: dict[str, Any],
    num_requests: int,
    num_bytes: int,
) -> None:
    before = read_metrics(http)
    body = LONG | fields
    if "messages" in fields:
        del body["prompt"]
    await start_and_leave(server.url, path, body, num_requests, num_bytes)
    after = wait_for_rest(http)
    num_choices = fields.get("n", 1)
    assert after[ABORTED] - before.get(ABORTED, 0) == num_requests * num_choices


async def test_those_who_stay_are_answered(server: ServerProcess, http: httpx.Client) -> None:
    body = {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    alone = http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_SECONDS) as staying:
        asked = [asyncio.create_task(staying.post("/v1/completions", json=body)) for _ in range(4)]
        await start_and_leave(server.url, "/v1/completions", LONG | {"stream": True}, 4, 1)
        answers = [(await one).json()["choices"][0]["text"] for one in asked]
    assert answers == [alone] * 4
