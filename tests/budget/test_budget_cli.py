"""The two commands, as a person and as the inspection Job use them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_hub import COMMIT, serve_hub
from forebay_budget.cli import FLAGS, main
from forebay_budget.inspection import MAX_JSON_BYTES, Inspection
from model_files import TINY_LLAMA, write_hf_model
from smollm2 import smollm2_path

LARGE = TINY_LLAMA | {
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
"""13 billion parameters, of which the disk holds headers alone."""

PLAN_KEYS = {
    "tensorParallelSize",
    "maxModelLen",
    "maxNumSeqs",
    "maxNumBatchedTokens",
    "dtype",
    "kvCacheDtype",
    "kvCacheTokens",
    "budget",
    "weights",
    "kvCache",
    "activation",
    "overhead",
    "explanation",
}
TERM_KEYS = {"fits", "weightsBytes", "kvCacheBytes", "activationBytes", "overheadBytes"}


@pytest.fixture(scope="module")
def large_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_hf_model(tmp_path_factory.mktemp("large"), LARGE, num_shards=6))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command in this process: status, standard output, standard error."""
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = int(ended.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def read_json(text: str) -> dict[str, Any]:
    document = json.loads(text)
    assert isinstance(document, dict)
    return document


def test_the_split_is_printed_term_by_term(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "budget", str(smollm2_path()), "--gpu-memory", "24Gi")

    assert (status, err) == (0, "")
    assert (
        out
        == """\
LlamaForCausalLM, 134.5 million parameters, 92 MiB on disk (Q4_1, gguf)

fits on             1 GPU of 24.0 GiB
tensor parallelism  1
memory utilisation  0.95
number format       bfloat16; KV cache bfloat16
longest request     8192 tokens
requests at once    256 at most

per GPU
  weights              257 MiB     1%
  KV cache            21.3 GiB    89%
  activations           96 MiB     0%
  overhead             1.1 GiB     5%
  left free            1.2 GiB     5%

requests that 992912 tokens of KV cache hold at once
  of 8192 tokens, the longest               121
  of 2048 tokens, the mean                  484
  of 2048 tokens at 70 % of the cache       339
"""
    )


@pytest.mark.parametrize(
    ("dtype", "flags", "told"),
    [
        ("bfloat16", [], "float32 (where the CPU multiplies bfloat16, that: half of"),
        ("bfloat16", ["--dtype", "bfloat16"], "bfloat16; KV cache bfloat16"),
        ("bfloat16", ["--quantization", "INT4"], "float32, weights INT4"),
        ("float32", [], "float32; KV cache float32"),
    ],
    ids=["as-it-came", "asked", "rounded", "float32"],
)
def test_a_cpus_number_format_is_what_was_planned(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, dtype: str, flags: list[str], told: str
) -> None:
    stored = {"bfloat16": "BF16", "float32": "F32"}[dtype]
    model = write_hf_model(tmp_path, TINY_LLAMA | {"torch_dtype": dtype}, dtype=stored)
    _, out, _ = run(capsys, "budget", str(model), "--device", "cpu", *flags)
    assert f"number format       {told}" in out


def test_the_document_has_the_plans_keys_and_the_terms(
    capsys: pytest.CaptureFixture[str], large_model: str
) -> None:
    status, out, _ = run(
        capsys, "budget", large_model, "--gpu-memory", "16Gi", "--gpus-per-node", "4",
        "--max-model-len", "4096", "--max-num-seqs", "8", "--output", "json",
    )  # fmt: skip
    document = read_json(out)

    assert status == 0
    assert document.keys() == PLAN_KEYS | TERM_KEYS | {"gpuMemoryUtilization"}
    assert (document["fits"], document["tensorParallelSize"]) == (True, 2)
    terms = [document[key] for key in TERM_KEYS if key.endswith("Bytes")]
    assert sum(terms) == 16 * 1024**3 * 95 // 100


def test_a_cpus_document_has_no_utilisation(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(
        capsys, "budget", str(smollm2_path()), "--device", "cpu", "--output", "json"
    )

    assert status == 0
    assert read_json(out).keys() == PLAN_KEYS | TERM_KEYS


def test_a_misfit_exits_1_and_names_flags_not_fields(
    capsys: pytest.CaptureFixture[str], large_model: str
) -> None:
    arguments = ("budget", large_model, "--gpu-memory", "16Gi", "--vram-budget", "20Gi")
    status, out, err = run(capsys, *arguments)

    assert (status, err) == (1, "")
    assert "but --vram-budget allows 20.0 GiB; it would fit with --vram-budget 25Gi." in out

    status, out, _ = run(capsys, *arguments, "--output", "json")
    document = read_json(out)
    assert (status, document["fits"]) == (1, False)
    assert document["neededBytes"] > document["allowedBytes"] == 20 * 1024**3
    assert document["nearest"] == [{"budgetBytes": 25 * 1024**3}]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["--gpu-memory", "24Go"], "unknown unit 'Go'", id="a size in no known unit"),
        pytest.param([], "set --gpu-memory", id="no GPU memory"),
        pytest.param(
            ["--gpu-memory", "24Gi", "--max-model-len", "0"], "0 is out of range", id="zero"
        ),
        pytest.param(
            ["--gpu-memory", "24Gi", "--max-model-len", "9000"],
            "--max-model-len is 9000, but the model's context ends at 8192",
            id="beyond the context",
        ),
        pytest.param(
            ["--gpu-memory", "24Gi", "--tensor-parallel-size", "2"],
            "divides evenly only over 1 or 3 GPUs",
            id="a tensor parallelism that does not divide",
        ),
        pytest.param(
            ["--gpu-memory", "24Gi", "--gpu-memory-utilization", "nan"],
            "no share above 0",
            id="a share that is no number",
        ),
        pytest.param(["--device", "tpu"], "invalid choice", id="an unknown device"),
        pytest.param(
            ["--gpu-memory", "24Gi", "--dtype", "BFloat16", "--kv-cache-dtype", "FLOAT32"],
            "--kv-cache-dtype is float32, but the model runs in bfloat16",
            id="formats that do not mix, in any case",
        ),
        pytest.param(["--gpu-memory"], "expected one argument", id="a flag without its value"),
    ],
)
def test_wrong_usage_exits_2_with_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    status, out, err = run(capsys, "budget", str(smollm2_path()), *arguments)

    assert (status, out) == (2, "")
    assert complaint in err
    assert err.startswith("forebay budget: ")
    assert err.count("\n") == 1


