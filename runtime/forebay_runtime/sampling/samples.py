"""A step's samples on their way to the host: implements step_result.Drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from forebay_kernels.outcome import BROKEN, NOTHING_LEFT
from forebay_runtime.sampling.edits import explain_nothing_left
from forebay_runtime.sampling.picked import Picked, to_drawn_tensor
from forebay_runtime.sampling.scores import Ranking, read_ranking
from forebay_runtime.sampling.transfer import HostCopies
from forebay_runtime.scheduling.batch import Batch
from forebay_runtime.step_result import Sampled, StepResult

_NOT_FINITE = (
    "The model computed NaN or infinite scores for this request, so no token can be told from "
    "another; its weights may be damaged, or its --dtype too narrow for this text"
)


@dataclass(frozen=True)
class PromptReadings:
    """By request id: rankings of a prompt's tokens, and embeddings [h]."""

    rankings: dict[str, list[Ranking]]
    embeddings: dict[str, Tensor]


class Samples:
    """What was drawn and measured, all of it computed or launched, and copied from here on."""

    def __init__(
        self,
        batch: Batch,
        drawn: Tensor | Picked,
        rankings: Mapping[str, Ranking],
        prompts: PromptReadings,
        result: StepResult,
    ) -> None:
        """drawn: [2, R] int64, tokens and outcomes, where the host does not know them yet.

        rankings: by request id.
        """
        self._drawn = drawn
        self._batch = batch
        self._rankings = rankings
        self._prompts = prompts
        self._find_broken = result.find_broken
        self._copies = HostCopies(list(self._tensors()))

    @property
    def token_ids(self) -> Tensor:
        """[R] int64 on the device."""
        return to_drawn_tensor(self._drawn)[0]

    def wait(self) -> Sampled:
        """What the step gave its requests."""
        copies = iter(self._copies.wait())
        drawn = self._drawn
        token_ids, outcomes = drawn if isinstance(drawn, Picked) else next(copies).tolist()
        errors = self._errors(token_ids, outcomes)
        logprobs = {name: read_ranking(_take(copies))[0] for name in self._rankings}
        prompt_logprobs = {
            name: tuple(each for _ in rankings for each in read_ranking(_take(copies)))
            for name, rankings in self._prompts.rankings.items()
        }
        embeddings = {name: tuple(next(copies).tolist()) for name in self._prompts.embeddings}
        for name in errors:
            for found in (logprobs, prompt_logprobs, embeddings):
                found.pop(name, None)
        return Sampled(tuple(token_ids), logprobs, prompt_logprobs, embeddings, errors)

    def is_over(self) -> bool:
        """Has the device come so far? Never where the host is the device."""
        return self._copies.is_over()

    def _errors(self, token_ids: Sequence[int], outcomes: Sequence[int]) -> dict[str, str]:
        errors: dict[str, str] = dict.fromkeys(self._find_broken(), _NOT_FINITE)
        if not any(outcomes):  # all were drawn
            return errors
        is_reached = self._batch.reached_rows(token_ids)
        rows = zip(self._batch.sampled, outcomes, is_reached, strict=True)
        for request, outcome, is_real in rows:
            if not is_real:
                continue
            if outcome == BROKEN:
                errors[request.request_id] = _NOT_FINITE
            elif outcome == NOTHING_LEFT:
                errors.setdefault(request.request_id, explain_nothing_left(request))
        return errors

    def _tensors(self) -> Iterator[Tensor]:
        """All that is to be copied, in the order in which it is read."""
        if not isinstance(self._drawn, Picked):
            yield self._drawn
        for ranking in self._rankings.values():
            yield from ranking
        for rankings in self._prompts.rankings.values():
            for ranking in rankings:
                yield from ranking
        yield from self._prompts.embeddings.values()


def _take(copies: Iterator[Tensor]) -> Ranking:
    """The next ranking, whose tensors come one after another."""
    return Ranking(*(next(copies) for _ in Ranking._fields))
