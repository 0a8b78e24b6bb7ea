"""Short, stable names for contents."""

import hashlib
import json
from typing import Any


def fingerprint(content: Any, num_digits: int) -> str:
    """Hex digits that are equal for equal JSON contents, whatever the order of their keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:num_digits]
