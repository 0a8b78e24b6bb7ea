"""Chat templates: rendered as `transformers` renders them, and clear when they refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from chat_templates import CHATML, FAMILIES, GEMMA, QWEN3
from forebay_runtime.chat_template import (
    ChatTemplate,
    ChatTemplateError,
    read_folder_template,
    read_gguf_template,
)
from forebay_runtime.text.tokenizer import TokenizerError
from forebay_runtime.text_parts import read_text_parts
from smollm2 import smollm2_path

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
SYSTEM = {"role": "system", "content": "Be brief. <b>&amp;</b>"}
USER = {"role": "user", "content": "Hé, 'quotes' \"too\" 😀\n\n"}
CHAT = [SYSTEM, USER, {"role": "assistant", "content": ""}, {"role": "user", "content": "And?"}]
CALL = {
    "id": "abcdefg12",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Zürich <b>", "days": [1, 2]}'},
}
CHATS = {
    "one": [USER],
    "long": CHAT,
    "thought": [
        USER,
        {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes."},
        USER,
        {"role": "assistant", "content": "No.", "reasoning_content": "Hm?"},
    ],
    "called": [
        SYSTEM,
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "12 °C", "tool_call_id": "abcdefg12"},
    ],
    "called-twice": [
        USER,
        {"role": "assistant", "content": "So:", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "12 °C", "tool_call_id": "abcdefg12"},
        {"role": "tool", "content": "13 °C", "tool_call_id": "abcdefg12"},
        USER,
    ],
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Say <it> & 'more'",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    for name in ("weather", "news")
]
FEATURES = {
    "loop-controls": "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}"
    "{{ m.role }}{% endfor %}",
    "trimmed-blocks": "{% for m in messages %}\n    {% if true %}\n{{ m['content'] }}\n"
    "    {% endif %}\n{% endfor %}\n",
    "tojson": "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}"
    "{{ messages[0] | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}",
    "special-tokens": "{{ bos_token }}{{ messages[0].content | trim }}{{ eos_token }}",
    "tools-and-prompt": "{% if tools %}T{% endif %}{% if add_generation_prompt %}P{% endif %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}"
    "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ ns }}",
    "conditions": "{% for m in messages if m.role != 'user' %}{{ m.role }}{% else %}none"
    "{% endfor %}{{ 1 < 2 < 3 }}{{ 'a' in 'abc' }}{{ messages[0] in messages }}"
    "{% if false %}a{% elif messages %}b{% else %}c{% endif %}",
    "recursive": "{% for m in [[1], [2, [3]]] recursive %}{% if m is iterable %}({{ loop(m) }})"
    "{% else %}{{ m }}{% endif %}{% endfor %}",
    "call-blocks": "{% macro box(x) %}[{{ x }}:{{ caller('c') }}]{% endmacro %}"
    "{% call(y) box(1) %}{{ y }}{% endcall %}",
    "text-methods": "{{ 'a,b'.split(',', maxsplit=1) }}{{ 'ab'.center(6) }}{{ 'x'.join('abc') }}"
    "{{ 'aXb'.lower().replace('x', '-', 1) }}{{ '7'.zfill(3) }}{{ 'a\tb'.expandtabs() }}",
    "filters": "{{ 'a b'|title|indent(2, true)|center(9) }}"
    "{{ [3, 1]|sort|join('-') }}{{ 2.55|round(1) }}{{ [1, 2]|sum }}{{ {'b': 1}|dictsort }}"
    "{{ [1, 2, 3]|batch(2)|list }}{{ '%s-%03d'|format('a', 7) }}",
    "undefined": "[{{ nothing }}{{ messages[0].nothing }}{{ nothing ~ 'x' }}]",
}


def render_as_transformers(
    source: str, chat: list[dict[str, Any]], **variables: Any
) -> tuple[str | None, str]:
    """What the oracle makes of a chat whose calls are objects, or None and its refusal."""
    chat = json.loads(json.dumps(chat))
    for message in chat:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    try:
        [text], _ = render_jinja_template([chat], chat_template=source, **TOKENS | variables)
    except Exception as exc:
        return None, str(exc)
    return text, ""


@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS.keys())
@pytest.mark.parametrize("source", FAMILIES.values(), ids=FAMILIES.keys())
def test_every_family_is_prompted_as_transformers_prompts_it(
    source: str, chat: list[dict[str, Any]]
) -> None:
    documents = [{"title": "Title", "text": "A text of more than twenty characters"}]
    for tools in (None, TOOLS):
        expected, refusal = render_as_transformers(
            source, chat, tools=tools, documents=documents, add_generation_prompt=True
        )
        template = ChatTemplate(source, TOKENS)
        if expected is None:
            with pytest.raises(ChatTemplateError) as caught:
                template.render(chat, tools=tools, documents=documents)
            assert refusal in str(caught.value)
        else:
            assert template.render(chat, tools=tools, documents=documents) == expected


@pytest.mark.parametrize("source", FEATURES.values(), ids=FEATURES.keys())
def test_jinja_means_what_it_means_to_transformers(source: str) -> None:
    expected, _ = render_as_transformers(source, CHAT, add_generation_prompt=True)
    assert ChatTemplate(source, TOKENS).render(CHAT) == expected


@pytest.mark.parametrize("enable_thinking", [True, False])
def test_kwargs_reach_the_template(enable_thinking: bool) -> None:
    kwargs = {"enable_thinking": enable_thinking}
    expected, _ = render_as_transformers(QWEN3, CHAT, add_generation_prompt=True, **kwargs)
    rendered = ChatTemplate(QWEN3, TOKENS).render(CHAT, template_kwargs=kwargs)
    assert rendered == expected
    assert rendered.endswith("<think>\n\n</think>\n\n") != enable_thinking


@pytest.mark.parametrize("name", ["messages", "tools", "chat_template", "add_generation_prompt"])
def test_kwargs_cannot_replace_what_a_request_says_elsewhere(name: str) -> None:
    with pytest.raises(ChatTemplateError, match=f"chat_template_kwargs.{name} cannot be set"):
        ChatTemplate(CHATML, TOKENS).render(CHAT, template_kwargs={name: "x"})


@pytest.mark.parametrize("source", [CHATML, GEMMA], ids=["verbatim", "trimming"])
@pytest.mark.parametrize("text", ["Once upon", "Once upon  ", "{", "a\nb\n"])
def test_a_final_message_is_left_open(source: str, text: str) -> None:
    chat = [USER, {"role": "assistant", "content": text}]
    expected, _ = render_as_transformers(source, chat, continue_final_message=True)
    rendered = ChatTemplate(source, TOKENS).render(
        chat, add_generation_prompt=False, continue_final_message=True
    )
    assert rendered == expected


@pytest.mark.parametrize(
    ("chat", "source", "named"),
    [
        ([], CHATML, "needs a last message that has text"),
        ([{"role": "assistant", "content": None}], CHATML, "needs a last message that has text"),
        ([USER], "nothing", "leaves out the last message's text"),
    ],
    ids=["no-message", "no-text", "left-out"],
)
def test_what_cannot_be_continued_is_refused(
    chat: list[dict[str, Any]], source: str, named: str
) -> None:
    with pytest.raises(ChatTemplateError, match=named):
        ChatTemplate(source, TOKENS).render(
            chat, add_generation_prompt=False, continue_final_message=True
        )


@pytest.mark.parametrize(
    ("arguments", "rendered"),
    [('{"a": 1}', '{"a": 1}'), ("", "{}"), (" ", "{}"), (None, "{}"), ({"b": 2}, '{"b": 2}')],
    ids=["text", "empty", "blank", "absent", "object"],
)
def test_arguments_of_calls_are_objects_to_templates(arguments: Any, rendered: str) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    chat = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    assert ChatTemplate(source, {}).render(chat) == rendered


@pytest.mark.parametrize(
    "arguments",
    ['{"a": ', "[1]", "nan", "[" * 100_000, '{"a": "' + "b" * 1_000_000 + '"}'],
    ids=["cut", "list", "no-json", "deep", "beyond-any-context"],
)
def test_arguments_that_are_no_json_object_stay_text(arguments: str) -> None:
    chat = [{"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]}]
    source = "{{ messages[0].tool_calls[0].function.arguments }}"
    assert ChatTemplate(source, {}).render(chat) == arguments


def test_reasoning_has_the_name_that_the_template_reads() -> None:
    source = "{{ messages[0].reasoning_content }} {{ messages[0].thinking }}"
    chat = [{"role": "assistant", "content": "a", "reasoning": "Hm"}]
    assert ChatTemplate(source, {}).render(chat) == "Hm Hm"


def test_a_chat_with_tools_takes_the_template_for_tools() -> None:
    template = ChatTemplate({"default": "D", "tool_use": "T"}, {})
    assert template.render(CHAT) == "D"
    assert template.render(CHAT, tools=TOOLS) == "T"
    assert template.source == "D\nT"


@pytest.mark.parametrize("chat", [CHAT, CHAT[1:2]], ids=["long", "no-system"])
def test_smollm2_is_prompted_as_transformers_prompts_it(
    smollm2_oracle: Any, chat: list[dict[str, str]]
) -> None:
    expected = smollm2_oracle.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    _, template = read_text_parts(smollm2_path())
    assert template.render(chat) == expected


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (None, "no chat template; use /v1/completions"),
        ({"rag": "x"}, "no default chat template, only rag"),
        ("{% if %}", "does not compile"),
        ("x" * (1 << 20) + "x", "longer than 1048576 characters"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.append(1) }}", "refused"),
        ("{{ ''.__class__.__mro__ }}", "refused"),
        ("{{ (''|attr('__class__')).x }}", "refused"),
        ("{{ '{0.__class__.x}'.format(1) }}", "refused"),
        ("{% set ns = namespace(_x=1) %}", "a namespace cannot hold '_x'"),
        ("{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "a namespace cannot hold"),
        ("{% include '/etc/passwd' %}", "refused"),
        ("{{ dict.mro() }}", "refused"),
        ("{{ messages[9].content.x }}", "refused"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
    ids=[
        *("none", "no-default", "syntax", "giant", "raises", "changes-input", "escapes"),
        *("escapes-by-filter", "escapes-by-format", "hidden-name", "hidden-attribute"),
        *("includes", "climbs", "undefined", "crashes"),
    ],
)
def test_a_template_that_cannot_answer_says_why(source: Any, named: str) -> None:
    with pytest.raises(ChatTemplateError, match=named):
        ChatTemplate(source, {}).render(CHAT)


def test_strftime_now_gives_todays_date() -> None:
    year = ChatTemplate("{{ strftime_now('%Y') }}", {}).render([])
    assert year.isdigit() and int(year) > 2020


@pytest.mark.parametrize(
    ("files", "sources"),
    [
        ({}, {}),
        ({"tokenizer_config.json": {}}, {}),
        ({"tokenizer_config.json": {"chat_template": "A"}}, {"default": "A"}),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [
                        {"name": "tool_use", "template": "T"},
                        {"name": "default", "template": "D"},
                    ]
                }
            },
            {"default": "D", "tool_use": "T"},
        ),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": ["a", {"name": "b"}, {"name": "default", "template": "c"}]
                }
            },
            {"default": "c"},
        ),
        (
            {"tokenizer_config.json": {"chat_template": "A"}, "chat_template.jinja": "B"},
            {"default": "B"},
        ),
        (
            {"chat_template.jinja": "B", "additional_chat_templates/tool_use.jinja": "T"},
            {"default": "B", "tool_use": "T"},
        ),
    ],
    ids=["no-files", "none", "in-config", "several", "some-broken", "own-file-wins", "own-files"],
)
def test_a_folder_has_its_templates_in_one_of_three_places(
    tmp_path: Path, files: dict[str, object], sources: dict[str, str]
) -> None:
    for name, value in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(value if isinstance(value, str) else json.dumps(value))
    assert read_folder_template(tmp_path) == sources


def test_a_gguf_file_may_have_several() -> None:
    metadata = {"tokenizer.chat_template": "D", "tokenizer.chat_template.tool_use": "T", "x": "y"}
    assert read_gguf_template(metadata) == {"default": "D", "tool_use": "T"}
    assert read_gguf_template({"tokenizer.ggml.model": "gpt2"}) == {}


def test_a_template_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(TokenizerError, match="chat_template.jinja could not be read as text"):
        read_folder_template(tmp_path)
