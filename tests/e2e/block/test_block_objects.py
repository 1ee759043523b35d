"""Volumes of objects, in a directory and on a server of S3: real clients, a server that dies, two servers at once, an outage."""

from __future__ import annotations

import os
import pathlib
import random
from collections.abc import Callable, Iterator

import pytest

from nbd_client import FLUSH, READ, NbdClient
from object_places import MANIFEST, Bucket, Directory, volume_of
from ordered_writes import OrderedWrites, read_whole
from store import eventually
from volume_server import KIB, MIB, VolumeServer, image, refused, run

Serve = Callable[..., VolumeServer]
# The first of the seeds; TIERMEM_KILL_SEED=SEED begins with it.
SEED = int(os.environ["TIERMEM_KILL_SEED"])
# Its last chunk is a short one.
VOLUME_BYTES = 24 * MIB + 4 * KIB


@pytest.fixture
def bucket(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    bucket = Bucket(tmp_path / "s3", monkeypatch)
    yield bucket
    bucket.close()


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Bucket | Directory:
    return request.getfixturevalue("bucket") if request.param == "s3" else Directory(tmp_path / "objects")


def made(place: Bucket | Directory, size: int = VOLUME_BYTES) -> str:
    return f"{place.place},size={size},chunk=1MiB"


def test_a_volume_is_made_and_is_what_was_copied_to_it(place: Bucket | Directory, serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    source = image(tmp_path / "source", VOLUME_BYTES, seed=1)
    server = serve_volumes({"disk": made(place)})
    run("nbdcopy", "--flush", source, server.uri())
    assert server.stop() == 0, server.log()
    assert " ERROR " not in server.log() and " WARN " not in server.log(), server.log()
    assert volume_of(place.objects()) == source.read_bytes()
    # It is warm, as the volume is in the state in which it was left.
    server.start()
    assert server.cached_bytes()[0] > 0 and "somebody else" not in server.log(), server.log()
    assert server.stop() == 0, server.log()
    other = serve_volumes({"disk": f"{place.place},read-only"}, mode="read-only")
    run("nbdcopy", other.uri(), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


def test_fio_reads_what_it_wrote(place: Bucket | Directory, serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    server = serve_volumes({"disk": made(place)}, cache=f"{tmp_path}/cache:8MiB")
    job = ["--name=job", "--ioengine=nbd", f"--uri={server.uri()}", "--iodepth=16", "--verify=crc32c", "--do_verify=1"]
    run("fio", *job, "--verify_fatal=1", "--rw=randwrite", "--bs=16k", f"--size={24 * MIB}", "--io_size=12m", cwd=tmp_path)


def test_qemu_io_writes_and_gives_back(place: Bucket | Directory, serve_volumes: Serve) -> None:
    server = serve_volumes({"disk": made(place)}, mode="write-through")
    commands = ["write -P 7 0 3M", "write -z 1M 4k", "discard 2M 1M", "write -P 9 24M 4k", "flush"]
    checks = ["read -P 7 0 1M", "read -P 0 1M 4k", "read -P 7 1028k 1020k", "read -P 9 24M 4k"]
    said = run("qemu-io", "-f", "raw", *(word for it in commands + checks for word in ("-c", it)), server.uri())
    assert "verification failed" not in said.stdout, said.stdout
    assert server.stop() == 0, server.log()
    volume = volume_of(place.objects())
    assert volume[:MIB] == b"\x07" * MIB and volume[24 * MIB :] == b"\x09" * (4 * KIB)
    # What was given back takes no room.
    assert len(place.objects()["chunks/000000000002"]) in (64, 64 + MIB)


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_what_was_promised_outlives_the_process(
    place: Bucket | Directory, serve_volumes: Serve, tmp_path: pathlib.Path, seed: int
) -> None:
    choice = random.Random(seed)
    writes = OrderedWrites(VOLUME_BYTES, seed)
    config = f"""
        [cache]
        path = "{tmp_path}/cache.tiermem"
        capacity = "8MiB"
        dirty_age = "50ms"
        [[export]]
        name = "disk"
        backing = "{made(place)}"
    """
    server = serve_volumes({"disk": place.place}, config=config)
    for _ in range(3):
        clients = [NbdClient(server.socket, "disk") for _ in range(2)]
        try:
            writes.live(clients, answers=choice.randrange(50, 800), depth=choice.choice([1, 4, 16]))
        finally:
            server.kill()
            for client in clients:
                client.close()
        server.start()
        client = NbdClient(server.socket, "disk")
        whole = read_whole(client)
        writes.check_promises(whole)
        client.close()
    assert server.stop() == 0, server.log()
    assert volume_of(place.objects()) == whole


def test_what_is_not_there_or_is_something_else_is_refused(place: Bucket | Directory, tmp_path: pathlib.Path) -> None:
    cache = f"{tmp_path}/cache:8MiB"
    said = refused(tmp_path, {"disk": place.place}, cache)
    assert place.place in said and "size=10GiB" in said, said
    assert MANIFEST not in place.objects()


def test_of_two_servers_the_older_one_stops_writing(bucket: Bucket, serve_volumes: Serve) -> None:
    old = serve_volumes({"disk": made(bucket)}, mode="write-through")
    client = NbdClient(old.socket, "disk")
    client.write(0, b"a" * MIB)
    client.flush()
    new = serve_volumes({"disk": bucket.place}, mode="write-through")
    other = NbdClient(new.socket, "disk")
    other.write(0, b"b" * MIB)
    other.flush()
    assert client.ask(1, 0, data=b"c" * MIB).error
    assert client.ask(FLUSH).error
    eventually(lambda: "another server has opened the volume" in old.log(), "the older one says why")
    assert other.read(0, MIB) == b"b" * MIB
    client.close()
    other.close()
    assert new.stop() == 0, new.log()
    assert volume_of(bucket.objects())[:MIB] == b"b" * MIB


def test_a_directory_has_one_server(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    place = Directory(tmp_path / "objects")
    serve_volumes({"disk": made(place)})
    said = refused(tmp_path, {"disk": place.place}, f"{tmp_path}/other:8MiB")
    assert "in use" in said, said


def test_an_outage_harms_no_other_volume_and_ends(bucket: Bucket, serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    well = image(tmp_path / "well.img", 8 * MIB, seed=3)
    server = serve_volumes({"disk": made(bucket), "well": well})
    client, other = NbdClient(server.socket, "disk"), NbdClient(server.socket, "well")
    client.write(0, b"a" * MIB)
    client.flush()
    with bucket.standing_still():
        # Flushed into the cache's device; and what needs the store waits.
        client.write(MIB, b"b" * MIB)
        client.flush()
        assert client.read(0, 2 * MIB) == b"a" * MIB + b"b" * MIB
        client.send(READ, 8 * MIB, 4 * KIB)
        assert other.read(0, 8 * MIB) == well.read_bytes()
    assert client.receive().data == bytes(4 * KIB)
    client.close()
    other.close()
    assert server.stop() == 0, server.log()
    assert volume_of(bucket.objects())[: 2 * MIB] == b"a" * MIB + b"b" * MIB
