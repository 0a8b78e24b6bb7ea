"""What model families differ in, as data: each is a Family of its own file in `families`.

Sizing and the runtime read the same Family, so a family that can be sized is one that runs, and
both refuse alike. Rules are functions of a model's settings, for what its config decides.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from forebay_budget.inspection import ModelError
from forebay_budget.rope import Rope, read_rope
from forebay_budget.settings import Settings, shown

Activation = Literal["silu", "gelu_pytorch_tanh"]
WindowRule = Callable[[Settings, int], tuple[int | None, ...]]
"""From settings and the number of layers to each layer's window, None where it sees all keys."""


@dataclass(frozen=True)
class NormNames:
    """The norms of a layer, by Hugging Face's names; None: there is none."""

    before_attention: str = "input_layernorm"
    after_attention: str | None = None
    before_mlp: str = "post_attention_layernorm"
    after_mlp: str | None = None


@dataclass(frozen=True)
class ExpertNames:
    """A mixture's tensors, by Hugging Face's names; gate, up and down are of one expert."""

    block: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


def never_windowed(settings: Settings, num_layers: int) -> tuple[int | None, ...]:
    """Every layer sees all keys.

    Raises: ModelError where the model says otherwise.
    """
    types = settings.get("layer_types")
    is_windowed = isinstance(types, list) and "sliding_attention" in map(str, types)
    if is_windowed or (settings.is_gguf and settings.get("sliding_window")):
        raise ModelError(
            "UnsupportedSlidingWindow",
            f"The model attends within a sliding window ({shown(settings.get('sliding_window'))} "
            "tokens), which its architecture does not have.",
        )
    return (None,) * num_layers


def windowed_where(
    settings: Settings, num_layers: int, is_windowed: Callable[[int], bool]
) -> tuple[int | None, ...]:
    """The window in the layers that `layer_types` names, or where it is absent the rule.

    Raises: ModelError for types that are not known, or not one a layer.
    """
    types = settings.get("layer_types")
    if types is None:
        flags = [is_windowed(number) for number in range(num_layers)]
    else:
        known = {"sliding_attention": True, "full_attention": False}
        if not isinstance(types, list) or len(types) != num_layers:
            raise ModelError(
                "BadConfig", f"The model's layer_types do not name its {num_layers} layers."
            )
        unknown = [t for t in types if not isinstance(t, str) or t not in known]
        if unknown:
            raise ModelError(
                "UnsupportedConfig",
                f"The model has a layer of the type {shown(unknown[0])}, which the runtime does "
                f"not know; it knows {', '.join(known)}.",
            )
        flags = [known[t] for t in types]
    if not any(flags) or not settings.get("sliding_window"):
        return (None,) * num_layers
    window = settings.number("sliding_window")
    return tuple(window if flag else None for flag in flags)


def windowed_everywhere(settings: Settings, num_layers: int) -> tuple[int | None, ...]:
    """The window in every layer, where one is stated."""
    return windowed_where(settings, num_layers, lambda number: True)


def where_asked(windows: WindowRule) -> WindowRule:
    """A rule that counts only where use_sliding_window says so; its settings are read only then."""

    def rule(settings: Settings, num_layers: int) -> tuple[int | None, ...]:
        if not settings.switch("use_sliding_window"):
            return windowed_where(settings, num_layers, lambda number: False)
        return windows(settings, num_layers)

    return rule


def one_rope(family: "Family", settings: Settings, head_dim: int) -> tuple[Rope, Rope]:
    """The same rotary embedding in all layers."""
    rope = read_rope(settings, head_dim, can_be_partial=family.rotates_partly)
    return rope, rope


def no_experts(settings: Settings, num_layers: int) -> tuple[bool, ...]:
    """No layer is a mixture."""
    return (False,) * num_layers


def nothing(settings: Settings) -> Mapping[str, Any]:
    """GGUF says all."""
    return {}


@dataclass(frozen=True)
class Family:
    """A family of decoders.

    defaults: what transformers assumes where config.json is silent. untold_by_gguf: what GGUF's
    conversion leaves out, by config.json's names. windows, ropes (of layers without and with a
    window) and experts_in are rules over the layers.
    """

    architecture: str
    gguf_kinds: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    untold_by_gguf: Callable[[Settings], Mapping[str, Any]] = nothing
    windows: WindowRule = never_windowed
    ropes: Callable[["Family", Settings, int], tuple[Rope, Rope]] = one_rope
    experts_in: Callable[[Settings, int], tuple[bool, ...]] = no_experts
    experts: ExpertNames = ExpertNames()
    norms: NormNames = NormNames()
    activation: Activation = "silu"
    activation_key: str = "hidden_act"
    needs_qkv_bias: bool = False
    has_qk_norm: bool = False
    is_fused: bool = False
    """The checkpoint holds q, k and v as one matrix, and gate and up as one."""
    rotates_partly: bool = False
    has_softcaps: bool = False
    norm_offset: int = 0
    """Added to the weights of norms; GGUF's conversion has added it already."""
    scales_embedding: bool = False
    """Embeddings are multiplied by the square root of the hidden size."""
    is_interleaved_in_gguf: bool = False
    """GGUF pairs neighbouring rows of q and k for the rotary embedding, as Meta's code does."""
