"""On a device the sampler gives what it gives on a CPU, to requests with wishes of every kind."""

import random
from typing import Any

import pytest
import torch

from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.sampling.draw import TorchDrawing
from forebay_runtime.sampling.portable_choice import PortableChoice

pytestmark = pytest.mark.interpreted

V = 133
END = frozenset({1})
CPU = torch.device("cpu")


class Allows:
    """A constraint that allows every second token."""

    is_complete = False
    error = None

    def allowed(self) -> bytes:
        return b"\xaa" * -(-V // 8)

    def accept(self, token_id: int) -> None: ...


WISHES: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 0, "logit_bias": ((7, 9.0), (99, 8.5), (1000, 99.0))},
    {"allowed_token_ids": frozenset({3, 77, 132, 500})},
    {"bad_words": ((4,), (5,), (9, 11))},
    {"min_tokens": 3, "stop_token_ids": frozenset({2})},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"repetition_penalty": 1.7, "temperature": 0},
    {"repetition_penalty": 1.3, "presence_penalty": -0.5, "logit_bias": ((3, 2.0),)},
    {"constraint": Allows(), "temperature": 0},
    {"constraint": Allows(), "bad_words": ((3,),), "frequency_penalty": 2.0, "top_k": 9},
]


def build_requests() -> list[Request]:
    return [
        Request(
            str(index),
            [index, 5, 5],
            SamplingParams(max_tokens=99, seed=index, **wish),
            constraint=constraint,
        )
        for index, (wish, constraint) in enumerate(
            ({k: v for k, v in each.items() if k != "constraint"}, each.get("constraint"))
            for each in WISHES
        )
    ]


def test_step_by_step_both_choose_the_same_whoever_shares_the_batch() -> None:
    from forebay_runtime.sampling.device_choice import DeviceChoice

    ours, theirs = DeviceChoice(END, V, CPU), PortableChoice(END, TorchDrawing())
    requests, twins = build_requests(), build_requests()
    generator, chance = torch.Generator().manual_seed(0), random.Random(0)
    for _ in range(6):
        here = sorted(chance.sample(range(len(requests)), 7))
        # Few bits, so that many tokens come twice and penalties tell.
        logits = torch.randn(len(here), V, generator=generator) * 2
        logits[:, :6] += 3
        drawn = ours.choose(logits, [requests[index] for index in here]).tolist()
        expected = list(theirs.choose(logits, [twins[index] for index in here]))
        assert drawn == expected
        for index, token_id in zip(here, drawn[0], strict=True):
            requests[index].output_token_ids.append(token_id)
            twins[index].output_token_ids.append(token_id)


def test_counts_are_made_anew_for_whom_lost_its_row() -> None:
    from forebay_runtime.sampling.device_choice import DeviceChoice

    ours = DeviceChoice(frozenset(), V, CPU)
    sampling = SamplingParams(max_tokens=9, temperature=0, presence_penalty=5.0)
    first, second = (Request(name, [0], sampling) for name in ("first", "second"))
    logits = torch.arange(V, 0, -1.0).unsqueeze(0)
    given: dict[str, list[int]] = {"first": [], "second": []}
    for request in (first, second, second, first, first, second):
        token_id = ours.choose(logits, [request])[0].tolist()[0]
        request.output_token_ids.append(token_id)
        given[request.request_id].append(token_id)
    # What came is five less, so the first six take turns: nobody's counts are another's.
    assert given == {"first": [0, 1, 2], "second": [0, 1, 2]}
    assert len(ours._counts.counts) == 1
