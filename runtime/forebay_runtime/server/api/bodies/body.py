"""Read a JSON body into its model, or say which field is at fault, what it is and what is allowed.

Clients of OpenAI and vLLM send many fields. Those that cannot change the answer and those that
nobody knows are ignored, as vLLM does. Those that would change it are accepted where they ask for
what happens anyway, and else refused by name: an answer that silently lacks what was asked for is
worse than none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from forebay_runtime.quoting import show
from forebay_runtime.server.api.bodies.elsewhere import IGNORED, NEUTRAL, REMOVED
from forebay_runtime.server.api.bodies.fields import to_whole
from forebay_runtime.server.api.bodies.json_size import (
    MAX_PARTS,
    MAX_VALUES,
    SMALL_BYTES,
    measure_json,
)
from forebay_runtime.server.errors import BadRequest


class Body(BaseModel):
    """A JSON object; a field that is null is absent, 1.0 is 1, and "1" is no number."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_json(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: to_whole(value) for name, value in data.items() if value is not None}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Say in the schema too that what need not be given may be null."""
        schema = handler(core_schema)
        inner = handler.resolve_ref_schema(schema)
        required = inner.get("required", ())
        for name, field in inner.get("properties", {}).items():
            if name not in required:
                inner["properties"][name] = {"anyOf": [field, {"type": "null"}]}
        return schema


BodyT = TypeVar("BodyT", bound=Body)
_FIELDS = TypeAdapter(dict[str, Any])


def parse_body(model: type[BodyT], content: bytes) -> BodyT:
    """Read a request.

    Raises: BadRequest naming the field at fault, or because reading it would hold up others.
    """
    _check_size(content)
    try:
        body = model.model_validate_json(content)
    except ValidationError as exc:
        raise _to_bad_request(exc.errors(include_url=False)[0]) from None
    for name, value in (body.model_extra or {}).items():
        if name not in IGNORED:
            _refuse_unless_neutral(name, value)
    return body


def list_fields(content: bytes) -> Collection[str]:
    """The names of a request's fields, whatever they hold.

    Raises: BadRequest if it is no JSON object, or reading it would hold up others.
    """
    _check_size(content)
    try:
        return _FIELDS.validate_json(content)
    except ValidationError as exc:
        raise _to_bad_request(exc.errors(include_url=False)[0]) from None


def _check_size(content: bytes) -> None:
    if len(content) > SMALL_BYTES and measure_json(content).is_too_much:
        raise BadRequest(
            f"The request's JSON holds more than {MAX_VALUES} values, or more than {MAX_PARTS} "
            "strings, lists and objects; send less at a time"
        )


def _refuse_unless_neutral(name: str, value: Any) -> None:
    """Refuse what other servers know and this one cannot do, unless it asks for nothing."""
    if name in REMOVED:
        raise BadRequest(
            f"{name} was removed from this API; use {REMOVED[name]} instead",
            param=name,
            code="unsupported_parameter",
        )
    neutral = NEUTRAL.get(name)
    if neutral is not None and not any(_is_same(value, allowed) for allowed in neutral):
        hint = f", or give it as {' or '.join(map(repr, neutral))}" if neutral else ""
        raise BadRequest(
            f"{name} is {show(value)}, which this server does not support; leave it out{hint}",
            param=name,
            code="unsupported_parameter",
        )


def _is_same(value: Any, allowed: Any) -> bool:
    # True == 1 in Python, but not in JSON.
    return isinstance(value, bool) == isinstance(allowed, bool) and bool(value == allowed)


def _to_bad_request(error: ErrorDetails) -> BadRequest:
    if error["type"] == "json_invalid":
        return BadRequest(f"The request's body is not valid JSON: {error['ctx']['error']}")
    blamed = error.get("ctx", {}).get("error")
    if isinstance(blamed, FieldError):
        return BadRequest(str(blamed), param=blamed.param)
    # Branches of a union stand in the path by their type's name, which clients do not know.
    path = ".".join(str(part) for part in error["loc"] if _is_field(part))
    if not path:
        return BadRequest(f"The request's body must be a JSON object, not {show(error['input'])}")
    if error["type"] == "missing":
        return BadRequest(f"The field {path} is required", param=path)
    message = error["msg"].removeprefix("Value error, ").replace("Input should", "it should", 1)
    return BadRequest(f"The field {path} is {show(error['input'])}: {message}", param=path)


def _is_field(part: int | str) -> bool:
    return isinstance(part, int) or (part.isidentifier() and part not in ("str", "int", "float"))


class FieldError(ValueError):
    """Raised by a check of several fields; param names the one to blame."""

    def __init__(self, message: str, param: str) -> None:
        """message: a whole sentence for the client."""
        super().__init__(message)
        self.param = param
