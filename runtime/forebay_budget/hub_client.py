"""HTTP for the hub: ranged GETs with a limit on time and on bytes, few retries, named failures.

The token goes to the hub's own host alone, never to where a redirect leads.
"""

import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import IO, Any, Self

from forebay_budget.inspection import ModelError

DEFAULT_ENDPOINT = "https://huggingface.co"
MAX_JSON_BYTES = 32 * 1024**2
_CHUNK_BYTES = 64 * 1024
_CONTENT_RANGE = re.compile(r"bytes (?:(?P<start>\d{1,18})-\d+|\*)/(?P<size>\d{1,18})", re.ASCII)


class HubClient:
    """Reads from one hub; every failure is a ModelError with a reason of its own."""

    def __init__(
        self,
        endpoint: str = DEFAULT_ENDPOINT,
        token: str = "",
        *,
        request_seconds: float = 15.0,
        retry_delays_seconds: tuple[float, ...] = (1.0, 3.0),
    ) -> None:
        """Raises: ModelError with the reason BadUri where the endpoint is no http address."""
        parts = urllib.parse.urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ModelError("BadUri", f"HF_ENDPOINT {endpoint!r} is no http:// address.")
        self._endpoint = endpoint.rstrip("/")
        self._token = token
        self._request_seconds = request_seconds
        self._retry_delays_seconds = retry_delays_seconds
        self._opener = urllib.request.build_opener(_Redirects)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Take HF_ENDPOINT and HF_TOKEN."""
        token = environment.get("HF_TOKEN", "").strip()
        return cls(environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT, token)

    def get_json(self, path: str, label: str) -> Any:
        """Return a JSON document; label names it in messages."""
        data, size = self.get(path, None, MAX_JSON_BYTES, label)
        if size > MAX_JSON_BYTES:
            raise ModelError("HubError", f"The hub's answer about {label} has {size} bytes.")
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise ModelError(
                "HubError", f"{self._endpoint} answered no JSON about {label}; is it a model hub?"
            ) from None

    def get(self, path: str, start: int | None, num_bytes: int, label: str) -> tuple[bytes, int]:
        """Return the asked bytes, or as many as the file has, and the whole file's size.

        Without a start no range is asked for; label names the file in messages.
        """
        delays = iter(self._retry_delays_seconds)
        while True:
            try:
                return self._get_once(path, start, num_bytes)
            except (OSError, http.client.HTTPException) as error:
                problem = self._explain(error, label)
                delay = next(delays, None) if _is_passing(error) else None
                if delay is None:
                    raise problem from error
                time.sleep(delay)

    def _get_once(self, path: str, start: int | None, num_bytes: int) -> tuple[bytes, int]:
        headers = {"User-Agent": "forebay", "Accept-Encoding": "identity"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if start is not None:
            headers["Range"] = f"bytes={start}-{start + num_bytes - 1}"
        request = urllib.request.Request(f"{self._endpoint}/{path}", headers=headers)
        deadline = time.monotonic() + self._request_seconds
        try:
            response = self._opener.open(request, timeout=self._request_seconds)
        except urllib.error.HTTPError as error:
            if error.code == 416 and (past_end := _content_range(error.headers)):
                error.close()
                return b"", past_end[1]
            raise
        with response:
            size = _check_answer(response, start)
            wanted = num_bytes if size is None else min(num_bytes, size - (start or 0))
            data = _read(response, wanted, deadline)
        if size is not None and len(data) < wanted:
            raise ConnectionError("the connection was closed early")
        return data, len(data) if size is None else size

    def _explain(self, error: Exception, label: str) -> ModelError:
        if isinstance(error, urllib.error.HTTPError):
            with error:
                return self._explain_status(error, label)
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, TimeoutError):
            return ModelError(
                "HubTimeout",
                f"{self._endpoint} gave no answer about {label} in {self._request_seconds:g} s.",
            )
        return ModelError(
            "HubUnreachable",
            f"{self._endpoint} cannot be reached for {label}: {cause or type(error).__name__}; "
            "let this machine or pod reach it, or name a mirror (HF_ENDPOINT; for services, the "
            "chart's hub.endpoint).",
        )

    def _explain_status(self, error: urllib.error.HTTPError, label: str) -> ModelError:
        code = error.headers.get("X-Error-Code", "")
        if error.code == 401:
            hint = (
                "it refused the token that was given (HF_TOKEN; in a service, model.secretName)"
                if self._token
                else "it is private, gated or absent, and no token was given "
                "(HF_TOKEN; in a service, model.secretName)"
            )
            return ModelError("AuthenticationRequired", f"The hub did not open {label}: {hint}.")
        if error.code == 403:
            hint = "the token has no right to read it; give one that has"
            if code == "GatedRepo":
                hint = "it is gated; ask for access on its page, for whoever owns the token"
            return ModelError("AccessDenied", f"The hub denied access to {label}: {hint}.")
        if error.code == 404 and code == "RevisionNotFound":
            return ModelError(
                "RevisionNotFound",
                f"The hub has the model, but not {label}; name a branch, tag or commit of it.",
            )
        if error.code == 404:
            return ModelError(
                "ModelNotFound",
                f"The hub {self._endpoint} has no {label}; correct its name, or give a token if it "
                "is private.",
            )
        return ModelError(
            "HubError", f"{self._endpoint} answered {error.code} {error.reason} about {label}."
        )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to where files are stored, and leaves the token behind on another host."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and _origin(new.full_url) != _origin(req.full_url):
            new.remove_header("Authorization")
        return new


def _origin(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc


def _is_passing(error: Exception) -> bool:
    """Say whether to try again; a timeout has waited long enough."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code == 429 or error.code >= 500
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return not isinstance(cause, TimeoutError)


def _content_range(headers: Message) -> tuple[int, int] | None:
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
    return match and (int(match["start"] or 0), int(match["size"]))


def _check_answer(response: http.client.HTTPResponse, start: int | None) -> int | None:
    """Return the size of the whole file, None where the answer does not state it."""
    if response.status == 206:
        answered = _content_range(response.headers)
        if answered is None or answered[0] != start:
            raise ModelError("HubError", "The hub answered another range than was asked.")
        return answered[1]
    if start:
        raise ModelError("HubError", "The hub does not serve ranges of files.")
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() and len(length) <= 18 else None


def _read(response: http.client.HTTPResponse, wanted: int, deadline: float) -> bytes:
    """Read that many bytes or to the end; a hub that only trickles is cut off at the deadline."""
    chunks: list[bytes] = []
    while wanted > 0:
        chunk = response.read1(min(wanted, _CHUNK_BYTES))
        if not chunk:
            break
        chunks.append(chunk)
        wanted -= len(chunk)
        if wanted > 0 and time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(chunks)
