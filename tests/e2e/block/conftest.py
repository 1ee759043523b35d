"""What the tests of `tiermem block serve` share. They assert what clients see, never how long it takes."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

# These assert as tests do, and are imported by them.
pytest.register_assert_rewrite("volume_server", "ordered_writes", "nbd_client", "object_places")

from volume_server import Nbdkit, VolumeServer


@pytest.fixture(autouse=True)
def state_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where servers keep records of stores that cannot keep their own; of each test its own."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def nbdkit(tmp_path: pathlib.Path) -> Iterator[Callable[..., Nbdkit]]:
    """Starts stores that are NBD servers of another make."""
    stores: list[Nbdkit] = []

    def start(*arguments: str) -> Nbdkit:
        stores.append(Nbdkit(tmp_path / f"nbdkit{len(stores)}", *arguments))
        return stores[-1]

    yield start
    for store in stores:
        store.close()


@pytest.fixture
def serve_volumes(tmp_path: pathlib.Path, nbdkit: object) -> Iterator[Callable[..., VolumeServer]]:
    """Starts block servers as a test wants them. They end before their stores do, or they would wait for these."""
    del nbdkit
    servers: list[VolumeServer] = []

    def start(*arguments: object, **options: object) -> VolumeServer:
        servers.append(VolumeServer(tmp_path / f"server{len(servers)}", *arguments, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
