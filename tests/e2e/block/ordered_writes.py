"""Checks what a server promises about its writes across its death.

Every sector that is written says which write it is of. The checker remembers for each sector its writes in order, and from
which one on it was promised to last: by an answered FLUSH that was sent after the write was answered, or by FUA. No two
requests that touch the same sector are under way together, so their order is known.
"""

from __future__ import annotations

import bisect
import dataclasses
import pathlib
import random
import select
import struct
import time

from nbd_client import FLUSH, READ, WRITE, ZERO, Answer, NbdClient

SECTOR_BYTES = 512
_ZEROES = bytes(SECTOR_BYTES)


def stamp(version: int, sector: int) -> bytes:
    """A sector's bytes."""
    return struct.pack(">QQ", version, sector) * (SECTOR_BYTES // 16)


def stamped(version: int, sectors: range) -> bytes:
    return b"".join(stamp(version, sector) for sector in sectors)


@dataclasses.dataclass
class Sector:
    """What a sector may hold: its last known state first, then what was written since. `floors` has the steps by which it was
    promised: at which event, and which version."""

    versions: list[int] = dataclasses.field(default_factory=lambda: [0])
    floors: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    def raise_floor(self, event: int, version: int) -> None:
        if version > self.floor_at(event):
            self.floors.append((event, version))

    def floor_at(self, event: int) -> int:
        """From which version on it was promised when this happened."""
        at = bisect.bisect_right(self.floors, (event, 1 << 62))
        return self.floors[at - 1][1] if at else self.versions[0]


class OrderedWrites:
    """The writes of one export, over several lives of its server."""

    def __init__(self, size_bytes: int, seed: int) -> None:
        self.count = size_bytes // SECTOR_BYTES
        self.random = random.Random(seed)
        self.sectors: dict[int, Sector] = {}
        # Of each version: the event at which it was sent, and whether it wrote zeroes. Version 0 was always there.
        self.sent: dict[int, int] = {0: 0}
        self.zero = {0}
        self.events = 0
        self.next_version = 1

    def _event(self) -> int:
        self.events += 1
        return self.events

    def _sectors(self) -> range:
        """A few sectors somewhere; half of all requests go to a twentieth of the export."""
        span = self.count // 20 if self.random.random() < 0.5 else self.count
        count = self.random.choice([1, 1, 2, 7, 8, 8, 16, 64, 200])
        start = self.random.randrange(span - count)
        if self.random.random() < 0.5:
            start -= start % 8
        return range(start, start + count)

    def live(self, clients: list[NbdClient], answers: int, depth: int) -> None:
        """Sends random requests until so many were answered; leaves the last ones under way."""
        busy: set[int] = set()
        under_way: dict[tuple[int, int], tuple[range, int, list[tuple[int, int]]]] = {}
        answered: list[tuple[int, int]] = []
        while answers > 0:
            while len(under_way) < depth:
                at = self.random.randrange(len(clients))
                draw = self.random.random()
                if draw < 0.05:
                    # What is answered by now it must keep.
                    under_way[at, clients[at].send(FLUSH)] = (range(0), 0, answered[:])
                    continue
                sectors = self._sectors()
                if not busy.isdisjoint(sectors):
                    continue
                under_way[self._send(at, clients[at], sectors, draw)] = (sectors, self.next_version - 1, [])
                busy.update(sectors)
            ready, _, _ = select.select([client.socket for client in clients], [], [])
            for at, client in enumerate(clients):
                if client.socket in ready:
                    answer = client.receive()
                    sectors, version, covered = under_way.pop((at, answer.cookie))
                    busy.difference_update(sectors)
                    self._answered(answer, sectors, version, covered, answered)
                    answers -= 1
            if self.random.random() < 0.01:
                # Now and then there is time to write back.
                time.sleep(self.random.random() / 20)

    def _send(self, at: int, client: NbdClient, sectors: range, draw: float) -> tuple[int, int]:
        offset, length = sectors.start * SECTOR_BYTES, len(sectors) * SECTOR_BYTES
        if draw < 0.25:
            return at, client.send(READ, offset, length)
        version, self.next_version = self.next_version, self.next_version + 1
        fua = self.random.random() < 0.1
        self.sent[version] = self._event()
        for sector in sectors:
            self.sectors.setdefault(sector, Sector()).versions.append(version)
        if draw < 0.3:
            self.zero.add(version)
            return at, client.send(ZERO, offset, length, fua=fua)
        return at, client.send(WRITE, offset, data=stamped(version, sectors), fua=fua)

    def _answered(
        self, answer: Answer, sectors: range, version: int, covered: list[tuple[int, int]], answered: list[tuple[int, int]]
    ) -> None:
        request = answer.request
        assert not answer.error, f"{request} fails with {answer.error}"
        event = self._event()
        if request.kind == READ:
            for place, sector in enumerate(sectors):
                data = answer.data[place * SECTOR_BYTES :][:SECTOR_BYTES]
                last = self.sectors[sector].versions[-1] if sector in self.sectors else 0
                expected = _ZEROES if last in self.zero else stamp(last, sector)
                assert data == expected, f"sector {sector} holds {self._describe(data)}, and version {last} was written last"
        elif request.kind == FLUSH:
            for sector, promised in covered:
                self.sectors[sector].raise_floor(event, promised)
            # They need not be promised twice.
            gone = set(covered)
            answered[:] = [it for it in answered if it not in gone]
        elif request.fua:
            for sector in sectors:
                self.sectors[sector].raise_floor(event, version)
        else:
            answered.extend((sector, version) for sector in sectors)

    @staticmethod
    def _describe(data: bytes) -> str:
        if data == _ZEROES:
            return "zeroes"
        version, sector = struct.unpack(">QQ", data[:16])
        return f"version {version} of sector {sector}" if data == stamp(version, sector) else f"other bytes: {data[:32].hex()}..."

    def _found(self, sector: int, data: bytes) -> list[int]:
        """Which of a sector's possible versions these bytes may be; several if they are zeroes."""
        versions = self.sectors[sector].versions if sector in self.sectors else [0]
        if data == _ZEROES:
            found = [version for version in versions if version in self.zero]
        else:
            version = struct.unpack(">Q", data[:8])[0]
            found = [version] if version in versions and version not in self.zero and data == stamp(version, sector) else []
        assert found, f"sector {sector} holds {self._describe(data)}, and should hold one of the versions {versions}"
        return found

    def _contents(self, whole: bytes) -> dict[int, list[int]]:
        found = {}
        for sector in range(self.count):
            data = whole[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES]
            if sector in self.sectors or data != _ZEROES:
                found[sector] = self._found(sector, data)
        return found

    def check_promises(self, whole: bytes) -> None:
        """All that was promised is there, and everything is something that was written. It is what there is from now on."""
        found = self._contents(whole)
        for sector, versions in found.items():
            floor = self.sectors[sector].floor_at(self.events)
            assert versions[-1] >= floor, (
                f"sector {sector} holds version {versions[-1]}, and version {floor} was promised: "
                f"it was written as {self.sectors[sector]}"
            )
        self._settle(found)

    def check_order(self, whole: bytes) -> None:
        """The image alone holds nothing that was sent after a promise, unless it also holds what that promise was about."""
        found = self._contents(whole)
        if not found:
            return
        # Of zeroes that may be of several writes the first is taken here and the last below: either may be the true one.
        last, latest = max((self.sent[versions[0]], sector) for sector, versions in found.items())
        for sector, versions in found.items():
            floor = self.sectors[sector].floor_at(last)
            assert versions[-1] >= floor, (
                f"sector {latest} holds what was sent after version {floor} of sector {sector} was promised, "
                f"and the latter holds version {versions[-1]}"
            )
        self._settle(found)

    def _settle(self, found: dict[int, list[int]]) -> None:
        for sector, versions in found.items():
            self.sectors[sector] = Sector([versions[-1]])


def read_whole(client: NbdClient) -> bytes:
    """All of an export."""
    step = 1 << 20
    return b"".join(client.read(at, min(step, client.size_bytes - at)) for at in range(0, client.size_bytes, step))


def read_image(path: pathlib.Path) -> bytes:
    """All of an image, past no cache but the system's."""
    return path.read_bytes()
