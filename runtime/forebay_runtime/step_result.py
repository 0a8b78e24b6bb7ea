"""What a step hands on: from the runner to the sampler, and from the sampler to the scheduler.

What only some requests ask for is keyed by request id and empty in most steps. Tensors are typed
Any, as the engine and the scheduler import no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay_runtime.request import TokenLogprobs


@dataclass(frozen=True)
class StepResult:
    """What the model made of one batch.

    logits: [R, V] float32, R requests in the order of batch.sampled. hidden: [n, h] by request id,
    after the last norm, for the n tokens of the chunk of each request that asked for an embedding
    or for its prompt's logprobs. score: the logits [n, V] of such hidden states, a few at a time.
    """

    logits: Any
    hidden: Mapping[str, Any] = field(default_factory=dict)
    score: Callable[[Any], Any] | None = None


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
