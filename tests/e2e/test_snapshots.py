"""Which snapshots a start takes up, and that nothing comes back from one that a run has left behind."""

from __future__ import annotations

import contextlib
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable

import pytest
import redis
from recorder import connect, get_all
from store import PATIENCE_S, Store, binary, tiermem

KEYS = [f"key:{number}" for number in range(200)]


def flags(path: pathlib.Path, shards: int = 1, *more: str) -> list[str]:
    return ["--tier", "dram=64MiB", "--snapshot", str(path), "--shards", str(shards), *more]


def values(store: Store) -> list[bytes | None]:
    with connect(store) as client:
        found = get_all(client, KEYS)
        assert client.dbsize() == len(KEYS) - found.count(None)
    return found


def write(store: Store, value: str) -> None:
    with connect(store) as client:
        for key in KEYS:
            client.set(key, value)


@pytest.fixture
def stopped(serve: Callable[..., Store], tmp_path: pathlib.Path) -> Callable[[int], pathlib.Path]:
    """A snapshot of a store of so many shards that was stopped; all of it is `old`."""

    def stop(shards: int) -> pathlib.Path:
        path = tmp_path / "snapshot"
        store = serve(*flags(path, shards))
        write(store, "old")
        assert store.stop() == 0
        return path

    return stop


