"""What travels to a node: of an image, only the layers that the node lacks."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from containerd import write_archive

LAYERS = (b"a large layer that stays", b"our own code")


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def store(layout: Path, content: bytes) -> dict[str, Any]:
    """Put a blob where an OCI layout has it, and describe it."""
    path = layout / "blobs" / digest(content).replace(":", "/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return {"mediaType": "application/test", "digest": digest(content), "size": len(content)}


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """An image of two layers."""
    config = {"rootfs": {"diff_ids": [digest(layer) for layer in LAYERS]}}
    manifest = {
        "config": store(tmp_path, json.dumps(config).encode()),
        "layers": [store(tmp_path, layer) for layer in LAYERS],
    }
    index = {"manifests": [store(tmp_path, json.dumps(manifest).encode())]}
    (tmp_path / "index.json").write_text(json.dumps(index))
    return tmp_path


def read_archive(layout: Path, held: dict[str, dict[str, Any]]) -> dict[str, bytes]:
    stream = io.BytesIO()
    write_archive(stream, layout, "localhost/image:1", held)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        return {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]


def read_manifest(files: dict[str, bytes]) -> dict[str, Any]:
    """Follow the index to the manifest, as containerd does."""
    [entry] = json.loads(files["index.json"])["manifests"]
    raw = files["blobs/" + entry["digest"].replace(":", "/")]
    assert (entry["digest"], entry["size"]) == (digest(raw), len(raw))
    manifest: dict[str, Any] = json.loads(raw)
    return manifest


def test_an_empty_node_gets_every_layer(layout: Path) -> None:
    files = read_archive(layout, held={})

    for layer in read_manifest(files)["layers"]:
        assert "blobs/" + layer["digest"].replace(":", "/") in files


def test_a_layer_that_the_node_holds_stays_behind_and_is_named_as_the_node_stores_it(
    layout: Path,
) -> None:
    compressed = {"mediaType": "application/test+gzip", "digest": digest(b"gz"), "size": 2}

    files = read_archive(layout, held={digest(LAYERS[0]): compressed})

    assert read_manifest(files)["layers"][0] == compressed
    assert LAYERS[0] not in files.values()
    assert LAYERS[1] in files.values()


def test_a_held_layer_may_be_empty_in_the_layout(layout: Path) -> None:
    (layout / "blobs" / digest(LAYERS[0]).replace(":", "/")).write_bytes(b"")
    held = {digest(LAYERS[0]): {"digest": digest(b"gz"), "size": 2}}

    files = read_archive(layout, held)

    assert LAYERS[1] in files.values()


def test_the_image_gets_its_name(layout: Path) -> None:
    [entry] = json.loads(read_archive(layout, held={})["index.json"])["manifests"]

    assert entry["annotations"] == {"io.containerd.image.name": "localhost/image:1"}
