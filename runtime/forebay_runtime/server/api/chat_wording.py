"""How chats are spelled: messages and deltas, with thoughts and tool calls told apart."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from forebay_runtime.parsing import ChatParser, Delta
from forebay_runtime.server.api.bodies.chat import ChatBody
from forebay_runtime.server.api.calls import join_calls, spell_call
from forebay_runtime.server.api.context import FINGERPRINT, Head
from forebay_runtime.server.api.messages import to_text
from forebay_runtime.server.api.prompts import Prompt
from forebay_runtime.server.api.reading import Reading
from forebay_runtime.server.api.sampling import Scores
from forebay_runtime.server.api.token_texts import TokenTexts
from forebay_runtime.server.api.usage import Usage
from forebay_runtime.server.event_stream import TextEvent
from forebay_runtime.server.piece import Piece, Token
from forebay_runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ChatPlan:
    """One chat as it was asked for."""

    body: ChatBody
    prompt: Prompt
    reading: Reading
    scores: Scores

    @property
    def echoed(self) -> str:
        """The text of the last message, if the answer is to begin with it."""
        last = self.body.messages[-1]
        is_continued = self.body.echo and last.role == self.role
        return to_text(last.content, "messages") if is_continued else ""

    @property
    def role(self) -> str:
        """Who speaks: whoever the template was asked to hand over to."""
        return "assistant" if self.body.add_generation_prompt else self.body.messages[-1].role


@dataclass
class _Choice:
    """How far one answer's stream has come."""

    parser: ChatParser
    has_begun: bool = False
    text_event: TextEvent | None = None
    untold: tuple[Token, ...] = ()
    """Tokens whose text the parser holds back."""
    offsets: list[int] = field(default_factory=list)
    """Where in the text each token begins."""

    @property
    def num_reasoning(self) -> int:
        """Tokens that are thoughts; the tags around them are none."""
        span = self.parser.reasoning_span or range(0)
        return bisect_left(self.offsets, span.stop) - bisect_left(self.offsets, span.start)