@pytest.mark.parametrize("shards", [1, 2])
def test_a_start_that_fails_takes_nothing(
    serve: Callable[..., Store], stopped: Callable[[int], pathlib.Path], shards: int
) -> None:
    path = stopped(shards)
    plain = path.with_name("plain")
    plain.write_text("no socket")

    def refused(code: int, *at: str) -> None:
        done = tiermem("store", "serve", *at, *flags(path, shards))
        assert done.returncode == code and "panicked" not in done.stderr, done

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused(1, "--listen", address, "--http", "127.0.0.1:0")
        refused(1, "--listen", "127.0.0.1:0", "--http", address)
        refused(1, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--unix-socket", str(plain))
    refused(2, "--listen", "0.0.0.0:0", "--http", "127.0.0.1:0")
    refused(1, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--pin-cores", "1000000")
    assert values(serve(*flags(path, shards))) == [b"old"] * len(KEYS)


def test_a_start_that_fails_leaves_the_tiers_below_as_they_were(
    serve: Callable[..., Store], tmp_path: pathlib.Path
) -> None:
    """A snapshot counts only with a flash tier of the same run."""
    path = tmp_path / "snapshot"
    below = ["--tier", f"flash:{tmp_path / 'flash'}=64MiB"]
    store = serve(*flags(path, 1, *below))
    write(store, "old")
    assert store.stop() == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = ["--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--http", "127.0.0.1:0"]
        assert tiermem("store", "serve", *at, *flags(path, 1, *below)).returncode == 1
    assert values(serve(*flags(path, 1, *below))) == [b"old"] * len(KEYS)


def test_a_start_that_is_ended_while_it_loads_takes_nothing(
    serve: Callable[..., Store], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "snapshot"
    store = serve(*flags(path, 2))
    write(store, "old")
    with connect(store) as client:
        for number in range(30):
            client.set(f"long:{number}", b"x" * 1_000_000)
    assert store.stop() == 0
    # However far it has come when the signal arrives.
    for wait_s in (0.005, 0.02, 0.05, 0.1):
        at = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        starting = subprocess.Popen(
            [binary(), "store", "serve", *at, *flags(path, 2)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with pytest.raises(subprocess.TimeoutExpired):
            starting.wait(wait_s)
        starting.send_signal(signal.SIGTERM)
        starting.wait(PATIENCE_S)
    with connect(serve(*flags(path, 2))) as client:
        assert client.dbsize() == len(KEYS) + 30


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_another_number_of_shards_finds_every_key(
    serve: Callable[..., Store], stopped: Callable[[int], pathlib.Path], before: int, after: int
) -> None:
    path = stopped(before)
    store = serve(*flags(path, after))
    assert values(store) == [b"old"] * len(KEYS)
    with connect(store) as client:
        client.mset({"{tag}1": "1", "{tag}2": "2"})
        client.delete("{tag}1", "{tag}2")
        for key in KEYS[:100]:
            client.set(key, "new")
        for key in KEYS[100:]:
            client.delete(key)
    assert store.stop() == 0
    # The files of the first run are still there, and count no more.
    store = serve(*flags(path, before))
    wanted = [b"new"] * 100 + [None] * 100
    assert values(store) == wanted
    store.kill()
    for shards in (before, after):
        store = serve(*flags(path, shards))
        assert values(store) == [None] * len(KEYS)
        assert "not loaded" in store.log()
        store.kill()


def test_of_snapshots_amid_work_the_newest_is_loaded(
    serve: Callable[..., Store], stopped: Callable[[int], pathlib.Path]
) -> None:
    path = stopped(2)
    store = serve(*flags(path, 1))
    write(store, "new")
    with connect(store) as client:
        assert client.save()
    store.kill()
    for shards in (1, 2):
        store = serve(*flags(path, shards))
        assert "taken while the store ran" in store.log() and values(store) == [None] * len(KEYS)
        store.kill()
        store = serve(*flags(path, shards, "--snapshot-load", "always"))
        assert values(store) == [b"new"] * len(KEYS)
        store.kill()


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("which", [["--snapshot-load", "never"], ["--reset"], ["--snapshot-load", "always"], []])
@pytest.mark.parametrize("end", ["kill", "nosave"])
def test_a_run_that_leaves_none_leaves_none_of_another(
    serve: Callable[..., Store], stopped: Callable[[int], pathlib.Path], shards: int, which: list[str], end: str
) -> None:
    path = stopped(2)
    store = serve(*flags(path, shards, *which))
    loads = which in ([], ["--snapshot-load", "always"])
    assert values(store) == [b"old" if loads else None] * len(KEYS)
    write(store, "new")
    if end == "kill":
        store.kill()
    else:
        with connect(store) as client:
            client.shutdown(nosave=True)
        assert store.process.wait(PATIENCE_S) == 0
    for again in (shards, 2):
        store = serve(*flags(path, again))
        assert values(store) == [None] * len(KEYS)
        store.kill()


def test_files_in_each_others_place(serve: Callable[..., Store], stopped: Callable[[int], pathlib.Path]) -> None:
    path = stopped(2)
    first, second = (path.with_name(f"snapshot.{shard}-of-2") for shard in (0, 1))
    images = first.read_bytes(), second.read_bytes()
    first.write_bytes(images[1])
    second.write_bytes(images[0])
    store = serve(*flags(path, 2))
    assert values(store) == [b"old"] * len(KEYS)
    store.kill()
    # The same twice: what is missing is missing, and no key is counted where nobody finds it.
    first.write_bytes(images[0])
    second.write_bytes(images[0])
    store = serve(*flags(path, 2))
    assert 0 < values(store).count(b"old") < len(KEYS)
    store.kill()
    # One that was marked is not brought back by one that is not.
    first.write_bytes(images[0])
    store = serve(*flags(path, 2))
    assert 0 < values(store).count(b"old") < len(KEYS)
    assert "parts of the snapshot are not loaded" in store.log()


def test_files_of_two_runs_are_not_mixed(
    serve: Callable[..., Store], stopped: Callable[[int], pathlib.Path], tmp_path: pathlib.Path
) -> None:
    path = stopped(2)
    kept = tmp_path / "kept"
    shutil.copy(path.with_name("snapshot.0-of-2"), kept)
    store = serve(*flags(path, 2))
    write(store, "new")
    assert store.stop() == 0
    shutil.copy(kept, path.with_name("snapshot.0-of-2"))
    found = values(serve(*flags(path, 2)))
    assert b"old" not in found and 0 < found.count(b"new") < len(KEYS)


def test_no_strangers_file_is_passed_over(stopped: Callable[[int], pathlib.Path]) -> None:
    """One that this program cannot read may be a later program's, and would come back there."""
    path = stopped(2)
    path.with_name("snapshot.1-of-2").write_bytes(b"precious")
    for shards in (1, 2):
        for which in ("clean", "never"):
            at = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--snapshot-load", which]
            done = tiermem("store", "serve", *at, *flags(path, shards))
            assert done.returncode == 1 and "snapshot.1-of-2" in done.stderr and "move the file away" in done.stderr
    assert path.with_name("snapshot.1-of-2").read_bytes() == b"precious"


def test_every_connection_is_told_the_same(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "snapshot"
    store = serve(*flags(path, 2))
    # They are at home at one shard after the other.
    clients = [connect(store) for _ in range(4)]

    def told(field: str) -> object:
        found = {client.info("persistence")[field] for client in clients}
        assert len(found) == 1, f"{field} depends on the connection: {found}"
        return found.pop()

    def last_save() -> int:
        found = {int(client.lastsave().timestamp()) for client in clients}
        assert found == {told("rdb_last_save_time")}
        return found.pop()

    write(store, "old")
    assert told("rdb_changes_since_last_save") == len(KEYS)
    assert clients[0].save() is True
    assert told("rdb_changes_since_last_save") == 0 and told("rdb_saves") == 1
    # One shard has much more to write than the other.
    for number in range(20):
        clients[0].set(f"{{long}}{number}", b"x" * 1_000_000)
    for client in clients:
        assert client.bgsave() is True
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            pass
        assert not list(tmp_path.glob("snapshot*.new")), "a shard writes still"
    assert told("rdb_saves") == 5 and told("rdb_changes_since_last_save") == 0
    assert told("rdb_last_bgsave_status") == "ok"
    before = last_save()
    # One shard cannot write its part any more.
    obstacle = path.with_name("snapshot.1-of-2.new")
    obstacle.mkdir()
    write(store, "new")
    with pytest.raises(redis.ResponseError, match="was not written"):
        clients[0].save()
    assert told("rdb_last_bgsave_status") == "err" and told("rdb_saves") == 5
    assert 0 < told("rdb_changes_since_last_save") < len(KEYS)
    assert last_save() >= before
    obstacle.rmdir()
    assert clients[0].save() is True
    assert told("rdb_last_bgsave_status") == "ok" and told("rdb_changes_since_last_save") == 0
    for client in clients:
        client.close()


def test_a_store_that_still_runs_keeps_its_snapshot(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "snapshot"
    store = serve(*flags(path))
    done = tiermem("store", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *flags(path, 2))
    assert done.returncode == 1 and "still runs" in done.stderr, done
    write(store, "new")
    assert store.stop() == 0
    assert values(serve(*flags(path, 2))) == [b"new"] * len(KEYS)


def make_read_only(directory: pathlib.Path) -> Callable[[], None]:
    """Makes a directory read-only, as a disk becomes that has failed; returns what takes that back."""

    def mount(*words: str) -> bool:
        return subprocess.run(["mount", *words, str(directory)], capture_output=True, check=False).returncode == 0

    if not mount("--bind", str(directory)):
        pytest.skip("nothing can be mounted here")

    def undo() -> None:
        subprocess.run(["umount", str(directory)], check=True)

    if not mount("-o", "remount,bind,ro"):
        undo()
        pytest.skip("nothing can be made read-only here")
    return undo


@pytest.mark.parametrize("obstacle", ["directory", "gone", "full", "read-only"])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_stop_that_cannot_keep_the_items_is_refused(
    serve: Callable[..., Store], tmp_path: pathlib.Path, shards: int, obstacle: str
) -> None:
    """SHUTDOWN answers why, every shard serves on, and what was written before is still there."""
    home = tmp_path / "home"
    home.mkdir()
    path = home / "snapshot"
    store = serve(*flags(path, shards))
    write(store, "old")
    with connect(store) as client, contextlib.ExitStack() as undone:
        assert client.save()
        write(store, "new")
        before = {it.name: it.read_bytes() for it in home.glob("snapshot*")}
        last = home / (f"snapshot.{shards - 1}-of-{shards}.new" if shards > 1 else "snapshot.new")
        away = tmp_path / "away"
        if obstacle == "directory":
            # One shard can write its part.
            last.mkdir()
        elif obstacle == "gone":
            home.rename(away)
        elif obstacle == "read-only":
            undone.callback(make_read_only(home))
        else:
            soft, hard = resource.prlimit(store.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(store.process.pid, resource.RLIMIT_FSIZE, (1 << 20, hard))
            for number in range(8):
                client.set(f"long:{number}", b"x" * 1_000_000)
        for words in (["SHUTDOWN"], ["SHUTDOWN", "SAVE"]):
            with pytest.raises(redis.ResponseError, match="serves on.*was not written.*NOSAVE"):
                client.execute_command(*words)
        assert get_all(client, KEYS) == [b"new"] * len(KEYS)
        client.set("later", "1")
        assert client.info("persistence")["rdb_last_bgsave_status"] == "err"
        if obstacle == "directory":
            last.rmdir()
        elif obstacle == "gone":
            away.rename(home)
        elif obstacle == "read-only":
            undone.close()
        else:
            resource.prlimit(store.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
        assert {it.name: it.read_bytes() for it in home.glob("snapshot*")} == before
        # Now it can.
        client.shutdown()
    assert store.process.wait(PATIENCE_S) == 0
    with connect(serve(*flags(path, shards))) as client:
        assert client.get("later") == b"1" and get_all(client, KEYS) == [b"new"] * len(KEYS)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("how", ["signal", "force"])
def test_a_stop_that_must_be_says_what_is_lost(
    serve: Callable[..., Store], tmp_path: pathlib.Path, shards: int, how: str
) -> None:
    path = tmp_path / "snapshot"
    store = serve(*flags(path, shards))
    write(store, "old")
    with connect(store) as client:
        assert client.save()
    write(store, "new")
    obstacle = tmp_path / (f"snapshot.1-of-{shards}.new" if shards > 1 else "snapshot.new")
    obstacle.mkdir()
    if how == "signal":
        assert store.stop() == 1
    else:
        with connect(store) as client, pytest.raises(redis.ConnectionError):
            client.execute_command("SHUTDOWN", "FORCE")
        assert store.process.wait(PATIENCE_S) == 1
    assert store.log().splitlines()[-1].startswith("tiermem: stopped, but not all is kept: the snapshot")
    obstacle.rmdir()
    # All parts of what was there before.
    assert values(serve(*flags(path, shards, "--snapshot-load", "always"))) == [b"old"] * len(KEYS)


def test_a_place_that_is_taken_keeps_no_shard_from_serving_on(
    serve: Callable[..., Store], tmp_path: pathlib.Path
) -> None:
    """All parts are written, one of them cannot take its name, and the others must not count as the last state."""
    path = tmp_path / "snapshot"
    store = serve(*flags(path, 2))
    write(store, "old")
    taken = tmp_path / "snapshot.1-of-2"
    taken.mkdir()
    with connect(store) as client, pytest.raises(redis.ResponseError, match="serves on"):
        client.execute_command("SHUTDOWN")
    write(store, "new")
    store.kill()
    taken.rmdir()
    assert values(serve(*flags(path, 2))) == [None] * len(KEYS)


def test_one_in_the_background_does_not_replace_that_of_a_stop(
    serve: Callable[..., Store], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "snapshot"
    store = serve(*flags(path, 2))
    write(store, "old")
    with store.connect() as client:
        client.sendall(b"BGSAVE\r\nSHUTDOWN\r\nSET key:0 late\r\n")
        # Nothing follows, but the connection's end may be a reset.
        with contextlib.suppress(ConnectionResetError):
            assert client.makefile("rb").read() == b"+Background saving started\r\n"
    assert store.process.wait(PATIENCE_S) == 0
    assert values(serve(*flags(path, 2))) == [b"old"] * len(KEYS)


def test_shutdowns_at_several_shards_stop_once(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "snapshot"
    store = serve(*flags(path, 3))
    write(store, "old")
    clients = [store.connect() for _ in range(6)]
    for client in clients:
        client.sendall(b"SHUTDOWN\r\n")
    for client in clients:
        with client, contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert store.process.wait(PATIENCE_S) == 0
    assert values(serve(*flags(path, 3))) == [b"old"] * len(KEYS)


def test_a_snapshot_that_is_not_wanted_stops_nothing(serve: Callable[..., Store], tmp_path: pathlib.Path) -> None:
    store = serve(*flags(tmp_path / "snapshot", 2))
    write(store, "old")
    (tmp_path / "snapshot.0-of-2.new").mkdir()
    with connect(store) as client:
        client.shutdown(nosave=True)
    assert store.process.wait(PATIENCE_S) == 0
