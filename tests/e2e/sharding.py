"""What tests of a store with several shards need: keys of every shard, and connections at home in every one."""

from __future__ import annotations

import itertools
import pathlib

import pytest

from store import SHARDS, Store
from wire import Wire

# For what a store with several shards refuses or orders differently by design.
one_shard = pytest.mark.skipif(SHARDS > 1, reason="holds for a store with one shard")


class Sharded:
    """A store with `count` shards, and for each shard one hash tag whose keys lie there (in no known order)."""

    def __init__(self, store: Store, count: int) -> None:
        self.store = store
        self.count = count
        self.connect = store.connect
        wire = self.wire()
        self.tags: list[str] = []
        for number in itertools.count():
            tag = f"{{{number}}}"
            # A command over keys of two shards is refused before it looks at either.
            if all(is_cross(wire.ask("RENAMENX", tag, other + ":")) for other in self.tags):
                self.tags.append(tag)
            if len(self.tags) == count:
                break
        wire.close()

    def wire(self) -> Wire:
        return Wire(self.store.connect)

    def homes(self) -> list[Wire]:
        """One connection at home in each shard: clients are handed round, and their numbers tell to whom."""
        found: dict[int, Wire] = {}
        while len(found) < self.count:
            wire = self.wire()
            number = wire.ask("CLIENT", "ID")
            assert isinstance(number, int)
            if found.setdefault(number % self.count, wire) is not wire:
                wire.close()
        return list(found.values())

    def spread(self, name: str = "") -> list[str]:
        """A key in each shard."""
        return [tag + name for tag in self.tags]

    def clear(self) -> None:
        wire = self.wire()
        assert wire.ask("FLUSHALL") == b"+OK"
        wire.close()


def is_cross(reply: object) -> bool:
    return isinstance(reply, bytes) and reply.startswith(b"-CROSSSLOT")


def start(directory: pathlib.Path, count: int, *flags: str) -> Sharded:
    return Sharded(Store(directory, "--shards", str(count), *flags), count)
