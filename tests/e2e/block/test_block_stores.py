"""Backing stores that are NBD servers of another make: ones that work, ones that are slow, that fail, and that say nothing."""

from __future__ import annotations

import filecmp
import pathlib
import signal
from collections.abc import Callable

from nbd_client import FLUSH, READ, NbdClient
from store import eventually
from volume_server import KIB, MIB, Nbdkit, VolumeServer, image, refused, run

Serve = Callable[..., VolumeServer]
Store = Callable[..., Nbdkit]
VOLUME_BYTES = 64 * MIB


def test_a_volume_in_nbdkits_memory(serve_volumes: Serve, nbdkit: Store, tmp_path: pathlib.Path) -> None:
    source = image(tmp_path / "source", VOLUME_BYTES, seed=1)
    store = nbdkit("memory", "64M")
    server = serve_volumes({"disk": store.uri})
    run("nbdcopy", "--flush", source, server.uri())
    run("nbdcopy", server.uri(), tmp_path / "copy")
    assert filecmp.cmp(source, tmp_path / "copy", shallow=False)
    assert server.stop() == 0, server.log()
    # And what the store itself says, asked without the cache.
    run("nbdcopy", store.uri, tmp_path / "stored")
    assert filecmp.cmp(source, tmp_path / "stored", shallow=False)


def test_a_slow_store(serve_volumes: Serve, nbdkit: Store, tmp_path: pathlib.Path) -> None:
    store = nbdkit("--filter=delay", "memory", "64M", "rdelay=2ms", "wdelay=2ms")
    server = serve_volumes({"disk": store.uri})
    job = ["--name=job", "--ioengine=nbd", f"--uri={server.uri()}", "--iodepth=16", "--verify=crc32c", "--do_verify=1"]
    run("fio", *job, "--rw=randwrite", "--bs=4k", f"--size={VOLUME_BYTES}", "--io_size=8m", cwd=tmp_path)


def test_errors_of_the_store_are_errors_of_reads(serve_volumes: Serve, nbdkit: Store, tmp_path: pathlib.Path) -> None:
    """Only of those that need the store; and once it is well, so are they."""
    failing = tmp_path / "failing"
    store = nbdkit("--filter=error", "memory", "64M", "error-pread=EIO", "error-pread-rate=100%", f"error-pread-file={failing}")
    server = serve_volumes({"disk": store.uri})
    client = NbdClient(server.socket, "disk")
    client.write(MIB, b"a" * (64 * KIB))
    failing.touch()
    assert client.read(MIB, 64 * KIB) == b"a" * (64 * KIB)
    assert client.ask(READ, 8 * MIB, 4 * KIB).error
    # Part of it is cached and part of it is not.
    assert client.ask(READ, MIB, 128 * KIB).error
    failing.unlink()
    assert client.read(8 * MIB, 4 * KIB) == bytes(4 * KIB)
    assert client.read(MIB, 128 * KIB) == b"a" * (64 * KIB) + bytes(64 * KIB)
    client.close()


def test_errors_of_write_back_lose_nothing(serve_volumes: Serve, nbdkit: Store, tmp_path: pathlib.Path) -> None:
    """A store that takes no writes is tried again; until then the cache has them, over a stop and a start too."""
    failing = tmp_path / "failing"
    failing.touch()
    store = nbdkit("--filter=error", "memory", "64M", "error-pwrite=EIO", "error-pwrite-rate=100%", f"error-pwrite-file={failing}")
    config = f"""
        [cache]
        path = "{tmp_path}/cache.tiermem"
        capacity = "32MiB"
        dirty_age = "10ms"
        [[export]]
        name = "disk"
        backing = "{store.uri}"
    """
    server = serve_volumes({"disk": store.uri}, config=config)
    client = NbdClient(server.socket, "disk")
    client.write(MIB, b"b" * MIB)
    client.flush()
    eventually(lambda: "took nothing of what is written back" in server.log(), "it tried to write back and failed")
    assert client.read(MIB, MIB) == b"b" * MIB
    assert server.cached_bytes() == (MIB, MIB)
    client.close()
    server.kill()
    server.start()
    assert server.cached_bytes() == (MIB, MIB)
    failing.unlink()
    eventually(lambda: server.cached_bytes() == (MIB, 0), "it is written back once the store takes it")
    assert server.stop() == 0, server.log()
    assert "verification failed" not in run("qemu-io", "-r", "-f", "raw", "-c", "read -P 0x62 1M 1M", store.uri).stdout


