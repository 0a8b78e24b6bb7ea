"""Inspect a model: from a path or an hf:// address to the sums that sizing needs, by headers alone.

The inspection Job and `forebay budget` call it; oci:// and pvc:// models are mounted and come as a
path.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from forebay_budget.blueprint import Blueprint
from forebay_budget.gguf import GgufHeader, read_gguf_header
from forebay_budget.hub import HubFolder, parse_hub_uri
from forebay_budget.inspection import Inspection, ModelError, WeightGroup
from forebay_budget.layout import StoredTensor, group_weights, has_head
from forebay_budget.locate import is_gguf, locate_model, reading
from forebay_budget.model_config import read_gguf_config, read_hf_config
from forebay_budget.safetensors import list_shards, read_safetensors_header
from forebay_budget.source import Folder, LocalFolder, read_json_object

_MAX_ARRAY_ITEMS = 1_024
"""Longer arrays of a GGUF are vocabularies, which sizing does not need."""
_PLAIN_DTYPES = ("F64", "F32", "F16", "BF16")


def inspect_model(model: str | Path) -> Inspection:
    """Inspect a path (as locate_model takes it) or `hf://organisation/name[@revision]`.

    Raises: ModelError.
    """
    return examine_model(model)[0]


def examine_model(model: str | Path) -> tuple[Inspection, Blueprint]:
    """Inspect a model, and say all that its files say of its decoder.

    Raises: ModelError.
    """
    scheme, separator, _ = str(model).partition("://")
    if not separator:
        return _inspect_path(Path(model))
    if scheme == "hf":
        folder = HubFolder(parse_hub_uri(str(model)))
        return _inspect_folder(folder, folder.revision)
    if scheme in ("oci", "pvc"):
        raise ModelError(
            "BadUri", f"{model} is read where it is mounted; name the folder it is mounted at."
        )
    raise ModelError("BadUri", f"{model} has an unknown scheme; write hf://organisation/name.")


def _inspect_path(path: Path) -> tuple[Inspection, Blueprint]:
    located = locate_model(path)
    with reading(located):
        return _inspect_gguf(located) if is_gguf(located) else _inspect_folder(LocalFolder(located))


def _inspect_folder(folder: Folder, revision: str = "") -> tuple[Inspection, Blueprint]:
    document, config_text = read_json_object(folder.open("config.json"))
    digest = hashlib.sha256(config_text)
    tensors: list[StoredTensor] = []
    # A config that the engine refuses is refused before any shard is read.
    read_hf_config(document, "BF16")
    for shard in list_shards(folder):
        found, header = read_safetensors_header(folder.open(shard))
        digest.update(header)
        tensors.extend(found)
    blueprint = read_hf_config(document, _most_common_dtype(tensors))
    inspection = Inspection(
        config=blueprint.sizes,
        weights=group_weights(blueprint, tensors, "safetensors"),
        format="safetensors",
        revision=revision or _short(digest.hexdigest()),
        quantization=None if blueprint.packing is None else str(blueprint.packing),
    )
    return inspection, blueprint


def _inspect_gguf(path: Path) -> tuple[Inspection, Blueprint]:
    header = read_gguf_header(path, max_array_items=_MAX_ARRAY_ITEMS)
    tensors = [
        StoredTensor(tensor.name, tensor.shape, tensor.ggml_type_name, tensor.num_bytes)
        for tensor in header.tensors
    ]
    blueprint = read_gguf_config(
        header.metadata,
        [tensor.name for tensor in tensors],
        vocab_size=_vocab_size(tensors),
        has_head=has_head(tensors, "gguf"),
        stored_dtype=_most_common_dtype(tensors),
    )
    weights = group_weights(blueprint, tensors, "gguf")
    revision, quantization = _gguf_digest(path, header), _quantization(weights)
    return Inspection(blueprint.sizes, weights, "gguf", revision, quantization), blueprint


_GGUF_EMBEDDING = "token_embd.weight"


def _vocab_size(tensors: Iterable[StoredTensor]) -> int:
    for tensor in tensors:
        if tensor.name == _GGUF_EMBEDDING:
            return tensor.shape[0]
    raise ModelError("IncompleteModel", f"The GGUF has no tensor {_GGUF_EMBEDDING}.")


def _most_common_dtype(tensors: Iterable[StoredTensor]) -> str:
    counts: Counter[str] = Counter()
    for tensor in tensors:
        counts[tensor.dtype] += tensor.num_bytes
    return counts.most_common(1)[0][0] if counts else "BF16"


def _quantization(weights: tuple[WeightGroup, ...]) -> str | None:
    sharded = max((g for g in weights if g.kind == "sharded"), key=lambda g: g.num_bytes)
    return None if sharded.dtype in _PLAIN_DTYPES else sharded.dtype


def _gguf_digest(path: Path, header: GgufHeader) -> str:
    with path.open("rb") as stream:
        return _short(hashlib.sha256(stream.read(header.data_offset)).hexdigest())


def _short(hexdigest: str) -> str:
    return f"sha256:{hexdigest[:16]}"
