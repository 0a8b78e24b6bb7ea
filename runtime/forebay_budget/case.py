"""One model under one demand: how memory divides at a given tensor parallelism and length.

Every answer is a division; `sizing` and `nearest` only choose among a few of them.
"""

from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property

from forebay_budget import cpu_terms, terms
from forebay_budget.demand import Demand
from forebay_budget.inspection import Inspection, ModelConfig
from forebay_budget.rounding import ROUNDED_BITS
from forebay_budget.stages import longest_config, stage_weights_bytes
from forebay_budget.terms import BLOCK_TOKENS, Terms, held_tokens

DEFAULT_UTILIZATION = Decimal("0.95")
DEFAULT_NUM_SEQS = {"GPU": 256, "CPU": 8}
"""At most so many where max_num_seqs is absent."""
DEFAULT_BATCHED_TOKENS = {"GPU": 2_048, "CPU": 512}
DEFAULT_MODEL_LEN = {"GPU": 32_768, "CPU": 8_192}
"""A longer context is served only where max_model_len asks for it: it would cost everyone's
concurrency, or more GPUs."""
LEAST_MODEL_LEN = 1_024
"""Where max_model_len is absent and the default does not fit, it shrinks to this and no further."""
LENGTH_STEP_TOKENS = 256


@dataclass(frozen=True)
class Split:
    """How memory divides in one case."""

    tp: int
    pp: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    mean_tokens: int
    terms: Terms
    needed_bytes: int
    """Bytes of one GPU (or the pod) with the least KV cache that serves the demand."""
    fits: bool

    @property
    def num_gpus(self) -> int:
        """GPUs of a replica; 1 on a CPU."""
        return self.tp * self.pp


