"""A model's own configuration, read with distrust: config.json's names, whichever file states it.

Families and the readers beside them ask here; a value that cannot be meant is a ModelError which
names it as the file does.
"""

import math
from collections.abc import Mapping
from typing import Any, Self

from forebay_budget.inspection import ModelError

MAX_NUMBER = 2**31
_MAX_SHOWN_CHARS = 40


class Settings:
    """Values by config.json's names; where null is stated, it is meant and no default steps in."""

    def __init__(
        self,
        values: Mapping[str, Any],
        names: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """names: what the file calls them, where that differs."""
        self._values = values
        self._names = names or {}
        self._defaults = defaults or {}
        self.is_gguf = names is not None

    def with_defaults(self, defaults: Mapping[str, Any]) -> Self:
        """The same values, with others where the file is silent."""
        return type(self)(
            self._values, self._names if self.is_gguf else None, {**self._defaults, **defaults}
        )

    def get(self, key: str) -> Any:
        """A value as it stands, its default where it is absent, or None."""
        return self._values[key] if key in self._values else self._defaults.get(key)

    def name(self, key: str) -> str:
        """How the file calls a key."""
        return self._names.get(key, key)

    def number(self, key: str) -> int:
        """A whole number from 1 on.

        Raises: ModelError, also where it is absent and has no default.
        """
        value = self.get(key)
        if value is None:
            raise ModelError("BadConfig", f"The model's configuration has no {self.name(key)}.")
        if type(value) is not int or not 1 <= value < MAX_NUMBER:
            raise unusable(value, self.name(key))
        return value

    def count(self, key: str) -> int:
        """A whole number from 0 on, 0 where it is absent.

        Raises: ModelError.
        """
        return 0 if self.get(key) in (None, 0) else self.number(key)

    def real(self, key: str) -> float:
        """A finite number above 0.

        Raises: ModelError, also where it is absent and has no default.
        """
        return to_real(self.get(key), self.name(key))

    def optional_real(self, key: str) -> float | None:
        """A finite number above 0, or None where it is absent."""
        return None if self.get(key) is None else self.real(key)

    def switch(self, key: str) -> bool:
        """Is it true? Anything else, and nothing, is no."""
        return self.get(key) is True

    def block(self, key: str) -> Mapping[str, Any]:
        """An object, an empty one where it is absent.

        Raises: ModelError if it is something else.
        """
        value = self.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ModelError("BadConfig", f"The model's {self.name(key)} is no object.")
        return value


def to_real(value: Any, name: str) -> float:
    """A finite number above 0.

    Raises: ModelError that calls it by name.
    """
    if type(value) not in (int, float) or not 0 < value < math.inf or value > 1e38:
        raise unusable(value, name)
    return float(value)


def unusable(value: Any, name: str) -> ModelError:
    """The error for a value that is no usable number."""
    return ModelError("BadConfig", f"The model's {name} is {shown(value)}, no usable number.")


def shown(value: Any) -> str:
    """A value for a message, cut short."""
    if isinstance(value, int) and abs(value) > 10**_MAX_SHOWN_CHARS:
        return "a very large number"
    return str(value)[:_MAX_SHOWN_CHARS]


def unsupported(name: str, value: Any, only: str) -> ModelError:
    """The error for a value that the runtime would run wrongly."""
    return ModelError(
        "UnsupportedConfig",
        f"The model's {name} is {shown(value)}; the runtime supports {only} only.",
    )
