"""The checker of crashes finds what it is there to find: without that its silence would say nothing."""

from __future__ import annotations

import pytest

from nbd_client import FLUSH, WRITE, Answer, Request
from ordered_writes import SECTOR_BYTES, OrderedWrites, stamp

SECTORS = 64


class History:
    """Writes of single sectors, answered at once, and what a disk holds of them."""

    def __init__(self) -> None:
        self.writes = OrderedWrites(SECTORS * SECTOR_BYTES, 0)
        self.answered: list[tuple[int, int]] = []
        self.disk = bytearray(SECTORS * SECTOR_BYTES)

    def write(self, sector: int, *, fua: bool = False, lost: bool = False) -> None:
        client = _Sink()
        # Neither a read nor zeroes, FUA as told.
        self.writes.random.random = lambda: 0.0 if fua else 1.0
        self.writes._send(0, client, range(sector, sector + 1), 1.0)
        version = self.writes.next_version - 1
        answer = Answer(0, Request(WRITE, sector * SECTOR_BYTES, SECTOR_BYTES, fua), 0, b"")
        self.writes._answered(answer, range(sector, sector + 1), version, [], self.answered)
        if not lost:
            self.disk[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = stamp(version, sector)

    def flush(self) -> None:
        self.writes._answered(Answer(0, Request(FLUSH, 0, 0, False), 0, b""), range(0), 0, self.answered[:], self.answered)


class _Sink:
    def send(self, *_: object, **__: object) -> int:
        return 0


def test_what_was_not_promised_may_be_lost() -> None:
    history = History()
    history.write(1, lost=True)
    history.write(2)
    history.writes.check_promises(bytes(history.disk))


@pytest.mark.parametrize("fua", [False, True])
def test_a_lost_promise_is_found(fua: bool) -> None:
    history = History()
    history.write(1)
    history.write(1, fua=fua, lost=True)
    if not fua:
        history.flush()
    with pytest.raises(AssertionError, match="version 2 was promised"):
        history.writes.check_promises(bytes(history.disk))


def test_bytes_of_another_place_are_found() -> None:
    history = History()
    history.write(1)
    history.write(2)
    history.disk[SECTOR_BYTES : 2 * SECTOR_BYTES] = stamp(2, 2)
    with pytest.raises(AssertionError, match="version 2 of sector 2"):
        history.writes.check_promises(bytes(history.disk))


def test_what_comes_back_from_before_is_found() -> None:
    """After a death the disk is as it was read; an older state must not show up later."""
    history = History()
    history.write(1)
    older = bytes(history.disk)
    history.write(1)
    history.writes.check_promises(bytes(history.disk))
    with pytest.raises(AssertionError, match="one of the versions"):
        history.writes.check_promises(older)


def test_a_write_that_overtook_a_flush_is_found() -> None:
    history = History()
    history.write(1, lost=True)
    history.write(2, lost=True)
    history.writes.check_order(bytes(history.disk))
    history = History()
    history.write(1, lost=True)
    history.flush()
    history.writes.check_order(bytes(history.disk))
    history = History()
    history.write(1, lost=True)
    history.flush()
    history.write(2)
    with pytest.raises(AssertionError, match="sent after version 1 of sector 1 was promised"):
        history.writes.check_order(bytes(history.disk))
