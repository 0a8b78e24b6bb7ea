"""Which model class runs which architecture.

A family also has an entry in forebay_budget.family, which refuses what the class here would run
wrongly before any weights are read.
"""

from __future__ import annotations

from forebay_budget.family import find_family
from forebay_runtime.loading.checkpoint import Checkpoint
from forebay_runtime.models.decoder import Decoder, DecoderConfig, Placement

MODELS: dict[str, type[Decoder]] = {
    "LlamaForCausalLM": Decoder,
    # Mistral without its sliding window, and Llama with biases on q, k and v.
    "MistralForCausalLM": Decoder,
    "Qwen2ForCausalLM": Decoder,
}


def build_model(config: DecoderConfig, checkpoint: Checkpoint, placement: Placement) -> Decoder:
    """Read a checkpoint's weights into the model of its architecture.

    Raises: ModelError if the architecture is not known, or a tensor is missing or misshapen.
    """
    architecture = find_family(config.sizes.architecture).architecture
    return MODELS[architecture](config, checkpoint, placement)
