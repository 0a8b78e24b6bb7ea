"""Tool calls in every format: what is a call, what is content, however the text is cut."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_parsing import Told, build_tools, cut, parse
from forebay_runtime.parsing import ToolChoice, build_chat_parser, reader
from forebay_runtime.parsing.call_format import Reader

ARGUMENTS = '{"city": "Zürich \\"a\\" }", "days": [1, -2.5e3, true, null, {"x": {}}]}'
WEATHER = ("weather", ARGUMENTS)
TIME = ("get_time", "{}")


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def llama(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


def item(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "arguments": {arguments}, "id": "abcdefgh1"}}'


CALLS: dict[str, tuple[str | None, str, Told]] = {
    # Hermes and Qwen
    "hermes": ("hermes", hermes(*WEATHER), Told(calls=[WEATHER])),
    "hermes-several": (
        "hermes",
        f"{hermes(*WEATHER)}\n{hermes(*TIME)}\n",
        Told(calls=[WEATHER, TIME]),
    ),
    "hermes-text-before": (
        "hermes",
        f"Let me <b>look</b>.\n{hermes(*WEATHER)}",
        Told(content="Let me <b>look</b>.\n", calls=[WEATHER]),
    ),
    "hermes-blank-before": ("hermes", f"\n\n{hermes(*WEATHER)}", Told(calls=[WEATHER])),
    "hermes-text-behind": (
        "hermes",
        f"{hermes(*TIME)}\n\nDone",
        Told(content="\n\nDone", calls=[TIME]),
    ),
    "hermes-compact": (
        "hermes",
        '<tool_call>{"name":"get_time","arguments":{}}</tool_call>',
        Told(calls=[TIME]),
    ),
    "hermes-arguments-first": (
        "hermes",
        f'<tool_call>{{"arguments": {ARGUMENTS}, "name": "weather"}}</tool_call>',
        Told(calls=[WEATHER]),
    ),
    "hermes-parameters": (
        "hermes",
        '<tool_call>{"name": "get_time", "parameters": {"a": 1}}</tool_call>',
        Told(calls=[("get_time", '{"a": 1}')]),
    ),
    "hermes-more-keys": (
        "hermes",
        '<tool_call>{"id": 1, "name": "get_time", "arguments": {}, "x": [{}]}</tool_call>',
        Told(calls=[TIME]),
    ),
    "hermes-key-in-escapes": (
        "hermes",
        '<tool_call>{"n\\u0061me": "get\\u005ftime", "arguments": {}}</tool_call>',
        Told(calls=[TIME]),
    ),
    "hermes-tag-in-arguments": (
        "hermes",
        hermes("weather", '{"a": "</tool_call><tool_call>"}'),
        Told(calls=[("weather", '{"a": "</tool_call><tool_call>"}')]),
    ),
    "hermes-name-in-arguments": (
        "hermes",
        '<tool_call>{"arguments": {"name": "weather"}, "name": "get_time"}</tool_call>',
        Told(calls=[("get_time", '{"name": "weather"}')]),
    ),
    "hermes-none": (
        "hermes",
        '<tool_call>{"name": "get_time"}</tool_call>',
        Told(calls=[TIME]),
    ),
    "hermes-null": (
        "hermes",
        '<tool_call>{"name": "get_time", "arguments": null}</tool_call>',
        Told(calls=[TIME]),
    ),
    "hermes-text-of-an-object": (
        "hermes",
        '<tool_call>{"name": "weather", "arguments": " {\\"a\\": 1} "}</tool_call>',
        Told(calls=[("weather", '{"a": 1}')]),
    ),
    "hermes-line-break-in-text": (
        "hermes",
        hermes("weather", '{"a": "x\ny\t"}'),
        Told(calls=[("weather", '{"a": "x\\u000ay\\u0009"}')]),
    ),
    "hermes-brace-missing": (
        "hermes",
        '<tool_call>{"name": "get_time", "arguments": {}\n</tool_call>' + hermes(*WEATHER),
        Told(calls=[TIME, WEATHER]),
    ),
    "hermes-brace-too-many": (
        "hermes",
        '<tool_call>{"name": "get_time", "arguments": {}}}\n</tool_call>ok',
        Told(content="ok", calls=[TIME]),
    ),
    "hermes-never-closed": (
        "hermes",
        '<tool_call>{"name": "get_time", "arguments": {}}\n</tool',
        Told(calls=[TIME]),
    ),
    "hermes-text-for-a-tag": (
        "hermes",
        '<tool_call>{"name": "get_time", "arguments": {}}\n</tool> ok',
        Told(content="\n</tool> ok", calls=[TIME]),
    ),
    "hermes-cut-off": (
        "hermes",
        '<tool_call>{"name": "weather", "arguments": {"city": "Zü',
        Told(calls=[("weather", '{"city": "Zü')]),
    ),
    "hermes-broken-late": (
        "hermes",
        '<tool_call>{"name": "weather", "arguments": {"a": 1, b}}</tool_call>',
        Told(content="b}}</tool_call>", calls=[("weather", '{"a": 1, ')]),
    ),
    # Llama 3
    "llama": ("llama3_json", llama(*WEATHER), Told(calls=[WEATHER])),
    "llama-several": (
        "llama3_json",
        f"{llama(*WEATHER)}; {llama(*TIME)};\n{llama(*TIME)}",
        Told(calls=[WEATHER, TIME, TIME]),
    ),
    "llama-adjacent": (
        "llama3_json",
        llama(*WEATHER) + llama(*TIME),
        Told(calls=[WEATHER, TIME]),
    ),
    "llama-tag": ("llama3_json", f"<|python_tag|>{llama(*TIME)}", Told(calls=[TIME])),
    "llama-tag-twice": (
        "llama3_json",
        f"<|python_tag|> {llama(*TIME)};<|python_tag|>{llama(*TIME)} ; ",
        Told(calls=[TIME, TIME]),
    ),
    "llama-typed": (
        "llama3_json",
        f'{{"type": "function", "name": "weather", "parameters": {ARGUMENTS}}}',
        Told(calls=[WEATHER]),
    ),
    "llama-arguments": (
        "llama3_json",
        '{"name": "get_time", "arguments": {}}',
        Told(calls=[TIME]),
    ),
    "llama-text-before": (
        "llama3_json",
        f"if (x) {{ y }} {llama(*TIME)}",
        Told(content="if (x) { y } ", calls=[TIME]),
    ),
    "llama-text-behind": (
        "llama3_json",
        f"{llama(*TIME)}; so",
        Told(content="; so", calls=[TIME]),
    ),
    # Mistral
    "mistral-list": (
        "mistral",
        f"[TOOL_CALLS] [{item(*WEATHER)}, {item(*TIME)}]",
        Told(calls=[WEATHER, TIME]),
    ),
    "mistral-object": ("mistral", f"[TOOL_CALLS]{item(*TIME)}", Told(calls=[TIME])),
    "mistral-names": (
        "mistral",
        f"Let me see.[TOOL_CALLS]weather{ARGUMENTS}[TOOL_CALLS]get_time{{}}",
        Told(content="Let me see.", calls=[WEATHER, TIME]),
    ),
    "mistral-names-with-tags": (
        "mistral",
        f"[TOOL_CALLS]weather[ARGS]{ARGUMENTS}[TOOL_CALLS]get_time[CALL_ID]a1b2[ARGS] {{}}",
        Told(calls=[WEATHER, TIME]),
    ),
    "mistral-list-cut-off": (
        "mistral",
        f"[TOOL_CALLS] [{item(*TIME)}, {{",
        Told(content=", {", calls=[TIME]),
    ),
    "mistral-list-broken": (
        "mistral",
        f"[TOOL_CALLS] [{item(*TIME)}, x",
        Told(content=", x", calls=[TIME]),
    ),
    "mistral-text-behind": (
        "mistral",
        f"[TOOL_CALLS] [{item(*TIME)}] ok",
        Told(content=" ok", calls=[TIME]),
    ),
}
NO_CALLS: dict[str, tuple[str, str]] = {
    "hermes-plain": ("hermes", " Hello <b> <tool_cal> </tool_call>\n"),
    "hermes-blank": ("hermes", "\n \n"),
    "hermes-empty": ("hermes", ""),
    "hermes-unknown": ("hermes", hermes("nothing", "{}")),
    "hermes-bad-json": ("hermes", "<tool_call>\n{'name': 'weather'}\n</tool_call>\n"),
    "hermes-no-object": ("hermes", "<tool_call>weather</tool_call>"),
    "hermes-no-name": ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
    "hermes-name-is-no-text": ("hermes", '<tool_call>{"name": 1, "arguments": {}}</tool_call>'),
    "hermes-arguments-are-a-list": ("hermes", hermes("weather", "[1]")),
    "hermes-arguments-are-a-text": ("hermes", hermes("weather", '"a"')),
    "hermes-arguments-are-two": ("hermes", hermes("weather", '"{} {}"')),
    "hermes-cut-off": ("hermes", '<tool_call>{"name": "weather", "argum'),
    "hermes-marker-cut-off": ("hermes", "a <tool_ca"),
    "llama-prose": ("llama3_json", 'Use {"name": "x"} or {"name": "weather"} { } {"a": [1]}'),
    "llama-nested": ("llama3_json", '{"a": ' + llama("weather", "{}") + "}"),
    "llama-code": ("llama3_json", "<|python_tag|>print({1: 2})"),
    "llama-unknown": ("llama3_json", llama("nothing", "{}")),
    "llama-cut-off": ("llama3_json", '{"name": "weather", "para'),
    "mistral-prose": ("mistral", "[TOOL_CALL] [TOOL_CALLS] ok [1]"),
    "mistral-unknown": ("mistral", "[TOOL_CALLS]nothing{}"),
    "mistral-unknown-in-a-list": ("mistral", f"[TOOL_CALLS] [{item('nothing', '{}')}]"),
    "mistral-no-object": ("mistral", "[TOOL_CALLS]weather [1]"),
    "mistral-name-cut-off": ("mistral", "[TOOL_CALLS]weather[AR"),
    "mistral-wrong-tag": ("mistral", "[TOOL_CALLS]weather[ARGS][ARGS]{}"),
    "mistral-long-name": ("mistral", "[TOOL_CALLS]" + "w" * 300 + "{}"),
}
CASES = CALLS | {
    name: (parser, text, Told(content=text)) for name, (parser, text) in NO_CALLS.items()
}


@pytest.mark.parametrize(("parser", "text", "told"), CASES.values(), ids=CASES.keys())
def test_an_answer_is_told_the_same_whole_and_by_characters(
    parser: str, text: str, told: Told
) -> None:
    assert parse([text], parser) == told
    assert parse(list(text), parser) == told


@pytest.mark.parametrize(("parser", "text", "told"), CASES.values(), ids=CASES.keys())
def test_no_border_changes_what_is_told(parser: str, text: str, told: Told) -> None:
    for border in range(1, min(len(text), 400)):
        assert parse([text[:border], text[border:]], parser) == told


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_cutting_at_all_changes_what_is_told(data: st.DataObject) -> None:
    parser = data.draw(st.sampled_from(["hermes", "llama3_json", "mistral"]))
    snippets = [text for own, text, _ in CASES.values() if own == parser and len(text) < 300]
    pieces = st.sampled_from([*snippets, *'{}[]",:; \n', "<", "\\", "1", "a"])
    text = "".join(data.draw(st.lists(pieces, max_size=12)))
    whole = parse([text], parser)
    borders = data.draw(st.lists(st.integers(0, len(text) or 1), max_size=20))
    assert parse(cut(text, borders), parser) == whole
    for _, arguments in whole.calls:
        assert arguments[:1] in ("{", "")
    if not whole.calls:
        assert whole.content == text


def test_the_name_comes_before_the_arguments_and_they_come_as_they_are_written() -> None:
    parser = build_chat_parser("hermes", None, build_tools("weather"), ToolChoice("auto"), "")
    steps = ["Hm", "<tool", '_call>{"name": "wea', 'ther", "arguments": {', '"a": ', '"xyz', '"}']
    deltas = [parser.feed(step) for step in steps]
    assert [delta.content for delta in deltas] == ["Hm", "", "", "", "", "", ""]
    told = [[(call.name, call.arguments) for call in delta.tool_calls] for delta in deltas]
    fragments = [[(None, '"a": ')], [(None, '"xyz')], [(None, '"}')]]
    assert told == [[], [], [], [("weather", "{")], *fragments]


@pytest.mark.parametrize(
    ("parser", "text", "pattern"),
    [
        ("hermes", hermes(*TIME) + hermes(*TIME), r"call_[0-9a-f]{24}\Z"),
        ("mistral", "[TOOL_CALLS]get_time{}[TOOL_CALLS]get_time{}", r"[a-zA-Z0-9]{9}\Z"),
    ],
)
def test_every_call_has_an_id_of_its_own(parser: str, text: str, pattern: str) -> None:
    ids = parse([text], parser).ids
    assert len(set(ids)) == 2
    assert all(re.match(pattern, id_) for id_ in ids)


@pytest.mark.parametrize("kind", ["required", "named"])
def test_without_a_format_a_forced_answer_is_a_list(kind: str) -> None:
    choice = ToolChoice("required") if kind == "required" else ToolChoice("named", "weather")
    text = f"[{llama(*WEATHER)}, {llama(*TIME)}]"
    assert parse(list(text), None, tool_choice=choice) == Told(calls=[WEATHER, TIME])


@pytest.mark.parametrize("parser", [None, "hermes", "llama3_json", "mistral"])
def test_who_may_not_call_only_speaks(parser: str | None) -> None:
    text = f"{hermes(*TIME)}{llama(*TIME)}[TOOL_CALLS]get_time{{}}"
    assert parse([text], parser, tool_choice=ToolChoice("none")) == Told(content=text)


@pytest.mark.parametrize(
    ("parser", "start", "unit"),
    [
        ("hermes", "", "<"),
        ("hermes", "", "<tool_call>"),
        ("hermes", "", '<tool_call>{"'),
        ("hermes", "<tool_call>", "\n"),
        ("hermes", '<tool_call>{"', "a"),
        ("hermes", '<tool_call>{"a": ', '{"a": '),
        ("hermes", '<tool_call>{"arguments": {"a": "', "b\\n"),
        ("hermes", '<tool_call>{"name": "weather", "arguments": {"a": ', "[1,"),
        ("hermes", '<tool_call>{"name": "weather", "arguments": {"a": ', "1"),
        ("hermes", hermes(*TIME), " }"),
        ("hermes", "", hermes(*TIME)),
        ("hermes", "", "\n"),
        ("llama3_json", "", "{"),
        ("llama3_json", "", '{"a":'),
        ("llama3_json", "", "<|python_tag|>{"),
        ("llama3_json", llama(*TIME), "; "),
        ("mistral", "[TOOL_CALLS]", " "),
        ("mistral", "[TOOL_CALLS]", "a"),
        ("mistral", f"[TOOL_CALLS][{item(*TIME)}", " "),
        ("mistral", "", "[TOOL_CALLS][{"),
    ],
)
def test_a_hostile_answer_costs_what_its_length_costs(
    monkeypatch: pytest.MonkeyPatch, parser: str, start: str, unit: str
) -> None:
    steps = 0
    read_content, read_call = reader.CallParser._read_content, reader.CallParser._read_call

    def count_content(self: reader.CallParser, text: str, position: int) -> int:
        nonlocal steps
        steps += 1
        return read_content(self, text, position)

    def count_call(self: reader.CallParser, call: Reader, text: str, position: int) -> int:
        nonlocal steps
        steps += 1
        return read_call(self, call, text, position)

    monkeypatch.setattr(reader.CallParser, "_read_content", count_content)
    monkeypatch.setattr(reader.CallParser, "_read_call", count_call)
    text = start + unit * (100_000 // len(unit))
    whole = parse([text], parser)
    assert steps < 2 * len(text)
    assert parse(cut(text, range(0, len(text), 997)), parser) == whole
    assert len(whole.content) + sum(len(arguments) for _, arguments in whole.calls) <= len(text)


@pytest.mark.parametrize("depth", [100, 1000])
def test_arguments_are_never_deeper_than_clients_can_read(depth: int) -> None:
    nested = '{"a": ' * depth + "1" + "}" * depth
    told = parse([hermes("weather", nested)], "hermes")
    if depth == 100:
        assert told.calls == [("weather", nested)] and json.loads(told.calls[0][1])
    else:
        assert told.content != ""
