"""A model of random weights: of a real one's shape, without its files."""

import json
from pathlib import Path

import pytest

from engine_play import load_engine, play
from forebay_budget.checkpoint import examine_model
from forebay_runtime.loading.random_weights import write_random_model
from forebay_runtime.request import Request, SamplingParams
from tiny_model import FAMILIES, save_tiny


def config_of(folder: Path, family: str) -> dict[str, object]:
    save_tiny(folder, family)
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_inspected_as_the_real_model(tmp_path, family):
    config = config_of(tmp_path / "real", family) | {"dtype": "bfloat16"}
    (tmp_path / "real" / "config.json").write_text(json.dumps(config))

    write_random_model(tmp_path / "random", config)

    real, blueprint = examine_model(tmp_path / "real")
    made, blueprint_made = examine_model(tmp_path / "random")
    assert (blueprint_made, made.config) == (blueprint, real.config)
    assert made.num_parameters == real.num_parameters


def test_it_takes_next_to_nothing_of_the_disk(tmp_path):
    large = config_of(tmp_path / "real", "llama") | {"hidden_size": 8192, "vocab_size": 100_000}

    write_random_model(tmp_path / "random", large)

    file = tmp_path / "random" / "model.safetensors"
    assert file.stat().st_size > 10**9
    assert file.stat().st_blocks * 512 < 10**6


def test_an_engine_answers_with_it_alike_each_time(tmp_path):
    write_random_model(tmp_path / "random", config_of(tmp_path / "real", "gemma2"))

    def answer() -> list[int]:
        request = Request("one", [5, 6, 7], SamplingParams(9, temperature=0, ignore_eos=True))
        return play(load_engine(tmp_path / "random"), [request])["one"].token_ids

    first = answer()

    assert len(first) == 9
    assert answer() == first
