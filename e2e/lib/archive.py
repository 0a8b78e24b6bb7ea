"""Moving an image into containerd: of a changed image, only the changed layers travel."""

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from commands import CommandError, read


def send_image(folder: Path, tag: str, ctr: list[str]) -> None:
    """Import the image in `folder` (manifest.json, and blobs by digest) with the client `ctr`.

    The archive leaves out what containerd's content store holds: it need not be whole.
    """
    held = set(read(*ctr, "content", "ls", "--quiet").split())
    importing = subprocess.Popen(
        [*ctr, "images", "import", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with importing:
        assert importing.stdin and importing.stderr  # both were asked for
        try:
            _write_archive(importing.stdin, folder, tag, held)
        except BrokenPipeError:
            pass  # it says why below
        importing.stdin.close()
        said = importing.stderr.read().decode()
    if importing.returncode != 0:
        raise CommandError(f"containerd did not import {tag}: {said.strip()}")


def _write_archive(stream: Any, folder: Path, tag: str, held: set[str]) -> None:
    raw = (folder / "manifest.json").read_bytes()
    manifest = json.loads(raw)
    digest = hashlib.sha256(raw).hexdigest()
    entry = {
        "mediaType": manifest["mediaType"],
        "digest": f"sha256:{digest}",
        "size": len(raw),
        "annotations": {"io.containerd.image.name": tag},
    }
    index = {"schemaVersion": 2, "manifests": [entry]}
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(archive, "index.json", json.dumps(index).encode())
        _add(archive, f"blobs/sha256/{digest}", raw)
        for blob in [manifest["config"], *manifest["layers"]]:
            if blob["digest"] not in held:
                file = folder / blob["digest"].removeprefix("sha256:")
                archive.add(file, f"blobs/sha256/{file.name}")


def _add(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
