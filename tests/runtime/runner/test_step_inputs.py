"""A batch in numbers: what the model is told of it, and nothing of its requests."""

import pickle
from array import array

import pytest

from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.runner.step_inputs import StepInputs, describe_step
from forebay_runtime.scheduling.batch import Batch, Chunk


def _chunk(name: str, prompt: list[int], start: int, num_tokens: int, blocks: list[int]) -> Chunk:
    request = Request(name, prompt, SamplingParams(4), block_ids=array("i", blocks))
    return Chunk.of(request, start, num_tokens)


def _batch() -> Batch:
    """A decode, a prompt that is read to its end, and one that is read in part."""
    return Batch(
        (
            _chunk("decode", [5, 6, 7, 8, 9], 4, 1, [3, 1]),
            _chunk("whole", [10, 11, 12], 0, 3, [7]),
            _chunk("part", list(range(20, 31)), 2, 4, [4, 5, 6]),
        )
    )


def test_each_token_has_its_id_its_position_and_its_place_in_the_cache() -> None:
    inputs = describe_step(_batch(), block_size=4)
    assert inputs.token_ids.tolist() == [9, 10, 11, 12, 22, 23, 24, 25]
    assert inputs.positions.tolist() == [4, 0, 1, 2, 2, 3, 4, 5]
    assert inputs.slots.tolist() == [4, 28, 29, 30, 18, 19, 20, 21]
    assert inputs.query_lens == (1, 3, 4)
    assert inputs.seq_lens == (5, 3, 6)


def test_block_tables_are_as_wide_as_the_longest_and_end_in_zeros() -> None:
    tables = describe_step(_batch(), block_size=4).block_tables
    assert tables.tolist() == [[3, 1, 0], [7, 0, 0], [4, 5, 6]]


def test_only_those_that_catch_up_are_sampled() -> None:
    assert describe_step(_batch(), block_size=4).sampled_rows.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("start", "num_tokens", "token_ids", "carried"),
    [
        pytest.param(5, 1, [0], [3], id="a decode takes what was sampled before"),
        pytest.param(3, 3, [8, 9, 0], [-1, -1, 3], id="it is a chunk's last token"),
        pytest.param(3, 2, [8, 9], [-1, -1], id="a chunk that does not reach it"),
    ],
)
def test_a_pending_token_names_the_row_that_it_comes_from(
    start: int, num_tokens: int, token_ids: list[int], carried: list[int]
) -> None:
    request = Request("a", [5, 6, 7, 8, 9], SamplingParams(4), block_ids=array("i", [3, 1]))
    request.num_pending_tokens, request.pending_row = 1, 3
    other = _chunk("whole", [10, 11], 0, 2, [7])
    batch = Batch((Chunk.of(request, start, num_tokens), other))
    inputs = describe_step(batch, block_size=4)
    assert inputs.token_ids.tolist() == [*token_ids, 10, 11]
    assert inputs.carried.tolist() == [*carried, -1, -1]
    assert inputs.has_carried == (3 in carried)


@pytest.mark.parametrize(
    ("chunks", "is_decode"),
    [
        pytest.param((0,), True, id="one decode"),
        pytest.param((0, 1), False, id="a prompt beside it"),
        pytest.param((3,), False, id="one token that is not its request's last"),
    ],
)
def test_a_decode_step_has_one_sampled_token_a_sequence(
    chunks: tuple[int, ...], is_decode: bool
) -> None:
    all_chunks = (*_batch().chunks, _chunk("early", [1, 2, 3], 0, 1, [2]))
    assert describe_step(Batch(tuple(all_chunks[i] for i in chunks)), 4).is_decode == is_decode


def test_a_warm_up_request_without_blocks_lies_in_block_zero() -> None:
    inputs = describe_step(Batch((_chunk("warm", [0] * 9, 8, 1, []),)), block_size=4)
    assert inputs.slots.tolist() == [0]
    assert inputs.block_tables.tolist() == [[0, 0, 0]]


def test_a_full_decode_step_travels_in_a_few_kilobytes() -> None:
    chunks = tuple(_chunk(str(n), [0] * 2048, 2047, 1, list(range(128))) for n in range(32))
    pickled = pickle.dumps(describe_step(Batch(chunks), 16), protocol=5)
    assert len(pickled) < 20_000
    read: StepInputs = pickle.loads(pickled)
    assert read.seq_lens == (2048,) * 32


def test_a_step_of_decodes_alone_is_described_as_it_is_beside_a_prompt() -> None:
    decodes = (
        _chunk("first", [5, 6, 7, 8, 9], 4, 1, [3, 1]),
        _chunk("second", list(range(11)), 10, 1, [4, 5, 6]),
        _chunk("warm-up", [1, 2], 1, 1, []),
    )
    prompt = _chunk("prompt", [10, 11, 12], 0, 3, [7])
    alone, beside = (describe_step(Batch(each), 4) for each in (decodes, (*decodes, prompt)))
    assert alone.is_decode
    assert alone.tokens.tolist() == beside.tokens[:, :3].tolist()
    assert alone.block_tables.tolist() == beside.block_tables[:3].tolist()
    assert (alone.query_lens, alone.seq_lens) == (beside.query_lens[:3], beside.seq_lens[:3])
    assert alone.sampled_rows.tolist() == beside.sampled_rows[:3].tolist()
