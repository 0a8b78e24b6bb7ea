"""Decode steps by the GPU's kernels, captured and replayed, under Triton's interpreter."""

from array import array
from pathlib import Path

import pytest
import torch

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.runner.step_inputs import StepInputs, describe_step
from forebay_runtime.scheduling.batch import Batch, Chunk
from launch_tape import LaunchTape, host_reads_forbidden
from tiny_model import save_tiny

pytestmark = pytest.mark.interpreted

_BLOCK_SIZE = 4
_SEQUENCES = (5, 1, 30)
"""Lengths: within a block, at its borders, and over several."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("llama", id="dense"),
        pytest.param("qwen3", id="norms of heads"),
        pytest.param("gemma2", id="a window and caps"),
        pytest.param("qwen3_moe", id="a mixture"),
    ],
)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, request.param)
    torch.set_num_threads(1)
    return build_engine(
        EngineConfig(
            Path(folder),
            device="cpu",
            dtype="float32",
            max_num_seqs=3,
            max_num_batched_tokens=64,
            max_model_len=64,
            block_size=_BLOCK_SIZE,
            kv_cache_memory_bytes=1024**2,
        )
    )


def _decode(lengths: tuple[int, ...]) -> StepInputs:
    """Sequences of such lengths, whose blocks are all their own, the last token to be computed."""
    chunks, block = [], 1
    for index, length in enumerate(lengths):
        num_blocks = -(-length // _BLOCK_SIZE)
        request = Request(
            str(index),
            [(7 * index + 3 * place) % 131 for place in range(length)],
            SamplingParams(1),
            block_ids=array("i", range(block, block + num_blocks)),
        )
        chunks.append(Chunk.of(request, length - 1, 1))
        block += num_blocks
    return describe_step(Batch(tuple(chunks)), _BLOCK_SIZE)


def _fill(runner: ModelRunner) -> None:
    """Give every slot of the cache a key and a value, as earlier steps would have."""
    generator = torch.Generator().manual_seed(0)
    for layer in runner.cache.layers:
        for kept in (layer.k, layer.v):
            kept.copy_(torch.randn(kept.shape, generator=generator))


def _runner(engine: Engine) -> ModelRunner:
    assert isinstance(engine.runner, ModelRunner)
    return engine.runner


def test_a_decode_step_asks_the_device_nothing_before_it_is_sampled(engine: Engine) -> None:
    inputs = _decode(_SEQUENCES)
    _runner(engine).compute(inputs)
    with host_reads_forbidden():
        computed = _runner(engine).compute(inputs)
    assert computed.logits.isfinite().all()


def test_a_captured_step_serves_batches_of_other_lengths_and_numbers(engine: Engine) -> None:
    eager = _runner(engine)
    tape = LaunchTape()
    replayed = ModelRunner(eager.model, eager.cache, eager.limits, recorder=tape)
    replayed.capture_graphs()
    num_captured = tape.num_replays
    for lengths in ((64,), (3, 20), _SEQUENCES):
        inputs = _decode(lengths)
        _fill(eager)
        expected = eager.compute(inputs).logits
        _fill(eager)
        computed = replayed.compute(inputs)
        torch.testing.assert_close(computed.logits, expected, atol=1e-5, rtol=1e-5)
        assert computed.is_finite.tolist() == [True] * len(lengths)
    assert tape.num_replays == num_captured + 3
