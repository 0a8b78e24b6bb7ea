"""From a model's text to what a chat answer is made of: reasoning, content and tool calls.

Called by the server; knows text and JSON, and neither tokens nor HTTP.

Text goes through two machines: `reasoning` splits off what the model thinks, then `reader` takes
calls out of what is left, by one of the `formats` (`hermes`, `llama3`, `mistral`, a file each).
Both hold back only what may still become a marker, so that deltas come as early as they can.
"""

from forebay_runtime.parsing.after_reasoning import (
    ReasoningTokens,
    delay_past_reasoning,
    read_reasoning_tokens,
)
from forebay_runtime.parsing.chat import ChatParser, build_chat_parser
from forebay_runtime.parsing.choice import (
    choose_reasoning_parser,
    choose_tool_parser,
    list_markers,
)
from forebay_runtime.parsing.delta import Delta, ToolCallDelta
from forebay_runtime.parsing.tool_grammar import build_tool_grammar
from forebay_runtime.parsing.tools import Function, ToolChoice, Tools, parse_tools

__all__ = [
    "ChatParser",
    "Delta",
    "Function",
    "ReasoningTokens",
    "ToolCallDelta",
    "ToolChoice",
    "Tools",
    "build_chat_parser",
    "build_tool_grammar",
    "choose_reasoning_parser",
    "choose_tool_parser",
    "delay_past_reasoning",
    "list_markers",
    "parse_tools",
    "read_reasoning_tokens",
]
