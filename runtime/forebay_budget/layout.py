"""Which tensors a Llama-shaped decoder has, and how tensor parallelism treats each.

A checkpoint is compared with its own config here, so that one that lacks a shard, or is no such
model, is refused before anything is sized by it.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from forebay_budget.family import find_family
from forebay_budget.inspection import Format, Kind, ModelConfig, ModelError, WeightGroup

SUPPORTED_DTYPES: dict[Format, tuple[str, ...]] = {
    "safetensors": ("F64", "F32", "F16", "BF16"),
    "gguf": ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"),
}
"""What the runtime's loaders read."""

_NAMES: dict[Format, dict[str, str]] = {
    "safetensors": {
        "layer": "model.layers.{}.",
        "embedding": "model.embed_tokens",
        "norm": "model.norm",
        "head": "lm_head",
        "attention_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    },
    "gguf": {
        "layer": "blk.{}.",
        "embedding": "token_embd",
        "norm": "output_norm",
        "head": "output",
        "attention_norm": "attn_norm",
        "mlp_norm": "ffn_norm",
        "q": "attn_q",
        "k": "attn_k",
        "v": "attn_v",
        "o": "attn_output",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
    },
}

_DERIVED_ENDING = ".rotary_emb.inv_freq"
"""Tables of rotary frequencies, which old checkpoints hold and everyone computes anew."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as a file's header states it; the shape is row-major."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    num_bytes: int


@dataclass(frozen=True)
class _Expected:
    name: str
    kind: Kind
    shape: tuple[int, ...]
    is_optional: bool = False


def group_weights(
    config: ModelConfig, stored: Iterable[StoredTensor], file_format: Format
) -> tuple[WeightGroup, ...]:
    """Sum the tensors that the engine loads, by kind and dtype.

    Raises: ModelError with the reason IncompleteModel where a tensor is missing, UnsupportedConfig
    where one is too many, BadConfig where a shape contradicts the config, UnsupportedDtype.
    """
    by_name = {tensor.name: tensor for tensor in stored}
    expected = [e for e in _expect(config, file_format) if not e.is_optional or e.name in by_name]
    _check_presence(expected, by_name)
    _check_surplus(config, by_name.keys() - {wanted.name for wanted in expected}, file_format)
    sums: dict[tuple[Kind, str], tuple[int, int]] = {}
    for wanted in expected:
        tensor = by_name[wanted.name]
        _check_tensor(tensor, wanted, file_format)
        num_elements, num_bytes = sums.get((wanted.kind, tensor.dtype), (0, 0))
        sums[wanted.kind, tensor.dtype] = (
            num_elements + math.prod(wanted.shape),
            num_bytes + tensor.num_bytes,
        )
    return tuple(WeightGroup(*key, *total) for key, total in sorted(sums.items()))


def has_head(stored: Iterable[StoredTensor], file_format: Format) -> bool:
    """Say whether a checkpoint holds an output head of its own."""
    name = _NAMES[file_format]["head"] + ".weight"
    return any(tensor.name == name for tensor in stored)


def embedding_name(file_format: Format) -> str:
    """Name the token embedding, whose rows are the vocabulary."""
    return _NAMES[file_format]["embedding"] + ".weight"


def _expect(config: ModelConfig, file_format: Format) -> Iterator[_Expected]:
    names = _NAMES[file_format]
    vocabulary = (config.vocab_size, config.hidden_size)
    yield _Expected(f"{names['embedding']}.weight", "embedding", vocabulary)
    if not config.tie_word_embeddings:
        yield _Expected(f"{names['head']}.weight", "embedding", vocabulary)
    yield _Expected(f"{names['norm']}.weight", "replicated", (config.hidden_size,))
    matrices = _matrices(config)
    has_bias = find_family(config.architecture).needs_qkv_bias
    for number in range(config.num_layers):
        prefix = names["layer"].format(number)
        for norm in ("attention_norm", "mlp_norm"):
            yield _Expected(f"{prefix}{names[norm]}.weight", "replicated", (config.hidden_size,))
        for part, shape in matrices.items():
            yield _Expected(f"{prefix}{names[part]}.weight", "sharded", shape)
            is_optional = not (has_bias and part in ("q", "k", "v"))
            yield _Expected(
                f"{prefix}{names[part]}.bias", "replicated", shape[:1], is_optional=is_optional
            )


def _matrices(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """The shapes of a layer's matrices, [outputs, inputs]."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "q": (queries, hidden),
        "k": (keys, hidden),
        "v": (keys, hidden),
        "o": (hidden, queries),
        "gate": (inner, hidden),
        "up": (inner, hidden),
        "down": (hidden, inner),
    }


def _check_presence(expected: list[_Expected], by_name: dict[str, StoredTensor]) -> None:
    missing = [wanted.name for wanted in expected if wanted.name not in by_name]
    if missing:
        raise ModelError(
            "IncompleteModel",
            f"The checkpoint lacks {len(missing)} of the {len(expected)} tensors that its config "
            f"asks for, the first is {missing[0]}.",
        )


def _check_surplus(config: ModelConfig, surplus: Iterable[str], file_format: Format) -> None:
    """Weights that nothing reads would make a model that answers, but wrongly."""
    derived = {f"{_NAMES[file_format]['head']}.weight"} if config.tie_word_embeddings else set()
    unknown = sorted(
        name for name in surplus if name not in derived and not name.endswith(_DERIVED_ENDING)
    )
    if unknown:
        raise ModelError(
            "UnsupportedConfig",
            f"The checkpoint has {len(unknown)} tensors that {config.architecture} does not use, "
            f"the first is {unknown[0][:80]!r}.",
        )


def _check_tensor(tensor: StoredTensor, wanted: _Expected, file_format: Format) -> None:
    if tensor.shape != wanted.shape:
        raise ModelError(
            "BadConfig",
            f"{tensor.name} has the shape {list(tensor.shape)}, but by the config it should have "
            f"{list(wanted.shape)}.",
        )
    supported = SUPPORTED_DTYPES[file_format]
    if tensor.dtype not in supported:
        raise ModelError(
            "UnsupportedDtype",
            f"{tensor.name} is stored as {tensor.dtype}, which the runtime does not read; "
            f"it reads {', '.join(supported)}.",
        )
