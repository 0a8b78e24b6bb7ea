"""What a golden set may hold, what counts as an answer, and that a line which is none is named."""

from pathlib import Path

import pytest

from forebay_runtime.evaluating.golden import GoldenError, Match, Question, Text, read_golden


def write(folder: Path, *lines: str) -> Path:
    path = folder / "golden.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_texts_and_questions_are_told_apart(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"text": "a"}',
        "",
        '{"prompt": "b", "answer": "c"}',
        '{"messages": [{"role": "user", "content": "d"}]}',
        '{"messages": [{"role": "user", "content": "e"}], "answer": "f", "match": "contains"}',
    )
    golden = read_golden(path)
    assert golden.texts == (
        Text(f"{path}, line 1", "a"),
        Text(f"{path}, line 4", messages=({"role": "user", "content": "d"},)),
    )
    assert [(each.prompt, each.answer, each.match) for each in golden.questions] == [
        ("b", "c", "begins"),
        ("", "f", "contains"),
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        pytest.param("{", "line 2: this is not JSON", id="no-json"),
        pytest.param("[]", "line 2: this is no JSON object", id="no-object"),
        pytest.param("{}", "line 2: one of text, prompt and messages is needed", id="nothing"),
        pytest.param('{"text": "a", "prompt": "b"}', "and no two", id="two-kinds"),
        pytest.param('{"prompt": "a"}', "a prompt needs an answer", id="no-answer"),
        pytest.param('{"text": "a", "answer": "b"}', "a text has no answer", id="answered-text"),
        pytest.param('{"text": ""}', "text is no text, or empty", id="empty"),
        pytest.param('{"messages": ["a"]}', "messages is no list of objects", id="messages"),
        pytest.param('{"prompt": "a", "answer": " "}', "answer is no text, or empty", id="blank"),
        pytest.param(
            '{"prompt": "a", "answer": "b", "match": "like"}', "match is 'like'", id="match"
        ),
        pytest.param(
            '{"messages": [{}], "match": "equals"}', "there is none", id="match-of-nothing"
        ),
        pytest.param("[" * 100_000, "nested too deeply", id="deep"),
        pytest.param(r'{"text": "\ud800"}', "a lone surrogate", id="half-a-character"),
    ],
)
def test_a_line_that_is_none_is_named(line: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match=sentence):
        read_golden(write(tmp_path, '{"text": "a"}', line))


def test_only_a_newline_ends_a_line_and_a_mark_of_bytes_order_is_none(tmp_path: Path) -> None:
    text = "a\u2028b\x85c\x1cd"
    path = tmp_path / "golden.jsonl"
    path.write_text(f'\ufeff{{"text": "{text}"}}\r\n', encoding="utf-8")
    # A control character is none of a string's to strict readers.
    path.write_bytes(path.read_bytes().replace(b"\x1c", b"\\u001c"))
    assert read_golden(path).texts == (Text(f"{path}, line 1", text),)


def test_fields_that_say_nothing_are_known(tmp_path: Path) -> None:
    path = write(tmp_path, '{"messages": [{}], "anwser": "a", "id": 1}', '{"text": "a b", "id": 2}')
    assert read_golden(path).unknown == {"anwser": 1, "id": 2}


def test_a_file_without_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="has no lines"):
        read_golden(write(tmp_path, ""))
    with pytest.raises(GoldenError, match="cannot be read"):
        read_golden(tmp_path / "none")


@pytest.mark.parametrize(
    ("match", "said", "is_right"),
    [
        ("begins", " Paris, of course", True),
        ("begins", "Parisian", False),
        ("begins", "It is Paris", False),
        ("equals", "Paris\n", True),
        ("equals", "Paris.", False),
        ("contains", "It is Paris.", True),
        ("contains", "It is London.", False),
    ],
)
def test_what_counts_as_the_answer(match: Match, said: str, is_right: bool) -> None:
    assert Question("", "Paris", match).is_right(said) is is_right
