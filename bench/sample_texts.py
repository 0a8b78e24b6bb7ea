"""Let SmolLM2 write texts to calibrate and evaluate by, so that they are free and like the model's.

    python bench/sample_texts.py

Writes bench/evaluation/calibration.jsonl, and the chats of bench/evaluation/golden.jsonl before the
questions about capitals. Temperature 1, seeds fixed; the two share no seed, and each subject comes
with another request in one than in the other. What lies there was written in this way, in float32.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "e2e/lib"), str(ROOT / "tests/lib")]

from forebay_runtime.assembly import build_engine  # noqa: E402
from forebay_runtime.config import EngineConfig  # noqa: E402
from forebay_runtime.request import Request, SamplingParams  # noqa: E402
from forebay_runtime.text_parts import read_text_parts  # noqa: E402
from smollm2 import smollm2_path  # noqa: E402

TEXTS = ROOT / "bench/evaluation"
_LEAST_CHARS = 300
"""Shorter ones are refusals."""
_SUBJECTS = (
    "how rain is made, the history of bread, a lighthouse keeper and her cat, how a bicycle stays "
    "upright, the life of a honey bee, learning to play the piano, a train journey through the "
    "mountains, why the sky is blue, how to plant a vegetable garden, the parts of a computer, "
    "a letter from a sailor, the water cycle, how volcanoes erupt, a market in a small town, the "
    "rules of chess, how to care for a dog, the planets of the solar system, a storm at sea, how "
    "vaccines work, the invention of the printing press, writing a Python function that sorts a "
    "list, the human heart, a walk in an autumn forest, how money works, the great migration of "
    "birds, making cheese, the life of a medieval blacksmith, electric motors, a museum of old "
    "clocks, how languages change, running a marathon, the deep ocean"
).split(", ")
_REQUESTS = (
    "Explain {} to a curious adult.",
    "Write a short story about {}.",
    "Write an encyclopedia article about {}.",
    "Two friends talk about {}. Write their conversation.",
    "Give a list of ten facts or steps about {}, with a sentence or two for each.",
)


def main() -> int:
    """Write both files."""
    calibration = sample(64, seed=1, requests=_REQUESTS)
    chats = sample(32, seed=18, requests=_REQUESTS[::-1])
    questions = [
        json.dumps({"prompt": each["question"], "answer": each["choices"][each["answer"]]})
        for each in map(json.loads, (TEXTS / "capitals.jsonl").read_text().splitlines())
    ]
    (TEXTS / "calibration.jsonl").write_text("\n".join(calibration) + "\n", encoding="utf-8")
    (TEXTS / "golden.jsonl").write_text("\n".join([*chats, *questions]) + "\n", encoding="utf-8")
    return 0


def sample(count: int, seed: int, requests: tuple[str, ...]) -> list[str]:
    """So many chats of a request and its answer, as JSON lines."""
    tokenizer, template = read_text_parts(smollm2_path())
    config = EngineConfig(
        smollm2_path(), device="cpu", dtype="float32", max_model_len=640, max_num_seqs=16
    )
    engine, asked = build_engine(config, tokenizer.eos_token_ids), {}
    for place in range(count):
        subject = _SUBJECTS[(place + seed) % len(_SUBJECTS)]
        wish = requests[(place + place // len(_SUBJECTS)) % len(requests)].format(subject)
        prompt = tokenizer.encode(template.render([{"role": "user", "content": wish}]))
        sampling = SamplingParams(512, temperature=1.0, top_p=0.98, seed=seed * 1000 + place)
        asked[str(place)] = wish
        engine.add(Request(str(place), prompt, sampling))
    said: dict[str, list[int]] = {name: [] for name in asked}
    while engine.has_work:
        for output in engine.step():
            said[output.request_id] += output.token_ids
    lines = []
    for name, token_ids in said.items():
        own = [token for token in token_ids if token not in tokenizer.eos_token_ids]
        text = tokenizer.decode(own).strip()
        turns = [("user", asked[name]), ("assistant", text)]
        if len(text) > _LEAST_CHARS:
            messages = [{"role": role, "content": content} for role, content in turns]
            lines.append(json.dumps({"messages": messages}, ensure_ascii=False))
    return lines


if __name__ == "__main__":
    sys.exit(main())
