"""The client of the API server, against a server that says what the test wants."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException

from forebay_operator.cluster import ApiError
from forebay_operator.kinds import DEPLOYMENT, LEASE, POD
from forebay_operator.kubernetes_cluster import KubernetesCluster
from forebay_operator.lease import LeaseLost

MANIFEST = {"metadata": {"namespace": "team", "name": "llama"}}


def said(status: int, body: Any = None, **headers: str) -> web.Response:
    """An answer; headers are written with "_" for "-"."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return web.json_response(body or {"message": "because"}, status=status, headers=named)


def page(*names: str, more: str = "") -> web.Response:
    items = [{"metadata": {"name": name}} for name in names]
    return said(200, {"metadata": {"resourceVersion": "7", "continue": more}, "items": items})


class World:
    """A server with answers in order, the last of which is repeated, and a client."""

    def __init__(self) -> None:
        self.answers: list[Callable[[], web.StreamResponse]] = [lambda: said(200)]
        self.asked: list[tuple[str, str]] = []
        """Path with query, and token."""
        self.token = "old"
        self.configuration = Configuration()
        self.cluster = KubernetesCluster(self.configuration, self.load)

    async def load(self) -> Configuration:
        if not self.token:
            raise ConfigException("Token file exists but empty.")
        fresh = Configuration()
        fresh.api_key = {"BearerToken": self.token}
        return fresh

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append((request.path_qs, request.headers.get("Authorization", "")))
        return (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    runner = web.ServerRunner(web.Server(world.answer))  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    world.configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    world.configuration.api_key = {"BearerToken": "old"}
    yield world
    await world.cluster.close()
    await runner.cleanup()


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        pytest.param(lambda: said(413, {"message": "too big"}), 413, "too big", id="a refusal"),
        pytest.param(
            lambda: web.Response(status=503, text="busy"), 503, "JSON: busy", id="no JSON"
        ),
        pytest.param(lambda: web.Response(text="<login>"), 502, "<login>", id="some other server"),
    ],
)
async def test_what_is_no_object_is_an_error(
    world: World, answer: Callable[[], web.Response], status: int, message: str
) -> None:
    world.answers = [answer]
    with pytest.raises(ApiError, match=message) as caught:
        await world.cluster.apply(DEPLOYMENT, MANIFEST)
    assert caught.value.status == status


async def test_a_token_that_is_refused_is_read_anew_and_tried_once_more(world: World) -> None:
    world.token = "new"
    world.answers = [lambda: said(401), lambda: said(200)]
    await world.cluster.apply(DEPLOYMENT, MANIFEST)
    assert [token for _, token in world.asked] == ["old", "new"]


@pytest.mark.parametrize("token", ["old", ""], ids=["it is still the same", "it cannot be read"])
async def test_a_token_that_stays_refused_is_an_error(world: World, token: str) -> None:
    world.token = token
    world.answers = [lambda: said(401)]
    with pytest.raises(ApiError) as caught:
        await world.cluster.apply(DEPLOYMENT, MANIFEST)
    assert caught.value.status == 401
    assert len(world.asked) <= 2


async def test_a_pause_that_was_asked_for_holds_for_all_but_the_lease(world: World) -> None:
    world.answers = [lambda: said(429, Retry_After="1"), lambda: said(200)]
    with pytest.raises(ApiError):
        await world.cluster.get(POD, "team", "p")
    asked_at = time.monotonic()
    await world.cluster.get(LEASE, "team", "l")
    leased_at = time.monotonic()
    await world.cluster.get(DEPLOYMENT, "team", "d")
    assert leased_at - asked_at < 1.0 <= time.monotonic() - asked_at + 0.05


@pytest.mark.parametrize("text", ["", "soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT"])
async def test_a_pause_that_nobody_understands_is_none(world: World, text: str) -> None:
    world.answers = [lambda: said(429, Retry_After=text)]
    with pytest.raises(ApiError) as caught:
        await world.cluster.get(POD, "team", "p")
    assert caught.value.retry_after_seconds == 0


async def test_a_list_whose_pages_became_too_old_begins_anew(world: World) -> None:
    world.answers = [
        lambda: page("a", more="next"),
        lambda: said(410),
        lambda: page("a", more="next"),
        lambda: page("b"),
    ]
    listing = await world.cluster.list(POD, "team")
    assert [item["metadata"]["name"] for item in listing.objects] == ["a", "b"]


async def test_a_list_that_is_always_too_old_is_an_error(world: World) -> None:
    world.answers = [lambda: said(410)]
    with pytest.raises(ApiError):
        await world.cluster.list(POD, "team")
    assert len(world.asked) == 3


async def test_nothing_is_sent_once_the_lease_is_lost(world: World) -> None:
    def refuse() -> float:
        raise LeaseLost("gone")

    world.cluster.permit = refuse
    with pytest.raises(LeaseLost):
        await world.cluster.apply(DEPLOYMENT, MANIFEST)
    assert world.asked == []


async def test_a_write_ends_with_the_time_that_the_lease_leaves(world: World) -> None:
    world.cluster.permit = lambda: 1e-6
    with pytest.raises(TimeoutError):
        await world.cluster.apply(DEPLOYMENT, MANIFEST)
