"""What is kept of compiled structures is bounded, and the least used goes first."""

from typing import Any

from forebay_runtime.structured.compiled import Compiled, CompiledCache


def build(memory_bytes: int) -> Compiled:
    nothing: Any = None
    return Compiled(nothing, nothing, memory_bytes)


def test_the_least_recently_used_goes_first_by_number() -> None:
    cache = CompiledCache(max_entries=2)
    cache.keep(b"a", "refused")
    cache.keep(b"b", build(1))
    cache.find(b"a")

    cache.keep(b"c", build(1))

    assert cache.find(b"a") == "refused"
    assert cache.find(b"b") is None
    assert cache.find(b"c") is not None


def test_it_goes_by_memory_too() -> None:
    cache = CompiledCache(max_bytes=100)
    large = build(60)
    cache.keep(b"a", build(60))

    cache.keep(b"b", large)

    assert cache.find(b"a") is None
    assert cache.find(b"b") is large
    assert cache.num_bytes == 60


def test_what_is_larger_than_all_is_not_kept() -> None:
    cache = CompiledCache(max_bytes=100)

    cache.keep(b"a", build(101))

    assert cache.find(b"a") is None
    assert cache.num_bytes == 0


def test_the_same_key_is_kept_once() -> None:
    cache = CompiledCache(max_bytes=100)
    newer = build(60)

    cache.keep(b"a", build(60))
    cache.keep(b"a", newer)

    assert cache.find(b"a") is newer
    assert cache.num_bytes == 60