@dataclass(frozen=True)
class Case:
    """A model and what is asked of it, with every `auto` resolved."""

    inspection: Inspection
    demand: Demand
    pp: int = 1
    """Stages of a pipeline."""

    @property
    def config(self) -> ModelConfig:
        return self.inspection.config

    @property
    def dtype(self) -> str:
        asked = self.demand.dtype.lower()
        if asked != "auto":
            return asked
        return "float32" if self.demand.device == "CPU" else self.config.dtype

    @property
    def kv_cache_dtype(self) -> str:
        asked = self.demand.kv_cache_dtype.lower()
        if asked != "auto":
            return asked
        if self.demand.device == "CPU":
            return cpu_terms.cpu_kv_dtype(self.config, self.demand.dtype.lower())
        return self.dtype

    @property
    def flag_dtype(self) -> str:
        """What the runtime is told: which numbers a CPU is best with is known on its node alone."""
        return self.demand.dtype.lower() if self.demand.device == "CPU" else self.dtype

    @property
    def is_native(self) -> bool:
        """Is it a CPU's own kernels that run the model? Images have them."""
        return self.demand.device == "CPU" and cpu_terms.is_native(self.demand.dtype.lower())

    @property
    def is_program(self) -> bool:
        """Is a step a program of these?"""
        is_one = cpu_terms.is_program(self.config, self.demand.dtype.lower())
        return self.demand.device == "CPU" and is_one

    @property
    def quantization(self) -> str:
        """What is applied at load: nothing to a checkpoint that is quantised already."""
        asked = self.demand.quantization.upper()
        is_plain = not self.config.weight_bits
        return asked if asked in ROUNDED_BITS and is_plain else "None"

    @property
    def default_model_len(self) -> int:
        length = min(self.config.max_position_embeddings, DEFAULT_MODEL_LEN[self.demand.device])
        return max(length, self.demand.mean_tokens or 0)

    @property
    def least_model_len(self) -> int:
        length = min(self.config.max_position_embeddings, LEAST_MODEL_LEN)
        return max(length, self.demand.mean_tokens or 0)

    @cached_property
    def draft(self) -> "Case | None":
        """The draft model by itself, under the same demand."""
        if self.demand.draft is None:
            return None
        quantization = self.demand.draft_quantization
        own = replace(
            self.demand, draft=None, num_speculative_tokens=None, quantization=quantization
        )
        return Case(self.demand.draft, own)

    def sizes(self) -> list[int]:
        """Tensor parallelisms that one node and the demand allow, the least first."""
        if self.demand.device == "CPU" or self.demand.draft is not None:
            return [1]
        if self.demand.tensor_parallel_size is not None:
            return [self.demand.tensor_parallel_size]
        admissible = terms.admissible_tensor_parallel_sizes(self.config, self.quantization)
        return [tp for tp in admissible if tp * self.pp <= self.demand.max_gpus_per_node]

    def cap_bytes(self, tp: int) -> int | None:
        """Bytes that may be taken of one GPU, or of the pod; None where nothing caps them."""
        budget = self.demand.budget_bytes
        if self.demand.device == "CPU":
            return budget
        utilization = self.demand.gpu_memory_utilization or DEFAULT_UTILIZATION
        cap = int((self.demand.gpu_memory_bytes or 0) * utilization)
        return cap if budget is None else min(budget // (tp * self.pp), cap)

    def split(self, tp: int, max_model_len: int) -> Split:
        """Divide one GPU's memory; the KV cache gets what the rest leaves, also below zero."""
        cap = self.cap_bytes(tp)
        num_seqs = self._num_seqs(tp, max_model_len)
        mean = self.mean_tokens(max_model_len)
        need = max(self.held_tokens(max_model_len), num_seqs * self.held_tokens(mean))
        least = self._terms(tp, num_seqs, need * self.kv_token_bytes(tp))
        parts = least
        if cap is not None:
            parts = self._terms(tp, num_seqs, self._kv_cache_bytes(tp, max_model_len, num_seqs))
        return Split(
            tp=tp,
            pp=self.pp,
            max_model_len=max_model_len,
            max_num_seqs=num_seqs,
            max_num_batched_tokens=self._batched_tokens(num_seqs),
            mean_tokens=mean,
            terms=parts,
            needed_bytes=least.total_bytes,
            fits=cap is None or least.total_bytes <= cap,
        )

    def longest(self, tp: int) -> int:
        """The longest max_model_len that fits at tp, with all else as asked; 0 where none does."""
        tokens = self._most_kv_tokens(tp)
        context = self.config.max_position_embeddings
        # Under a window, what holds one long request may hold the longest.
        length = context if self.held_tokens(context) <= tokens else min(tokens, context)
        num_seqs, mean = self.demand.max_num_seqs, self.demand.mean_tokens
        if num_seqs is not None and mean is None:
            each = tokens // num_seqs // BLOCK_TOKENS * BLOCK_TOKENS
            is_enough = self.held_tokens(self.mean_tokens(length)) <= each
            length = length if is_enough else min(length, 4 * each)
        if num_seqs is not None and mean is not None:
            if num_seqs * self.held_tokens(mean) > tokens:
                return 0
        rounded = length - length % LENGTH_STEP_TOKENS
        if rounded >= max(mean or 0, LENGTH_STEP_TOKENS):
            return rounded
        return length if length >= (mean or 1) else 0

    def most_seqs(self, tp: int, max_model_len: int) -> int:
        """The largest max_num_seqs up to the asked one that fits at tp; 0 where none does."""
        tokens = self._most_kv_tokens(tp)
        if self.held_tokens(max_model_len) > tokens:
            return 0
        return tokens // self.held_tokens(self.mean_tokens(max_model_len))

    def _most_kv_tokens(self, tp: int) -> int:
        """Whole blocks that fit beside all else, with as many requests as asked or one."""
        cap = self.cap_bytes(tp)
        if cap is None:
            return self.config.max_position_embeddings
        num_seqs = self.demand.max_num_seqs or 1
        room = cap - self._base_bytes(tp, num_seqs)
        return max(0, room // self._cached_token_bytes(tp, num_seqs) // BLOCK_TOKENS * BLOCK_TOKENS)

    def _kv_cache_bytes(self, tp: int, max_model_len: int, num_seqs: int) -> int:
        """What the cap leaves: to the byte on a GPU, in whole blocks on a CPU."""
        room = (self.cap_bytes(tp) or 0) - self._base_bytes(tp, num_seqs)
        if self.demand.device == "GPU":
            own = self.kv_token_bytes(tp)
            return room if self.draft is None else room * own // (own + self._draft_token_bytes)
        # What no set of requests can fill would only be zeroed, and cost others their memory.
        most = num_seqs * self.held_tokens(max_model_len)
        tokens = min(most, room // self._cached_token_bytes(tp, num_seqs))
        return tokens // BLOCK_TOKENS * BLOCK_TOKENS * self.kv_token_bytes(tp)

    def mean_tokens(self, max_model_len: int) -> int:
        """The mean length of a request: as asked, else a quarter of the longest."""
        return self.demand.mean_tokens or -(-max_model_len // 4)

    def held_tokens(self, num_tokens: int) -> int:
        """Tokens of cache that a request of so many takes at most."""
        step_tokens = self._batched_tokens(self.demand.max_num_seqs or 1)
        return held_tokens(self.config, num_tokens, step_tokens)

    def kv_token_bytes(self, tp: int) -> int:
        """Bytes that a token takes on a rank with the most layers."""
        longest = longest_config(self.inspection, self.pp)
        return terms.kv_token_bytes(longest, tp, self.kv_cache_dtype)

    def _cached_token_bytes(self, tp: int, num_seqs: int) -> int:
        own = self.kv_token_bytes(tp) + self._draft_token_bytes
        return own + self._attention_token_bytes(tp, num_seqs)

    @property
    def _draft_token_bytes(self) -> int:
        """What each cached token takes in a draft model's cache too."""
        return 0 if self.draft is None else self.draft.kv_token_bytes(1)

    def _attention_token_bytes(self, tp: int, num_seqs: int) -> int:
        """Working memory that grows with the cache: kernels read it where it lies."""
        if self.demand.device == "GPU":
            return 0
        batched = self._batched_tokens(num_seqs)
        own = cpu_terms.cpu_attention_token_bytes(
            self.config, self.dtype, self.kv_cache_dtype, batched
        )
        own = 0 if self.is_program else own
        if self.draft is None:
            return own
        return max(own, self.draft._attention_token_bytes(1, num_seqs))

    def _terms(self, tp: int, num_seqs: int, kv_cache_bytes: int) -> Terms:
        """All terms around a KV cache of a given size."""
        num_tokens = kv_cache_bytes // self.kv_token_bytes(tp)
        activation = self._activation_bytes(tp, num_seqs)
        activation += num_tokens * self._attention_token_bytes(tp, num_seqs)
        overhead = self._overhead_bytes(tp)
        if self.demand.device == "CPU":
            overhead = cpu_terms.cpu_overhead_bytes(
                self.config,
                kv_cache_bytes + activation,
                is_native=self.is_native,
                is_rounded=self.quantization != "None",
            )
        own = Terms(self._weights_bytes(tp), kv_cache_bytes, activation, overhead)
        if self.draft is None:
            return own
        draft_bytes = num_tokens * self._draft_token_bytes
        return own.with_draft(Terms(self.draft._weights_bytes(1), draft_bytes, 0, 0))

    def _base_bytes(self, tp: int, num_seqs: int) -> int:
        """All that does not grow with the cache."""
        fixed = self._fixed_weights_bytes(tp) + self._overhead_bytes(tp)
        return fixed + self._activation_bytes(tp, num_seqs)

    def _fixed_weights_bytes(self, tp: int) -> int:
        """The model's and, where it has one, its draft model's."""
        drafts = 0 if self.draft is None else self.draft._weights_bytes(1)
        return self._weights_bytes(tp) + drafts

    def _weights_bytes(self, tp: int) -> int:
        return stage_weights_bytes(
            self.inspection, self.pp, tp, self.dtype, self.quantization, self.is_native
        )

    def _activation_bytes(self, tp: int, num_seqs: int) -> int:
        batched = self._batched_tokens(num_seqs)
        num_sampled = min(batched, num_seqs + self._num_proposed(num_seqs))
        draft = 0 if self.draft is None else self.draft._activation_bytes(1, num_seqs)
        if self.is_program:
            return cpu_terms.program_bytes(self.config, batched, num_sampled) + draft
        own = terms.activation_bytes(self.config, tp, self.dtype, batched, num_sampled)
        return max(own, draft)

    def _num_proposed(self, num_seqs: int) -> int:
        """The most tokens that a step tries."""
        number = self.demand.num_speculative_tokens
        return 0 if number is None else terms.most_proposed_tokens(num_seqs, number)

    def _overhead_bytes(self, tp: int) -> int:
        is_cpu = self.demand.device == "CPU"
        return (
            cpu_terms.cpu_process_bytes(self.config, self.is_native)
            if is_cpu
            else terms.gpu_overhead_bytes(tp * self.pp)
        )

    def _batched_tokens(self, num_seqs: int) -> int:
        asked = self.demand.max_num_batched_tokens
        return asked or max(DEFAULT_BATCHED_TOKENS[self.demand.device], num_seqs)

    def _num_seqs(self, tp: int, max_model_len: int) -> int:
        """As asked; else as many mean requests as the room holds beside one of full length."""
        if self.demand.max_num_seqs is not None:
            return self.demand.max_num_seqs
        most = DEFAULT_NUM_SEQS[self.demand.device]
        if self.demand.max_num_batched_tokens is not None:
            most = min(most, self.demand.max_num_batched_tokens)
        cap = self.cap_bytes(tp)
        if cap is None:
            return most
        room = cap - self._fixed_weights_bytes(tp) - self._overhead_bytes(tp)
        if self.demand.num_speculative_tokens is not None:
            room -= self._num_proposed(most) * terms.sampler_bytes_per_seq(self.config)
        token = self._cached_token_bytes(tp, 1)
        mean = self.held_tokens(self.mean_tokens(max_model_len)) * token
        full = self.held_tokens(max_model_len) * token
        logits = terms.sampler_bytes_per_seq(self.config)
        batch = terms.batch_bytes(self.config, tp, self.dtype, self._batched_tokens(1))
        if self.is_program:
            # Its buffers stay beside the logits.
            room, batch = room - batch, 0
        # Activations are the larger of batch and logits, so both bounds hold at once.
        bounds = ((room - batch) // mean, room // (mean + logits), (room - full) // logits)
        return max(1, min(most, *bounds))


def choose_split(case: Case) -> Split | None:
    """Return the split of the least tensor parallelism that fits, or None.

    KV heads copied beyond K ranks are given no credit (`terms.kv_token_bytes`), so more than K
    ranks are chosen only where it is the weights' share that makes room.
    """
    wanted = case.demand.max_model_len or case.default_model_len
    sizes = case.sizes()
    for tp in sizes:
        split = case.split(tp, wanted)
        if split.fits:
            return split
    if case.demand.max_model_len is not None:
        return None
    if not sizes:
        return None
    lengths = {tp: case.longest(tp) for tp in sizes}
    roomiest = max(sizes, key=lambda tp: lengths[tp])
    if lengths[roomiest] < case.least_model_len:
        return None
    split = case.split(roomiest, min(wanted, lengths[roomiest]))
    return split if split.fits else None


def spread_layers(case: Case) -> tuple[Case, Split] | None:
    """The case and split with the layers over several stages, where no tensor parallelism fits.

    The longest requests count first, then the fewest GPUs. None where nothing fits, and where the
    demand itself says how the model is spread.
    """
    found = [
        (each, split) for each in list_spread(case) if (split := choose_split(each)) is not None
    ]
    return min(
        found, key=lambda one: (-one[1].max_model_len, one[1].num_gpus, one[1].pp), default=None
    )


def list_spread(case: Case) -> list[Case]:
    """The case with its layers over two stages and more; none where the demand leaves no choice."""
    demand = case.demand
    if demand.device == "CPU" or demand.tensor_parallel_size or demand.pipeline_parallel_size:
        return []
    if demand.draft is not None:
        return []
    most = min(demand.max_gpus_per_node, case.config.num_layers)
    return [replace(case, pp=pp) for pp in range(2, most + 1)]
