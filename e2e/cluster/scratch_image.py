"""Write an OCI image archive that holds files and nothing else: a program, or a model's weights.

The cluster script packs its pause image with it, and `make model` the model that the kubelet mounts
as an image volume.
"""

import argparse
import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

OCI = "application/vnd.oci.image"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def scratch_image(name: str, files: list[Path], entrypoint: str | None) -> dict[str, bytes]:
    """Return the archive's entries by path: one layer with `files` at the root of the image."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, media_type: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    mode = 0o755 if entrypoint else 0o444
    content = pack({file.name: file.read_bytes() for file in files}, mode)
    layer = blob(content, f"{OCI}.layer.v1.tar")
    config = {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": [entrypoint]} if entrypoint else {},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), f"{OCI}.config.v1+json"),
        "layers": [layer],
    }
    entry = blob(json.dumps(manifest).encode(), f"{OCI}.manifest.v1+json")
    entry["annotations"] = {"io.containerd.image.name": name}
    index = {"schemaVersion": 2, "manifests": [entry]}
    return {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps(index).encode(),
        **blobs,
    }


def pack(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    """Return a tar of `files`; the same files give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def main() -> None:
    """Pack the files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="the image's name, with a tag")
    parser.add_argument("out", type=Path, help="the archive to write")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--entrypoint")
    arguments = parser.parse_args()
    image = scratch_image(arguments.name, arguments.files, arguments.entrypoint)
    arguments.out.write_bytes(pack(image))


if __name__ == "__main__":
    main()
