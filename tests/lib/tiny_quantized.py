"""Tiny models to quantise, with a tokenizer and text, and what quantising them gives."""

import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from forebay_runtime.quantizing.command import quantize
from forebay_runtime.quantizing.excerpt import Excerpt
from forebay_runtime.quantizing.recipe import Recipe
from forebay_runtime.quantizing.settings import QuantizeSettings
from tiny_model import save_tiny

_SIZES = {"vocab_size": 320}
EXCERPT = Excerpt(num_samples=24, sequence_length=96)


def save_source(folder: Path, family: str = "llama", **sizes: Any) -> Any:
    """A random model of a family with a tokenizer of bytes; returns transformers' model of it."""
    model = save_tiny(folder, family, **{**_SIZES, **sizes})
    save_byte_tokenizer(folder)
    return model


def save_byte_tokenizer(folder: Path) -> None:
    """A token for each byte, at the ids from 3 on; the model's first three are special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<pad>", "<s>", "</s>", *alphabet]
    backend = Tokenizer(models.BPE({name: place for place, name in enumerate(names)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(names[:3])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}'
    )


def save_text(path: Path, num_chars: int = 2600) -> Path:
    """Text of chance."""
    chance = random.Random(3)
    path.write_text("".join(chance.choice("abcdefgh ,.\n") for _ in range(num_chars)))
    return path


def quantize_tiny(source: Path, out: Path, recipe: Recipe, **settings: Any) -> Path:
    """Quantise a folder of save_source's by random text."""
    text = save_text(source.with_name(f"{source.name}.txt")) if recipe.is_calibrated else None
    quantize(
        QuantizeSettings(
            str(source), out, recipe, text, **{"excerpt": EXCERPT, "device": "cpu", **settings}
        )
    )
    return out
