"""Chats as OpenAI's client sees them: messages in all their forms, deltas, log probabilities."""

from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

pytestmark = pytest.mark.component
USER = {"role": "user", "content": "Say hello in one word."}
GREEDY: dict[str, Any] = {"model": "smollm2", "messages": [USER], "max_tokens": 4, "temperature": 0}
ANSWER = "I'm glad you"


def whole_of(client: openai.OpenAI, **fields: Any) -> ChatCompletion:
    """An unstreamed answer."""
    return client.chat.completions.create(**(GREEDY | fields))


def stream_of(client: openai.OpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    """All chunks of a streamed answer."""
    return list(client.chat.completions.create(**(GREEDY | fields), stream=True))


def text_of(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    """The content that a stream's deltas add up to."""
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


def test_an_answer_has_all_that_the_clients_type_promises(client: openai.OpenAI) -> None:
    answer = whole_of(client)
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion"
    assert answer.model == "smollm2" and answer.created > 1_700_000_000
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    assert (choice.message.role, choice.message.content) == ("assistant", ANSWER)
    assert not choice.message.tool_calls and choice.message.refusal is None
    assert getattr(choice, "token_ids", 0) is getattr(choice, "stop_reason", 0) is None
    assert getattr(answer, "prompt_token_ids", 0) is getattr(answer, "prompt_logprobs", 0) is None
    assert answer.service_tier is None and answer.system_fingerprint
    usage = answer.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (36, 4, 40)


def test_a_stream_opens_with_the_role_and_ends_with_the_reason(client: openai.OpenAI) -> None:
    chunks = stream_of(client)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:])
    assert text_of(chunks) == ANSWER
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert all(chunk.usage is None for chunk in chunks)


def test_the_last_chunk_of_a_stream_carries_content(client: openai.OpenAI) -> None:
    assert stream_of(client)[-1].choices[0].delta.content


def test_the_usage_chunk_has_no_choices(client: openai.OpenAI) -> None:
    *chunks, last = stream_of(client, stream_options={"include_usage": True})
    assert last.choices == [] and last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (36, 4)
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_in_each_chunk_counts_up(client: openai.OpenAI) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    counts = [chunk.usage for chunk in stream_of(client, stream_options=options)]
    generated = [usage.completion_tokens for usage in counts if usage is not None]
    assert len(generated) == len(counts) and generated == sorted(generated)
    assert generated[-1] == 4


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_either_name_limits_the_answer(client: openai.OpenAI, field: str) -> None:
    answer = client.chat.completions.create(
        model="smollm2", messages=[USER], temperature=0, **{field: 2}
    )
    assert answer.choices[0].message.content == "I'm"


def test_without_a_limit_the_answer_ends_by_itself(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=[USER], temperature=0)
    assert answer.choices[0].finish_reason == "stop"
    content = answer.choices[0].message.content
    assert content is not None and content.startswith(ANSWER) and "<|im_end|>" not in content


@pytest.mark.parametrize(
    "content",
    [
        pytest.param([{"type": "text", "text": USER["content"]}], id="a text part"),
        pytest.param([{"type": "text", "text": "Say hello in one word."}] * 1, id="the same again"),
    ],
)
def test_text_parts_are_text(client: openai.OpenAI, content: Any) -> None:
    answer = whole_of(client, messages=[{"role": "user", "content": content}])
    assert answer.choices[0].message.content == ANSWER


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "5"}


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([{"role": "user", "content": ""}], id="empty content"),
        pytest.param([{"role": "user", "content": []}], id="no parts"),
        pytest.param(
            [{"role": "user", "content": [{"type": "text", "text": "a"}] * 2}], id="parts"
        ),
        pytest.param([{"role": "system", "content": "Be brief."}, USER], id="a system message"),
        pytest.param([{"role": "developer", "content": "Be brief."}, USER], id="a developer's"),
        pytest.param([{"role": "system", "content": "Be brief."}], id="a system message alone"),
        pytest.param([USER | {"name": "bob"}], id="a name"),
        pytest.param([USER | {"extra": 1}], id="a field that is not OpenAI's"),
        pytest.param([{"role": "narrator", "content": "Once"}], id="a role of their own"),
        pytest.param([USER, {"role": "assistant", "content": "Hi"}], id="the assistant last"),
        pytest.param([USER, {"role": "assistant", "content": "a"}] * 2, id="turns"),
        pytest.param(
            [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT], id="tools"
        ),
        pytest.param([USER, {"role": "assistant", "tool_calls": [CALL]}, RESULT], id="no content"),
        pytest.param(
            [USER, {"role": "assistant", "content": "a", "tool_calls": []}, USER], id="no calls"
        ),
        pytest.param(
            [
                USER,
                {
                    "role": "assistant",
                    "tool_calls": [CALL | {"function": {"name": "f", "arguments": ""}}],
                },
                RESULT,
            ],
            id="a call without arguments",
        ),
        pytest.param(
            [USER, {"role": "assistant", "content": "a", "reasoning_content": "b"}, USER],
            id="reasoning given back",
        ),
        pytest.param([{"role": "user", "content": "{{ 7*7 }}{% for %}"}], id="template syntax"),
    ],
)
def test_these_messages_are_answered(client: openai.OpenAI, messages: Any) -> None:
    answer = whole_of(client, messages=messages, max_tokens=2)
    assert answer.choices[0].message.content is not None


def test_n_choices_come_in_order_whole_and_streamed(client: openai.OpenAI) -> None:
    fields = {"n": 3, "temperature": 1.0, "seed": 42, "max_tokens": 10}
    whole = whole_of(client, **fields)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in whole.choices]
    assert len(set(texts)) == 3
    chunks = stream_of(client, **fields)
    assert [text_of(chunks, index) for index in range(3)] == texts
    roles = [choice.index for chunk in chunks for choice in chunk.choices if choice.delta.role]
    assert sorted(roles) == [0, 1, 2]


