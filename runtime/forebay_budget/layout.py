"""Which tensors a decoder has, and how tensor parallelism treats each.

A checkpoint is compared with its own config here, so that one that lacks a shard, or is no such
model, is refused before anything is sized by it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from forebay_budget.blueprint import Blueprint, Layer
from forebay_budget.inspection import PACKED_DTYPE, Format, Kind, ModelError, WeightGroup
from forebay_budget.packed_tensors import list_packed_tensors
from forebay_budget.packing import Packing
from forebay_budget.rope import LongScaling, StoredScaling
from forebay_budget.tensor_names import to_gguf

SUPPORTED_DTYPES: dict[Format, tuple[str, ...]] = {
    "safetensors": ("F64", "F32", "F16", "BF16"),
    "gguf": (
        "F32",
        "F16",
        "BF16",
        "Q8_0",
        "Q6_K",
        "Q5_K",
        "Q5_1",
        "Q5_0",
        "Q4_K",
        "Q4_1",
        "Q4_0",
        "IQ4_NL",
        "Q3_K",
        "Q2_K",
    ),
}
"""What the runtime's loaders read."""

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
    packed_dtypes: tuple[str, ...] = ()
    """The dtypes it may have as part of a packed matrix; none: it is a plain tensor."""
    num_packed: int = 0
    """Elements of the packed matrix that it holds."""


def group_weights(
    blueprint: Blueprint, stored: Iterable[StoredTensor], file_format: Format
) -> tuple[WeightGroup, ...]:
    """Sum the tensors that the engine loads, by kind and dtype.

    Raises: ModelError with the reason IncompleteModel where a tensor is missing, UnsupportedConfig
    where one is too many, BadConfig where a shape contradicts the config, UnsupportedDtype.
    """
    by_name = {tensor.name: tensor for tensor in stored}
    of_format = _expect(blueprint)
    if file_format == "gguf":
        of_format = _as_stacked(blueprint, of_format)
    if blueprint.packing is not None:
        of_format = _as_packed(blueprint.packing, of_format, by_name)
    expected = [wanted for wanted in of_format if not wanted.is_optional or wanted.name in by_name]
    _check_presence(expected, by_name)
    _check_surplus(blueprint, by_name.keys() - {wanted.name for wanted in expected}, file_format)
    sums: dict[tuple[Kind, str], tuple[int, int]] = {}
    for wanted in expected:
        tensor = by_name[wanted.name]
        _check_tensor(tensor, wanted, file_format)
        is_packed = bool(wanted.packed_dtypes)
        key = wanted.kind, PACKED_DTYPE if is_packed else tensor.dtype
        num_elements, num_bytes = sums.get(key, (0, 0))
        sums[key] = (
            num_elements + (wanted.num_packed if is_packed else math.prod(wanted.shape)),
            num_bytes + tensor.num_bytes,
        )
    return tuple(WeightGroup(*key, *total) for key, total in sorted(sums.items()))


def list_plain_tensors(blueprint: Blueprint, dtype: str) -> Iterator[StoredTensor]:
    """The tensors of a safetensors checkpoint that has all in one dtype ("BF16"), and no biases
    that it may go without."""
    num_bytes = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}[dtype]
    for wanted in _expect(blueprint):
        if not wanted.is_optional:
            size = num_bytes * math.prod(wanted.shape)
            yield StoredTensor(wanted.name, wanted.shape, dtype, size)


def layer_shapes(blueprint: Blueprint, layer: Layer) -> dict[str, tuple[int, ...]]:
    """A layer's norms [size] and matrices [outputs, inputs] by their names within it; its mixture's
    and the biases that it may have are not among them."""
    vectors = {name: (size,) for name, size in _vectors(blueprint).items()}
    return {**vectors, **_matrices(blueprint, layer)}


def has_head(stored: Iterable[StoredTensor], file_format: Format) -> bool:
    """Say whether a checkpoint holds an output head of its own."""
    name = _HEADS[file_format]
    return any(tensor.name == name for tensor in stored)


_HEADS: dict[Format, str] = {"safetensors": "lm_head.weight", "gguf": "output.weight"}