def test_a_write_through_error_is_told(serve_volumes: Serve, nbdkit: Store, tmp_path: pathlib.Path) -> None:
    failing = tmp_path / "failing"
    store = nbdkit("--filter=error", "memory", "64M", "error-pwrite=ENOSPC", "error-pwrite-rate=100%", f"error-pwrite-file={failing}")
    server = serve_volumes({"disk": store.uri}, mode="write-through")
    client = NbdClient(server.socket, "disk")
    client.write(0, b"c" * (8 * KIB))
    failing.touch()
    refused = client.ask(1, 0, data=b"d" * (8 * KIB))
    assert refused.error == 28, refused
    failing.unlink()
    # Whatever the store has now: old, new or a mix; and the cache must not say something else than it.
    now = client.read(0, 8 * KIB)
    client.close()
    assert server.stop() == 0, server.log()
    run("nbdcopy", store.uri, tmp_path / "stored")
    with (tmp_path / "stored").open("rb") as file:
        assert file.read(8 * KIB) == now


def test_a_store_that_hangs_harms_no_other_volume(serve_volumes: Serve, nbdkit: Store, tmp_path: pathlib.Path) -> None:
    """nbdkit stands still: its volume waits, with far more under way than the cache holds; another one is served as ever."""
    store = nbdkit("memory", "64M")
    well = image(tmp_path / "well.img", VOLUME_BYTES)
    config = f"""
        [cache]
        path = "{tmp_path}/cache.tiermem"
        capacity = "16MiB"
        dirty_age = "10ms"
        [[export]]
        name = "ill"
        backing = "{store.uri}"
        quota = "6MiB"
        [[export]]
        name = "well"
        backing = "{well}"
    """
    server = serve_volumes({"ill": store.uri, "well": well}, config=config)
    waiting = NbdClient(server.socket, "ill")
    waiting.write(0, b"e" * MIB)
    store.process.send_signal(signal.SIGSTOP)
    for at in range(32):
        waiting.send(1, at * 512 * KIB, data=b"f" * (256 * KIB))
        waiting.send(READ, 32 * MIB + at * 256 * KIB, 4 * KIB)
    waiting.send(FLUSH)
    job = ["--name=job", "--ioengine=nbd", f"--uri={server.uri('well')}", "--iodepth=16", "--verify=crc32c", "--do_verify=1"]
    run("fio", *job, "--rw=randwrite", "--bs=4k", f"--size={VOLUME_BYTES}", "--io_size=24m", "--end_fsync=1", cwd=tmp_path)
    assert len(waiting.waiting) == 65
    store.process.send_signal(signal.SIGCONT)
    while waiting.waiting:
        answer = waiting.receive()
        assert not answer.error, answer
    for at in range(32):
        assert waiting.read(at * 512 * KIB, 256 * KIB) == b"f" * (256 * KIB)
    waiting.close()


def test_a_store_that_comes_back(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """Its process dies and another takes its place, with the same file: the server finds it again."""
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    store = Nbdkit(tmp_path / "store", "file", str(disk))
    server = serve_volumes({"disk": store.uri})
    client = NbdClient(server.socket, "disk")
    client.write(MIB, b"g" * MIB)
    store.close()
    store.socket.unlink()
    assert client.read(MIB, MIB) == b"g" * MIB
    (tmp_path / "store" / "nbdkit.pid").unlink()
    store = Nbdkit(tmp_path / "store", "file", str(disk))
    try:
        eventually(lambda: client.ask(READ, 8 * MIB, 4 * KIB).error == 0, "reads that miss work again")
        client.close()
        assert server.stop() == 0, server.log()
        assert disk.read_bytes()[MIB : 2 * MIB] == b"g" * MIB
    finally:
        store.close()


def test_a_store_that_is_not_there_is_told(tmp_path: pathlib.Path) -> None:
    said = refused(tmp_path, {"disk": f"nbd+unix:///?socket={tmp_path}/nobody"}, f"{tmp_path}/cache:32MiB")
    assert "disk" in said and "nobody" in said, said
