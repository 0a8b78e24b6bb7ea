"""What a draft model must have in common with the model that it guesses for.

The runtime refuses by it at its start, and sizing before anything is started.
"""

from forebay_budget.inspection import ModelConfig


def find_draft_fault(served: ModelConfig, draft: ModelConfig, name: str) -> str | None:
    """Say in a sentence why a model cannot draft for another; name is how the draft is called."""
    if draft.vocab_size != served.vocab_size:
        return (
            f"the draft model {name} has a vocabulary of {draft.vocab_size} tokens and the model "
            f"one of {served.vocab_size}, so its guesses mean something else; choose a smaller "
            "model of the same family, or method ngram, which needs none"
        )
    if served.window is not None and (draft.window is None or draft.window > served.window):
        sees = "all tokens" if draft.window is None else f"{draft.window} tokens"
        return (
            f"the draft model {name} attends to {sees} where the model keeps those of a window of "
            f"{served.window} only; choose a draft model of that window, or method ngram"
        )
    return None