def _as_packed(
    packing: Packing, expected: Iterable[_Expected], by_name: Mapping[str, StoredTensor]
) -> Iterator[_Expected]:
    """Matrices of layers by the tensors that they are packed into.

    Those that the quantisation skipped are where their plain weights are in the file.
    """
    for wanted in expected:
        name, _, part = wanted.name.rpartition(".")
        if wanted.kind == "embedding":
            _check_embedding(name, by_name)
        is_matrix = wanted.kind != "embedding" and part == "weight" and len(wanted.shape) == 2
        if not is_matrix or _is_plain(by_name.get(wanted.name)):
            yield wanted
            continue
        rows, columns = wanted.shape
        for tensor in list_packed_tensors(packing, name, (rows, columns)):
            yield _Expected(
                f"{name}.{tensor.ending}",
                wanted.kind,
                tensor.shape,
                tensor.is_optional,
                tensor.dtypes,
                tensor.num_elements,
            )


def _check_embedding(name: str, by_name: Mapping[str, StoredTensor]) -> None:
    if any(stored.startswith(f"{name}.") for stored in by_name) and not _is_plain(
        by_name.get(f"{name}.weight")
    ):
        raise ModelError(
            "UnsupportedQuantization",
            f"The checkpoint's {name} is packed; the runtime reads embeddings and heads plain "
            "only.",
        )


def _is_plain(tensor: StoredTensor | None) -> bool:
    """Is it there, in floating point?"""
    return tensor is not None and tensor.dtype in SUPPORTED_DTYPES["safetensors"]


def _as_stacked(blueprint: Blueprint, expected: Iterable[_Expected]) -> Iterator[_Expected]:
    """By GGUF's names, all experts of a layer in one tensor, and gates of one row as vectors."""
    for wanted in expected:
        name, expert = to_gguf(wanted.name, blueprint.family)
        shape = wanted.shape[1:] if wanted.shape[:1] == (1,) else wanted.shape
        if expert is not None:
            shape = (blueprint.sizes.num_experts, *shape)
        if not expert:
            yield replace(wanted, name=name, shape=shape)
    for name, num_elements in stored_rope_factors(blueprint).items():
        yield _Expected(name, "replicated", (num_elements,))


