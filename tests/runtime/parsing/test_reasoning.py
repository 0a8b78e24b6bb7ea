"""Reasoning: split off wherever it was opened, and calls are looked for only behind it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_parsing import Told, cut, parse
from chat_templates import QWEN3, SMOLLM3
from forebay_runtime.chat_template import ChatTemplate
from forebay_runtime.parsing import ToolChoice, build_chat_parser

CALL = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
TIME = ("get_time", "{}")
OPEN = "<|im_start|>assistant\n<think>\n"
EMPTY = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
CASES: dict[str, tuple[str, str, str, Told]] = {
    "opened": ("think", "", "<think>\nHm.\n</think>\n\nYes.", Told("\nHm.\n", "\n\nYes.")),
    "opened-after-blanks": ("think", "", "\n<think>Hm</think>Yes", Told("Hm", "Yes")),
    "opened-in-the-prompt": ("think", OPEN, "Hm.\n</think>\n\nYes.", Told("Hm.\n", "\n\nYes.")),
    "opened-in-a-message-to-continue": ("think", OPEN + "H", "m.</think>Yes", Told("m.", "Yes")),
    "closed-in-a-message-to-continue": (
        "deepseek_r1",
        OPEN + "Hm</think>Y",
        "es",
        Told("", "es"),
    ),
    "opened-by-the-user": (
        "think",
        "Say <think><|im_end|>\n<|im_start|>assistant\n",
        "<think>Hm</think>Yes",
        Told("Hm", "Yes"),
    ),
    "opened-twice": ("think", OPEN, "<think>Hm</think>Yes", Told("Hm", "Yes")),
    "closed-in-the-prompt": ("think", EMPTY, "Yes </think> No", Told("", "Yes </think> No")),
    "in-an-earlier-turn": (
        "think",
        "<think>a</think>b<|im_end|>\n<|im_start|>assistant\n",
        "<think>Hm</think>Yes",
        Told("Hm", "Yes"),
    ),
    "not-at-all": ("think", "", "  Yes", Told("", "  Yes")),
    "mentioned": ("think", "", "Write <think>x</think>", Told("", "Write <think>x</think>")),
    "empty": ("think", "", "<think>\n\n</think>\n\nYes", Told("\n\n", "\n\nYes")),
    "never-closed": ("think", "", "<think>Hm", Told("Hm", "")),
    "never-closed-in-the-prompt": ("think", OPEN, " Hm </thin", Told(" Hm </thin", "")),
    "never-opened": ("deepseek_r1", "", "Hm</think>Yes", Told("Hm", "Yes")),
    "never-opened-nor-closed": ("deepseek_r1", "", "Hm", Told("Hm", "")),
    "opened-though-it-need-not": ("deepseek_r1", "", "<think>\nHm</think>", Told("\nHm", "")),
    "closed-for-one-that-opens-by-itself": ("deepseek_r1", EMPTY, "Yes", Told("", "Yes")),
    "closed-twice": ("think", OPEN, "Hm</think>Yes</think>", Told("Hm", "Yes</think>")),
    "tags-within": ("think", OPEN, "a <b </ think>  </think>c", Told("a <b </ think>  ", "c")),
    "then-a-call": ("think", OPEN, f"Hm</think>\n\n{CALL}", Told("Hm", "", [TIME])),
    "then-text-and-a-call": ("think", OPEN, f"Hm</think>So {CALL}", Told("Hm", "So ", [TIME])),
    "a-call-within": ("think", OPEN, f"{CALL}</think>Yes", Told(CALL, "Yes")),
    "a-call-within-and-behind": ("think", OPEN, f"{CALL}</think>{CALL}", Told(CALL, "", [TIME])),
    "a-call-without-it": ("think", "", CALL, Told("", "", [TIME])),
    "blank": ("think", "", " \n", Told("", " \n")),
    "nothing": ("think", "", "", Told()),
    "marker-cut-off": ("think", "", "<thi", Told("", "<thi")),
}


@pytest.mark.parametrize(("parser", "tail", "text", "told"), CASES.values(), ids=CASES.keys())
def test_reasoning_is_told_apart_however_the_text_is_cut(
    parser: str, tail: str, text: str, told: Told
) -> None:
    cuttings = [[text[:border], text[border:]] for border in range(len(text))]
    for pieces in ([text], list(text), *cuttings):
        assert parse(pieces, "hermes", parser, prompt_tail=tail) == told


@pytest.mark.parametrize(("parser", "tail", "text", "told"), CASES.values(), ids=CASES.keys())
def test_reasoning_needs_no_tools(parser: str, tail: str, text: str, told: Told) -> None:
    plain = parse(list(text), None, parser, prompt_tail=tail)
    assert plain.reasoning == told.reasoning
    assert told.calls or plain.content == told.content


@pytest.mark.parametrize(("parser", "tail", "text", "told"), CASES.values(), ids=CASES.keys())
def test_where_the_reasoning_stands_is_known_too(
    parser: str, tail: str, text: str, told: Told
) -> None:
    for pieces in ([text], list(text)):
        reader = build_chat_parser(None, parser, (), ToolChoice("auto"), tail)
        for piece in pieces:
            reader.feed(piece)
        reader.flush()
        span = reader.reasoning_span
        assert span is not None and text[span.start : span.stop] == told.reasoning


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["<think>", "</think>", CALL, "<", "/", "think", ">", "\n", "a"])),
    st.lists(st.integers(0, 200), max_size=20),
    st.sampled_from(["", OPEN, EMPTY]),
    st.sampled_from(["think", "deepseek_r1"]),
)
def test_no_cutting_changes_what_is_told(
    parts: list[str], borders: list[int], tail: str, parser: str
) -> None:
    text = "".join(parts)
    whole = parse([text], "hermes", parser, prompt_tail=tail)
    assert parse(cut(text, borders), "hermes", parser, prompt_tail=tail) == whole


def test_without_a_parser_reasoning_is_content() -> None:
    assert parse(["<think>Hm</think>Yes"]) == Told("", "<think>Hm</think>Yes")


@pytest.mark.parametrize(
    ("source", "enable_thinking", "told"),
    [
        (QWEN3, True, Told("", "Hm</think>Yes")),
        (QWEN3, False, Told("", "Hm</think>Yes")),
        (SMOLLM3, True, Told("Hm", "Yes")),
    ],
    ids=["opens-by-itself", "switched-off", "opened-by-the-template"],
)
def test_the_prompt_says_whether_it_is_open(source: str, enable_thinking: bool, told: Told) -> None:
    prompt = ChatTemplate(source, {}).render(
        [{"role": "user", "content": "</think><think>"}],
        template_kwargs={"enable_thinking": enable_thinking},
    )
    assert parse(["Hm</think>Yes"], None, "think", prompt_tail=prompt[-200:]) == told


def test_blanks_for_ever_cost_what_their_length_costs() -> None:
    pieces = ["\n" * 50] * 10_000
    assert parse(pieces, "hermes", "think").content == "\n" * 500_000
