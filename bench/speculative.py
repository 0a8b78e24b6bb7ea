"""What proposing tokens changes: output tokens a second with and without it, in one run.

    python bench/speculative.py MODEL [--draft MODEL] [--rounds 5]

One engine answers the same requests with proposals and without, in turns; each ratio is of a pair
of neighbouring turns, so what else the machine does meanwhile touches both. Answers are compared:
they must be the same to the token. Without --draft, proposals come from the text so far.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from serving.machine import describe_machine, describe_versions

from forebay_budget.speculative_config import SpeculativeConfig
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.request import Request, SamplingParams, Speculated
from forebay_runtime.text_parts import read_text_parts

_LINES = "".join(f"- box {number} is blue and stands in room {number}\n" for number in range(1, 13))
_CODE = "".join(
    f"def get_{name}(self):\n    return self._{name}\n\n"
    for name in ("name", "size", "colour", "weight", "price", "owner")
)
TEXTS = {
    "a list copied": f"The list:\n{_LINES}\nThe same list again:\n{_LINES}\nOnce more:\n- box 1",
    "code of one kind": f"{_CODE}def get_height(self):\n",
    "a story": "The old fisherman looked at the sea and thought of the year in which",
}
"""The first two go on as they began; a story does not."""
_COLUMNS = (
    *("text", "requests", "temperature", "plain, tokens/s", "proposing", "ratio", "spread"),
    *("tokens a step", "kept", "same"),
)


@dataclass(frozen=True)
class Case:
    """A text, how many ask for its continuation at once, and at which temperature."""

    text: str
    num_requests: int
    temperature: float


@dataclass
class Turn:
    """One time that all of a case's requests were answered."""

    token_ids: list[list[int]]
    seconds: float
    num_steps: int

    @property
    def rate(self) -> float:
        """Output tokens a second."""
        return sum(map(len, self.token_ids)) / self.seconds


def build_parser() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a .gguf file, or a folder of safetensors")
    parser.add_argument("--draft", help="a draft model, instead of n-grams")
    parser.add_argument(
        "--num-speculative-tokens",
        type=int,
        default=5,
        help="proposed at a time, at most (%(default)s)",
    )
    parser.add_argument(
        "--texts",
        nargs="+",
        choices=TEXTS,
        default=list(TEXTS),
        help="what is continued, each quoted (all)",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="pairs of turns that are compared (%(default)s)"
    )
    parser.add_argument(
        "--requests",
        type=int,
        nargs="+",
        default=[1, 8],
        help="how many ask at once, a case each (1 8)",
    )
    parser.add_argument(
        "--output-tokens", type=int, default=128, help="of each request (%(default)s)"
    )
    parser.add_argument("--dtype", default="auto", help="as forebay serve has it (%(default)s)")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    return parser


def main() -> None:
    """Print the table, and the same as JSON if asked."""
    parser = build_parser()
    args = parser.parse_args()
    if not args.model.exists():
        parser.error(f"{args.model} is not there")
    engine = load(args)
    tokenizer = read_text_parts(args.model)[0]
    print(json.dumps(describe_machine() | describe_versions(None, None)))
    print(f"| {' | '.join(_COLUMNS)} |")
    print("|---" * len(_COLUMNS) + "|")
    rows = []
    for text in args.texts:
        for num_requests in args.requests:
            for temperature in (0.0, 0.7):
                case = Case(text, num_requests, temperature)
                prompt = tokenizer.encode(TEXTS[text])
                rows.append(measure(engine, case, prompt, args))
                print(to_row(rows[-1]), flush=True)
    if args.out is not None:
        args.out.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1))


def load(args: argparse.Namespace) -> Engine:
    """A warm engine that proposes; it finds nothing in a prefix cache, so that turns are alike."""
    number = args.num_speculative_tokens
    asked = SpeculativeConfig("ngram", number, prompt_lookup_min=2, prompt_lookup_max=5)
    if args.draft is not None:
        asked = SpeculativeConfig("draft_model", number, args.draft)
    engine = build_engine(
        EngineConfig(
            args.model,
            dtype=args.dtype,
            max_num_seqs=max(args.requests),
            max_num_batched_tokens=512,
            max_model_len=1024,
            enable_prefix_caching=False,
            speculative=asked,
        )
    )
    engine.warm_up()
    return engine


def measure(
    engine: Engine, case: Case, prompt: list[int], args: argparse.Namespace
) -> dict[str, Any]:
    """Rounds of both, after one that counts for nothing."""
    speculation = engine.scheduler.speculation
    pairs: list[tuple[Turn, Turn]] = []
    before = Speculated()
    for number in range(args.rounds + 1):
        if number == 1 and speculation is not None:
            before = speculation.counts
        turns = {}
        # Whoever is first in one round is second in the next.
        for proposes in (number % 2 == 0, number % 2 == 1):
            engine.scheduler.speculation = speculation if proposes else None
            turns[proposes] = answer(engine, case, prompt, args.output_tokens)
        engine.scheduler.speculation = speculation
        pairs.append((turns[False], turns[True]))
    counts = speculation.counts if speculation is not None else before
    return describe(case, pairs[1:], before, counts)


def answer(engine: Engine, case: Case, prompt: list[int], num_tokens: int) -> Turn:
    """Answer all requests of a case at once."""
    tokens: dict[str, list[int]] = {}
    for index in range(case.num_requests):
        sampling = SamplingParams(
            num_tokens, temperature=case.temperature, seed=index, ignore_eos=True
        )
        tokens[str(index)] = []
        # Each begins with another token, so that they are not all the same.
        engine.add(Request(str(index), [1 + index, *prompt], sampling))
    num_steps, start = 0, time.perf_counter()
    while engine.has_work:
        for output in engine.step():
            tokens[output.request_id] += output.token_ids
        num_steps += 1
    return Turn(list(tokens.values()), time.perf_counter() - start, num_steps)


def describe(
    case: Case, pairs: Sequence[tuple[Turn, Turn]], before: Speculated, after: Speculated
) -> dict[str, Any]:
    """The medians of rates and ratios, and how much was kept."""
    ratios = [proposing.rate / plain.rate for plain, proposing in pairs]
    num_proposed = after.num_proposed_tokens - before.num_proposed_tokens
    num_kept = after.num_kept_tokens - before.num_kept_tokens
    num_tokens = sum(len(own) for _, turn in pairs for own in turn.token_ids)
    num_steps = sum(turn.num_steps for _, turn in pairs)
    return {
        "text": case.text,
        "requests": case.num_requests,
        "temperature": case.temperature,
        "plain": median(plain.rate for plain, _ in pairs),
        "proposing": median(proposing.rate for _, proposing in pairs),
        "ratio": median(ratios),
        "spread": [min(ratios), max(ratios)],
        "tokens_a_step": num_tokens / num_steps / case.num_requests,
        "kept": num_kept / num_proposed if num_proposed else 0.0,
        "same": all(plain.token_ids == proposing.token_ids for plain, proposing in pairs),
    }


def to_row(row: dict[str, Any]) -> str:
    """A line of the table."""
    low, high = row["spread"]
    return (
        f"| {row['text']} | {row['requests']} | {row['temperature']} | {row['plain']:.1f} "
        f"| {row['proposing']:.1f} | {row['ratio']:.2f} | {low:.2f}–{high:.2f} "
        f"| {row['tokens_a_step']:.2f} | {row['kept']:.0%} | {'yes' if row['same'] else 'no'} |"
    )


if __name__ == "__main__":
    torch.set_num_interop_threads(1)
    main()
