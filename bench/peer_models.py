"""Make the files that against_peers.py serves: one model's weights in each peer's own formats.

    python bench/peer_models.py MODEL.Q4_1.gguf FOLDER [--llama-quantize llama.cpp/…/llama-quantize]

Every server then runs the same weights: those of the 4-bit file, as float32 and rounded to bf16,
as GGUF and as a folder in Hugging Face's layout, and quantised again as Q4_0 (a little worse, but
what llama.cpp has its fastest kernels for). Without llama-quantize only the folders are made.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "e2e/lib"), str(ROOT / "tests/lib")]

import torch  # noqa: E402
from gguf import GGUFReader  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

from transformers_oracle import load_llama  # noqa: E402

_GGUF_KINDS = ("F32", "BF16", "Q4_0")
_FOLDER_KINDS = {"f32": torch.float32, "bf16": torch.bfloat16}


def main() -> None:
    """Write the folder; what is there already is kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gguf", type=Path, help="a Llama-like model as NAME.Q4_1.gguf")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--llama-quantize", type=Path)
    options = parser.parse_args()
    name, _, kind = options.gguf.name.removesuffix(".gguf").rpartition(".")
    options.folder.mkdir(parents=True, exist_ok=True)
    source = options.folder / options.gguf.name
    if not source.exists():
        shutil.copy(options.gguf, source)
    for other in (*_GGUF_KINDS,) if options.llama_quantize else ():
        requantise(options.llama_quantize, source, options.folder / f"{name}.{other}.gguf", other)
    for suffix, dtype in _FOLDER_KINDS.items():
        write_folder(source, options.folder / f"{name}-{suffix}", dtype)
    print(f"{options.folder} holds {name} as {kind} and all that was made of it")


def requantise(llama_quantize: Path, source: Path, target: Path, kind: str) -> None:
    """Another GGUF file of the same weights."""
    if target.exists():
        return
    command = [str(llama_quantize), "--allow-requantize", str(source), str(target), kind]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def write_folder(source: Path, target: Path, dtype: torch.dtype) -> None:
    """The model and its tokenizer as transformers saves them."""
    if (target / "tokenizer_config.json").exists():
        return
    model = load_llama(GGUFReader(source)).to(dtype)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(target)


if __name__ == "__main__":
    main()