def test_n_greedy_choices_are_the_same(client: openai.OpenAI) -> None:
    contents = [choice.message.content for choice in whole_of(client, n=2).choices]
    assert contents == [ANSWER, ANSWER]


@pytest.mark.parametrize("num_top", [None, 0, 1, 5, 20])
def test_logprobs_speak_of_each_token(client: openai.OpenAI, num_top: int | None) -> None:
    fields = {} if num_top is None else {"top_logprobs": num_top}
    logprobs = whole_of(client, logprobs=True, **fields).choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert "".join(token.token for token in logprobs.content) == ANSWER
    for token in logprobs.content:
        assert bytes(token.bytes or []).decode() == token.token
        assert len(token.top_logprobs) == (num_top or 0)
        values = [other.logprob for other in token.top_logprobs]
        assert values == sorted(values, reverse=True) and all(value >= -9999 for value in values)
        assert not values or values[0] == token.logprob
    # What transformers 5.24 gives for the file's weights, dequantised to float32.
    expected = [-2.115577, -0.383203, -1.07807, -0.510775]
    assert [token.logprob for token in logprobs.content] == pytest.approx(expected, abs=1e-3)


def test_streamed_logprobs_are_those_of_the_whole(client: openai.OpenAI) -> None:
    fields = {"logprobs": True, "top_logprobs": 2}
    whole = whole_of(client, **fields).choices[0].logprobs
    assert whole is not None and whole.content is not None
    streamed = [
        token
        for chunk in stream_of(client, **fields)
        for choice in chunk.choices
        if choice.logprobs is not None
        for token in choice.logprobs.content or []
    ]
    assert [token.token for token in streamed] == [token.token for token in whole.content]
    assert [token.logprob for token in streamed] == pytest.approx(
        [token.logprob for token in whole.content], abs=1e-4
    )


def test_logprobs_are_absent_unless_asked(client: openai.OpenAI) -> None:
    assert whole_of(client, logprobs=False).choices[0].logprobs is None
    assert all(chunk.choices[0].logprobs is None for chunk in stream_of(client))


@pytest.mark.parametrize("is_echoed", [False, True], ids=["alone", "echoed"])
def test_the_final_message_can_be_continued(client: openai.OpenAI, is_echoed: bool) -> None:
    messages = [USER, {"role": "assistant", "content": "Hel"}]
    extra = {"continue_final_message": True, "add_generation_prompt": False, "echo": is_echoed}
    content = whole_of(client, messages=messages, extra_body=extra).choices[0].message.content
    assert content is not None
    assert content.startswith("Hel") == is_echoed
    assert content.removeprefix("Hel" if is_echoed else "") == "per."


def test_token_ids_come_back_on_request(client: openai.OpenAI) -> None:
    answer: Any = whole_of(client, extra_body={"return_token_ids": True})
    assert len(answer.prompt_token_ids) == 36
    assert answer.choices[0].token_ids == [57, 5248, 18948, 346]
    chunks: Any = stream_of(client, extra_body={"return_token_ids": True})
    assert chunks[0].prompt_token_ids == answer.prompt_token_ids
    ids = [id_ for chunk in chunks for id_ in getattr(chunk.choices[0], "token_ids", None) or []]
    assert ids == answer.choices[0].token_ids


def test_prompt_logprobs_stand_beside_the_choices(client: openai.OpenAI) -> None:
    answer: Any = whole_of(client, extra_body={"prompt_logprobs": 0})
    assert len(answer.prompt_logprobs) == 36 and answer.prompt_logprobs[0] is None
    assert all(len(scores) == 1 for scores in answer.prompt_logprobs[1:])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param({"messages": []}, "messages", id="no messages"),
        pytest.param({"messages": [{"content": "x"}]}, "messages", id="no role"),
        pytest.param({"messages": [{"role": "user", "content": 5}]}, "messages", id="a number"),
        pytest.param({"logprobs": True, "top_logprobs": 21}, "top_logprobs", id="21 logprobs"),
        pytest.param({"top_logprobs": 2}, "top_logprobs", id="top_logprobs without logprobs"),
        pytest.param({"max_tokens": 100_000}, "max_tokens", id="more than the context"),
        pytest.param({"tool_choice": "required"}, "tool_choice", id="a choice of no tools"),
        pytest.param({"reasoning_effort": "x"}, "reasoning_effort", id="unknown effort"),
    ],
)
def test_refusals_name_the_field(client: openai.OpenAI, fields: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        whole_of(client, **fields)
    assert refusal.value.param is not None and refusal.value.param.startswith(param)


def test_a_conversation_over_the_context_says_both_numbers(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "hello " * 2000}]
    for is_streamed in (False, True):
        with pytest.raises(openai.BadRequestError) as refusal:
            client.chat.completions.create(model="smollm2", messages=messages, stream=is_streamed)
        assert refusal.value.code == "context_length_exceeded"
        assert "1024" in refusal.value.message and "2031" in refusal.value.message


async def test_the_async_client_streams(client: openai.OpenAI) -> None:
    async with openai.AsyncOpenAI(
        base_url=client.base_url, api_key="none", max_retries=0
    ) as waiting:
        stream = await waiting.chat.completions.create(**GREEDY, stream=True)
        chunks = [chunk async for chunk in stream]
    assert text_of(chunks) == ANSWER


def test_the_clients_stream_helper_assembles_the_answer(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(**GREEDY | {"stop": " you", "max_tokens": 8}) as events:
        answer = events.get_final_completion()
    assert answer.choices[0].message.content == "I'm glad"
    assert answer.choices[0].finish_reason == "stop"
