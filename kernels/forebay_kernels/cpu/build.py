"""Compiles the CPU's kernels into one shared library beside this file.

Called by the wheel's build, and by hand after a change of the sources: `python …/cpu/build.py`.
Only the standard library, and imported by its path: at a wheel's build nothing of ours is there.

Every source in native/ is compiled once, for any processor of the machine's kind; every one in
native/isa/ once for each set of instructions in ISAS, with FOREBAY_ISA as its name. Objects are
kept, for all checkouts of this user where FOREBAY_HOME is there (~/.cache/forebay), and compiled
again only when a source, a flag or the compiler changes.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "native"
LIBRARY = HERE / "_native.so"
_KEPT_SECONDS = 7 * 24 * 3600
"""How long an object is kept that nothing was linked of."""

_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")
_VNNI = (*_AVX512, "-mavx512vnni")
ISAS: dict[str, tuple[str, ...]] = {
    "portable": (),
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512_vnni": _VNNI,
    "avx512_bf16": (*_VNNI, "-mavx512bf16"),
}
"""From the least to the most, each with its compiler flags; all but the first are of x86-64."""

_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti")
# An order of additions is part of a kernel's promise, so nothing may be contracted or reordered.
_EXACT = ("-ffp-contract=off",)
# Warnings stop this build alone: a user's compiler may know more of them than ours.
_SANITIZE = (
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1"),
    *("-Wall", "-Wextra", "-Werror"),
)


class CannotBuild(Exception):
    """There is no library to be had; the message says why."""


@dataclass(frozen=True)
class Unit:
    """A source to compile, and how."""

    source: Path
    flags: tuple[str, ...]
    name: str


def build(*, is_sanitized: bool = False) -> Path:
    """Bring the library up to date.

    Raises: CannotBuild where there is no compiler, or it fails.
    """
    compiler = find_compiler()
    extra = _SANITIZE if is_sanitized else ()
    units = list(_units(compiler, extra))
    folder = _objects_folder()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = list(pool.map(lambda unit: _compile(compiler, unit, folder), units))
    _link(compiler, objects, extra)
    _forget_stale(folder)
    return LIBRARY


def find_compiler() -> str:
    """$CXX, or the first of the usual names that is there.

    Raises: CannotBuild.
    """
    asked = os.environ.get("CXX")
    for name in [asked] if asked else ["c++", "g++", "clang++"]:
        path = shutil.which(name)
        if path is not None:
            return path
    what = f"the one that CXX names, {asked}," if asked else "c++, g++ or clang++"
    raise CannotBuild(f"There is no C++ compiler: {what} was looked for in PATH.")


def _units(compiler: str, extra: tuple[str, ...]) -> Iterator[Unit]:
    for source in sorted(SOURCES.glob("*.cpp")):
        yield Unit(source, (*_FLAGS, *_EXACT, *_known_isas(compiler), *extra), source.stem)
    for isa in _compiled_isas(compiler):
        flags = (*_FLAGS, *_EXACT, *ISAS[isa], f"-DFOREBAY_ISA={isa}", *extra)
        for source in sorted((SOURCES / "isa").glob("*.cpp")):
            yield Unit(source, flags, f"{source.stem}-{isa}")


def _compiled_isas(compiler: str) -> list[str]:
    """Those that the machine's kind has and the compiler knows."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["portable"]
    return [isa for isa, flags in ISAS.items() if _takes(compiler, flags)]


def _known_isas(compiler: str) -> list[str]:
    """Tells the sources that are compiled once which of the others there are."""
    return [f"-DFOREBAY_HAS_{isa.upper()}" for isa in _compiled_isas(compiler)]


def _takes(compiler: str, flags: Sequence[str]) -> bool:
    command = [compiler, *flags, "-x", "c++", "-E", "-o", os.devnull, os.devnull]
    return subprocess.run(command, capture_output=True).returncode == 0


def _objects_folder() -> Path:
    home = Path(os.environ.get("FOREBAY_HOME", "~/.cache/forebay")).expanduser()
    folder = home / "objects" if home.is_dir() else HERE / "_objects"
    folder.mkdir(exist_ok=True)
    return folder


def _compile(compiler: str, unit: Unit, folder: Path) -> Path:
    to = folder / f"{unit.name}.{_fingerprint(compiler, unit)}.o"
    if to.exists():
        os.utime(to)
    else:
        part = to.with_suffix(f".{os.getpid()}")
        _run([compiler, *unit.flags, "-c", "-o", str(part), str(unit.source)])
        part.rename(to)
    return to


def _forget_stale(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                path.unlink()


def _fingerprint(compiler: str, unit: Unit) -> str:
    """Of the compiler, the flags, the source and our headers that it includes."""
    made = os.stat(compiler)
    parts = (os.path.realpath(compiler), made.st_size, made.st_mtime_ns, unit.flags)
    digest = hashlib.sha256(repr(parts).encode())
    for path in sorted(_with_headers(unit.source)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _with_headers(source: Path) -> set[Path]:
    """A source and all of our headers that it includes, wherever these are included from."""
    found, left = {source.resolve()}, [source.resolve()]
    while left:
        path = left.pop()
        names = re.findall(r'^\s*#\s*include\s+"(.+)"', path.read_text(), re.MULTILINE)
        headers = {(path.parent / name).resolve() for name in names}
        left += headers - found
        found |= headers
    return found


def _link(compiler: str, objects: Sequence[Path], extra: Sequence[str]) -> None:
    part = LIBRARY.with_suffix(f".{os.getpid()}")
    _run([compiler, "-shared", "-pthread", *extra, "-o", str(part), *map(str, objects)])
    part.rename(LIBRARY)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(f"{Path(command[0]).name} failed:\n{done.stderr}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing if it works")
    parser.add_argument(
        "--sanitize",
        action="store_true",
        help="find bad memory accesses; run with libasan preloaded",
    )
    args = parser.parse_args()
    try:
        library = build(is_sanitized=args.sanitize)
    except CannotBuild as exc:
        sys.exit(str(exc))
    if not args.quiet:
        print(f"built {library}")


if __name__ == "__main__":
    main()
