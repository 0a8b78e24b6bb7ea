"""What several tests of the server share."""

from collections.abc import Iterator

import pytest

from server_process import ServerProcess, fake_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server around the fake engine for whatever leaves it as it was; it takes 256 tokens."""
    with fake_server(tmp_path_factory.mktemp("server"), {"max_model_len": 256}) as server:
        server.wait_ready()
        yield server
