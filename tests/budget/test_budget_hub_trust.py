"""A hub whose certificate no public authority signed is trusted by the file that a pod is given."""

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_hub import COMMIT, FakeHub, serve_hub
from model_files import TINY_LLAMA, write_hf_model

INSPECTION = ("-m", "forebay_budget", "inspect", "hf://team/model@main")
DOWNLOAD = (
    "-c",
    "import huggingface_hub as hub; print(hub.model_info('team/model', revision='main'))",
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 with its key, signed by nobody else."""
    folder = tmp_path_factory.mktemp("certificate")
    made = folder / "ca.crt"
    request = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hub")
    files = ("-keyout", folder / "key", "-out", made, "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run(["openssl", *request, *files], check=True, capture_output=True)
    made.write_text(made.read_text() + (folder / "key").read_text())
    return made


@pytest.fixture
def hub(certificate: Path, tmp_path: Path) -> Iterator[FakeHub]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serve_hub(write_hf_model(tmp_path, TINY_LLAMA), tls=context) as hub:
        yield hub


def run(hub: FakeHub, program: tuple[str, ...], trusted: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"HF_ENDPOINT": hub.url, "NO_PROXY": "*", "SSL_CERT_FILE": trusted}
    command = [sys.executable, *program]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("program", [INSPECTION, DOWNLOAD], ids=["inspection", "download"])
def test_a_private_hub_is_read_with_its_certificate_and_refused_without(
    hub: FakeHub, certificate: Path, program: tuple[str, ...]
) -> None:
    trusted = run(hub, program, str(certificate))
    refused = run(hub, program, "")

    assert COMMIT in trusted.stdout, trusted.stderr
    assert refused.returncode != 0
    assert "certificate" in refused.stderr.lower() + refused.stdout.lower()
