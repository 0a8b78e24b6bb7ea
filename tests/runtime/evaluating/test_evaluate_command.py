"""`forebay evaluate` measures what transformers does, and its exit status tells the verdict."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from forebay_runtime.cli import main
from tiny_quantized import save_source

TEXT = "a word, and another one; " * 9


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_source(tmp_path / "model")
    return tmp_path / "model"


def write(folder: Path, *entries: dict[str, object]) -> str:
    path = folder / "golden.jsonl"
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    return str(path)


def test_perplexity_and_answers_are_transformers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    oracle = save_source(tmp_path / "model")
    golden = write(tmp_path, {"text": TEXT}, {"prompt": "ab", "answer": "never that"})
    flags = ["--device", "cpu", "--max-model-len", "100", "--max-tokens", "4", "--json"]
    assert main(["evaluate", str(tmp_path / "model"), "--golden", golden, *flags]) == 0
    told = json.loads(capsys.readouterr().out)["model"]

    alphabet = json.loads((tmp_path / "model/tokenizer.json").read_text())["model"]["vocab"]
    token_ids = [alphabet["Ġ" if char == " " else char] for char in TEXT]
    lost, count = 0.0, 0
    for start in range(0, len(token_ids), 100):
        window = torch.tensor([token_ids[start : start + 100]])
        with torch.inference_mode():
            logprobs = oracle(window).logits[0, :-1].log_softmax(-1)
        lost -= float(logprobs.gather(1, window[0, 1:, None]).sum())
        count += window.shape[1] - 1
    assert told["tokens"] == count
    assert told["perplexity"] == pytest.approx(math.exp(lost / count), rel=1e-4)
    assert told["exact_answers"] == 0


@pytest.mark.parametrize(
    ("bound", "status"), [("0.001%", 0), ("0%", 0)], ids=["some-room", "no-room"]
)
def test_a_model_loses_nothing_against_itself(model: Path, bound: str, status: int) -> None:
    golden = write(model.parent, {"text": TEXT}, {"prompt": "ab", "answer": "x"})
    flags = ["--max-perplexity-increase", bound, "--min-token-agreement", "100%"]
    command = ["evaluate", str(model), "--against", str(model), "--golden", golden, *flags]
    assert main([*command, "--device", "cpu", "--max-tokens", "4"]) == status


def test_a_broken_bound_is_the_exit_status(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = write(model.parent, {"prompt": "ab", "answer": "never that"})
    command = ["evaluate", str(model), "--golden", golden, "--min-exact-answers", "50%"]
    assert main([*command, "--device", "cpu", "--max-tokens", "4"]) == 1
    assert "bound exact answers 50.0%: 0.0%, broken" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flag", ["--max-lost-answers", "--min-exact-answers", "--min-token-agreement"]
)
def test_a_bound_that_no_model_could_hold_is_refused_before_it_is_loaded(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "nowhere", "--against", "nowhere", "--golden", "none", flag, "90"])
    assert ended.value.code == 2
    assert f"{flag}: 90 is more than all there are" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "entry", "sentence"),
    [
        pytest.param(["--device", "cpu"], {}, "one of text, prompt and messages", id="golden"),
        pytest.param(
            ["--device", "cpu", "--max-model-len", "16"],
            {"prompt": "a" * 20, "answer": "b"},
            "the prompt has 20 tokens, and with its answer 16 are possible",
            id="too-long",
        ),
        pytest.param(
            ["--device", "cpu"],
            {"messages": [{"role": "user", "content": "a"}]},
            "line 1: The model has no chat template",
            id="no-template",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(
    flags: list[str],
    entry: dict[str, object],
    sentence: str,
    model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["evaluate", str(model), "--golden", write(model.parent, entry), *flags]) == 2
    assert sentence in capsys.readouterr().err


def test_a_set_of_which_nothing_can_be_scored_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(model), "--golden", write(model.parent, {"text": "a"})]) == 2
    assert "no text has two tokens within --max-model-len 256" in capsys.readouterr().err


def test_a_field_that_says_nothing_is_told(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = write(model.parent, {"text": "ab", "anwser": "c"})
    assert main(["evaluate", str(model), "--golden", golden]) == 0
    assert "the field 'anwser' says nothing (lines: 1)" in capsys.readouterr().err


def test_models_of_other_lengths_compare_by_the_shorter_ones_windows(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_source(tmp_path / "short", max_position_embeddings=64)
    golden = write(tmp_path, {"text": TEXT})
    flags = ["--golden", golden, "--min-token-agreement", "0%"]
    assert main(["evaluate", str(model), "--against", str(tmp_path / "short"), *flags]) == 0
    assert "bound token agreement 0.0%: " in capsys.readouterr().out


def test_models_of_other_tokens_do_not_compare(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_source(tmp_path / "other")
    written = tmp_path / "other/tokenizer.json"
    document = json.loads(written.read_text())
    ids = document["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    written.write_text(json.dumps(document))
    flags = ["--golden", write(tmp_path, {"text": TEXT})]
    assert main(["evaluate", str(model), "--against", str(tmp_path / "other"), *flags]) == 2
    assert "tokenizers differ" in capsys.readouterr().err


def test_a_tokenizer_of_another_model_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_source(tmp_path / "model", vocab_size=60)
    golden = write(tmp_path, {"text": TEXT})
    assert main(["evaluate", str(tmp_path / "model"), "--golden", golden]) == 2
    assert "but the model has 60 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kernels", "sentence"), [("tourch", "choose torch or triton"), ("triton", "TRITON_INTERPRET")]
)
def test_kernels_that_are_not_here_are_refused_with_a_sentence(
    model: Path, kernels: str, sentence: str
) -> None:
    command = [sys.executable, "-m", "forebay_runtime.cli", "evaluate", str(model), "--golden"]
    done = subprocess.run(
        [*command, write(model.parent, {"text": "ab"})],
        env=os.environ | {"FOREBAY_KERNELS": kernels, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("forebay evaluate: FOREBAY_KERNELS=") and sentence in done.stderr


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["table", "json"])
def test_a_result_that_nobody_takes_is_no_broken_bound(model: Path, flags: list[str]) -> None:
    command = [sys.executable, "-m", "forebay_runtime.cli", "evaluate", str(model), *flags]
    command += ["--golden", write(model.parent, {"text": "ab"})]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "the standard output did not take the result: [Errno 28]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bound_against_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "m", "--golden", "g", "--max-lost-answers", "1%"])
    assert ended.value.code == 2
    assert "name it by --against" in capsys.readouterr().err
