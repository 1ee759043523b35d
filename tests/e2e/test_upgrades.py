"""What earlier versions of the program have written is opened without loss. `upgrades/write.py` wrote it."""

from __future__ import annotations

import json
import lzma
import pathlib
import zlib
from collections.abc import Callable

import pytest

from recorder import connect, scan
from store import MIB, Store, tiermem
from upgrades.write import FLASH_TIERS, LATE_S, SNAPSHOT_TIERS, flash_value, store_items

UPGRADES = pathlib.Path(__file__).parent / "upgrades"
# Items that the flash tier of the first version held when its store was killed.
FLASH_ITEMS = 1184


def unpacked(name: str, path: pathlib.Path) -> pathlib.Path:
    path.write_bytes(lzma.decompress((UPGRADES / name).read_bytes()))
    return path


def of_this_boot(path: pathlib.Path) -> pathlib.Path:
    """The same as if the store had been killed in this boot of the machine: what was not stopped in order counts only then."""
    boot_id = bytes.fromhex(pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))
    content = bytearray(path.read_bytes())
    for start in (0, 4096):
        block = content[start : start + 4096]
        assert block[:7] == b"TMFLASH"
        block[40:56] = boot_id
        block[12:16] = zlib.crc32(block[16:]).to_bytes(4, "little")
        content[start : start + 4096] = block
    path.write_bytes(content)
    return path


def test_a_snapshot_of_version_1_is_loaded(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = unpacked("store-snapshot-version-1.xz", tmp_path / "snapshot")
    # Again from what this version makes of it.
    for _ in range(2):
        store = serve(*(flag.format(path) for flag in SNAPSHOT_TIERS))
        with connect(store) as client:
            names = list(store_items())
            assert dict(zip(names, client.mget(names))) == store_items()
            assert client.dbsize() == len(names) + 1
            assert client.expiretime("expires") == LATE_S
            assert client.hgetall("hash") == {f"field:{number}".encode(): f"{number}".encode() for number in range(50)}
            assert client.hexpiretime("hash", "field:7", "field:8") == [LATE_S, -1]
            client.select(3)
            assert client.get("elsewhere") == b"too"
        assert store.stop() == 0, store.log()


def test_a_flash_tier_of_version_1_is_taken_up(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = of_this_boot(unpacked("store-flash-version-1.xz", tmp_path / "flash"))
    for _ in range(2):
        store = serve(*(flag.format(path) for flag in FLASH_TIERS))
        with connect(store) as client:
            keys = scan(client, 1000)
            assert len(keys) == FLASH_ITEMS
            for key in keys:
                number = int(key.split(b":")[1])
                assert number % 100 != 5 or number >= 1000, "it was deleted"
                assert client.get(key) == flash_value(number)
                assert client.expiretime(key) == (LATE_S + number if number < 1000 and number % 10 == 0 else -1)
        assert store.stop() == 0, store.log()


def table(path: pathlib.Path, *arguments: str) -> list[dict]:
    done = tiermem("heatmap", str(path), "--format", "json", *arguments)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["recording", "journal"])
def test_a_recording_that_does_not_say_what_was_in_memory_is_read(tmp_path: pathlib.Path, name: str) -> None:
    path = unpacked(f"{name}-version-1.xz", tmp_path / "old.rec")
    [largest] = [row for row in table(path) if row["name"] == "anon 1"]
    assert largest["bytes"] > 16 * MIB and largest["share"] > 0.5 and largest["touched_bytes"] > 15 * MIB, largest
    found = {row["name"]: row for row in table(path, "--view", "wss")}
    assert found["all"]["p50_bytes"] > 15 * MIB, found["all"]
    # It is not known, which is not nothing.
    assert found["all"]["rss_p50_bytes"] is None and found["all"]["rss_max_bytes"] is None
    # Addresses were always there.
    [largest] = [row for row in table(path, "--absolute") if row["name"] == "anon 1"]
    assert int(largest["end"], 16) - int(largest["start"], 16) == largest["bytes"]
    page = tmp_path / "old.html"
    assert tiermem("heatmap", str(path), "-o", str(page)).returncode == 0 and "RSS" not in page.read_text()
    assert tiermem("plan", str(path), "--fast", "8MiB").returncode == 0