def test_a_model_that_is_not_there_exits_2_with_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, err = run(capsys, "budget", "no/where", "--gpu-memory", "24Gi")

    assert (status, out) == (2, "")
    assert err == (
        "forebay budget: There is no file or folder at no/where; a model of the hub is written "
        "hf://organisation/name.\n"
    )


def test_inspect_prints_what_sizing_reads_to_both_places(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    status, out, err = run(
        capsys, "inspect", str(smollm2_path()), "--termination-message", str(log)
    )

    assert (status, err) == (0, "")
    assert log.read_text() == out.strip()
    assert len(log.read_bytes()) <= MAX_JSON_BYTES
    assert Inspection.from_json(out).num_parameters == 134_515_008


def test_inspect_of_no_model_exits_1_with_a_reason_in_both_places(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    status, out, _ = run(capsys, "inspect", str(tmp_path), "--termination-message", str(log))

    assert status == 1
    assert log.read_text() == out.strip()
    error = read_json(out)["error"]
    assert error["reason"] == "NotAModel"
    assert str(tmp_path) in error["message"]


def test_a_message_about_absurd_names_still_fits_a_termination_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_hf_model(tmp_path)
    broken = TINY_LLAMA | {"architectures": ["\U0001f600" * 100_000]}
    (tmp_path / "config.json").write_text(json.dumps(broken))
    status, out, _ = run(capsys, "inspect", str(tmp_path))

    assert status == 1
    assert len(out.encode()) <= MAX_JSON_BYTES


def test_a_termination_log_that_cannot_be_written_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "absent" / "log"
    status, out, err = run(
        capsys, "inspect", str(smollm2_path()), "--termination-message", str(log)
    )

    assert status == 1
    assert "LlamaForCausalLM" in out
    assert "No such file" in err


@pytest.mark.parametrize("command", [[], ["budget"], ["inspect"]])
def test_help_explains_every_flag(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    status, out, err = run(capsys, *command, "--help")

    assert (status, err) == (0, "")
    # A flag's help stands on its line, after two spaces, or deeply indented on the next.
    unexplained = re.findall(r"^  (--\S+(?: \S+)?)$\n(?! {20})", out, re.MULTILINE)
    assert unexplained == []
    if command == ["budget"]:
        assert [flag for flag in FLAGS.values() if f"  {flag} " not in out] == []


def isolated(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m forebay_budget` with nothing but the standard library on the path."""
    source = Path(__file__).resolve().parents[2] / "runtime"
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(source)!r}); "
        "runpy.run_module('forebay_budget', run_name='__main__', alter_sys=True)"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_a_bare_interpreter_sizes_and_inspects() -> None:
    sized = isolated("budget", str(smollm2_path()), "--gpu-memory", "24Gi", "--output", "json")
    inspected = isolated("inspect", str(smollm2_path()))

    assert (sized.returncode, sized.stderr) == (0, "")
    assert read_json(sized.stdout)["fits"] is True
    assert (inspected.returncode, inspected.stderr) == (0, "")
    assert Inspection.from_json(inspected.stdout).num_parameters == 134_515_008


def test_a_bare_interpreter_inspects_a_model_on_a_hub(tmp_path: Path) -> None:
    write_hf_model(tmp_path)
    with serve_hub(tmp_path, token="secret") as hub:
        ended = isolated("inspect", "hf://team/model", HF_ENDPOINT=hub.url, HF_TOKEN="secret")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert Inspection.from_json(ended.stdout).revision == COMMIT
