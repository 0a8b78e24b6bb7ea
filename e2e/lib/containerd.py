"""The node's images, in containerd: of a changed image, only the changed layers travel to it."""

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import IO, Any

from commands import CommandError, read

Descriptor = dict[str, Any]


class Containerd:
    """One containerd, by its client `ctr`."""

    def __init__(self, *ctr: str) -> None:
        self._ctr = ctr

    def has_image(self, tag: str) -> bool:
        """Say whether an image of that name and tag is there."""
        return tag in read(*self._ctr, "images", "ls", "--quiet").splitlines()

    def find_layers(self) -> dict[str, Descriptor]:
        """Return the layers of Forebay's images as stored, by the digest of their content."""
        layers: dict[str, Descriptor] = {}
        for line in read(*self._ctr, "images", "ls").splitlines():
            tag, _, digest = line.split()[:3]
            if tag.startswith("localhost/forebay-"):
                manifest = self._read_blob(digest)
                config = self._read_blob(manifest["config"]["digest"])
                layers |= zip(config["rootfs"]["diff_ids"], manifest["layers"], strict=True)
        return layers

    def send(self, layout: Path, tag: str, held: dict[str, Descriptor]) -> None:
        """Import the image of an OCI layout, but for the layers that are `held` already."""
        importing = subprocess.Popen(
            [*self._ctr, "images", "import", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        with importing:
            assert importing.stdin and importing.stderr  # both were asked for
            try:
                write_archive(importing.stdin, layout, tag, held)
            except BrokenPipeError:
                pass  # why, it says below
            importing.stdin.close()
            said = importing.stderr.read().decode()
        if importing.returncode != 0:
            raise CommandError(f"containerd did not import {tag}: {said.strip()}")

    def _read_blob(self, digest: str) -> Any:
        return json.loads(read(*self._ctr, "content", "get", digest))


def write_archive(stream: IO[bytes], layout: Path, tag: str, held: dict[str, Descriptor]) -> None:
    """Write an archive of the layout's one image, named `tag`.

    Layers that are `held` are referred to as they are stored there, and left out.
    """
    index = json.loads((layout / "index.json").read_text())
    entry = index["manifests"][0]
    manifest = json.loads(_blob(layout, entry).read_text())
    config = json.loads(_blob(layout, manifest["config"]).read_text())
    contents, written = config["rootfs"]["diff_ids"], manifest["layers"]
    fresh = [layer for layer, content in zip(written, contents, strict=True) if content not in held]
    manifest["layers"] = [
        held.get(content, layer) for layer, content in zip(written, contents, strict=True)
    ]
    raw = json.dumps(manifest).encode()
    entry |= {"digest": f"sha256:{hashlib.sha256(raw).hexdigest()}", "size": len(raw)}
    entry["annotations"] = {"io.containerd.image.name": tag}
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        _add(archive, Path("oci-layout"), b'{"imageLayoutVersion": "1.0.0"}')
        _add(archive, Path("index.json"), json.dumps(index).encode())
        _add(archive, _blob(Path(), entry), raw)
        for descriptor in [manifest["config"], *fresh]:
            archive.add(_blob(layout, descriptor), str(_blob(Path(), descriptor)))


def _blob(layout: Path, descriptor: Descriptor) -> Path:
    return layout / "blobs" / str(descriptor["digest"]).replace(":", "/")


def _add(archive: tarfile.TarFile, path: Path, content: bytes) -> None:
    entry = tarfile.TarInfo(str(path))
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
