"""Chat templates: rendered as `transformers` renders them, boxed in, and clear when they refuse."""

import json
from pathlib import Path
from typing import Any

import pytest

from forebay_runtime.chat_template import ChatTemplate, ChatTemplateError, read_folder_template
from forebay_runtime.server.loader import read_text_parts
from forebay_runtime.tokenizer import TokenizerError
from smollm2 import smollm2_path

CHAT = [
    {"role": "system", "content": "Be brief. <b>&amp;</b>"},
    {"role": "user", "content": "Hé, 'quotes' \"too\" 😀\n\n"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "And?"},
]
TEMPLATES = {
    "loop-controls": "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}"
    "{{ m.role }}{% endfor %}",
    "trimmed-blocks": "{% for m in messages %}\n    {% if true %}\n{{ m['content'] }}\n"
    "    {% endif %}\n{% endfor %}\n",
    "tojson": "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}",
    "special-tokens": "{{ bos_token }}{{ messages[0].content | trim }}{{ eos_token }}",
    "tools-and-prompt": "{% if tools %}T{% endif %}{% if add_generation_prompt %}P{% endif %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}"
    "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
}


@pytest.mark.parametrize("chat", [CHAT, CHAT[1:2]], ids=["long", "no-system"])
def test_smollm2_is_prompted_as_transformers_prompts_it(
    smollm2_oracle: Any, chat: list[dict[str, str]]
) -> None:
    expected = smollm2_oracle.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    _, template = read_text_parts(smollm2_path())
    assert template.render(chat, add_generation_prompt=True) == expected


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_templates_mean_what_they_mean_to_transformers(smollm2_oracle: Any, source: str) -> None:
    expected = smollm2_oracle.apply_chat_template(
        CHAT, chat_template=source, tokenize=False, add_generation_prompt=True
    )
    names = {"bos_token": smollm2_oracle.bos_token, "eos_token": smollm2_oracle.eos_token}
    assert ChatTemplate(source, names).render(CHAT, add_generation_prompt=True) == expected


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (None, "no chat template; use /v1/completions"),
        ("{% if %}", "does not compile"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.append(1) }}", "refused"),
        ("{{ ''.__class__.__mro__ }}", "refused"),
        ("{{ messages[9].content.x }}", "refused"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
    ids=["none", "syntax", "raises", "changes-input", "escapes", "undefined", "crashes"],
)
def test_a_template_that_cannot_answer_says_why(source: str | None, named: str) -> None:
    with pytest.raises(ChatTemplateError, match=named):
        ChatTemplate(source, {}).render(CHAT, add_generation_prompt=True)


def test_strftime_now_gives_todays_date() -> None:
    year = ChatTemplate("{{ strftime_now('%Y') }}", {}).render([], add_generation_prompt=False)
    assert year.isdigit() and int(year) > 2020


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({}, None),
        ({"tokenizer_config.json": {}}, None),
        ({"tokenizer_config.json": {"chat_template": "A"}}, "A"),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [
                        {"name": "tool_use", "template": "T"},
                        {"name": "default", "template": "D"},
                    ]
                }
            },
            "D",
        ),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": ["a", {"name": ["b"]}, {"name": "default", "template": "c"}]
                }
            },
            "c",
        ),
        ({"tokenizer_config.json": {"chat_template": "A"}, "chat_template.jinja": "B"}, "B"),
    ],
    ids=["no-files", "no-template", "in-config", "several", "some-nameless", "own-file-wins"],
)
def test_a_folder_has_its_template_in_one_of_three_places(
    tmp_path: Path, files: dict[str, object], source: str | None
) -> None:
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (tmp_path / name).write_text(text)
    assert read_folder_template(tmp_path) == source


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
        "{{ m(60) }}",
        "{% set look_at_clock = 1 %}{% for i in range(99999) %}{% for j in range(99999) %}"
        "{% endfor %}{% endfor %}",
    ],
    ids=["loops", "macros", "a-clock-of-its-own"],
)
def test_a_template_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr("forebay_runtime.chat_template.MAX_SECONDS", 0.2)
    with pytest.raises(ChatTemplateError, match="took longer than 0.2 seconds"):
        ChatTemplate(source, {}).render(CHAT, add_generation_prompt=True)


def test_a_template_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(TokenizerError, match="chat_template.jinja could not be read as text"):
        read_folder_template(tmp_path)
