"""An hf:// model is fetched as safetensors and what describes them, from the hub that is named."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from forebay_budget.inspection import ModelError
from forebay_runtime.loading.hub import download_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "pytorch_model.bin": b"code could hide here",
    "modeling_custom.py": b"code",
    "consolidated.safetensors": b"weights again",
    "onnx/model.safetensors": b"another format",
}


class Hub(BaseHTTPRequestHandler):
    """One model, `team/model`, as the hub client asks for it; `team/gated` is gated."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        _, _, name = self.path.partition(f"/team/model/resolve/{COMMIT}/")
        if name in FILES:
            self._answer(200, FILES[name])
        elif self.path.startswith("/api/models/team/model/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": f"{hash(data):x}"}
                for name, data in FILES.items()
            ]
            self._answer(200, json.dumps(tree).encode())
        elif self.path.startswith("/api/models/team/model/"):
            siblings = [{"rfilename": name} for name in FILES]
            listing = {"id": "team/model", "sha": COMMIT, "siblings": siblings}
            self._answer(200, json.dumps(listing).encode())
        else:
            is_gated = "/gated/" in self.path
            self._answer(403 if is_gated else 404, b"", "GatedRepo" if is_gated else "RepoNotFound")

    def _answer(self, status: int, body: bytes, error: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hash(body)}"')
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    yield
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.usefixtures("hub")
def test_only_safetensors_and_what_describes_them_are_fetched() -> None:
    folder = download_model("hf://team/model@main")
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert folder.name == COMMIT


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        pytest.param("hf://team/nothing", "ModelNotFound", id="unknown"),
        pytest.param("hf://team/gated", "AccessDenied", id="gated"),
        pytest.param("hf://model", "BadUri", id="no-organisation"),
    ],
)
def test_what_the_hub_does_not_give_is_refused_with_a_reason(uri: str, reason: str) -> None:
    with pytest.raises(ModelError) as refused:
        download_model(uri)
    assert refused.value.reason == reason


def test_a_hub_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="team/model@main could not be fetched") as refused:
        download_model("hf://team/model")
    assert refused.value.reason == "HubUnreachable"
