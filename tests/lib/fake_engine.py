"""An engine without a model: it says the prompt over and over, a byte a token, a token a step.

It stands at the seam between server and engine (forebay_runtime.engine.EngineLike), so that tests
of the server know every answer. Special tokens in a prompt make it misbehave.
"""

import threading
import time
from dataclasses import dataclass, field

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from forebay_runtime.engine import VramTerm
from forebay_runtime.request import Load, Output, Request
from forebay_runtime.tokenizer import SpecialTokens
from forebay_runtime.tokenizer import Tokenizer as ForebayTokenizer

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
    max_num_seqs: int = 4
    step_seconds: float = 0.0
    load_seconds: float = 0.0
    warm_up_error: str = ""
    eos_token_ids: frozenset[int] = frozenset()
    slowest_warm_step_seconds: float = 0.0
    num_cold: int = 0
    num_steps: int = 0
    requests: dict[str, Request] = field(default_factory=dict)
    aborted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        tokenizer = build_byte_tokenizer()
        self._ids = {text: tokenizer.encode(text)[0] for text in SPECIALS}

    @property
    def vram_terms(self) -> tuple[VramTerm, ...]:
        return (VramTerm("weights", planned_bytes=1000, measured_bytes=1010),)

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
        token_id = prompt[len(answer) % len(prompt)]
        answer.append(token_id)
        reason = None
        if token_id in request.sampling.stop_token_ids:
            reason = "stop"
        elif len(answer) == request.sampling.max_tokens:
            reason = "length"
        if reason is not None:
            del self.requests[request.request_id]
        return Output(request.request_id, (token_id,), reason)

    def load_now(self) -> Load:
        num_running = min(len(self.requests), self.max_num_seqs)
        held = sum(r.num_tokens for r in list(self.requests.values())[: self.max_num_seqs])
        return Load(
            num_running=num_running,
            num_waiting=len(self.requests) - num_running,
            kv_cache_usage=held / NUM_KV_TOKENS,
            free_kv_tokens=NUM_KV_TOKENS - held,
        )
