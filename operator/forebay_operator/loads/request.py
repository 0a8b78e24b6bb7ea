"""One `GET /load`, over a connection of its own, with as little work as possible: thousands of pods
are asked, again and again, by one core that has other things to do.

Pods are not trusted: an answer is short, plain and complete, and leads nowhere else.
"""

import asyncio
import socket

MOST_ANSWER_BYTES = 8192
"""Of head and body together."""

_END = b"\r\n\r\n"


async def request_load(host: str, port: int) -> bytes:
    """The body of a pod's answer; OSError without one, ValueError if it is not as it should be.

    Waits without end: the caller sets the time.
    """
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, (host, port))
        await loop.sock_sendall(connection, _write_request(host, port))
        answer = b""
        while len(answer) <= MOST_ANSWER_BYTES:
            part = await loop.sock_recv(connection, MOST_ANSWER_BYTES)
            answer += part
            body = read_answer(answer, is_over=not part)
            if body is not None:
                return body
    raise ValueError("the answer is too long")


def read_answer(answer: bytes, is_over: bool) -> bytes | None:
    """The body of what came so far; None if more must come. ValueError for any answer but a 200."""
    head, end, body = answer.partition(_END)
    if not end:
        if is_over:
            raise ValueError("the answer has no end")
        return None
    status, *lines = head.decode("latin-1").split("\r\n")
    if status.split(" ")[1:2] != ["200"]:
        raise ValueError(f"the answer is {status!r}")
    pairs = (line.partition(":") for line in lines)
    fields = {name.lower(): text.strip() for name, _, text in pairs}
    if "transfer-encoding" in fields or "content-encoding" in fields:
        raise ValueError("the answer is encoded")
    num_bytes = int(fields.get("content-length", -1))
    if num_bytes < 0:
        return body if is_over else None
    if len(body) < num_bytes and is_over:
        raise ValueError("the answer is cut short")
    return body[:num_bytes] if len(body) >= num_bytes else None


def _write_request(host: str, port: int) -> bytes:
    named = f"[{host}]" if ":" in host else host
    lines = ("GET /load HTTP/1.1", f"Host: {named}:{port}", "Connection: close", "Accept: */*")
    return "\r\n".join((*lines, "", "")).encode()
