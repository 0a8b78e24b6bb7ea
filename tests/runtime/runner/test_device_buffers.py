"""The model's inputs on the device: padded harmlessly, and always at the same place."""

from array import array

import pytest
import torch

from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.runner.device_buffers import DeviceBuffers, PaddedSizes, StepTensors
from forebay_runtime.runner.step_inputs import StepInputs, describe_step
from forebay_runtime.scheduling.batch import Batch, Chunk

_MOST = PaddedSizes(num_tokens=24, num_seqs=7, num_sampled=8)


def _decodes(num_seqs: int, length: int = 5) -> StepInputs:
    requests = [
        Request(
            str(index),
            [index] * length,
            SamplingParams(1),
            block_ids=array("i", [index + 1, index + 2]),
        )
        for index in range(num_seqs)
    ]
    return describe_step(Batch(tuple(Chunk.of(each, length - 1, 1) for each in requests)), 4)


def _buffers() -> DeviceBuffers:
    return DeviceBuffers(_MOST, 3, torch.device("cpu"))


def test_padding_is_token_zero_without_a_slot_or_a_length() -> None:
    tensors = _buffers().send(_decodes(3), PaddedSizes(5, 5, 5))
    assert tensors.token_ids.tolist() == [0, 1, 2, 0, 0]
    assert tensors.positions.tolist() == [4, 4, 4, 0, 0]
    assert tensors.slots.tolist() == [8, 12, 16, -1, -1]
    assert tensors.carried.tolist() == [-1] * 5
    assert tensors.sampled_rows.tolist() == [0, 1, 2, 0, 0]
    assert tensors.seq_lens.tolist() == [5, 5, 5, 0, 0]
    assert tensors.query_starts.tolist() == [0, 1, 2, 3, 3, 3]
    assert tensors.block_tables[:3, :2].tolist() == [[1, 2], [2, 3], [3, 4]]


def test_nothing_of_a_step_is_left_over_from_the_one_before() -> None:
    buffers, sizes = _buffers(), PaddedSizes(5, 5, 5)
    for num_seqs, length in ((7, 9), (1, 2), (4, 12)):
        buffers.send(_decodes(num_seqs, length), PaddedSizes(num_seqs, num_seqs, num_seqs))
    reused = vars(buffers.send(_decodes(3), sizes))
    fresh = vars(_buffers().send(_decodes(3), sizes))
    for name in fresh.keys() - {"block_tables"}:
        assert reused[name].tolist() == fresh[name].tolist(), name


def _addresses(tensors: StepTensors) -> dict[str, int]:
    return {name: each.data_ptr() for name, each in vars(tensors).items()}


def test_a_size_has_its_inputs_at_the_same_place_whatever_ran_between() -> None:
    buffers = _buffers()
    first = _addresses(buffers.send(_decodes(3), PaddedSizes(4, 4, 4)))
    buffers.send(_decodes(7), PaddedSizes(*_MOST))
    assert _addresses(buffers.send(_decodes(4), PaddedSizes(4, 4, 4))) == first


def test_inputs_begin_where_whole_vectors_can_be_read() -> None:
    buffers = _buffers()
    for num_rows in range(1, 8):
        sizes = PaddedSizes(num_rows, num_rows, num_rows)
        places = _addresses(buffers.tensors(sizes))
        del places["block_tables"]  # Begins where all else of the largest step ends.
        assert all(place % 16 == places["token_ids"] % 16 for place in places.values())


@pytest.mark.parametrize("sizes", [_MOST, PaddedSizes(3, 3, 3), PaddedSizes(24, 1, 0)])
def test_no_input_reaches_into_another(sizes: PaddedSizes) -> None:
    tensors = vars(_buffers().tensors(sizes)).values()
    ranges = sorted((each.data_ptr(), each.data_ptr() + each.nbytes) for each in tensors)
    for (_, end), (begin, _) in zip(ranges, ranges[1:], strict=False):
        assert end <= begin


def test_what_lies_behind_a_sequences_blocks_is_always_a_block() -> None:
    buffers = _buffers()
    buffers.send(_decodes(7), _MOST)
    tables = buffers.send(_decodes(1), PaddedSizes(1, 1, 1)).block_tables
    assert 0 <= int(tables.min()) <= int(tables.max()) <= 8
