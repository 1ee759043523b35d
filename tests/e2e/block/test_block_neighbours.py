"""Clients that misbehave or die harm nobody else."""

from __future__ import annotations

import pathlib
import subprocess
import time
from collections.abc import Callable

from nbd_client import FLUSH, READ, WRITE, NbdClient
from store import PATIENCE_S, eventually
from volume_server import KIB, MIB, VolumeServer, image, tool

Serve = Callable[..., VolumeServer]
VOLUME_BYTES = 64 * MIB


def test_a_client_that_is_killed_amid_its_work(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """fio dies with 32 requests under way, several times; another one on the same volume finds all that it wrote."""
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk})
    common = ["--ioengine=nbd", f"--uri={server.uri()}", "--rw=randrw", "--bsrange=4k-64k", "--size=24m"]
    steady = subprocess.Popen(
        [tool("fio"), "--name=steady", *common, "--iodepth=8", "--verify=crc32c", "--do_verify=1", "--loops=2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        for _ in range(5):
            # Threads, so that one process is all of it.
            doomed = subprocess.Popen(
                [tool("fio"), "--name=doomed", *common, "--offset=32m", "--iodepth=32", "--thread", "--time_based", "--runtime=60"],
                cwd=tmp_path,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(0.3)
            doomed.kill()
            doomed.wait()
        said, _ = steady.communicate(timeout=2 * PATIENCE_S)
        assert steady.returncode == 0, said
    finally:
        steady.kill()
        steady.wait()
    # What the dead one left is neither in the way nor half locked.
    client = NbdClient(server.socket, "disk")
    client.write(32 * MIB, b"j" * MIB, fua=True)
    assert client.read(32 * MIB, MIB) == b"j" * MIB
    client.close()
    assert server.stop() == 0, server.log()
    assert disk.read_bytes()[32 * MIB : 33 * MIB] == b"j" * MIB


def test_a_client_that_reads_no_answers(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """It asks for far more than its socket holds; others are answered meanwhile, and so is it once it reads."""
    disk = image(tmp_path / "disk.img", VOLUME_BYTES, seed=1)
    whole = disk.read_bytes()
    server = serve_volumes({"disk": disk})
    deaf = NbdClient(server.socket, "disk")
    for at in range(32):
        deaf.send(READ, at * MIB, MIB)
    other = NbdClient(server.socket, "disk")
    for at in range(16):
        other.write(48 * MIB + at * MIB, b"k" * MIB)
        assert other.read(at * MIB, MIB) == whole[at * MIB : (at + 1) * MIB]
    other.flush()
    while deaf.waiting:
        answer = deaf.receive()
        offset = answer.request.offset
        assert not answer.error and answer.data == whole[offset : offset + MIB]
    deaf.close()
    other.close()


def test_a_stop_answers_what_is_under_way(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """Whatever was answered before the end is in the image after it."""
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": f"{disk},delay=1ms"})
    client = NbdClient(server.socket, "disk")
    for at in range(64):
        client.send(WRITE, at * 512 * KIB, data=b"l" * (64 * KIB))
    client.send(FLUSH)
    answered = [client.receive() for _ in range(16)]
    assert server.stop() == 0, server.log()
    client.close()
    data = disk.read_bytes()
    for answer in answered:
        if answer.request.kind == WRITE:
            assert data[answer.request.offset :][: 64 * KIB] == b"l" * (64 * KIB), answer


def test_the_number_of_connections_comes_down_again(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """Sessions that end badly are given back: their descriptors would run out otherwise."""
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk})
    descriptors = pathlib.Path(f"/proc/{server.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    for at in range(100):
        client = NbdClient(server.socket, "disk")
        client.send(WRITE, at * 4 * KIB, data=b"m" * (4 * KIB))
        client.send(READ, 0, MIB)
        client.close()
    eventually(lambda: len(list(descriptors.iterdir())) <= before, "all connections are closed")
