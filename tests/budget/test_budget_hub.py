"""Inspecting over HTTP: ranges alone, the token kept home, and a reason for each failure."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_hub import COMMIT, FakeHub, serve_hub
from forebay_budget.checkpoint import inspect_model
from forebay_budget.hub import HubFolder, HubModel, parse_hub_uri
from forebay_budget.hub_client import HubClient
from forebay_budget.inspection import ModelError
from model_files import TINY_LLAMA, gguf_bytes, tiny_gguf, write_hf_model

URI = "hf://team/model"
LARGE = TINY_LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 32000}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_ENDPOINT", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def point_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeHub], None]:
    return lambda hub: monkeypatch.setenv("HF_ENDPOINT", hub.url)


def open_folder(hub: FakeHub, **options: Any) -> HubFolder:
    client = HubClient(hub.url, retry_delays_seconds=(0, 0), **options)
    return HubFolder(HubModel("team/model"), client)


def test_a_model_of_gigabytes_is_inspected_from_kilobytes(
    tmp_path: Path, point_to: Callable[[FakeHub], None]
) -> None:
    local = inspect_model(write_hf_model(tmp_path, LARGE, num_shards=3))
    with serve_hub(tmp_path) as hub:
        point_to(hub)
        remote = inspect_model(URI)

    assert remote.config == local.config
    assert remote.weights == local.weights
    assert remote.weights_bytes > 10**9
    assert remote.revision == COMMIT
    assert hub.bytes_sent < 3 * 64 * 1024 + 8 * 1024
    assert all("Range" in headers for path, headers in hub.requests if "/resolve/" in path)


def test_a_header_longer_than_the_first_range_is_fetched_once_more(
    tmp_path: Path, point_to: Callable[[FakeHub], None]
) -> None:
    write_hf_model(tmp_path, TINY_LLAMA | {"num_hidden_layers": 120})
    with serve_hub(tmp_path) as hub:
        point_to(hub)
        inspection = inspect_model(URI)

    assert inspection.config.num_layers == 120
    ranges = [h["Range"] for path, h in hub.requests if path.endswith("/model.safetensors")]
    assert len(ranges) == 2
    assert ranges[1].startswith("bytes=65536-")


def test_files_are_read_at_the_commit_that_the_revision_named_first(
    tmp_path: Path, point_to: Callable[[FakeHub], None]
) -> None:
    write_hf_model(tmp_path)
    with serve_hub(tmp_path) as hub:
        point_to(hub)
        inspect_model(URI)

    paths = [path for path, _ in hub.requests]
    assert paths[0] == "/api/models/team/model/revision/main"
    assert all(path.startswith(f"/team/model/resolve/{COMMIT}/") for path in paths[1:])


def test_a_redirect_to_storage_is_followed_without_the_token(
    tmp_path: Path, point_to: Callable[[FakeHub], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hf_model(tmp_path)
    monkeypatch.setenv("HF_TOKEN", " secret \n")
    with (
        serve_hub(tmp_path) as storage,
        serve_hub(tmp_path, token="secret", storage_url=storage.url) as hub,
    ):
        point_to(hub)
        inspection = inspect_model(URI)

    assert inspection.config.num_layers == 2
    assert all(headers["Authorization"] == "Bearer secret" for _, headers in hub.requests)
    assert len(storage.requests) == 2
    assert not any("Authorization" in headers for _, headers in storage.requests)
    assert all("Range" in headers for _, headers in storage.requests)


@pytest.mark.parametrize(
    ("status", "headers", "reason", "complaint"),
    [
        pytest.param(401, {}, "AuthenticationRequired", "no token was given", id="401"),
        pytest.param(403, {}, "AccessDenied", "no right to read", id="403"),
        pytest.param(403, {"X-Error-Code": "GatedRepo"}, "AccessDenied", "gated", id="403, gated"),
        pytest.param(404, {}, "ModelNotFound", "has no team/model@main", id="404"),
        pytest.param(
            404,
            {"X-Error-Code": "RevisionNotFound"},
            "RevisionNotFound",
            "but not team/model@main",
            id="404 of a revision",
        ),
        pytest.param(418, {}, "HubError", "answered 418", id="a status of no meaning here"),
    ],
)
def test_each_refusal_has_its_reason_and_is_not_retried(
    tmp_path: Path, status: int, headers: dict[str, str], reason: str, complaint: str
) -> None:
    with (
        serve_hub(tmp_path, failures=[(status, headers)]) as hub,
        pytest.raises(ModelError, match=complaint) as caught,
    ):
        open_folder(hub)

    assert caught.value.reason == reason
    assert len(hub.requests) == 1


def test_a_refused_token_is_told_from_a_missing_one(tmp_path: Path) -> None:
    with (
        serve_hub(tmp_path, token="right") as hub,
        pytest.raises(ModelError, match="refused the token") as caught,
    ):
        open_folder(hub, token="wrong")

    assert caught.value.reason == "AuthenticationRequired"
    assert "wrong" not in caught.value.message


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_tried_again(tmp_path: Path, status: int) -> None:
    write_hf_model(tmp_path)
    with serve_hub(tmp_path, failures=[(status, {}), (status, {})]) as hub:
        assert open_folder(hub).revision == COMMIT

    assert len(hub.requests) == 3


def test_a_lasting_failure_is_given_up_with_its_status(tmp_path: Path) -> None:
    with (
        serve_hub(tmp_path, failures=[(503, {})] * 9) as hub,
        pytest.raises(ModelError, match="answered 503") as caught,
    ):
        open_folder(hub)

    assert caught.value.reason == "HubError"
    assert len(hub.requests) == 3


def test_a_hub_that_does_not_answer_is_a_timeout_and_not_tried_again(tmp_path: Path) -> None:
    with (
        serve_hub(tmp_path, is_silent=True) as hub,
        pytest.raises(ModelError, match="no answer about team/model@main in 0.2 s") as caught,
    ):
        open_folder(hub, request_seconds=0.2)

    assert caught.value.reason == "HubTimeout"
    assert len(hub.requests) == 1


def test_a_hub_that_is_not_there_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(ModelError, match="cannot be reached") as caught:
        HubFolder(HubModel("team/model"), HubClient(endpoint, retry_delays_seconds=()))

    assert caught.value.reason == "HubUnreachable"


def test_a_connection_that_breaks_off_is_tried_again_and_then_unreachable(tmp_path: Path) -> None:
    write_hf_model(tmp_path)
    with serve_hub(tmp_path) as hub:
        folder = open_folder(hub)
        hub.sends_short = True
        with pytest.raises(ModelError, match="closed early") as caught:
            folder.open("config.json").read(0, 100)

    assert caught.value.reason == "HubUnreachable"
    assert len(hub.requests) == 1 + 3


def test_a_hub_without_ranges_is_read_no_further_than_asked(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(bytes(10**6))
    (tmp_path / "model.safetensors").write_bytes(bytes(10))
    with serve_hub(tmp_path, ignores_ranges=True) as hub:
        source = open_folder(hub).open("config.json")

        assert source.read(0, 10) == bytes(10)
        assert source.size() == 10**6
        with pytest.raises(ModelError, match="does not serve ranges"):
            source.read(10, 10)


def test_reading_past_the_end_gives_what_there_is(tmp_path: Path) -> None:
    write_hf_model(tmp_path)
    size = (tmp_path / "config.json").stat().st_size
    with serve_hub(tmp_path) as hub:
        source = open_folder(hub).open("config.json")

        assert len(source.read(size - 3, 100)) == 3
        assert source.read(size, 100) == b""
        assert source.size() == size


@pytest.mark.parametrize(
    ("names", "reason", "complaint"),
    [
        pytest.param(["model.gguf"], "NoSafetensors", "oci://", id="GGUF alone"),
        pytest.param(
            ["config.json", "pytorch_model.bin"],
            "NoSafetensors",
            "can run code",
            id="pickled weights alone",
        ),
        pytest.param(["README.md"], "NotAModel", "is no model", id="something else"),
    ],
)
def test_a_repository_without_safetensors_is_refused(
    tmp_path: Path, names: list[str], reason: str, complaint: str
) -> None:
    for name in names:
        (tmp_path / name).write_bytes(gguf_bytes(*tiny_gguf()))
    with serve_hub(tmp_path) as hub, pytest.raises(ModelError, match=complaint) as caught:
        open_folder(hub)

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "listing",
    [
        pytest.param("not json", id="no JSON"),
        pytest.param("[]", id="a list"),
        pytest.param(json.dumps({"sha": "../..", "siblings": []}), id="a commit that is a path"),
        pytest.param(json.dumps({"sha": COMMIT, "siblings": [7]}), id="files that are numbers"),
    ],
)
def test_an_answer_that_is_no_hubs_is_refused(tmp_path: Path, listing: str) -> None:
    with serve_hub(tmp_path, listing=listing) as hub, pytest.raises(ModelError) as caught:
        open_folder(hub)

    assert caught.value.reason == "HubError"


@pytest.mark.parametrize("endpoint", ["huggingface.co", "file:///etc/passwd", "http://"])
def test_an_endpoint_that_is_no_http_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ModelError, match="is no http:// address"):
        HubClient(endpoint)


def test_addresses_are_read() -> None:
    assert parse_hub_uri("hf://HuggingFaceTB/SmolLM2-135M-Instruct") == HubModel(
        "HuggingFaceTB/SmolLM2-135M-Instruct", "main"
    )
    assert parse_hub_uri("hf://a/b@refs/pr/1") == HubModel("a/b", "refs/pr/1")


@pytest.mark.parametrize(
    ("revision", "commit"),
    [("dev", "b" * 40), ("v1.0", "c" * 40), ("d" * 40, "d" * 40)],
    ids=["a branch", "a tag", "a commit"],
)
def test_every_revision_is_read_at_its_commit(
    tmp_path: Path, point_to: Callable[[FakeHub], None], revision: str, commit: str
) -> None:
    write_hf_model(tmp_path)
    with serve_hub(tmp_path, revisions={revision: commit}) as hub:
        point_to(hub)
        assert inspect_model(f"{URI}@{revision}").revision == commit

    paths = [path for path, _ in hub.requests if "/resolve/" in path]
    assert paths and all(path.startswith(f"/team/model/resolve/{commit}/") for path in paths)
