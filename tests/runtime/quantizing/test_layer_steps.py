"""A layer in steps computes what transformers does, so calibration sees what the model sees."""

from pathlib import Path

import pytest
import torch

from forebay_kernels.portable.elementwise import rope_table
from forebay_runtime.loading.checkpoint import open_checkpoint
from forebay_runtime.loading.description import describe_model
from forebay_runtime.models.rope import rope_frequencies
from forebay_runtime.quantizing.layer_steps import LayerSteps
from forebay_runtime.quantizing.layer_tensors import LayerReader
from tiny_model import save_tiny

DENSE = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"]
NUM_TOKENS = 21


def no_factors(name: str, size: int) -> torch.Tensor:
    raise KeyError(name)


@pytest.mark.parametrize("family", DENSE)
def test_steps_are_transformers_layers(family: str, tmp_path: Path) -> None:
    model = save_tiny(tmp_path, family)
    blueprint = describe_model(tmp_path).blueprint
    reader = LayerReader(open_checkpoint(tmp_path, blueprint), blueprint, torch.device("cpu"))
    tokens = torch.tensor(
        [[(5 * place + row) % 131 for place in range(NUM_TOKENS)] for row in (3, 8)]
    )
    with torch.inference_mode():
        states = model.model(tokens, output_hidden_states=True).hidden_states
        x = states[0]
        for number, layer in enumerate(blueprint.layers):
            frequencies, scale = rope_frequencies(layer.rope, NUM_TOKENS, 256, no_factors)
            cos, sin = rope_table(frequencies, NUM_TOKENS, scale)
            steps = LayerSteps(blueprint, layer, reader.read(number), (cos, sin))
            x = steps.after_attention(x, steps.attended(steps.attention_inputs(x)))
            x = steps.after_mlp(x, steps.mlp_gated(x))
            # transformers norms what the last layer leaves.
            if number + 1 < len(blueprint.layers):
                torch.testing.assert_close(x, states[number + 1], rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(model.model.norm(x), states[-1], rtol=1e-3, atol=1e-3)