def stored_rope_factors(blueprint: Blueprint) -> dict[str, int]:
    """The tensors in which a GGUF keeps factors of the rotary embedding, and their lengths."""
    rope = blueprint.layers[0].rope
    if isinstance(rope.scaling, StoredScaling):
        return {"rope_freqs.weight": rope.num_dims // 2}
    if isinstance(rope.scaling, LongScaling) and rope.scaling.long_factors is None:
        return {f"rope_factors_{kind}.weight": rope.num_dims // 2 for kind in ("long", "short")}
    return {}


def _expect(blueprint: Blueprint) -> Iterator[_Expected]:
    """All tensors, by Hugging Face's names."""
    sizes = blueprint.sizes
    vocabulary = (sizes.vocab_size, sizes.hidden_size)
    yield _Expected("model.embed_tokens.weight", "embedding", vocabulary)
    if not sizes.tie_word_embeddings:
        yield _Expected("lm_head.weight", "embedding", vocabulary)
    yield _Expected("model.norm.weight", "replicated", (sizes.hidden_size,))
    for number, layer in enumerate(blueprint.layers):
        prefix = f"model.layers.{number}."
        for name, size in _vectors(blueprint).items():
            yield _Expected(f"{prefix}{name}.weight", "replicated", (size,))
        for name, shape in _matrices(blueprint, layer).items():
            yield from _matrix(blueprint, f"{prefix}{name}", shape)
        if layer.has_experts:
            yield from _mixture(blueprint, prefix)


def _matrix(blueprint: Blueprint, name: str, shape: tuple[int, int]) -> Iterator[_Expected]:
    """A matrix with the bias that it may have, and in some families must."""
    is_qkv = name.rpartition(".")[2] in ("q_proj", "k_proj", "v_proj")
    is_optional = not (blueprint.family.needs_qkv_bias and is_qkv)
    yield _Expected(f"{name}.weight", "sharded", shape)
    yield _Expected(f"{name}.bias", "replicated", shape[:1], is_optional=is_optional)


def _vectors(blueprint: Blueprint) -> dict[str, int]:
    """The norms of a layer, and their lengths."""
    sizes, norms = blueprint.sizes, blueprint.family.norms
    names = (norms.before_attention, norms.after_attention, norms.before_mlp, norms.after_mlp)
    vectors = {name: sizes.hidden_size for name in names if name is not None}
    if blueprint.family.has_qk_norm:
        vectors |= {f"self_attn.{part}_norm": sizes.head_dim for part in ("q", "k")}
    return vectors


def _matrices(blueprint: Blueprint, layer: Layer) -> dict[str, tuple[int, int]]:
    """The shapes of a layer's matrices, [outputs, inputs], its mixture aside."""
    sizes = blueprint.sizes
    hidden, inner = sizes.hidden_size, sizes.intermediate_size
    queries, keys = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
    if blueprint.family.is_fused:
        matrices = {"self_attn.qkv_proj": (queries + 2 * keys, hidden)}
        gates = {"mlp.gate_up_proj": (2 * inner, hidden)}
    else:
        matrices = {
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
        }
        gates = {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden)}
    matrices["self_attn.o_proj"] = (hidden, queries)
    return matrices if layer.has_experts else matrices | gates | {"mlp.down_proj": (hidden, inner)}


def _mixture(blueprint: Blueprint, prefix: str) -> Iterator[_Expected]:
    """A layer's router, experts, and the expert that all tokens pass where there is one."""
    sizes, names = blueprint.sizes, blueprint.family.experts
    hidden, inner, shared = (
        sizes.hidden_size,
        sizes.expert_intermediate_size,
        sizes.shared_intermediate_size,
    )
    block = f"{prefix}{names.block}"
    yield _Expected(f"{block}.gate.weight", "replicated", (sizes.num_experts, hidden))
    for number in range(sizes.num_experts):
        expert = f"{block}.experts.{number}"
        yield _Expected(f"{expert}.{names.gate}.weight", "sharded", (inner, hidden))
        yield _Expected(f"{expert}.{names.up}.weight", "sharded", (inner, hidden))
        yield _Expected(f"{expert}.{names.down}.weight", "sharded", (hidden, inner))
    if shared:
        expert = f"{block}.shared_expert"
        yield _Expected(f"{expert}.gate_proj.weight", "sharded", (shared, hidden))
        yield _Expected(f"{expert}.up_proj.weight", "sharded", (shared, hidden))
        yield _Expected(f"{expert}.down_proj.weight", "sharded", (hidden, shared))
        yield _Expected(f"{block}.shared_expert_gate.weight", "replicated", (1, hidden))


def _check_presence(expected: list[_Expected], by_name: dict[str, StoredTensor]) -> None:
    missing = [wanted.name for wanted in expected if wanted.name not in by_name]
    if missing:
        raise ModelError(
            "IncompleteModel",
            f"The checkpoint lacks {len(missing)} of the {len(expected)} tensors that its config "
            f"asks for, the first is {missing[0]}.",
        )


def _check_surplus(blueprint: Blueprint, surplus: Iterable[str], file_format: Format) -> None:
    """Weights that nothing reads would make a model that answers, but wrongly."""
    derived = {_HEADS[file_format]} if blueprint.sizes.tie_word_embeddings else set()
    unknown = sorted(
        name for name in surplus if name not in derived and not name.endswith(_DERIVED_ENDING)
    )
    if unknown:
        raise ModelError(
            "UnsupportedConfig",
            f"The checkpoint has {len(unknown)} tensors that {blueprint.sizes.architecture} does "
            f"not use, the first is {unknown[0][:80]!r}.",
        )


def _check_tensor(tensor: StoredTensor, wanted: _Expected, file_format: Format) -> None:
    if tensor.shape != wanted.shape:
        raise ModelError(
            "BadConfig",
            f"{tensor.name} has the shape {list(tensor.shape)}, but by the config it should have "
            f"{list(wanted.shape)}.",
        )
    supported = wanted.packed_dtypes or SUPPORTED_DTYPES[file_format]
    if tensor.dtype not in supported:
        raise ModelError(
            "UnsupportedDtype",
            f"{tensor.name} is stored as {tensor.dtype}, which the runtime does not read; "
            f"it reads {', '.join(supported)}.",
        )
