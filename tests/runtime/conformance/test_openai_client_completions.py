"""Completions as OpenAI's client sees them: the answers' types, counts, choices and streams."""

import math

import openai
import pytest
from openai.types import Completion, CompletionUsage

pytestmark = pytest.mark.component
PROMPT = "The capital of France is"
IDS = [504, 3575, 282, 4649, 314]
GREEDY = {"model": "smollm2", "prompt": PROMPT, "max_tokens": 4, "temperature": 0}
ANSWER = " Paris.\n\n"


def stream_of(client: openai.OpenAI, **fields: object) -> list[Completion]:
    """All chunks of a streamed answer."""
    return list(client.completions.create(**(GREEDY | fields), stream=True))


def whole_of(client: openai.OpenAI, **fields: object) -> Completion:
    """An unstreamed answer."""
    answer = client.completions.create(**(GREEDY | fields))
    assert isinstance(answer, Completion)
    return answer


def test_an_answer_has_all_that_the_clients_type_promises(client: openai.OpenAI) -> None:
    answer = whole_of(client)
    assert answer.id.startswith("cmpl-") and answer.object == "text_completion"
    assert answer.model == "smollm2" and answer.created > 1_700_000_000
    (choice,) = answer.choices
    assert (choice.index, choice.text, choice.finish_reason) == (0, ANSWER, "length")
    assert choice.logprobs is None
    for unasked in ("stop_reason", "token_ids", "prompt_token_ids", "prompt_logprobs"):
        assert getattr(choice, unasked) is None
    assert answer.system_fingerprint
    usage = answer.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 4, 9)


@pytest.mark.parametrize(
    ("prompt", "num_choices", "num_prompt_tokens"),
    [
        pytest.param(PROMPT, 1, 5, id="a text"),
        pytest.param(IDS, 1, 5, id="token ids"),
        pytest.param([PROMPT, PROMPT], 2, 10, id="texts"),
        pytest.param([IDS, IDS, IDS], 3, 15, id="lists of token ids"),
        pytest.param([PROMPT], 1, 5, id="a list of one text"),
    ],
)
def test_each_prompt_gets_its_own_choice(
    client: openai.OpenAI, prompt: object, num_choices: int, num_prompt_tokens: int
) -> None:
    answer = whole_of(client, prompt=prompt)
    assert [choice.text for choice in answer.choices] == [ANSWER] * num_choices
    assert [choice.index for choice in answer.choices] == list(range(num_choices))
    usage = answer.usage
    assert usage is not None and usage.prompt_tokens == num_prompt_tokens
    assert usage.completion_tokens == 4 * num_choices


