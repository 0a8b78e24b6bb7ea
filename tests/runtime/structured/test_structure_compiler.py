"""Compiling holds nobody up, whatever is compiled, and leaves nothing running."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fake_engine import VOCAB_SIZE, build_byte_tokenizer
from forebay_runtime.structured import StructureCompiler, StructureError, StructureSpec

ANY = StructureSpec("json_object")
COSTLY: dict[str, Any] = {
    "allOf": [{"type": "string", "pattern": f"^.*a.{{{n}}}b.*$"} for n in range(30)]
}
HOSTILE: dict[str, StructureSpec] = {
    "repeated-repeats": StructureSpec("regex", "a{1,100000}{1,100000}"),
    "repeats-three-deep": StructureSpec("regex", "((a{1,1000}){1,1000}){1,1000}"),
    "twenty-kilobytes-of-repeats": StructureSpec("regex", "([a-z]{1,9}[0-9]*)" * 1000),
    "twenty-kilobytes-of-anything": StructureSpec("regex", ".*a.*b" * 3300),
    "exponential-automaton": StructureSpec("regex", "(.*a.{300}|.*b.{310})"),
    "all-letters-a-thousand-times": StructureSpec("regex", r"(\p{L}{1,1000}\w{1,1000}){1,100}"),
    "patterns-that-must-all-match": StructureSpec("json_schema", COSTLY),
    "an-enum-of-100000": StructureSpec("json_schema", {"enum": [f"v{n}" for n in range(100_000)]}),
    "choices-of-a-megabyte": StructureSpec("choice", [f"choice {n:022d}" for n in range(33_000)]),
    "a-choice-of-a-megabyte": StructureSpec("choice", ["x" * 10**6]),
    "5000-properties": StructureSpec(
        "json_schema", {"type": "object", "properties": {f"k{n}": {} for n in range(5000)}}
    ),
    "a-long-constant": StructureSpec("json_schema", {"const": [[]] * 300_000}),
    "doubling-references": StructureSpec(
        "json_schema",
        {
            "$ref": "#/$defs/a0",
            "$defs": {
                **{f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)},
                "a60": {"type": "integer"},
            },
        },
    ),
    "alternatives-of-alternatives": StructureSpec(
        "json_schema",
        {"allOf": [{"anyOf": [{"required": [f"k{n}{m}"]} for m in range(4)]} for n in range(12)]},
    ),
    "ambiguous-grammar": StructureSpec("grammar", 'start: a\na: a a a a | "x" |'),
    "nested-grammar": StructureSpec("grammar", "start: " + "(" * 10**5 + '"a"' + ")" * 10**5),
    "long-gbnf": StructureSpec(
        "grammar", "\n".join(f'r{n} ::= "a" r{n + 1} | "b"' for n in range(30_000))
    ),
}


@pytest.fixture
async def compiler() -> AsyncIterator[StructureCompiler]:
    tokenizer = build_byte_tokenizer()
    compiler = StructureCompiler(tokenizer, tokenizer.eos_token_ids, VOCAB_SIZE)
    yield compiler
    compiler.close()


class Counter:
    """Counts how often a thread that computes in Python, and the event loop, come to their turn."""

    def __init__(self) -> None:
        self.num_beats = 0
        self.num_steps = 0
        self._is_running = True

    async def beat(self) -> None:
        while self._is_running:
            await asyncio.sleep(0.002)
            self.num_beats += 1

    def step(self) -> None:
        while self._is_running:
            sum(range(20_000))
            self.num_steps += 1

    def stop(self) -> None:
        self._is_running = False


@pytest.fixture
async def counter() -> AsyncIterator[Counter]:
    counter = Counter()
    beating = asyncio.create_task(counter.beat())
    stepping = threading.Thread(target=counter.step)
    stepping.start()
    yield counter
    counter.stop()
    await beating
    stepping.join()


def children_of(process_id: int) -> list[int]:
    path = Path(f"/proc/{process_id}/task/{process_id}/children")
    return [int(id_) for id_ in path.read_text().split()]


async def wait_until_alone(process_id: int) -> None:
    for _ in range(600):
        if not children_of(process_id):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"still running: {children_of(process_id)}")


@pytest.mark.parametrize("spec", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_structure_works_or_is_refused_and_leaves_nothing(
    compiler: StructureCompiler, spec: StructureSpec
) -> None:
    try:
        constraint = (await compiler.compile(spec)).start()
    except StructureError as exc:
        assert str(exc).startswith("The ")
    else:
        assert any(constraint.allowed())
        assert constraint.error is None

    await wait_until_alone(compiler.trial_process_id)


async def test_everything_else_goes_on_while_a_hostile_structure_is_tried(
    compiler: StructureCompiler, counter: Counter
) -> None:
    await compiler.prepare()
    before = counter.num_beats, counter.num_steps

    with pytest.raises(StructureError, match="too complex: to build it takes more than 1.0 s"):
        await compiler.compile(StructureSpec("json_schema", COSTLY))

    assert counter.num_beats - before[0] > 20
    assert counter.num_steps - before[1] > 20
    await compiler.compile(ANY)


async def test_a_good_structure_passes_hostile_ones(compiler: StructureCompiler) -> None:
    hostile = [
        asyncio.create_task(compiler.compile(StructureSpec("json_schema", {**COSTLY, "title": n})))
        for n in "ab"
    ]
    await asyncio.sleep(0)

    await compiler.compile(ANY)

    assert not any(task.done() for task in hostile)
    refused = await asyncio.gather(*hostile, return_exceptions=True)
    assert [type(one) for one in refused] == [StructureError] * 2


async def test_the_same_structure_is_compiled_once(compiler: StructureCompiler) -> None:
    at_once = await asyncio.gather(*(compiler.compile(ANY) for _ in range(8)))
    later = await compiler.compile(StructureSpec("json_object"))

    assert {id(one) for one in at_once} == {id(later)}


async def test_a_refusal_is_known_the_next_time(compiler: StructureCompiler) -> None:
    bad = StructureSpec("regex", "(")
    with pytest.raises(StructureError) as first:
        await compiler.compile(bad)
    compiler.close()

    with pytest.raises(StructureError) as second:
        await compiler.compile(bad)

    assert str(first.value) == str(second.value)


async def test_a_structure_is_built_anew_before_its_walks_add_up(
    compiler: StructureCompiler,
) -> None:
    first = await compiler.compile(ANY)
    for _ in range(31):
        first.start()
    assert await compiler.compile(ANY) is first
    first.start()

    assert await compiler.compile(ANY) is not first


async def test_a_structure_that_failed_on_the_way_is_built_anew(
    compiler: StructureCompiler,
) -> None:
    first = await compiler.compile(ANY)
    first.start().accept(0)

    assert await compiler.compile(ANY) is not first


async def test_a_caller_that_leaves_takes_nobody_along(compiler: StructureCompiler) -> None:
    spec = StructureSpec("regex", "a+")
    leaving = asyncio.create_task(compiler.compile(spec))
    staying = asyncio.create_task(compiler.compile(spec))
    await asyncio.sleep(0.001)

    leaving.cancel()

    assert (await staying).start().error is None
    assert leaving.cancelled()


@pytest.mark.parametrize("is_gone", [True, False], ids=["when it is gone", "while it goes"])
async def test_a_trial_process_that_was_killed_is_started_anew(
    compiler: StructureCompiler, is_gone: bool
) -> None:
    await compiler.compile(ANY)
    killed = compiler.trial_process_id
    os.kill(killed, signal.SIGKILL)
    if is_gone:
        os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)

    await compiler.compile(StructureSpec("regex", "a+"))
    gc.collect()  # what was left open would be warned of now

    assert compiler.trial_process_id != killed


async def test_structures_outlive_the_compiler(compiler: StructureCompiler) -> None:
    built = await compiler.compile(ANY)

    compiler.close()

    assert any(built.start().allowed())


def test_the_trial_process_ends_with_the_server() -> None:
    program = (
        "import asyncio, os\n"
        "from fake_engine import build_byte_tokenizer, VOCAB_SIZE\n"
        "from forebay_runtime.structured import StructureCompiler\n"
        "async def main():\n"
        "    tokenizer = build_byte_tokenizer()\n"
        "    compiler = StructureCompiler(tokenizer, tokenizer.eos_token_ids, VOCAB_SIZE)\n"
        "    await compiler.prepare()\n"
        "    print(compiler.trial_process_id, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    # The trial process has this pipe too: it is read to its end only when both are gone.
    ended = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=False,
    )

    assert ended.returncode == -signal.SIGKILL
    assert int(ended.stdout) > 0


def test_the_trial_process_needs_no_torch() -> None:
    program = "import sys; import forebay_runtime.structured.trial; print([*sys.modules])"

    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert "'llguidance'" in loaded
    assert "'torch'" not in loaded
    assert "'transformers'" not in loaded
