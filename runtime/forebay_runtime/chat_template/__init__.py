"""Chat templates: from messages to the prompt that the model was trained on.

Called by the server. A template is code that came with the model, so it is boxed in: `sandbox`
says what it may reach, `meter` how long it may take and how much memory it may use, `operations`
what each operation costs before it is carried out. `messages` brings a chat to the form that
templates expect, `sources` finds the template.
"""

from forebay_runtime.chat_template.meter import ChatTemplateError
from forebay_runtime.chat_template.sources import read_folder_template, read_gguf_template
from forebay_runtime.chat_template.template import ChatTemplate

__all__ = [
    "ChatTemplate",
    "ChatTemplateError",
    "read_folder_template",
    "read_gguf_template",
]
