"""Images built without Docker: by buildah, on a base that debootstrap makes."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from commands import read, run
from home import HOME, REPOSITORY

PACKAGES = ("buildah", "debootstrap")
SUITE = "bookworm"
BASE = f"localhost/forebay-base:{SUITE}"
_IMAGES = HOME / "images"
_BUILDAH = ("buildah", "--root", _IMAGES / "storage", "--runroot", _IMAGES / "run")


def has_image(tag: str) -> bool:
    """Say whether an image of that tag was built."""
    found = subprocess.run([*_BUILDAH, "inspect", "--type", "image", tag], capture_output=True)
    return found.returncode == 0


def build(target: str, tag: str, device: str = "cpu") -> None:
    """Build a target of the Containerfile; for a CPU without what that never opens."""
    if not has_image(BASE):
        _build_base()
    arguments = ["--isolation", "chroot", "--layers", "--target", target, "--tag", tag]
    arguments += ["--build-arg", f"BASE={BASE}", "--build-arg", f"DEVICE={device}"]
    certificates = find_certificates()
    if certificates:
        arguments += ["--secret", f"id=ca,src={certificates}"]
    run(*_BUILDAH, "bud", *arguments, "-f", REPOSITORY / "Containerfile", REPOSITORY, log="images")


@contextmanager
def exported(tag: str, held: Iterable[str]) -> Iterator[Path]:
    """Give an OCI layout with the image, as long as needed; layers that are `held` are left empty.

    buildah writes no layer that the layout has, and a layer's file of that name is all it looks at.
    """
    with tempfile.TemporaryDirectory(dir=_IMAGES) as folder:
        blobs = Path(folder) / "blobs/sha256"
        blobs.mkdir(parents=True)
        for digest in held:
            (blobs / digest.removeprefix("sha256:")).touch()
        run(*_BUILDAH, "push", "--quiet", tag, f"oci:{folder}", log="images")
        yield Path(folder)


@contextmanager
def mounted(tag: str) -> Iterator[Path]:
    """Give an image's root file system, as long as needed."""
    container = read(*_BUILDAH, "from", tag).strip()
    try:
        yield Path(read(*_BUILDAH, "mount", container).strip())
    finally:
        run(*_BUILDAH, "rm", container, log="images")


def find_certificates() -> str | None:
    """Return the file of certificates that pip was told to trust on this machine, if any."""
    told = os.environ.get("PIP_CERT")
    if not told:
        asked = subprocess.run(
            ["python3", "-m", "pip", "config", "get", "global.cert"],
            capture_output=True,
            text=True,
            check=False,
        )
        told = asked.stdout.strip()
    return told if told and Path(told).is_file() else None


def _build_base() -> None:
    rootfs = _IMAGES / "rootfs"
    shutil.rmtree(rootfs, ignore_errors=True)  # of a build that was cut short
    rootfs.parent.mkdir(parents=True, exist_ok=True)
    wanted = "--include=python3,python3-venv,ca-certificates"
    run("debootstrap", "--variant=minbase", wanted, SUITE, rootfs, log="images")
    for cache in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(rootfs / cache)
    container = read(*_BUILDAH, "from", "scratch").strip()
    run(*_BUILDAH, "add", "--quiet", container, rootfs, "/", log="images")
    run(*_BUILDAH, "commit", "--quiet", "--rm", container, BASE, log="images")
    shutil.rmtree(rootfs)