def test_n_choices_of_each_prompt_come_in_the_prompts_order(client: openai.OpenAI) -> None:
    answer = whole_of(client, prompt=[PROMPT, "One, two, three,"], n=2)
    texts = [choice.text for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert texts[0] == texts[1] == ANSWER and texts[2] == texts[3] != ANSWER
    assert answer.usage is not None and answer.usage.completion_tokens == 16


def test_n_choices_of_a_seed_differ_and_come_again(client: openai.OpenAI) -> None:
    fields = {"n": 3, "seed": 42, "temperature": 1.0, "max_tokens": 12}
    first, again = (whole_of(client, **fields) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert len(set(texts)) == 3
    assert texts == [choice.text for choice in again.choices]


def test_without_max_tokens_16_come(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="smollm2", prompt="One, two, three,", temperature=0)
    assert answer.usage is not None and answer.usage.completion_tokens == 16


def test_a_stream_says_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    chunks = stream_of(client)
    assert "".join(chunk.choices[0].text for chunk in chunks) == ANSWER
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert {chunk.object for chunk in chunks} == {"text_completion"}
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert all(chunk.usage is None for chunk in chunks)


def test_the_last_chunk_of_a_stream_carries_text(client: openai.OpenAI) -> None:
    assert stream_of(client)[-1].choices[0].text


def test_a_stream_of_prompts_and_choices_ends_each_once(client: openai.OpenAI) -> None:
    texts = {index: "" for index in range(4)}
    ended = []
    for chunk in stream_of(client, prompt=[PROMPT, PROMPT], n=2):
        (choice,) = chunk.choices
        assert choice.index not in ended
        texts[choice.index] += choice.text
        if choice.finish_reason:
            ended.append(choice.index)
    assert sorted(ended) == [0, 1, 2, 3]
    assert set(texts.values()) == {ANSWER}


@pytest.mark.parametrize(
    ("options", "is_last", "is_each"),
    [
        pytest.param({}, False, False, id="nothing asked"),
        pytest.param({"include_usage": False}, False, False, id="refused"),
        pytest.param({"include_usage": True}, True, False, id="at the end"),
        pytest.param(
            {"include_usage": True, "continuous_usage_stats": True}, True, True, id="in each"
        ),
        pytest.param(
            {"include_usage": False, "continuous_usage_stats": True}, False, False, id="in none"
        ),
    ],
)
def test_usage_comes_where_it_was_asked_for(
    client: openai.OpenAI, options: object, is_last: bool, is_each: bool
) -> None:
    chunks = stream_of(client, stream_options=options)
    if is_last:
        last = chunks.pop()
        assert last.choices == []
        assert last.usage is not None
        counts = (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens)
        assert counts == (5, 4, 9)
    assert all(isinstance(chunk.usage, CompletionUsage) == is_each for chunk in chunks)
    assert all(len(chunk.choices) == 1 for chunk in chunks)


@pytest.mark.parametrize("num_top", [0, 1, 5, 20])
def test_logprobs_speak_of_each_token(client: openai.OpenAI, num_top: int) -> None:
    logprobs = whole_of(client, logprobs=num_top).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == [" Paris", ".", "\n", "\n"]
    assert logprobs.text_offset == [0, 6, 7, 8]
    assert logprobs.token_logprobs is not None and logprobs.top_logprobs is not None
    for token, logprob, top in zip(
        logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True
    ):
        assert logprob <= 0 and top[token] == logprob
        assert len(top) == max(num_top, 1)
        assert math.fsum(map(math.exp, top.values())) <= 1.0001
        assert max(top.values()) == logprob  # the choice was greedy


def test_logprobs_agree_with_transformers(client: openai.OpenAI) -> None:
    # What transformers 5.24 gives for the file's weights, dequantised to float32.
    logprobs = whole_of(client, logprobs=1).choices[0].logprobs
    assert logprobs is not None and logprobs.token_logprobs is not None
    expected = [-0.258072, -0.380125, -1.009347, -0.879269]
    assert logprobs.token_logprobs == pytest.approx(expected, abs=1e-3)


def test_streamed_logprobs_are_those_of_the_whole(client: openai.OpenAI) -> None:
    whole = whole_of(client, logprobs=2).choices[0].logprobs
    streamed = [chunk.choices[0].logprobs for chunk in stream_of(client, logprobs=2)]
    assert whole is not None and whole.token_logprobs is not None
    parts = [part for part in streamed if part is not None]
    assert [token for part in parts for token in part.tokens or []] == whole.tokens
    assert [offset for part in parts for offset in part.text_offset or []] == whole.text_offset
    values = [value for part in parts for value in part.token_logprobs or []]
    assert values == pytest.approx(whole.token_logprobs, abs=1e-4)


@pytest.mark.parametrize("prompt", [PROMPT, IDS], ids=["a text", "token ids"])
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_echo_puts_the_prompt_before_the_text(
    client: openai.OpenAI, prompt: object, is_streamed: bool
) -> None:
    fields = {"prompt": prompt, "echo": True}
    if is_streamed:
        text = "".join(chunk.choices[0].text for chunk in stream_of(client, **fields))
    else:
        text = whole_of(client, **fields).choices[0].text
    assert text == PROMPT + ANSWER


@pytest.mark.parametrize("num_top", [0, 1])
def test_echo_with_logprobs_scores_the_prompt(client: openai.OpenAI, num_top: int) -> None:
    logprobs = whole_of(client, echo=True, logprobs=num_top).choices[0].logprobs
    assert logprobs is not None and logprobs.token_logprobs is not None
    assert logprobs.tokens is not None and logprobs.top_logprobs is not None
    assert logprobs.tokens[:6] == ["The", " capital", " of", " France", " is", " Paris"]
    assert logprobs.text_offset == [0, 3, 11, 14, 21, 24, 30, 31, 32]
    assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
    expected = [-11.539277, -0.337604, -2.438653, -0.450927, -0.258076]
    assert logprobs.token_logprobs[1:6] == pytest.approx(expected, abs=2e-3)
    assert all(max(num_top, 1) <= len(top) <= num_top + 1 for top in logprobs.top_logprobs[1:])


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_a_prompt_alone_is_scored_by_echo_and_no_tokens(
    client: openai.OpenAI, is_streamed: bool
) -> None:
    fields = {"echo": True, "logprobs": 1, "max_tokens": 0}
    answer = stream_of(client, **fields)[-1] if is_streamed else whole_of(client, **fields)
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason) == (PROMPT, "length")
    assert choice.logprobs is not None and choice.logprobs.token_logprobs is not None
    assert len(choice.logprobs.token_logprobs) == 5
    if not is_streamed:
        assert answer.usage is not None
        assert (answer.usage.completion_tokens, answer.usage.total_tokens) == (0, 5)


@pytest.mark.parametrize(
    ("fields", "text", "stop_reason"),
    [
        pytest.param({"stop": "."}, " Paris", ".", id="a string"),
        pytest.param({"stop": ["!", "\n\n", "."]}, " Paris", ".", id="the first of several"),
        pytest.param(
            {"stop": ".", "include_stop_str_in_output": True}, " Paris.", ".", id="kept in the text"
        ),
        pytest.param({"stop": "ris."}, " Pa", "ris.", id="across tokens"),
        pytest.param({"stop_token_ids": [30]}, " Paris", 30, id="a token"),
        pytest.param(
            {"stop_token_ids": [30], "include_stop_str_in_output": True}, " Paris.", 30, id="token"
        ),
    ],
)
def test_a_stop_ends_the_text(
    client: openai.OpenAI, fields: dict[str, object], text: str, stop_reason: object
) -> None:
    (choice,) = whole_of(client, max_tokens=8, extra_body=fields).choices
    assert (choice.text, choice.finish_reason) == (text, "stop")
    assert choice.stop_reason == stop_reason
    chunks = stream_of(client, max_tokens=8, extra_body=fields)
    assert "".join(chunk.choices[0].text for chunk in chunks) == text
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_ignore_eos_goes_on_and_min_tokens_hold_the_end_back(client: openai.OpenAI) -> None:
    prompt = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
    ended = whole_of(client, prompt=prompt, max_tokens=60)
    assert ended.choices[0].finish_reason == "stop" and ended.usage is not None
    num_tokens = ended.usage.completion_tokens
    for fields in ({"ignore_eos": True}, {"min_tokens": num_tokens + 3}):
        longer = whole_of(client, prompt=prompt, max_tokens=num_tokens + 3, extra_body=fields)
        assert longer.usage is not None and longer.usage.completion_tokens == num_tokens + 3
        assert longer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param({"logit_bias": {"504": 100}}, "TheTheTheThe", id="logit_bias for a token"),
        pytest.param({"allowed_token_ids": [504]}, "TheTheTheThe", id="one allowed token"),
        pytest.param({"bad_words": ["Paris"]}, " the capital of the", id="a bad word"),
        pytest.param({"repetition_penalty": 1.5}, " Paris.\n-", id="repetition penalty"),
        pytest.param({"presence_penalty": 2}, " Paris.\n-", id="presence penalty"),
        pytest.param({"frequency_penalty": -2}, " Paris. Paris is", id="frequency penalty below 0"),
        pytest.param({"top_k": 1, "temperature": 1.5}, ANSWER, id="top_k 1 is greedy"),
        pytest.param({"top_p": 1e-9, "temperature": 1.5}, ANSWER, id="a tiny top_p is greedy"),
        pytest.param({"min_p": 1, "temperature": 1.5}, ANSWER, id="min_p 1 is greedy"),
        pytest.param({"temperature": 1e-10}, ANSWER, id="a tiny temperature is greedy"),
    ],
)
def test_sampling_fields_do_what_they_say(
    client: openai.OpenAI, fields: dict[str, object], text: str
) -> None:
    body = {key: value for key, value in GREEDY.items() if key not in fields}
    answer = client.completions.create(**body, extra_body=fields)
    assert answer.choices[0].text == text


