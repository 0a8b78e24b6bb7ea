"""The port that the server opens."""

import asyncio
import socket

import pytest

from forebay_runtime.server.process import open_listener


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_small_writes_are_sent_at_once(host: str) -> None:
    # Nagle's algorithm costs each short answer 40 ms on a kept-alive connection.
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            sock = transport.get_extra_info("socket")
            accepted.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    with open_listener(host, 0) as listener:
        port = listener.getsockname()[1]
        server = await asyncio.get_running_loop().create_server(Accepting, sock=listener)
        async with server:
            _, writer = await asyncio.open_connection(host, port)
            assert await accepted == 1
            writer.close()
            await writer.wait_closed()
