"""`forebay quantize`: from settings to a folder, and the line that says what became of it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch

from forebay_budget.inspection import Inspection, ModelError
from forebay_budget.locate import is_gguf
from forebay_budget.quantity import format_bytes
from forebay_kernels.usable_cpus import usable_cpus
from forebay_runtime.ending import print_whole
from forebay_runtime.loading.description import describe_model
from forebay_runtime.loading.hub import find_model
from forebay_runtime.quantizing.calibration import read_samples
from forebay_runtime.quantizing.conversion import Conversion, Source
from forebay_runtime.quantizing.hf_config import build_config
from forebay_runtime.quantizing.layouts import quantization_config
from forebay_runtime.quantizing.output import OutputFolder
from forebay_runtime.quantizing.progress import Progress
from forebay_runtime.quantizing.refusal import QuantizeError
from forebay_runtime.quantizing.settings import QuantizeSettings, check_model, check_samples
from forebay_runtime.quantizing.text_files import copy_text_files, end_tokens, write_text_files
from forebay_runtime.text.tokenizer import TokenizerError
from forebay_runtime.text_parts import read_text_parts


def run_quantize(settings: QuantizeSettings) -> int:
    """Do it; returns the exit status, 2 where it was refused, with a sentence on stderr."""
    torch.set_num_threads(usable_cpus())
    try:
        quantize(settings)
    except (QuantizeError, ModelError, TokenizerError) as error:
        print(f"forebay quantize: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"forebay quantize: {settings.out} could not be written: {error}", file=sys.stderr)
        return 2
    return 0


def quantize(settings: QuantizeSettings) -> None:
    """Quantise a model into a folder.

    Raises: QuantizeError, ModelError or TokenizerError with a sentence that leads to the cause.
    """
    recipe, model = settings.recipe, settings.model
    path = find_model(model)
    described = describe_model(path)
    check_model(described, recipe)
    if settings.out.exists() and settings.out.resolve() == path.resolve():
        raise QuantizeError(f"{settings.out} is the model itself; name another folder")
    output = OutputFolder(settings.out, may_replace=settings.may_replace)
    _check_disk(settings.out, described.inspection)
    device = _device(settings.device)
    tokenizer, template = read_text_parts(path)
    source, samples = Source(described, tokenizer, template), list[list[int]]()
    if recipe.is_calibrated and settings.calibration is not None:
        samples = read_samples(settings.calibration, tokenizer, template, settings.excerpt)
        check_samples(samples, described.inspection.config)
    progress = Progress(described.inspection.config.num_layers)
    for leftover in output.leftovers:
        progress.say(f"{leftover} is of another run; remove it, if that was killed")
    if template.fault is not None:
        progress.say(f"{template.fault}; it is written as it is, and chats will be refused by it")
    progress.say(_describe(settings, described.inspection, samples))
    if recipe.is_refused_by_vllm:
        progress.say("vLLM refuses zero points in GPTQ's format; --symmetric leaves them out")
    conversion = Conversion(source, recipe, _dtype(settings, source), device)
    with output:
        conversion.run(output, samples, progress.note)
        _write_rest(source, settings, conversion, output)
    _sum_up(settings, described.inspection, output, progress)


def _write_rest(
    source: Source, settings: QuantizeSettings, conversion: Conversion, output: OutputFolder
) -> None:
    """All but the weights."""
    path = source.described.path
    if is_gguf(path):
        has_biases = conversion.has("model.layers.0.self_attn.q_proj.bias")
        config = build_config(source.blueprint, conversion.read_vector, has_biases=has_biases)
        config |= end_tokens(source.tokenizer)
        write_text_files(path, source.tokenizer, output)
    else:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        copy_text_files(path, output)
    dtype = str(_dtype(settings, source)).removeprefix("torch.")
    config["dtype" if "dtype" in config else "torch_dtype"] = dtype
    config["quantization_config"] = quantization_config(settings.recipe, conversion.kept)
    output.add_json("config.json", config)


def _dtype(settings: QuantizeSettings, source: Source) -> torch.dtype:
    name = settings.dtype
    if name == "auto":
        name = source.described.inspection.config.dtype
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _device(asked: str) -> torch.device:
    has_gpu = torch.cuda.is_available()
    if asked == "cuda" and not has_gpu:
        raise QuantizeError("--device cuda was asked, but torch sees no GPU; choose --device cpu")
    return torch.device("cuda" if has_gpu and asked != "cpu" else "cpu")


def _describe(settings: QuantizeSettings, inspection: Inspection, samples: list[list[int]]) -> str:
    recipe = settings.recipe
    groups = f"groups of {recipe.group_size}" if recipe.group_size else "one scale a row"
    text = f"{inspection.config.architecture}: {recipe.method}, {recipe.bits} bits, {groups}"
    if samples:
        length = len(samples[0])
        text += f"; {len(samples)} sequences of {length} tokens from {settings.calibration}"
    return text


def _check_disk(out: Path, inspection: Inspection) -> None:
    """Refuse a disk that is too full by far; what else fails is told when it does."""
    parent = out.absolute().parent
    while not parent.exists():
        parent = parent.parent
    free, needed = shutil.disk_usage(parent).free, _least_bytes(inspection)
    if free < needed:
        raise QuantizeError(
            f"{parent} has {format_bytes(free)} free, but {out.name} takes {format_bytes(needed)} "
            "at least; make room, or name a folder elsewhere"
        )


def _least_bytes(inspection: Inspection) -> int:
    """What the output takes at least: four bits of matrices, two bytes of all else."""
    return sum(
        group.num_elements // 2 if group.kind == "sharded" else 2 * group.num_elements
        for group in inspection.weights
    )


def _sum_up(
    settings: QuantizeSettings, inspection: Inspection, output: OutputFolder, progress: Progress
) -> None:
    before, after = inspection.weights_bytes, output.num_bytes
    error, module = progress.worst
    if module:
        progress.say(f"the largest output error of all is {error:.1%}, of {module}")
    print_whole(f"{settings.out}: {format_bytes(after)}, from {format_bytes(before)}")
