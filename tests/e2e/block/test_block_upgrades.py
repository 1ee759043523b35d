"""What earlier versions of the block cache have written is opened without loss. `upgrades/write.py` wrote it."""

from __future__ import annotations

import io
import lzma
import pathlib
import tarfile
from collections.abc import Callable

import pytest

from nbd_client import NbdClient
from upgrades.write import BLOCK_FLAGS, block_writes
from volume_server import KIB, MIB, VolumeServer, image

UPGRADES = pathlib.Path(__file__).parents[1] / "upgrades"


@pytest.mark.parametrize("dies", [False, True], ids=["stopped", "killed"])
def test_a_dirty_cache_of_version_1_is_taken_up(
    serve_volumes: Callable[..., VolumeServer], tmp_path: pathlib.Path, dies: bool
) -> None:
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress((UPGRADES / "block-cache-version-1.tar.xz").read_bytes()))) as tar:
        tar.extractall(tmp_path, filter="data")
    exports = {name: tmp_path / f"{name}.img" for name in ("disk", "other")}
    before = image(tmp_path / "before", MIB, seed=9).read_bytes()

    def check(read: Callable[[str, int], bytes]) -> None:
        for name, units in block_writes().items():
            for unit in range(256):
                old = before if name == "disk" else bytes(MIB)
                found, old = read(name, unit * 4 * KIB), old[unit * 4 * KIB :][: 4 * KIB]
                if name == "disk" and 100 <= unit < 104:
                    assert found in (old, f"unflushed {unit}.".ljust(32).encode() * 128), f"{name} {unit}"
                else:
                    assert found == units.get(unit, old), f"{name} {unit}"

    server = serve_volumes(exports, cache=f"{tmp_path / 'cache'}:8MiB", flags=BLOCK_FLAGS)
    assert server.cached_bytes("disk")[0] >= 256 * KIB, "what was clean is still cached"
    for again in (False, True):
        clients = {name: NbdClient(server.socket, name) for name in exports}
        check(lambda name, offset: clients[name].read(offset, 4 * KIB))
        for client in clients.values():
            client.close()
        if not again:
            server.kill() if dies else server.stop()
            server.start()
    assert server.stop() == 0, server.log()
    check(lambda name, offset: exports[name].read_bytes()[offset : offset + 4 * KIB])
