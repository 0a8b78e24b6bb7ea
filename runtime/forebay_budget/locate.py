"""Find the model in what was mounted or named: a GGUF file, or a folder with config.json.

The inspection and the runtime both start here, so that they agree on which model a path means.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay_budget.inspection import ModelError

_PART_OF_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
_UNSAFE_ENDINGS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack", ".h5")


def locate_model(path: str | Path) -> Path:
    """Return a GGUF file or a Hugging Face folder: the path itself, or the one thing a level below.

    Raises: ModelError with the reason ModelNotFound, NotAModel, NoSafetensors or AmbiguousModel.
    """
    path = Path(path)
    with reading(path):
        if path.is_file():
            return _check_file(path)
        if not path.is_dir():
            hint = "correct the path"
            if not path.is_absolute():
                hint = "a model of the hub is written hf://organisation/name"
            raise ModelError("ModelNotFound", f"There is no file or folder at {path}; {hint}.")
        return _locate_in(path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """For whatever reads a model's files, which may go, or their disk, at any time.

    Raises: ModelError with the reason ModelNotFound, in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise ModelError("ModelNotFound", f"{path} cannot be read: {problem}.") from error


def is_gguf(path: Path) -> bool:
    """Tell a GGUF file from a Hugging Face folder, for what locate_model returned."""
    return path.suffix.lower() == ".gguf"


def _check_file(path: Path) -> Path:
    if is_gguf(path):
        return path
    raise ModelError(
        "NotAModel",
        f"{path} is neither a .gguf file nor a folder with config.json and .safetensors files.",
    )


def _locate_in(folder: Path) -> Path:
    found = _models_in(folder)
    if not found:
        # An image volume often holds the model one folder down; deeper would be guessing.
        below = [child for child in sorted(folder.iterdir()) if _is_visible_folder(child)]
        found = [model for child in below for model in _models_in(child)]
    if len(found) == 1:
        return found[0]
    if found and all(_PART_OF_SPLIT.search(model.name) for model in found):
        raise ModelError(
            "NotAModel",
            f"{folder} holds a GGUF that is split into {len(found)} files, which the runtime does "
            "not read; join them with llama.cpp's gguf-split --merge.",
        )
    if found:
        names = ", ".join(str(model.relative_to(folder)) for model in found[:5])
        raise ModelError("AmbiguousModel", f"{folder} holds several models ({names}); name one.")
    raise explain_no_model(str(folder), _file_names(folder))


def _is_visible_folder(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith((".", "lost+found"))


def _file_names(folder: Path) -> list[str]:
    return sorted(child.name for child in folder.iterdir() if child.is_file())


def _models_in(folder: Path) -> list[Path]:
    names = _file_names(folder)
    if "config.json" in names and any(name.endswith(".safetensors") for name in names):
        return [folder]
    return [folder / name for name in names if name.lower().endswith(".gguf")]


def explain_no_model(label: str, names: list[str]) -> ModelError:
    """Say why a folder (label) with these files holds no model."""
    if "adapter_config.json" in names:
        return ModelError(
            "NotAModel", f"{label} holds an adapter, no whole model; merge it into its base model."
        )
    unsafe = [name for name in names if name.endswith(_UNSAFE_ENDINGS)]
    has_safetensors = any(name.endswith(".safetensors") for name in names)
    if unsafe and not has_safetensors:
        return ModelError(
            "NoSafetensors",
            f"{label} holds weights as {unsafe[0][:80]}, a format that can run code when it is "
            "read; convert them to safetensors or GGUF.",
        )
    missing = "config.json" if has_safetensors else ".safetensors or .gguf file"
    return ModelError("NotAModel", f"{label} has no {missing}, so it is no model.")
