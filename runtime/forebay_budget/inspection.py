"""What sizing must know about a model, small enough to travel in a pod's termination message.

`checkpoint.inspect_model` makes one, the operator keeps it in `status.model`, `sizing.size` reads
it.
"""

import json
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

Kind = Literal["sharded", "replicated", "embedding"]
Format = Literal["safetensors", "gguf"]

MAX_JSON_BYTES = 3_500
"""A termination message is cut at 4,096 bytes; the rest is left to whoever wraps this one."""

OTHER_DTYPES = "OTHER"
"""The dtype of a group that stands for several, merged so that the JSON stays short."""

PACKED_DTYPE = "PACKED"
"""The dtype of matrices that a quantised checkpoint packs: numbers, scales and zero points."""


Reason = Literal[
    # What was named is not there, or is something else.
    "BadUri",
    "ModelNotFound",
    "RevisionNotFound",
    "NotAModel",
    "AmbiguousModel",
    "NoSafetensors",
    # It is a model, but damaged.
    "BadConfig",
    "BadGguf",
    "BadSafetensors",
    "IncompleteModel",
    "BadInspection",
    # It is whole, but not (yet) one that the engine runs.
    "UnsupportedArchitecture",
    "UnsupportedConfig",
    "UnsupportedDtype",
    "UnsupportedQuantization",
    "UnsupportedRopeScaling",
    "UnsupportedSlidingWindow",
    # The hub did not give it.
    "AuthenticationRequired",
    "AccessDenied",
    "HubTimeout",
    "HubUnreachable",
    "HubError",
]


class ModelError(ValueError):
    """A model cannot be used: a reason for machines, a sentence that leads people to the cause."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.message = message


@dataclass(frozen=True)
class ModelConfig:
    """The numbers of a decoder that memory depends on."""

    architecture: str
    """In Hugging Face's words, also for GGUF: `LlamaForCausalLM`."""
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    dtype: str
    """What `auto` means for this checkpoint: `bfloat16`, `float16` or `float32`."""
    window: int | None = None
    """Keys that a query sees where every layer has a window; None where any layer sees all."""
    num_experts: int = 0
    """Of each mixture; 0: there is none."""
    num_experts_per_token: int = 0
    expert_intermediate_size: int = 0
    shared_intermediate_size: int = 0
    """Of the expert beside a mixture that every token passes; 0: there is none."""
    weight_bits: int = 0
    """Of each number of a quantised checkpoint's packed matrices; 0: none is packed."""
    weight_group_size: int = 0
    """Inputs of packed matrices that share a scale; 0: a whole row."""
    has_weight_zeros: bool = False
    """Packed matrices have a zero point beside each scale."""
    is_weight_reordered: bool = False
    """Inputs of packed matrices belong to groups by an index of their own, in no order."""
    quantizes_activations: bool = False
    """Inputs of packed matrices are rounded, too, a token at a time."""


@dataclass(frozen=True)
class WeightGroup:
    """Tensors of one dtype that tensor parallelism treats alike.

    Kinds: `sharded` matrices are divided over the ranks; `replicated` vectors (norms, biases) are
    on each; `embedding` is the token embedding and, where it is not tied, the output head: divided
    too, with the vocabulary padded.
    """

    kind: Kind
    dtype: str
    """As the file says it: `BF16`, `F32` (safetensors), `Q4_1` (GGUF); or PACKED_DTYPE."""
    num_elements: int
    num_bytes: int


@dataclass(frozen=True)
class Inspection:
    """A model's configuration and the sums of its weights, as the files' headers state them."""

    config: ModelConfig
    weights: tuple[WeightGroup, ...]
    format: Format
    revision: str
    """A commit on a hub; for files, `sha256:` and 16 digits over their headers."""
    quantization: str | None = None
    """How the checkpoint itself is quantised (`Q4_1`, `awq, 4 bits, groups of 128`); None for plain
    floating point."""

    @property
    def num_parameters(self) -> int:
        return sum(group.num_elements for group in self.weights)

    @property
    def weights_bytes(self) -> int:
        """Bytes in the files, not in memory: sizing counts those in the dtype that will run."""
        return sum(group.num_bytes for group in self.weights)

    def to_json(self) -> str:
        """Write at most MAX_JSON_BYTES; beyond that the smallest groups are merged, sums kept."""
        weights = self.weights
        while len(text := self._dump(weights).encode()) > MAX_JSON_BYTES:
            shorter = _merge_smallest(weights)
            if len(shorter) == len(weights):
                raise ModelError(
                    "NotAModel",
                    f"The inspection's JSON has {len(text)} bytes, over {MAX_JSON_BYTES}.",
                )
            weights = shorter
        return text.decode()

    def _dump(self, weights: Iterable[WeightGroup]) -> str:
        document = {
            "config": _config_document(self.config),
            "weights": [[g.kind, g.dtype, g.num_elements, g.num_bytes] for g in weights],
            "format": self.format,
            "revision": self.revision,
            "quantization": self.quantization,
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; ModelError where it is anything else."""
        try:
            document = json.loads(text)
            return cls(
                config=_config_from(document["config"]),
                weights=tuple(_group_from(row) for row in document["weights"]),
                format=_one_of(document["format"], get_args(Format)),
                revision=_typed(document["revision"], str),
                quantization=_typed(document["quantization"], str, type(None)),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ModelError(
                "BadInspection", f"This is not an inspection's JSON: {error!r}."
            ) from error


def _merge_smallest(weights: tuple[WeightGroup, ...]) -> tuple[WeightGroup, ...]:
    """Merge the two smallest groups of a kind into OTHER_DTYPES, which grows before a third."""
    pairs = []
    for kind in get_args(Kind):
        of_kind = [group for group in weights if group.kind == kind]
        pairs.append(sorted(of_kind, key=_merge_order)[:2])
    first, second = min(
        (pair for pair in pairs if len(pair) == 2),
        key=lambda pair: pair[1].num_bytes,
        default=(None, None),
    )
    if first is None or second is None:
        return weights
    merged = WeightGroup(
        first.kind,
        OTHER_DTYPES,
        first.num_elements + second.num_elements,
        first.num_bytes + second.num_bytes,
    )
    return (*(group for group in weights if group is not first and group is not second), merged)


def _merge_order(group: WeightGroup) -> tuple[bool, int]:
    return group.dtype != OTHER_DTYPES, group.num_bytes


def _typed(value: Any, *types: type) -> Any:
    if type(value) not in types:
        raise ValueError(f"{value!r} is no {' or '.join(t.__name__ for t in types)}")
    return value


def _one_of(value: Any, allowed: tuple[str, ...]) -> Any:
    if value not in allowed:
        raise ValueError(f"{value!r} is none of {', '.join(allowed)}")
    return value


def _config_document(config: ModelConfig) -> dict[str, Any]:
    """Without what is as for most models, so that it stays short."""
    defaults = {f.name: f.default for f in fields(ModelConfig)}
    return {key: value for key, value in asdict(config).items() if value != defaults[key]}


def _config_from(document: dict[str, Any]) -> ModelConfig:
    values = {
        f.name: _typed(document[f.name], *(get_args(f.type) or (f.type,)))
        for f in fields(ModelConfig)
        if f.name in document or f.default is MISSING
    }
    return ModelConfig(**values)


def _group_from(row: list[Any]) -> WeightGroup:
    kind, dtype, num_elements, num_bytes = row
    return WeightGroup(
        _one_of(kind, get_args(Kind)),
        _typed(dtype, str),
        _typed(num_elements, int),
        _typed(num_bytes, int),
    )