class ChatWording:
    """Spells the answers to one chat."""

    def __init__(self, tokenizer: Tokenizer, plan: ChatPlan, head: Head) -> None:
        """head: what all objects share."""
        self._plan = plan
        self._head = asdict(head) | FINGERPRINT
        self._chunk = self._head | {"object": "chat.completion.chunk"}
        self._texts = TokenTexts(tokenizer, plan.body.return_tokens_as_token_ids)
        self._choices = [_Choice(plan.reading.build_parser()) for _ in range(plan.body.n)]
        self._tells_tokens = plan.scores.num_logprobs is not None or plan.body.return_token_ids

    def chunks(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        """Who speaks, first; then what is new, and with the last of it why it ended."""
        choice = self._choices[index]
        chunks = [] if choice.has_begun else self._opening(index)
        choice.has_begun = True
        delta = self._parse(choice, piece)
        choice.untold += piece.tokens
        body = self._spell_delta(delta)
        end = None if piece.finish_reason is None else self._end(choice, piece)
        if body or end:
            chunks.append(self._delta(index, body, self._take_tokens(choice), end))
        return chunks

    def text_event(self, index: int, piece: Piece) -> bytes | None:
        """The event of a piece between the first and the last, if all its text is said as it is."""
        choice = self._choices[index]
        is_between = choice.has_begun and piece.finish_reason is None
        if not is_between or self._tells_tokens or not choice.parser.is_plain:
            return None
        if choice.text_event is None:
            choice.text_event = TextEvent(lambda text: self._delta(index, {"content": text}, ()))
        return choice.text_event.of(piece.text)

    def counts(self, usage: Usage) -> dict[str, Any]:
        """Token counts without a choice."""
        return self._chunk | {"choices": [], "usage": self._count(usage)}

    def whole(self, answers: Sequence[Piece], usage: Usage) -> dict[str, Any]:
        """The assistant's messages."""
        body, prompt = self._plan.body, self._plan.prompt
        whole = self._head | {
            "object": "chat.completion",
            "choices": [self._message(*each) for each in enumerate(answers)],
            "usage": self._count(usage),
            "service_tier": None,
            "prompt_token_ids": None,
            "prompt_logprobs": None,
        }
        if body.prompt_logprobs is not None:
            scores, num_top = answers[0].prompt_scores, self._plan.scores.num_prompt_logprobs
            whole["prompt_logprobs"] = self._texts.prompt_logprobs(scores or (), num_top or 0)
        if body.return_token_ids:
            whole["prompt_token_ids"] = prompt.token_ids
        if body.return_prompt_text:
            whole["prompt_text"] = prompt.text
        return whole

    def _count(self, usage: Usage) -> dict[str, Any]:
        if self._plan.reading.reasoning_parser is not None:
            num_reasoning = sum(choice.num_reasoning for choice in self._choices)
            usage = replace(usage, num_reasoning=num_reasoning)
        return usage.to_body()

    def _parse(self, choice: _Choice, piece: Piece) -> Delta:
        choice.offsets.extend(token.offset for token in piece.tokens)
        delta = choice.parser.feed(piece.text)
        if piece.finish_reason is not None:
            delta += choice.parser.flush()
        body = self._plan.body
        reasoning = delta.reasoning if body.include_reasoning else ""
        is_many = body.parallel_tool_calls
        calls = tuple(call for call in delta.tool_calls if is_many or call.index == 0)
        return Delta(reasoning, delta.content, calls)

    def _message(self, index: int, answer: Piece) -> dict[str, Any]:
        choice = self._choices[index]
        delta = self._parse(choice, answer)
        calls, content = join_calls(delta.tool_calls), self._plan.echoed + delta.content
        message: dict[str, Any] = {
            "role": self._plan.role,
            "content": content or (None if calls or delta.reasoning else ""),
            "refusal": None,
            "reasoning": delta.reasoning or None,
            "reasoning_content": delta.reasoning or None,
        }
        if calls:
            message["tool_calls"] = calls
        end = self._end(choice, answer)
        head = {"index": index, "message": message, "token_ids": None}
        return head | self._details(answer.tokens) | end

    def _opening(self, index: int) -> list[dict[str, Any]]:
        body, prompt = self._plan.body, self._plan.prompt
        opening = self._delta(index, {"role": self._plan.role, "content": ""}, ())
        if body.return_token_ids:
            opening["prompt_token_ids"] = prompt.token_ids
        if body.return_prompt_text:
            opening["prompt_text"] = prompt.text
        echoed = self._plan.echoed
        return [opening, self._delta(index, {"content": echoed}, ())] if echoed else [opening]

    def _spell_delta(self, delta: Delta) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if delta.reasoning:
            body["reasoning"] = body["reasoning_content"] = delta.reasoning
        if delta.content:
            body["content"] = delta.content
        if delta.tool_calls:
            body["tool_calls"] = [spell_call(call) for call in delta.tool_calls]
        return body

    def _take_tokens(self, choice: _Choice) -> tuple[Token, ...]:
        tokens, choice.untold = choice.untold, ()
        return tokens

    def _delta(
        self,
        index: int,
        delta: dict[str, Any],
        tokens: tuple[Token, ...],
        end: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        end = end or {"finish_reason": None, "stop_reason": None}
        choice = {"index": index, "delta": delta} | self._details(tokens) | end
        return self._chunk | {"choices": [choice]}

    def _details(self, tokens: Sequence[Token]) -> dict[str, Any]:
        """Logprobs and ids; none where thoughts are hidden, which they would tell."""
        body, num_top = self._plan.body, self._plan.scores.num_logprobs
        shows = body.include_reasoning
        scored = num_top is not None and shows and tokens
        details: dict[str, Any] = {
            "logprobs": self._texts.chat_logprobs(tokens, num_top or 0) if scored else None
        }
        if body.return_token_ids and shows:
            details["token_ids"] = [token.token_id for token in tokens]
        return details

    def _end(self, choice: _Choice, piece: Piece) -> dict[str, Any]:
        reason = piece.finish_reason
        # As OpenAI has it: an answer that had to be one call has just stopped.
        is_free = self._plan.reading.tools.choice.kind != "named"
        if reason == "stop" and choice.parser.has_tool_calls and is_free:
            reason = "tool_calls"
        return {"finish_reason": reason, "stop_reason": piece.stop_reason}
