"""fio writes through the server and checks what comes back, in every mode."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from volume_server import MIB, VolumeServer, image, run

Serve = Callable[..., VolumeServer]
# More than the cache of 32 MiB holds, so that blocks come and go.
VOLUME_BYTES = 64 * MIB
FIO = ["--ioengine=nbd", "--iodepth=16", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1"]


@pytest.mark.parametrize("mode", ["write-back", "write-through", "write-around"])
@pytest.mark.parametrize(
    "pattern",
    [
        ["--rw=randwrite", "--bs=4k", "--io_size=24m"],
        ["--rw=write", "--bs=64k", "--size=48m"],
        ["--rw=randrw", "--bsrange=512-64k", "--bs_unaligned=0", "--io_size=32m", "--blockalign=512"],
    ],
    ids=["random-4k", "sequential", "mixed"],
)
def test_fio_reads_what_it_wrote(serve_volumes: Serve, tmp_path: pathlib.Path, mode: str, pattern: list[str]) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    server = serve_volumes({"disk": disk}, mode=mode)
    job = ["--name=job", *FIO, f"--uri={server.uri()}", f"--size={VOLUME_BYTES}", *pattern]
    run("fio", *job, cwd=tmp_path)
    # The image has it all once the server is gone; fio's checksums say so without the server.
    assert server.stop() == 0, server.log()
    assert "did not take all" not in server.log(), server.log()
    plain = [word for word in job if "uri" not in word and "ioengine" not in word]
    run("fio", *plain, f"--filename={disk}", "--ioengine=psync", "--verify_only", cwd=tmp_path)


def test_fio_reads_a_read_only_export(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    disk = image(tmp_path / "disk.img", VOLUME_BYTES)
    first = serve_volumes({"disk": disk})
    job = ["--name=job", "--rw=randwrite", "--bs=4k", f"--size={VOLUME_BYTES}", "--io_size=16m", *FIO]
    run("fio", *job, f"--uri={first.uri()}", cwd=tmp_path)
    assert first.stop() == 0, first.log()
    second = serve_volumes({"disk": disk}, mode="read-only")
    run("fio", *job, f"--uri={second.uri()}", "--verify_only", cwd=tmp_path)
    assert second.cached_bytes()[0] > 0


def test_many_jobs_share_the_cache_of_two_volumes(serve_volumes: Serve, tmp_path: pathlib.Path) -> None:
    """Each job has a part of a volume to itself; together they want more than the cache has."""
    disks = {name: image(tmp_path / f"{name}.img", VOLUME_BYTES) for name in ("one", "two")}
    server = serve_volumes(disks)
    job = ["--rw=randrw", "--bsrange=4k-128k", "--size=16m", "--offset_increment=16m", "--numjobs=2"]
    jobs = [word for name in disks for word in (f"--name={name}", *FIO, f"--uri={server.uri(name)}", *job)]
    run("fio", *jobs, cwd=tmp_path)
