"""Which model a path means."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from forebay_budget.inspection import ModelError
from forebay_budget.locate import locate_model


def lay_out(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@pytest.mark.parametrize(
    ("names", "path", "found"),
    [
        pytest.param(["m.gguf"], "m.gguf", "m.gguf", id="a GGUF file"),
        pytest.param(["m.GGUF", "readme.md"], ".", "m.GGUF", id="a folder with one GGUF"),
        pytest.param(["config.json", "model.safetensors"], ".", ".", id="a Hugging Face folder"),
        pytest.param(
            ["config.json", "a.safetensors", "m.gguf"],
            ".",
            ".",
            id="safetensors before a GGUF beside them",
        ),
        pytest.param(["models/m.gguf", "etc/x"], ".", "models/m.gguf", id="one level below"),
        pytest.param(
            ["model/config.json", "model/model.safetensors", "lost+found/m.gguf", ".git/m.gguf"],
            ".",
            "model",
            id="a folder below, hidden ones left out",
        ),
    ],
)
def test_a_model_is_found(tmp_path: Path, names: list[str], path: str, found: str) -> None:
    assert locate_model(lay_out(tmp_path, names) / path) == tmp_path / found


@pytest.mark.parametrize(
    ("names", "path", "reason", "complaint"),
    [
        pytest.param([], "absent", "ModelNotFound", "no file or folder at", id="nothing there"),
        pytest.param([], ".", "NotAModel", "no .safetensors or .gguf file", id="an empty folder"),
        pytest.param(["a.txt"], "a.txt", "NotAModel", "neither", id="another file"),
        pytest.param(
            ["config.json", "pytorch_model.bin"],
            ".",
            "NoSafetensors",
            "pytorch_model.bin, a format that can run code",
            id="pickled weights alone",
        ),
        pytest.param(
            ["consolidated.00.pth"], ".", "NoSafetensors", "convert them", id="Meta's own format"
        ),
        pytest.param(["model.safetensors"], ".", "NotAModel", "no config.json", id="no config"),
        pytest.param(
            ["adapter_config.json", "adapter_model.safetensors"],
            ".",
            "NotAModel",
            "adapter",
            id="an adapter",
        ),
        pytest.param(
            ["a.gguf", "b.gguf"], ".", "AmbiguousModel", "a.gguf, b.gguf", id="two GGUF files"
        ),
        pytest.param(
            ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"],
            ".",
            "NotAModel",
            "split into 2 files.*gguf-split --merge",
            id="a split GGUF",
        ),
        pytest.param(
            ["x/a.gguf", "y/b.gguf"], ".", "AmbiguousModel", "x/a.gguf", id="two models below"
        ),
        pytest.param(["x/y/a.gguf"], ".", "NotAModel", "is no model", id="two levels below"),
    ],
)
def test_what_is_no_one_model_is_refused_with_the_cause(
    tmp_path: Path, names: list[str], path: str, reason: str, complaint: str
) -> None:
    with pytest.raises(ModelError, match=complaint) as caught:
        locate_model(lay_out(tmp_path, names) / path)

    assert caught.value.reason == reason
