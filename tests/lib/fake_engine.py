"""An engine without a model: it says the prompt over and over, a byte a token, a token a step.

It stands at the seam between server and engine (forebay_runtime.engine.EngineLike), so that tests
of the server know every answer. Special tokens in a prompt make it misbehave. It keeps to what
ends and constrains an answer, gives made-up scores, and has no use for the rest.
"""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from forebay_runtime.engine import VramTerm
from forebay_runtime.request import FinishReason, Load, Output, Request, TokenLogprobs
from forebay_runtime.text.tokenizer import SpecialTokens
from forebay_runtime.text.tokenizer import Tokenizer as ForebayTokenizer

BOOM, HANG, REFUSE, END = "<|boom|>", "<|hang|>", "<|refuse|>", "<|im_end|>"
SPECIALS = ("<|im_start|>", END, BOOM, HANG, REFUSE)
VOCAB_SIZE = 256 + len(SPECIALS)
NUM_KV_TOKENS = 65_536
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'cat' %}{{ raise_exception('Cats cannot talk') }}{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_byte_backend() -> Tokenizer:
    """The `tokenizers` tokenizer whose tokens are the 256 bytes and SPECIALS."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(BPE(vocab={char: id_ for id_, char in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    return backend


def build_byte_tokenizer() -> ForebayTokenizer:
    """The same as the server knows it."""
    backend = build_byte_backend()
    end = backend.token_to_id(END)
    special = SpecialTokens({"eos_token": END}, frozenset({end}), bos_token_id=None, adds_bos=False)
    return ForebayTokenizer(backend, special)


@dataclass
class FakeEngine:
    """Answers with the prompt, over and over; ends at a stop token or at max_tokens."""

    max_model_len: int = 4096
    vocab_size: int = VOCAB_SIZE
    embedding_size: int = 3
    max_num_seqs: int = 4
    device: str = "cpu"
    kernels: str = "none"
    step_seconds: float = 0.0
    load_seconds: float = 0.0
    warm_up_error: str = ""
    eos_token_ids: frozenset[int] = frozenset()
    slowest_warm_step_seconds: float = 0.0
    num_cold: int = 0
    host_gap_seconds: float = 0.0
    num_steps: int = 0
    requests: dict[str, Request] = field(default_factory=dict)
    aborted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        tokenizer = build_byte_tokenizer()
        self._ids = {text: tokenizer.encode(text)[0] for text in SPECIALS}

    @property
    def vram_terms(self) -> tuple[VramTerm, ...]:
        return (
            VramTerm("weights", planned_bytes=1000, measured_bytes=1010),
            VramTerm("kv_cache", planned_bytes=500, measured_bytes=500),
            VramTerm("activation", planned_bytes=200, measured_bytes=190),
            VramTerm("overhead", planned_bytes=100, measured_bytes=120),
        )

    @property
    def overhead_parts(self) -> tuple[VramTerm, ...]:
        return (VramTerm("context", planned_bytes=60, measured_bytes=70),)

    @property
    def startup_seconds(self) -> dict[str, float]:
        return {"weights": 1.5, "graphs": 0.5}

    def warm_up(self) -> None:
        time.sleep(self.load_seconds)
        if self.warm_up_error:
            raise RuntimeError(self.warm_up_error)

    def add(self, request: Request) -> None:
        if self._ids[REFUSE] in request.prompt_token_ids:
            raise ValueError("this prompt can never run")
        self.requests[request.request_id] = request

    def abort(self, request_id: str) -> None:
        if self.requests.pop(request_id, None) is not None:
            self.aborted.append(request_id)

    @property
    def has_work(self) -> bool:
        return bool(self.requests or self.aborted)

    def step(self) -> list[Output]:
        self.num_steps += 1
        time.sleep(self.step_seconds)
        outputs = [Output(id_, finish_reason="abort") for id_ in self.aborted]
        self.aborted.clear()
        for request in list(self.requests.values())[: self.max_num_seqs]:
            outputs.append(self._advance(request))
        return outputs

    def _advance(self, request: Request) -> Output:
        prompt, answer = request.prompt_token_ids, request.output_token_ids
        if self._ids[BOOM] in prompt:
            raise RuntimeError("the fake engine was told to break")
        if self._ids[HANG] in prompt:
            threading.Event().wait()
        first = {} if answer else self._of_prompt(request)
        if request.pooling is not None or request.sampling.max_tokens == 0:
            del self.requests[request.request_id]
            reason: FinishReason = "length" if request.pooling is None else "stop"
            return Output(request.request_id, (), reason, **first)
        token_id = self._choose(request)
        answer.append(token_id)
        ending = self._ending(request, token_id)
        if ending is not None:
            del self.requests[request.request_id]
        scores = self._score(token_id, request.sampling.num_logprobs)
        return Output(
            request.request_id,
            (token_id,),
            ending,
            logprobs=() if scores is None else (scores,),
            stop_token_id=token_id if token_id in request.sampling.stop_token_ids else None,
            **first,
        )

    def _of_prompt(self, request: Request) -> dict[str, Any]:
        """What only a request's first output has; of a prompt, one token less is cached."""
        prompt, num_top = request.prompt_token_ids, request.sampling.num_prompt_logprobs
        first: dict[str, Any] = {"num_cached_tokens": len(prompt) - 1}
        first["scheduled_at"] = time.monotonic()
        if num_top is not None:
            scores = (self._score(token_id, num_top) for token_id in prompt[1:])
            first["prompt_logprobs"] = (None, *scores)
        if request.pooling is not None:
            first["embedding"] = (0.6, 0.8, 0.0) if request.pooling == "mean" else (0.0, 0.0, 1.0)
        return first

    def _choose(self, request: Request) -> int:
        prompt, answer = request.prompt_token_ids, request.output_token_ids
        wanted = prompt[len(answer) % len(prompt)]
        if request.constraint is None:
            return wanted
        mask = request.constraint.allowed()
        allowed = [id_ for id_ in range(VOCAB_SIZE) if mask[id_ // 8] >> id_ % 8 & 1]
        token_id = wanted if wanted in allowed else allowed[0]
        request.constraint.accept(token_id)
        return token_id

    def _ending(self, request: Request, token_id: int) -> FinishReason | None:
        sampling, num_tokens = request.sampling, len(request.output_token_ids)
        if token_id in sampling.stop_token_ids and num_tokens > sampling.min_tokens:
            return "stop"
        if request.constraint is not None and request.constraint.is_complete:
            return "stop"
        return "length" if num_tokens == sampling.max_tokens else None

    def _score(self, token_id: int, num_top: int | None) -> TokenLogprobs | None:
        """The token is second best; the best is the next in the vocabulary, and so on."""
        if num_top is None:
            return None
        better = (token_id + 1) % VOCAB_SIZE
        others = [(token_id + 1 + index) % VOCAB_SIZE for index in range(1, num_top)]
        ranked = [better, token_id, *others][:num_top]
        top = tuple((id_, -0.5 * (rank + 1)) for rank, id_ in enumerate(ranked))
        return TokenLogprobs(token_id, -1.0, 2, top)

    def load_now(self) -> Load:
        num_running = min(len(self.requests), self.max_num_seqs)
        held = sum(r.num_tokens for r in list(self.requests.values())[: self.max_num_seqs])
        return Load(
            num_running=num_running,
            num_waiting=len(self.requests) - num_running,
            kv_cache_usage=held / NUM_KV_TOKENS,
            free_kv_tokens=NUM_KV_TOKENS - held,
        )
