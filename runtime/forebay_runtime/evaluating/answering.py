"""Runs a model over a golden set, batched, by the engine in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from forebay_runtime.assembly import build_engine
from forebay_runtime.chat_template import ChatTemplate, ChatTemplateError
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.evaluating.golden import Golden, GoldenError, Question, Text
from forebay_runtime.evaluating.measures import Answered, Measured, Scored
from forebay_runtime.loading.description import Description
from forebay_runtime.request import Output, Request, SamplingParams, TokenLogprobs
from forebay_runtime.text.foreign_token import find_foreign_token
from forebay_runtime.text.tokenizer import Tokenizer
from forebay_runtime.text_parts import read_text_parts

Told = Callable[[int, int], None]
"""Told how many of how many requests have ended."""

_SCORING = SamplingParams(0, num_prompt_logprobs=1)


def measure(
    config: EngineConfig, described: Description, golden: Golden, max_tokens: int, told: Told
) -> Measured:
    """Score all texts and answer all questions with one model.

    described: the model at the configuration's path. max_tokens: of an answer.
    Raises: ModelError, StartError, TokenizerError or GoldenError.
    """
    tokenizer, template = read_text_parts(config.model_path)
    engine = build_engine(config, tokenizer.eos_token_ids, described=described)
    requests = [*_scorings(golden.texts, tokenizer, template, engine.max_model_len)]
    asked = [_asking(each, tokenizer, template, max_tokens) for each in golden.questions]
    _check_lengths(asked, golden.questions, engine.max_model_len)
    if not requests and not asked:
        raise GoldenError(
            "nothing can be scored: no text has two tokens within --max-model-len "
            f"{engine.max_model_len}"
        )
    _check_tokens([*requests, *asked], described.inspection.config.vocab_size)
    outputs = _run(engine, [*requests, *asked], told)
    texts = []
    for place in range(len(golden.texts)):
        own = [r.request_id for r in requests if r.request_id.startswith(f"text-{place}-")]
        texts.append(_scored([outputs[key] for key in own]))
    answers = [
        _answered(outputs[request.request_id], question, tokenizer)
        for request, question in zip(asked, golden.questions, strict=True)
    ]
    return Measured(tuple(texts), tuple(answers))


def _scorings(
    texts: Sequence[Text], tokenizer: Tokenizer, template: ChatTemplate, window: int
) -> Iterator[Request]:
    """Requests that score texts, each by windows that the engine takes."""
    for place, text in enumerate(texts):
        rendered = text.text
        if text.messages:
            rendered = _render(template, text, is_open=False)
        token_ids = tokenizer.encode(rendered, add_special_tokens=not text.messages)
        for start in range(0, len(token_ids), window):
            part = token_ids[start : start + window]
            if len(part) > 1:
                yield Request(f"text-{place}-{start}", part, _SCORING)


def _asking(
    question: Question, tokenizer: Tokenizer, template: ChatTemplate, max_tokens: int
) -> Request:
    prompt = question.prompt
    if question.messages:
        prompt = _render(template, question, is_open=True)
    token_ids = tokenizer.encode(prompt, add_special_tokens=not question.messages)
    return Request(question.where, token_ids, SamplingParams(max_tokens, temperature=0))


def _render(template: ChatTemplate, entry: Text | Question, *, is_open: bool) -> str:
    try:
        return template.render(entry.messages, add_generation_prompt=is_open)
    except (ChatTemplateError, TypeError, AttributeError) as error:
        raise GoldenError(f"{entry.where}: {error}") from error


def _check_lengths(
    requests: Sequence[Request], questions: Sequence[Question], max_model_len: int
) -> None:
    for request, question in zip(requests, questions, strict=True):
        num_tokens = len(request.prompt_token_ids)
        if not 0 < num_tokens < max_model_len:
            raise GoldenError(
                f"{question.where}: the prompt has {num_tokens} tokens, and with its answer "
                f"{max_model_len} are possible; raise --max-model-len"
            )


def _check_tokens(requests: Sequence[Request], vocab_size: int) -> None:
    foreign = find_foreign_token((request.prompt_token_ids for request in requests), vocab_size)
    if foreign is not None:
        raise GoldenError(
            f"the tokenizer writes the golden set with token {foreign}, but the model has "
            f"{vocab_size} tokens; it is another model's tokenizer"
        )


def _run(engine: Engine, requests: Sequence[Request], told: Told) -> dict[str, list[Output]]:
    """All that each request got.

    Raises: GoldenError if one could not be computed.
    """
    outputs: dict[str, list[Output]] = {request.request_id: [] for request in requests}
    num_done = 0
    for request in requests:
        engine.add(request)
    while engine.has_work:
        for output in engine.step():
            outputs[output.request_id].append(output)
            if output.error:
                raise GoldenError(f"{output.request_id}: the model failed: {output.error}")
            if output.finish_reason is not None:
                num_done += 1
                told(num_done, len(requests))
    return outputs


def _scored(windows: Sequence[Sequence[Output]]) -> Scored:
    found: list[TokenLogprobs] = []
    for outputs in windows:
        for output in outputs:
            found += [each for each in output.prompt_logprobs or () if each is not None]
    return Scored(
        tuple(each.logprob for each in found),
        tuple(each.top[0][0] for each in found),
        tuple(each.token_id for each in found),
    )


def _answered(outputs: Sequence[Output], question: Question, tokenizer: Tokenizer) -> Answered:
    token_ids = tuple(token for output in outputs for token in output.token_ids)
    said = b"".join(map(tokenizer.token_bytes, token_ids)).decode(errors="replace")
    return Answered(said, token_ids, question.is_right(said))
