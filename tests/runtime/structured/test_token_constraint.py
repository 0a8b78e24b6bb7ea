"""One request's walk: masks by token id, ends only where the text may end, errors as sentences."""

import pytest

from fake_engine import VOCAB_SIZE, build_byte_tokenizer
from forebay_runtime.structured import StructureCompiler, StructureSpec, literal
from forebay_runtime.structured import constraint as constraint_module
from structure_bench import Workbench
from structure_walk import allows, read_mask, takes

HOSTILE_STEPS = r"(\w+\s?){0,2000}"


def feed(bench: Workbench, constraint: object, text: str) -> None:
    for token_id in bench.tokenizer.encode(text):
        constraint.accept(token_id)  # type: ignore[attr-defined]


def test_a_mask_has_a_bit_for_each_token_of_the_model(smollm2: Workbench) -> None:
    constraint = smollm2.build("regex", "(.|\n)*").start()

    mask = constraint.allowed()

    assert len(mask) == smollm2.vocab_size // 8
    assert max(read_mask(mask)) < 49_152


def test_special_tokens_are_never_allowed_in_any_text(workbench: Workbench) -> None:
    constraint = workbench.build("regex", "(.|\n)*").start()
    allowed = read_mask(constraint.allowed())

    without_text = [id_ for id_ in allowed if not workbench.tokenizer.token_bytes(id_)]

    assert sorted(without_text) == sorted(workbench.tokenizer.eos_token_ids)


def test_every_token_with_text_is_allowed_in_any_text(smollm2: Workbench) -> None:
    allowed = set(read_mask(smollm2.build("regex", "(?s:.)*").start().allowed()))
    valid = set()
    for token_id in range(49_152):
        try:
            if smollm2.tokenizer.token_bytes(token_id).decode():
                valid.add(token_id)
        except UnicodeDecodeError:
            pass  # a part of a character: some may come first, some may not

    assert valid - allowed == set()


def test_every_end_is_allowed_where_the_text_may_end(smollm2: Workbench) -> None:
    constraint = smollm2.build("regex", "a+").start()
    ends = smollm2.tokenizer.eos_token_ids
    assert len(ends) == 2

    assert not any(allows(constraint, end) for end in ends)
    feed(smollm2, constraint, "a")

    assert all(allows(constraint, end) for end in ends)
    assert not constraint.is_complete


@pytest.mark.parametrize("index", [0, 1])
def test_an_end_completes_it(smollm2: Workbench, index: int) -> None:
    constraint = smollm2.build("regex", "a+").start()
    feed(smollm2, constraint, "a")

    constraint.accept(sorted(smollm2.tokenizer.eos_token_ids)[index])

    assert constraint.is_complete
    assert constraint.error is None
    assert set(read_mask(constraint.allowed())) == smollm2.tokenizer.eos_token_ids


@pytest.mark.parametrize(
    ("kind", "source", "text"),
    [("choice", ["yes", "no"], "no"), ("json_object", "", "{}"), ("regex", "a{3}", "aaa")],
)
def test_it_is_complete_as_soon_as_nothing_can_follow(
    bytewise: Workbench, kind: str, source: object, text: str
) -> None:
    constraint = bytewise.build(kind, source).start()

    feed(bytewise, constraint, text[:-1])
    assert not constraint.is_complete
    feed(bytewise, constraint, text[-1])

    assert constraint.is_complete
    assert set(read_mask(constraint.allowed())) == bytewise.tokenizer.eos_token_ids


def test_a_token_that_does_not_fit_is_an_error_and_nothing_follows(bytewise: Workbench) -> None:
    constraint = bytewise.build("regex", "a+").start()

    feed(bytewise, constraint, "xa")

    assert constraint.error is not None
    assert "does not keep to the structure" in constraint.error
    assert not any(constraint.allowed())
    assert not constraint.is_complete


@pytest.mark.parametrize("token_id", [-1, 10**9])
def test_a_token_that_does_not_exist_is_an_error(bytewise: Workbench, token_id: int) -> None:
    constraint = bytewise.build("regex", "a+").start()

    constraint.accept(token_id)

    assert constraint.error is not None


def test_an_end_too_early_is_an_error(bytewise: Workbench) -> None:
    constraint = bytewise.build("regex", "aa").start()
    feed(bytewise, constraint, "a")

    constraint.accept(min(bytewise.tokenizer.eos_token_ids))

    assert constraint.error is not None


def test_asking_changes_nothing(bytewise: Workbench) -> None:
    constraint = bytewise.build("regex", "ab*").start()

    asked = {constraint.allowed() for _ in range(3) if not constraint.is_complete}

    assert len(asked) == 1
    feed(bytewise, constraint, "ab")
    assert constraint.error is None


def test_walks_through_one_structure_do_not_meet(bytewise: Workbench) -> None:
    built = bytewise.build("regex", "ab|cd")
    one, other = built.start(), built.start()

    feed(bytewise, one, "a")
    feed(bytewise, other, "c")
    feed(bytewise, one, "b")
    feed(bytewise, other, "x")

    assert (one.is_complete, one.error) == (True, None)
    assert other.error is not None


def test_a_structure_too_complex_on_the_way_ends_its_own_request(smollm2: Workbench) -> None:
    words = smollm2.tokenizer.encode(" a b c d e f g h" * 100)
    built = smollm2.build("regex", HOSTILE_STEPS.replace("2000", "500"))
    constraint = built.start()

    for token_id in words:
        constraint.accept(token_id)

    assert constraint.error is not None
    assert not any(constraint.allowed())


def test_a_request_that_spends_too_long_on_its_structure_is_ended(
    bytewise: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constraint_module, "MAX_WALK_CPU_SECONDS", 0.0)
    monkeypatch.setattr(constraint_module, "MAX_TOKEN_CPU_SECONDS", 0.0)
    constraint = bytewise.build("regex", "a+").start()

    assert not any(constraint.allowed())
    assert constraint.error is not None
    assert "too long" in constraint.error


def test_a_grammar_may_name_special_tokens(bytewise: Workbench) -> None:
    constraint = bytewise.build("grammar", f"start: {literal('<|im_start|>a')}").start()

    assert takes(
        constraint, bytewise.tokenizer.encode("<|im_start|>a"), bytewise.tokenizer.eos_token_ids
    )


def test_an_end_named_by_a_grammar_is_still_no_end_of_half_a_text(bytewise: Workbench) -> None:
    constraint = bytewise.build("grammar", 'start: "a" (<|im_end|> | "b") "c"').start()
    feed(bytewise, constraint, "a")

    assert not any(allows(constraint, end) for end in bytewise.tokenizer.eos_token_ids)


async def test_a_model_without_an_end_token_completes_all_the_same() -> None:
    tokenizer = build_byte_tokenizer()
    compiler = StructureCompiler(tokenizer, (), VOCAB_SIZE)
    try:
        constraint = (await compiler.compile(StructureSpec("regex", "ab?"))).start()
    finally:
        compiler.close()

    for token_id in tokenizer.encode("a"):
        constraint.accept(token_id)
    assert read_mask(constraint.allowed()) == tokenizer.encode("b")
    constraint.accept(tokenizer.encode("b")[0])

    assert constraint.is_complete
    assert constraint.error is None
