"""The `forebay` command: what it says, what it refuses, and what it does not import for it."""

import argparse
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forebay_runtime.cli import main
from forebay_runtime.config import EngineConfig
from forebay_runtime.serve_flags import add_flags
from forebay_runtime.serve_settings import to_engine_config, to_options
from forebay_runtime.server.options import ServeOptions
from smollm2 import smollm2_path
from tiny_quantized import save_source


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of the command."""
    try:
        status = main(arguments)
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 1
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--version")
    assert status == 0
    assert out.startswith("forebay ")


@pytest.mark.parametrize("arguments", [[], ["--help"]], ids=["nothing", "help"])
def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    status, out, _ = run(capsys, *arguments)
    assert status == (0 if arguments else 2)
    assert all(command in out for command in ("serve", "budget", "inspect"))


def test_help_of_serve_explains_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "serve", "--help")
    assert status == 0
    for flag in (
        "host port served-model-name device dtype max-model-len max-num-seqs "
        "max-num-batched-tokens gpu-memory-utilization kv-cache-memory-bytes "
        "tensor-parallel-size quantization kv-cache-dtype max-num-queued-reqs "
        "max-num-queued-tokens shutdown-timeout lame-duck-seconds scheduling-policy "
        "enable-prefix-caching, async-scheduling, long-prompt-tokens max-long-prompts "
        "batch-invariant block-size "
        "max-request-seconds stream-interval tool-call-parser reasoning-parser chat-template "
        "max-logprobs enable-auto-tool-choice seed allowed-origins"
    ).split():
        assert re.search(rf"^  --{flag}\s", out, re.MULTILINE), flag


def test_every_flag_of_serve_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "serve", "--help")
    flags = re.findall(r"^  (--[^ ].*(?:\n {6}.*)*)", out, re.MULTILINE)
    assert len(flags) > 30
    assert [flag for flag in flags if len(flag.split()) < 5] == []


def serve_options(*flags: str) -> tuple[EngineConfig, ServeOptions]:
    """What the engine and the server are started with."""
    parser = argparse.ArgumentParser()
    add_flags(parser)
    parsed = parser.parse_args(["m", *flags])
    return to_engine_config(parsed), to_options(parsed, 0.0)


@pytest.mark.parametrize(
    ("flags", "length"),
    [([], None), (["auto"], None), (["-1"], None), (["64"], 64)],
    ids=["absent", "auto", "minus-one", "number"],
)
def test_the_longest_length_is_what_fits_unless_a_number_is_given(
    flags: list[str], length: int | None
) -> None:
    given = [f"--max-model-len={flag}" for flag in flags]
    assert serve_options(*given)[0].max_model_len == length


@pytest.mark.parametrize(
    ("flags", "num_tokens"),
    [
        (["--device", "cpu"], 512),
        (["--device", "cuda"], 2048),
        (["--device", "cpu", "--max-num-seqs", "600"], 600),
        (["--device", "cpu", "--max-num-batched-tokens", "64"], 64),
    ],
    ids=["cpu", "gpu", "as-many-as-requests", "given"],
)
def test_a_step_is_smaller_on_a_cpu(flags: list[str], num_tokens: int) -> None:
    assert serve_options(*flags)[0].max_num_batched_tokens == num_tokens


def test_a_whole_number_may_be_larger_than_any_float() -> None:
    assert serve_options("--seed", "9" * 400)[1].seed == int("9" * 400)


def test_flags_reach_the_engine_and_the_server(tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.touch()
    engine, server = serve_options(
        *(
            "--no-enable-prefix-caching",
            "--async-scheduling",
            "--scheduling-policy",
            "priority",
            "--block-size",
            "32",
        ),
        *("--long-prompt-tokens", "100", "--max-long-prompts", "2", "--batch-invariant"),
        *("--max-request-seconds", "1.5", "--stream-interval", "4", "--max-logprobs", "5"),
        *("--chat-template", str(template), "--tool-call-parser", "hermes", "--seed", "7"),
        *("--reasoning-parser", "qwen3", "--enable-auto-tool-choice"),
        *("--allowed-origins", '["https://chat.example"]'),
        *("--tensor-parallel-size", "4", "--pipeline-parallel-size", "2"),
        *("--rank-timeout-seconds", "12.5"),
    )
    assert (engine.tensor_parallel_size, engine.pipeline_parallel_size) == (4, 2)
    assert (engine.num_ranks, engine.rank_timeout_seconds) == (8, 12.5)
    assert server.allowed_origins == ("https://chat.example",)
    assert not engine.enable_prefix_caching and engine.batch_invariant and engine.async_scheduling
    assert (engine.scheduling_policy, engine.block_size) == ("priority", 32)
    assert (engine.long_prompt_tokens, engine.max_long_prompts) == (100, 2)
    assert (server.max_request_seconds, server.stream_interval) == (1.5, 4)
    assert (server.max_logprobs, server.seed, server.chat_template) == (5, 7, template)
    assert (server.tool_call_parser, server.reasoning_parser) == ("hermes", "qwen3")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["serve"], "MODEL"),
        (["serve", "m", "--port", "http"], "--port: 'http' is not a whole number"),
        (["serve", "m", "--port", "70000"], "--port: 70000 is out of range"),
        (["serve", "m", "--device", "tpu"], "--device"),
        (["serve", "m", "--gpu-memory-utilization", "1.5"], "--gpu-memory-utilization"),
        (["serve", "m", "--gpu-memory-utilization", "nan"], "--gpu-memory-utilization"),
        (["serve", "m", "--lame-duck-seconds", "-1"], "--lame-duck-seconds"),
        (["serve", "m", "--shutdown-timeout", "inf"], "--shutdown-timeout"),
        (["serve", "m", "--tensor-parallel-size", "0"], "--tensor-parallel-size"),
        (["serve", "m", "--pipeline-parallel-size", "two"], "'two' is not"),
        (["serve", "m", "--quantization", "INT3"], "--quantization"),
        (["serve", "m", "--kv-cache-dtype", "fp8_e5m2"], "--kv-cache-dtype"),
        (["serve", "m", "--max-num-seqs", "64", "--max-num-batched-tokens", "8"], "--max-num"),
        (["serve", "m", "--served-model-name", "\udcff"], "--served-model-name: the name is not"),
        (["serve", "m", "--max-model-len", "0"], "--max-model-len: 0 is out of range"),
        (["serve", "m", "--block-size", "17"], "--block-size"),
        (["serve", "m", "--max-long-prompts", "1"], "--long-prompt-tokens"),
        (["serve", "m", "--scheduling-policy", "lifo"], "--scheduling-policy"),
        (["serve", "m", "--stream-interval", "0"], "--stream-interval"),
        (["serve", "m", "--max-request-seconds", "0"], "--max-request-seconds"),
        (["serve", "m", "--tool-call-parser", "cobol"], "--tool-call-parser 'cobol'"),
        (["serve", "m", "--reasoning-parser", "cobol"], "--reasoning-parser 'cobol'"),
        (["serve", "m", "--chat-template", "absent.jinja"], "--chat-template absent.jinja"),
        (["serve", "m", "--allowed-origins", "*"], "--allowed-origins: '*' is not a JSON list"),
        (["serve", "m", "--allowed-origins", "[" * 10**5], "--allowed-origins: '[["),
        (["serve", "m", "--port", "9" * 400], "--port: 999"),
        (["serve", "m", "--unknown"], "--unknown; see forebay serve --help"),
        (["serve", "m", "--seed 7"], "unrecognized arguments: --seed 7; see forebay serve --help"),
        (["train"], "train"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else "",
)
def test_a_bad_flag_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert named in err


@pytest.mark.parametrize(
    "arguments",
    [["inspect", "MODEL"], ["budget", "MODEL", "--gpu-memory", "24Gi"]],
    ids=["inspect", "budget"],
)
def test_budget_commands_need_the_standard_library_alone(arguments: list[str]) -> None:
    arguments = [str(smollm2_path()) if word == "MODEL" else word for word in arguments]
    code = (
        "import sys; before = set(sys.modules); from forebay_runtime.cli import main; "
        "status = main(sys.argv[1:]); known = {*sys.stdlib_module_names, *before, "
        "'forebay_budget', 'forebay_runtime'}; "
        "others = {name.split('.')[0] for name in sys.modules} - known; "
        "print(sorted(others), status, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.stderr == "[] 0\n"
    assert done.stdout


@pytest.mark.parametrize(
    ("model", "named"),
    [("absent.gguf", "absent.gguf"), (".", "model"), ("hf://no", "hf://no")],
    ids=["absent", "no-model", "bad-uri"],
)
def test_a_model_that_cannot_be_loaded_is_named_in_the_only_line(
    tmp_path: Path, model: str, named: str
) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "forebay_runtime.cli", "serve", model]
        + ["--port", "0", "--host", "127.0.0.1"],
        cwd=tmp_path / "empty",
        env=os.environ | {"FOREBAY_TERMINATION_LOG": str(log), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("forebay serve: ") and named in done.stderr
    assert done.stderr == log.read_text() + "\n"


@pytest.mark.parametrize(
    ("flags", "sentence", "is_early"),
    [
        (["--max-model-len", "999"], "--max-model-len 999 is more than the 256 positions", True),
        (["--tensor-parallel-size", "2"], "--tensor-parallel-size 2 does not divide", True),
        (["--kv-cache-memory-bytes", "9"], "--kv-cache-memory-bytes 9 holds 0 tokens", False),
    ],
    ids=["positions", "shards", "a-cache-of-what-was-loaded"],
)
def test_a_value_that_the_model_rules_out_is_the_only_error_told(
    tmp_path: Path, flags: list[str], sentence: str, is_early: bool
) -> None:
    save_source(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-m", "forebay_runtime.cli", "serve", str(tmp_path / "model"), *flags]
        + ["--port", "0", "--host", "127.0.0.1", "--device", "cpu"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    *before, last = done.stderr.splitlines()
    assert last.startswith(f"forebay serve: {sentence}")
    assert [line for line in before if " INFO " not in line or " Stopped " in line] == []
    assert not before or not is_early


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_start_at_once_and_says_nothing(number: signal.Signals) -> None:
    code = (
        "import os, sys; from forebay_runtime.server import loader; "
        f"loader.describe_local = lambda *_, **__: os.kill(os.getpid(), {number:d}); "
        "from forebay_runtime.cli import main; sys.exit(main(['serve', 'm', '--port', '0']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["FOREBAY_CPU_ISA", "FOREBAY_KERNELS"])
def test_kernels_that_nobody_knows_are_the_only_error_told(tmp_path: Path, name: str) -> None:
    save_source(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-m", "forebay_runtime.cli", "serve", str(tmp_path / "model")]
        + ["--port", "0", "--host", "127.0.0.1", "--device", "cpu"],
        env=os.environ | {name: "mmx"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"forebay serve: {name}=mmx: ")


@pytest.mark.parametrize("package", ["jinja2", "llguidance"])
def test_serving_without_its_packages_names_what_to_install(package: str) -> None:
    code = (
        f"import sys; sys.modules['{package}'] = None; from forebay_runtime.cli import main; "
        "sys.exit(main(['serve', 'm']))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert finished.returncode == 2
    assert finished.stderr == (
        f"forebay serve: {package} is not installed; "
        "serve needs the extra `runtime`: "
        "run `pip install -c constraints.txt '.[runtime]'` in a clone of Forebay\n"
    )