def test_a_bias_of_minus_100_bans_a_token(client: openai.OpenAI) -> None:
    assert "Paris" not in whole_of(client, logit_bias={"7042": -100}).choices[0].text


def test_a_seed_gives_the_same_text_and_another_seed_another(client: openai.OpenAI) -> None:
    texts = [
        whole_of(client, seed=seed, temperature=1.0, max_tokens=12).choices[0].text
        for seed in (7, 7, 8)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_token_ids_come_back_on_request(client: openai.OpenAI) -> None:
    fields = {"return_token_ids": True}
    (choice,) = whole_of(client, extra_body=fields).choices
    assert choice.prompt_token_ids == IDS
    assert choice.token_ids == [7042, 30, 198, 198]
    chunks = stream_of(client, extra_body=fields)
    assert chunks[0].choices[0].prompt_token_ids == IDS
    streamed = [id_ for chunk in chunks for id_ in chunk.choices[0].token_ids]
    assert streamed == [7042, 30, 198, 198]


def test_tokens_can_be_named_by_their_ids(client: openai.OpenAI) -> None:
    fields = {"return_tokens_as_token_ids": True}
    logprobs = whole_of(client, logprobs=1, extra_body=fields).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["token_id:7042", "token_id:30", "token_id:198", "token_id:198"]


def test_prompt_logprobs_give_token_rank_and_text(client: openai.OpenAI) -> None:
    (choice,) = whole_of(client, extra_body={"prompt_logprobs": 1}).choices
    scores = choice.prompt_logprobs
    assert len(scores) == 5 and scores[0] is None
    assert scores[1]["3575"]["rank"] > 1 and scores[1]["3575"]["decoded_token"] == " capital"
    assert len(scores[1]) == 2 and len(scores[2]) == 1
    assert scores[2]["282"]["rank"] == 1


def test_a_long_prompt_can_be_cut_from_the_left(client: openai.OpenAI) -> None:
    fields = {"truncate_prompt_tokens": 2, "return_token_ids": True}
    (choice,) = whole_of(client, extra_body=fields).choices
    assert choice.prompt_token_ids == IDS[-2:]


async def test_the_async_client_streams_requests_side_by_side(
    client: openai.OpenAI,
) -> None:
    async with openai.AsyncOpenAI(
        base_url=client.base_url, api_key="none", max_retries=0
    ) as waiting:
        streams = [await waiting.completions.create(**GREEDY, stream=True) for _ in range(4)]
        for stream in streams:
            assert "".join([chunk.choices[0].text async for chunk in stream]) == ANSWER


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        pytest.param({"model": "nope"}, openai.NotFoundError, "model", id="another model"),
        pytest.param({"temperature": -1}, openai.BadRequestError, "temperature", id="temperature"),
        pytest.param({"max_tokens": 0}, openai.BadRequestError, "max_tokens", id="no tokens"),
        pytest.param({"prompt": [49152]}, openai.BadRequestError, "prompt", id="unknown token"),
        pytest.param({"suffix": "."}, openai.BadRequestError, "suffix", id="suffix"),
        pytest.param({"best_of": 2}, openai.BadRequestError, "best_of", id="best_of"),
        pytest.param({"logprobs": 21}, openai.BadRequestError, "logprobs", id="too many logprobs"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_the_client_raises_what_openai_says_for_it(
    client: openai.OpenAI,
    fields: dict[str, object],
    error: type[openai.APIStatusError],
    param: str,
    is_streamed: bool,
) -> None:
    with pytest.raises(error) as refusal:
        client.completions.create(**(GREEDY | fields), stream=is_streamed)
    assert refusal.value.param == param
