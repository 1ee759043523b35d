"""The server dies amid its work, again and again: what it promised is there, and the images are in order without it.

Five rounds each, or as many as TIERMEM_KILL_ROUNDS says. A failure prints the seed; TIERMEM_KILL_SEED=SEED begins with it.
"""

from __future__ import annotations

import os
import pathlib
import random
import threading
from collections.abc import Callable

import pytest

from nbd_client import Gone, NbdClient
from ordered_writes import OrderedWrites, read_image, read_whole
from volume_server import MIB, VolumeServer, image, run

ROUNDS = int(os.environ.get("TIERMEM_KILL_ROUNDS") or 5)
SEED = int(os.environ["TIERMEM_KILL_SEED"])
VOLUME_BYTES = 24 * MIB

Serve = Callable[..., VolumeServer]


def config(directory: pathlib.Path, disk: pathlib.Path, choice: random.Random, order: str | None = None) -> str:
    """A cache that is smaller than what is written, in front of a slow store: it evicts and writes back all the time."""
    blocks = choice.choice(['["4KiB", "16KiB", "64KiB"]', '["32KiB", "64KiB", "128KiB", "256KiB"]', '["64KiB"]'])
    fill = choice.choice(["units", "units", "whole"])
    order = order or choice.choice(["group", "group", "flush", "none"])
    return f"""
        [cache]
        path = "{directory}/cache.tiermem"
        capacity = "8MiB"
        blocks = {blocks}
        fill = "{fill}"
        dirty_age = "50ms"
        order = "{order}"
        [[export]]
        name = "disk"
        backing = "{disk},delay=1ms"
    """


def live_and_die(server: VolumeServer, writes: OrderedWrites, choice: random.Random) -> None:
    """Clients write until the server is killed."""
    clients = [NbdClient(server.socket, "disk") for _ in range(2)]
    try:
        writes.live(clients, answers=choice.randrange(50, 1500), depth=choice.choice([1, 4, 16]))
    finally:
        server.kill()
        for client in clients:
            client.close()


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_what_was_promised_outlives_the_process(serve_volumes: Serve, tmp_path: pathlib.Path, seed: int) -> None:
    choice = random.Random(seed)
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    writes = OrderedWrites(VOLUME_BYTES, seed)
    server = serve_volumes({"disk": disk}, config=config(tmp_path, disk, choice))
    for _ in range(2):
        live_and_die(server, writes, choice)
        server.start()
        client = NbdClient(server.socket, "disk")
        whole = read_whole(client)
        writes.check_promises(whole)
        # What was read once stays, in this life and over another death.
        assert read_whole(client) == whole
        client.close()
        server.kill()
        server.start()
        client = NbdClient(server.socket, "disk")
        assert read_whole(client) == whole
        client.close()
    assert server.stop() == 0, server.log()
    assert read_image(disk) == whole


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_the_image_alone_is_in_order(serve_volumes: Serve, tmp_path: pathlib.Path, seed: int) -> None:
    """The cache is lost with the process: flush by flush the image holds all writes before some flush, and perhaps some before the next."""
    choice = random.Random(seed)
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    writes = OrderedWrites(VOLUME_BYTES, seed)
    server = serve_volumes({"disk": disk}, config=config(tmp_path, disk, choice, order="flush"))
    for _ in range(2):
        live_and_die(server, writes, choice)
        writes.check_order(read_image(disk))
        (tmp_path / "cache.tiermem").unlink()
        # That the cache is lost is the operator's word.
        server.start("--accept-loss", "disk")


def test_what_fio_has_flushed_outlives_the_process(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """fio writes one half and flushes it, and is amid the other when the server dies: the first half is as it was."""
    choice = random.Random(SEED)
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk}, config=config(tmp_path, disk, choice))
    half = VOLUME_BYTES // 2

    def fio(name: str, *options: str, expect: int | None = 0) -> None:
        common = [f"--name={name}", "--ioengine=nbd", f"--uri={server.uri()}", "--iodepth=16", "--bs=4k", "--verify=crc32c"]
        run("fio", *common, f"--size={half}", "--rw=randwrite", *options, expect=expect, cwd=tmp_path)

    for _ in range(ROUNDS):
        fio("first", "--offset=0", "--do_verify=0", "--end_fsync=1")
        timer = threading.Timer(choice.random() * 0.5, server.process.kill)
        timer.start()
        # It writes until its server is gone.
        fio("second", f"--offset={half}", "--do_verify=0", "--time_based", "--runtime=60", expect=None)
        timer.join()
        server.kill()
        server.start()
        fio("first", "--offset=0", "--verify_only")


def test_a_killed_server_closes_its_connections(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """The checker above rests on it."""
    disk = image(tmp_path / "disk.img", MIB)
    server = serve_volumes({"disk": disk})
    client = NbdClient(server.socket, "disk")
    server.kill()
    with pytest.raises(Gone):
        client.read(0, 512)
    client.close()
    server.start()
