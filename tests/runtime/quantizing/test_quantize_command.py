"""`forebay quantize` writes a folder whole or not at all, and says what is in the way."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from forebay_budget.checkpoint import inspect_model
from forebay_runtime.cli import main
from forebay_runtime.quantizing.output import OutputFolder
from tiny_quantized import save_source, save_text
from unpacked_models import read_folder

CALIBRATED = ["--num-samples", "24", "--sequence-length", "96", "--device", "cpu"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    save_source(tmp_path / "source")
    return tmp_path / "source"


def quantize(source: Path, out: Path, *flags: str) -> int:
    return main(["quantize", str(source), str(out), "--group-size", "32", *flags])


def test_a_calibrated_folder_is_whole_and_described(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = save_text(tmp_path / "text.txt")
    out = tmp_path / "new/out"
    assert quantize(source, out, "--calibration", str(text), *CALIBRATED) == 0
    assert str(inspect_model(out).quantization) == "awq, 4 bits, groups of 32"
    names = {path.name for path in out.iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    told = capsys.readouterr()
    assert "layer 1/2: " in told.err and "left; largest output error" in told.err
    assert told.out.startswith(f"{out}: ")


def test_chats_and_answers_calibrate_as_well(source: Path, tmp_path: Path) -> None:
    (source / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    lines = [
        {"messages": [{"role": "user", "content": "abc " * 200}]},
        {"text": "defg " * 200},
        {"prompt": "hij " * 100, "answer": "klm " * 200},
    ]
    text = tmp_path / "text.jsonl"
    text.write_text("\n".join(json.dumps(line) for line in lines))
    flags = ["--sequence-length", "96", "--device", "cpu", "--calibration", str(text)]
    assert quantize(source, tmp_path / "out", "--method", "gptq", *flags) == 0


def test_a_chat_template_that_is_broken_is_written_and_told(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}")
    assert quantize(source, tmp_path / "out", "--method", "rtn") == 0
    assert "The model's chat template does not compile: " in capsys.readouterr().err
    assert (tmp_path / "out/chat_template.jinja").exists()


@pytest.mark.parametrize(
    ("flags", "is_told"),
    [
        pytest.param([], False, id="four-bits"),
        pytest.param(["--symmetric"], False, id="symmetric"),
        pytest.param(["--bits", "8"], False, id="eight-bits"),
        pytest.param(["--bits", "8", "--no-symmetric"], True, id="eight-bits-with-zero-points"),
    ],
)
def test_what_vllm_refuses_is_told(
    flags: list[str],
    is_told: bool,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert quantize(source, tmp_path / "out", "--method", "rtn", *flags) == 0
    assert ("--symmetric leaves them out" in capsys.readouterr().err) is is_told


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        pytest.param([], "name a file of text by --calibration", id="no-text"),
        pytest.param(["--method", "rtn", "--desc-act"], "--desc-act is GPTQ's alone", id="order"),
        pytest.param(
            ["--method", "rtn", "--group-size", "128"],
            "--group-size 128 does not divide the 96 inputs of some of the model's matrices; "
            "choose 32, or leave those out by --skip",
            id="groups",
        ),
        pytest.param(
            ["--method", "rtn", "--calibration", "{text}"],
            "--method rtn looks at no text; leave --calibration out",
            id="text-for-nothing",
        ),
        *(
            pytest.param(
                ["--method", "rtn", *given],
                f"{given[0]} is of calibration, but --method rtn looks at no text",
                id=f"rtn{given[0]}",
            )
            for given in (
                ["--damping", "0.01"],
                ["--num-samples", "8"],
                ["--sequence-length", "512"],
                ["--seed", "0"],
            )
        ),
        pytest.param(
            ["--calibration", "{text}", "--num-samples", "400", "--sequence-length", "96"],
            "has 2601 tokens, which make 27 sequences of --sequence-length 96",
            id="too-few-samples",
        ),
        pytest.param(
            ["--calibration", "{text}", "--num-samples", "2", "--sequence-length", "96"],
            "calibration would see 192 tokens",
            id="too-little-text",
        ),
        pytest.param(["--calibration", "{text}.none"], "cannot be read as text", id="no-file"),
        pytest.param(["--calibration", "{text}.jsonl"], "line 2, has none of", id="no-text-line"),
        pytest.param(["--calibration", "{text}.half.jsonl"], "a lone surrogate", id="half-a-char"),
        pytest.param(
            ["--calibration", "{text}", "--sequence-length", "257"],
            "--sequence-length 257 is more than the 256 positions",
            id="too-long",
        ),
        pytest.param(
            ["--method", "rtn", "--skip", "*.donw_proj"],
            "--skip *.donw_proj names none of the model's modules, which are called like "
            "model.layers.0.self_attn.q_proj",
            id="skips-nothing",
        ),
        pytest.param(
            ["--method", "rtn", "--skip", "*_proj"], "--skip leaves nothing", id="skips-all"
        ),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    flags: list[str],
    sentence: str,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = save_text(tmp_path / "text")
    (tmp_path / "text.jsonl").write_text('{"text": "a"}\n{"texts": "b"}')
    (tmp_path / "text.half.jsonl").write_text(r'{"text": "\ud800"}')
    before = sorted(tmp_path.iterdir())
    assert quantize(source, tmp_path / "out", *(flag.format(text=text) for flag in flags)) == 2
    assert sentence in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_a_mixture_and_what_is_quantised_already_are_refused(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_source(tmp_path / "mixture", "mixtral")
    assert quantize(tmp_path / "mixture", tmp_path / "out", "--method", "rtn") == 2
    assert "MixtralForCausalLM is a mixture of experts" in capsys.readouterr().err
    assert quantize(source, tmp_path / "once", "--method", "rtn") == 0
    assert quantize(tmp_path / "once", tmp_path / "twice", "--method", "rtn") == 2
    assert "quantised already (awq, 4 bits, groups of 32)" in capsys.readouterr().err


def test_what_is_there_is_replaced_only_when_asked_and_only_by_a_whole_model(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert quantize(source, out, "--method", "rtn") == 0
    first = (out / "model.safetensors").read_bytes()
    assert quantize(source, out, "--method", "rtn", "--bits", "8") == 2
    assert f"{out} exists; name a new folder, or replace it by --force" in capsys.readouterr().err
    with limited_files(4096):
        assert quantize(source, out, "--method", "rtn", "--bits", "8", "--force") == 2
    assert (out / "model.safetensors").read_bytes() == first
    assert quantize(source, out, "--method", "rtn", "--bits", "8", "--force") == 0
    assert (out / "model.safetensors").read_bytes() != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_other_folders_are_never_replaced(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").touch()
    assert quantize(source, tmp_path / "mine", "--method", "rtn", "--force") == 2
    assert "neither a model's folder nor empty" in capsys.readouterr().err
    assert quantize(source, source, "--method", "rtn", "--force") == 2
    assert "is the model itself" in capsys.readouterr().err
    assert (tmp_path / "mine/letter.txt").exists() and (source / "config.json").exists()


@pytest.mark.parametrize("name", ["letter.txt", "model.gguf", "models/model.safetensors"])
def test_a_model_with_something_beside_it_is_not_replaced(
    source: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert quantize(source, out, "--method", "rtn") == 0
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).touch()
    assert quantize(source, out, "--method", "rtn", "--force") == 2
    assert f"{out} has {name} beside a model's files" in capsys.readouterr().err
    assert (out / name).exists()


def test_a_link_is_neither_followed_nor_replaced(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert quantize(source, tmp_path / "link", "--method", "rtn") == 2
    assert "link is a link; name the folder itself" in capsys.readouterr().err


def test_the_folder_one_is_in_can_be_replaced(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    assert quantize(source, Path("."), "--method", "rtn", "--force") == 0
    assert (tmp_path / "out/config.json").exists()


def test_what_was_there_comes_back_if_the_new_cannot_have_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/config.json").write_text("old")
    rename = os.rename

    def refuse_new(old: Path, new: Path) -> None:
        if new == tmp_path / "out" and not (old / "config.json").exists():
            raise PermissionError("no")
        rename(old, new)

    monkeypatch.setattr(os, "rename", refuse_new)
    with pytest.raises(PermissionError), OutputFolder(tmp_path / "out", may_replace=True):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out/config.json").read_text() == "old"


@pytest.mark.component
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_a_sentence_and_nothing_left(
    tmp_path: Path, number: signal.Signals
) -> None:
    save_source(tmp_path / "source", num_hidden_layers=100)
    text = save_text(tmp_path / "text")
    command = [sys.executable, "-m", "forebay_runtime.cli", "quantize"]
    command += [str(tmp_path / "source"), str(tmp_path / "out"), "--group-size", "32"]
    # A child ignores what is ignored here (by nohup, say), and not what is handled.
    here = signal.signal(number, lambda *_: None)
    try:
        process = subprocess.Popen(
            [*command, "--calibration", str(text), *CALIBRATED], stderr=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(number, here)
    with process:
        assert process.stderr is not None
        assert any(line.startswith("layer 1/") for line in process.stderr)
        process.send_signal(number)
        told = process.stderr.read()
        assert process.wait() == 128 + number, told
    assert f"forebay quantize: ended by {number.name}; nothing was left behind" in told
    assert "Traceback" not in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "text"]


@pytest.mark.component
def test_a_folder_that_is_whole_is_a_success_whoever_listens(source: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "forebay_runtime.cli", "quantize", str(source)]
    command += [str(tmp_path / "out"), "--method", "rtn", "--group-size", "32"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert "could not be written" not in done.stderr
    assert (tmp_path / "out/config.json").exists()


def test_matrices_that_groups_do_not_divide_may_be_skipped(source: Path, tmp_path: Path) -> None:
    """Of 96, 192 and 160 inputs."""
    flags = ["--method", "rtn", "--group-size", "64"]
    odd = ["--skip", "*.[qkv]_proj", "--skip", "*.mlp.*"]
    assert quantize(source, tmp_path / "out", *flags) == 2
    assert quantize(source, tmp_path / "out", *flags, *odd) == 0
    stored = load_file(tmp_path / "out" / "model.safetensors")
    packed = {name.split(".")[-2] for name in stored if name.endswith(".qweight")}
    assert packed == {"o_proj"}


def test_what_a_killed_run_left_is_named_and_in_nobodys_way(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = tmp_path / f".out.unfinished-{os.getpid()}"
    left.mkdir()
    assert quantize(source, tmp_path / "out", "--method", "rtn") == 0
    assert f"{left} is of another run; remove it, if that was killed" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["rtn", "awq", "gptq"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_refused_by_their_name(
    source: Path,
    tmp_path: Path,
    method: str,
    value: float,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change_weight(source, "model.layers.1.mlp.down_proj.weight", value)
    text = ["--calibration", str(save_text(tmp_path / "text")), *CALIBRATED]
    flags = [] if method == "rtn" else text
    assert quantize(source, tmp_path / "out", "--method", method, *flags) == 2
    told = capsys.readouterr().err
    assert "model.layers.1.mlp.down_proj.weight has weights that are NaN or infinite" in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "model.norm.weight"])
def test_weights_that_the_written_format_cannot_hold_are_refused(
    source: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change_weight(source, name, 1e7)
    flags = ["--method", "rtn", "--dtype", "float16"]
    assert quantize(source, tmp_path / "out", *flags) == 2
    told = capsys.readouterr().err
    assert f"{name} has numbers that are NaN, or beyond what float16 holds" in told


@pytest.mark.parametrize("method", ["rtn", "awq", "gptq"])
@pytest.mark.parametrize("part", ["self_attn.q_proj", "mlp.down_proj"])
def test_weights_whose_scales_float16_cannot_hold_are_left_out_by_the_flag_that_is_told(
    source: Path, tmp_path: Path, method: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change_weight(source, f"model.layers.1.{part}.weight", 1e7)
    flags = ["--method", method]
    if method != "rtn":
        flags += ["--calibration", str(save_text(tmp_path / "text")), *CALIBRATED]
    assert quantize(source, tmp_path / "out", *flags) == 2
    skip = f"--skip model.layers.1.{part}"
    told = capsys.readouterr().err
    assert "has weights so large that their scales are beyond float16" in told
    assert told.endswith(f"leave it as it is by {skip}\n")
    assert quantize(source, tmp_path / "out", *flags, *skip.split()) == 0


def test_a_tokenizer_of_another_model_is_told(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_source(tmp_path / "other", vocab_size=60)
    flags = ["--calibration", str(save_text(tmp_path / "text")), *CALIBRATED]
    assert quantize(tmp_path / "other", tmp_path / "out", *flags) == 2
    assert "but the model has 60 tokens" in capsys.readouterr().err


def change_weight(folder: Path, name: str, value: float) -> None:
    stored = read_folder(folder)
    stored[name].view(-1)[5] = value
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_disk_that_takes_no_more_is_named(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with limited_files(100_000):
        assert quantize(source, tmp_path / "out", "--method", "rtn") == 2
    assert f"{tmp_path} did not take" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_disk_that_is_too_small_is_refused_before_anything_is_read(
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    assert quantize(source, tmp_path / "out", "--method", "rtn") == 2
    assert "has 1000 bytes free, but out takes" in capsys.readouterr().err


def test_large_models_are_written_in_shards_with_an_index(source: Path, tmp_path: Path) -> None:
    tensors = read_folder(source)
    with OutputFolder(tmp_path / "out", may_replace=False, shard_bytes=200_000) as output:
        for name, tensor in tensors.items():
            output.add({name: tensor})
        output.add_json("config.json", json.loads((source / "config.json").read_text()))
    names = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    count = len(names)
    assert count > 2
    assert names == [f"model-{n + 1:05}-of-{count:05}.safetensors" for n in range(count)]
    again = read_folder(tmp_path / "out")
    assert all(again[name].equal(tensor) for name, tensor in tensors.items())
    assert inspect_model(tmp_path / "out").num_parameters == inspect_model(source).num_parameters


@contextmanager
def limited_files(num_bytes: int) -> Iterator[None]:
    """No file may grow beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
