"""The engine with structures: valid whatever the model, the temperature and the company."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from jsonschema import validate

from fake_engine import VOCAB_SIZE, build_byte_tokenizer
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.request import Constraint, Output, Request, SamplingParams
from forebay_runtime.text.tokenizer import Tokenizer
from smollm2 import smollm2_path
from structure_bench import Workbench
from tiny_model import save_tiny

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 120},
        "city": {"enum": ["Paris", "Berlin", "Rome"]},
    },
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}
TEMPERATURES = {"greedy": 0.0, "at-temperature-1": 1.0}


class Broken:
    """A constraint that gives up after its first token."""

    is_complete = False

    def __init__(self, num_bytes: int) -> None:
        self.error: str | None = None
        self._mask = b"\xff" * num_bytes

    def allowed(self) -> bytes:
        return self._mask

    def accept(self, token_id: int) -> None:
        self.error, self._mask = "It gave up", bytes(len(self._mask))


@pytest.fixture(scope="module")
def real() -> Engine:
    config = EngineConfig(smollm2_path(), device="cpu", max_model_len=256, max_num_seqs=8)
    return build_engine(config)


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, vocab_size=VOCAB_SIZE)
    return folder


def run(engine: Engine, requests: list[Request]) -> dict[str, list[Output]]:
    outputs = defaultdict(list)
    for request in requests:
        engine.add(request)
    while engine.has_work:
        for output in engine.step():
            outputs[output.request_id].append(output)
    return outputs


def text_of(tokenizer: Tokenizer, outputs: list[Output]) -> str:
    token_ids = [token_id for output in outputs for token_id in output.token_ids]
    return b"".join(map(tokenizer.token_bytes, token_ids)).decode()


def ask(name: str, prompt: list[int], constraint: Constraint | None, **sampling: float) -> Request:
    params = SamplingParams(max_tokens=96, seed=len(name), **sampling)  # type: ignore[arg-type]
    return Request(name, prompt, params, constraint=constraint)


def test_the_real_model_answers_by_schema(smollm2: Workbench, real: Engine) -> None:
    prompt = smollm2.tokenizer.encode(
        "<|im_start|>user\nDescribe a person as JSON.<|im_end|>\n<|im_start|>assistant\n"
    )
    built = smollm2.build("json_schema", SCHEMA)
    requests = [
        ask("free", prompt, None),
        *(ask(name, prompt, built.start(), temperature=t) for name, t in TEMPERATURES.items()),
    ]

    outputs = run(real, requests)

    for name in TEMPERATURES:
        assert outputs[name][-1].finish_reason == "stop"
        validate(json.loads(text_of(smollm2.tokenizer, outputs[name])), SCHEMA)
    assert not text_of(smollm2.tokenizer, outputs["free"]).startswith("{")


def test_a_preempted_request_keeps_to_its_structure(bytewise: Workbench, tiny_folder: Path) -> None:
    block_bytes = 2 * 2 * 3 * 32 * 4 * 8
    engine = build_engine(
        EngineConfig(
            tiny_folder,
            device="cpu",
            dtype="float32",
            max_model_len=64,
            max_num_seqs=6,
            max_num_batched_tokens=48,
            block_size=8,
            kv_cache_memory_bytes=12 * block_bytes,
        )
    )
    built = bytewise.build("regex", "([ab][0-9]){20}")
    requests = [ask("r" * n, [n] * 8, built.start(), temperature=n % 2) for n in range(1, 7)]

    outputs = run(engine, requests)

    assert engine.load_now().num_preemptions > 0
    for request in requests:
        text = text_of(bytewise.tokenizer, outputs[request.request_id])
        assert re.fullmatch("([ab][0-9]){20}", text)


def test_a_constraint_that_breaks_ends_its_own_request(tiny_folder: Path) -> None:
    engine = build_engine(
        EngineConfig(tiny_folder, device="cpu", dtype="float32", max_model_len=64)
    )
    broken = Broken(-(-VOCAB_SIZE // 8))

    outputs = run(
        engine,
        [
            ask("broken", [1, 2, 3], broken),
            Request("whole", [1, 2, 3], SamplingParams(20, ignore_eos=True)),
        ],
    )

    assert (outputs["broken"][-1].finish_reason, outputs["broken"][-1].error) == (
        "error",
        "It gave up",
    )
    assert sum(len(output.token_ids) for output in outputs["whole"]) == 20


def test_an_answer_cut_at_its_length_is_the_beginning_of_a_valid_one(
    bytewise: Workbench, tiny_folder: Path
) -> None:
    engine = build_engine(
        EngineConfig(tiny_folder, device="cpu", dtype="float32", max_model_len=64)
    )
    request = Request(
        "cut", [1], SamplingParams(7), constraint=bytewise.build("regex", "([ab][0-9]){20}").start()
    )

    outputs = run(engine, [request])["cut"]

    assert outputs[-1].finish_reason == "length"
    assert re.fullmatch("([ab][0-9]){3}[ab]", text_of(build_byte_tokenizer(), outputs))
