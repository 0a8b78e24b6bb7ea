"""What a step hands on: from the runner to the sampler, and from the sampler to the scheduler.

What only some requests ask for is keyed by request id and empty in most steps. Tensors are typed
Any, as the engine and the scheduler import no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from forebay_runtime.request import TokenLogprobs


@dataclass(frozen=True)
class PromptStates:
    """What embeddings and prompt logprobs are made of.

    hidden: by request id, [n, h] as the last layer left them, for a chunk's n tokens that count.
    normed: such states after the last norm. score: their logits [n, V], for at most score_rows of
    them at a time, as those of a whole prompt would be too many to hold.
    """

    hidden: Mapping[str, Any]
    normed: Callable[[Any], Any]
    score: Callable[[Any], Any]
    score_rows: int


@dataclass(frozen=True)
class StepResult:
    """What the model made of one batch.

    logits: [R, V] float32, a tensor or a CPU's ScoreRows, in the order of batch.sampled. prompts:
    None where no request asked. find_broken: the ids of requests for which the model computed
    something that is no finite number; it waits for the step, so it is asked once the step's tokens
    were.
    """

    logits: Any
    prompts: PromptStates | None = None
    find_broken: Callable[[], frozenset[str]] = frozenset


@dataclass(frozen=True)
class Sampled:
    """What a step gave its requests.

    token_ids: one for each of batch.sampled, meaningless where errors has the request.
    logprobs: by request id, of the tokens of those that asked.
    prompt_logprobs: by request id, those of the prompt's tokens [start + 1, min(end + 1, P)) for
    its chunk [start, end), P tokens in the prompt; the first token has none. A request preempted
    before its first output gets the same ones again.
    embeddings: by request id, of unit length, in the step that computed the prompt's last token.
    errors: by request id, why one cannot go on, in a sentence for the client.
    """

    token_ids: tuple[int, ...] = ()
    logprobs: Mapping[str, TokenLogprobs] = field(default_factory=dict)
    prompt_logprobs: Mapping[str, tuple[TokenLogprobs, ...]] = field(default_factory=dict)
    embeddings: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)


class Drawn(Protocol):
    """A step's samples, perhaps before the host can see them."""

    @property
    def token_ids(self) -> Any:
        """[R] int64 on the device, in the order of batch.sampled; any token where errors has it."""

    def wait(self) -> Sampled:
        """What the step gave its requests; waits until the device has come so far."""

    def is_over(self) -> bool:
        """Has the device come so far, and waits perhaps? Never where the host is the device."""
