"""Bad neighbours: floods, clients that never read, thousands that do nothing."""

from __future__ import annotations

import pathlib
import random
import re
import resource
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from programs import tool
from store import MIB, PATIENCE_S, ROOT, SHARDS, Store, eventually

DRAM, SLOW = 96 * MIB, 160 * MIB
TIERS = ("--tier", f"dram={DRAM}", "--tier", f"emulated={SLOW}")


def process_bytes() -> int:
    """What the store says that it needs beside its tiers."""
    source = (ROOT / "crates/store/src/config/memory.rs").read_text()
    process, shard = (re.search(rf"pub const {name}: u64 = (\d+) << 20;", source) for name in ("PROCESS_BYTES", "SHARD_BYTES"))
    assert process and shard
    return (int(process[1]) + int(shard[1]) * (SHARDS - 1)) * MIB


def stays_within(store: Store, capacity: int) -> None:
    peak = store.memory_bytes("VmHWM")
    allowed = capacity + process_bytes()
    assert peak <= allowed, f"{peak / MIB:.0f} MiB were resident, and {allowed / MIB:.0f} MiB are allowed"

    def has_room() -> bool:
        engine = store.snapshot()["engine"]
        tiers = engine["tiers"]
        assert engine["metadata_bytes"] <= tiers[0]["used_bytes"]
        used_bytes = sum(tier["used_bytes"] for tier in tiers)
        return used_bytes <= capacity and all(tier["used_bytes"] <= tier["capacity_bytes"] for tier in tiers)

    # Memory that a shard gives to another one is no longer in its capacity while the shard still empties it, and the figures of
    # several shards are not of one moment.
    if SHARDS == 1:
        assert has_room(), store.snapshot()["engine"]["tiers"]
    else:
        eventually(has_room, "no tier holds more than its capacity")


def flood(sizes: Callable[[random.Random], int], total: int) -> Iterator[bytes]:
    """SET requests with values of such sizes, `total` bytes of them, in batches."""
    noise = random.Random(3)
    value = noise.randbytes(16 * MIB)
    sent = number = 0
    while sent < total:
        batch = bytearray()
        while len(batch) < MIB and sent < total:
            size = sizes(noise)
            name = b"%d:%d" % (size, number)
            batch += b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" % (len(name), name, size)
            batch += memoryview(value)[:size]
            batch += b"\r\n"
            sent += size + len(name)
            number += 1
        yield bytes(batch)


def write(store: Store, batches: Iterator[bytes]) -> bytes:
    """Sends requests while another thread reads the answers; these."""
    answers = bytearray()
    with store.connect() as connection:
        def read() -> None:
            while more := connection.recv(1 << 16):
                answers.extend(more)

        reader = threading.Thread(target=read)
        reader.start()
        for batch in batches:
            connection.sendall(batch)
        connection.shutdown(socket.SHUT_WR)
        reader.join()
    return bytes(answers)


SIZES: dict[str, Callable[[random.Random], int]] = {
    "small": lambda noise: noise.randint(100, 400),
    "every magnitude": lambda noise: int(2 ** noise.uniform(0, 22)),
    "large": lambda noise: noise.randint(MIB // 2, 16 * MIB),
}


@pytest.mark.parametrize("kind", SIZES)
def test_a_flood_stays_within_the_configured_memory(serve: Callable[..., Store], kind: str) -> None:
    store = serve(*TIERS)
    # Small values cost most per byte on both sides; three times the capacity of large ones is quickly written.
    total = DRAM + SLOW if kind == "small" else 3 * (DRAM + SLOW)
    answers = write(store, flood(SIZES[kind], total))
    assert answers.count(b"+OK\r\n") * 5 == len(answers), answers.replace(b"+OK\r\n", b"")[:200]
    stays_within(store, DRAM + SLOW)
    engine = store.snapshot()["engine"]
    assert engine["evicted"] > 0
    # What is held is a good part of the capacity, in both tiers.
    held = sum(tier["item_bytes"] for tier in engine["tiers"])
    assert held > (DRAM + SLOW) * 0.6, engine


def test_a_flood_of_changing_sizes(serve: Callable[..., Store]) -> None:
    """Each size in turn takes the memory that the size before it had."""
    store = serve(*TIERS)
    for size in (1000, 100_000, 5 * MIB, 300, 20_000):
        answers = write(store, flood(lambda _, size=size: size, 150 * MIB))
        assert answers.count(b"+OK\r\n") * 5 == len(answers), answers.replace(b"+OK\r\n", b"")[:200]
        # The newest keys of that size are there.
        with redis.Redis(port=store.port) as client:
            last = len(answers) // 5 - 1
            assert client.strlen(f"{size}:{last}") == size
    stays_within(store, DRAM + SLOW)


def test_a_flood_of_tiny_items(serve: Callable[..., Store]) -> None:
    """Index and nodes are the larger part here, and are counted too."""
    program = tool("redis-benchmark")
    store = serve("--tier", "dram=32MiB", "--tier", "emulated=32MiB")
    arguments = ["-p", str(store.port), "-q", "-t", "set", "-d", "3", "-n", "1500000", "-r", "100000000", "-P", "100"]
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=5 * PATIENCE_S, check=True
    )
    assert "rror" not in done.stdout + done.stderr, done
    stays_within(store, 64 * MIB)
    engine = store.snapshot()["engine"]
    assert engine["evicted"] > 0 and engine["refused"] == 0, engine


def test_without_eviction_a_full_store_refuses_writes_and_serves_reads(serve: Callable[..., Store]) -> None:
    store = serve("--tier", "dram=32MiB", "--tier", "emulated=32MiB")
    with redis.Redis(port=store.port) as client:
        client.config_set("maxmemory-policy", "noeviction")
        with pytest.raises(redis.OutOfMemoryError):
            for number in range(2000):
                client.set(f"k{number}", b"x" * 100_000)
        assert client.get("k0") == b"x" * 100_000
        assert client.delete("k0", "k1", "k2", "k3") == 4
        assert client.set("again", "y")
    stays_within(store, 64 * MIB)


def test_a_client_that_never_reads(serve: Callable[..., Store]) -> None:
    store = serve(*TIERS)
    with redis.Redis(port=store.port) as client, store.connect() as deaf:
        client.set("large", b"x" * (4 * MIB))
        # Half a gigabyte of answers is asked for and left on the way.
        deaf.sendall(b"GET large\r\n" * 128)
        for number in range(1000):
            client.set(f"k{number}", number)
            assert client.get(f"k{number}") == str(number).encode()
        assert client.get("large") == b"x" * (4 * MIB)
        # The value that it is owed may be replaced meanwhile.
        client.set("large", b"y" * (4 * MIB))
        stays_within(store, DRAM + SLOW)
    with redis.Redis(port=store.port) as client:
        assert client.get("large") == b"y" * (4 * MIB)


def test_many_clients_that_never_read(serve: Callable[..., Store]) -> None:
    store = serve(*TIERS)
    with redis.Redis(port=store.port) as client:
        client.set("large", b"x" * MIB)
        deaf = [store.connect() for _ in range(200)]
        for connection in deaf:
            connection.sendall(b"GET large\r\n" * 20)
        for number in range(200):
            client.set(f"k{number}", b"y" * 1000)
            assert client.get(f"k{number}") == b"y" * 1000
        # Nearly nothing is in the tiers, so this is all memory for replies.
        held = 16 * MIB
        stays_within(store, held)
        for connection in deaf:
            connection.close()
        eventually(lambda: store.snapshot()["engine"]["pinned_bytes"] == 0, "nothing is pinned any more")
        given_back = held + process_bytes() // 2
        eventually(lambda: store.memory_bytes("VmRSS") <= given_back, "what replies took is the system's again")


def test_thousands_of_idle_clients(serve: Callable[..., Store]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2500
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"no more than {hard} files may be open here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    store = serve(*TIERS)
    before = store.memory_bytes("VmRSS")
    idle = [store.connect() for _ in range(2000)]
    try:
        eventually(lambda: store.snapshot()["connections"] >= 2000, "all are counted")
        with redis.Redis(port=store.port) as client:
            for number in range(200):
                client.set("a", number)
                assert client.get("a") == str(number).encode()
            assert client.info("clients")["connected_clients"] == 2001
        each = (store.memory_bytes("VmRSS") - before) / 2000
        assert each < 32 * 1024, f"an idle client costs {each:.0f} bytes"
        # One of them wakes up.
        idle[1000].sendall(b"PING\r\n")
        assert idle[1000].recv(100) == b"+PONG\r\n"
    finally:
        for connection in idle:
            connection.close()
    eventually(lambda: store.snapshot()["connections"] == 0, "all have left")


def test_noise_ends_only_its_own_connection(serve: Callable[..., Store]) -> None:
    store = serve(*TIERS)
    noise = random.Random(4)
    openings = [b"*3\r\n$-5\r\n", b"*99999999999\r\n", b"*1\r\n$999999999999\r\n", b"\x00" * 70_000, b"GET / HTTP/1.1\r\n\r\n"]
    with redis.Redis(port=store.port) as client:
        client.set("a", 1)
        for opening in [*openings, *(noise.randbytes(noise.randint(1, 5000)) for _ in range(200))]:
            with store.connect() as stranger:
                try:
                    stranger.sendall(opening)
                    stranger.shutdown(socket.SHUT_WR)
                    while stranger.recv(1 << 16):
                        pass
                except (ConnectionResetError, BrokenPipeError):
                    pass
        assert client.get("a") == b"1"


def test_a_store_that_is_flushed_again_and_again_stays_empty(serve: Callable[..., Store]) -> None:
    store = serve("--tier", f"dram={64 * SHARDS}MiB")
    with redis.Redis(port=store.port, socket_timeout=PATIENCE_S) as client:
        for _ in range(10):
            pipe = client.pipeline(transaction=False)
            for number in range(1000):
                pipe.set(f"k{number % 7}", "v")
                pipe.flushall()
            assert all(pipe.execute())
        assert client.set("k", "v" * 1000) and client.dbsize() == 1
        assert client.info("memory")["used_memory"] < 8 * MIB * SHARDS


LARGE = b"v" * 100_000
NAMES = [b"large:%03d" % number for number in range(450)]


def mget(names: list[bytes]) -> bytes:
    arguments = [b"MGET", *names]
    return b"*%d\r\n" % len(arguments) + b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in arguments)


def held(store: Store) -> int:
    return store.snapshot()["engine"]["pinned_bytes"]


@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
@pytest.mark.parametrize("stalled", [1, 60])
@pytest.mark.parametrize("below", ["nothing", "emulated", "flash"])
def test_clients_that_never_read_take_no_key_from_others(
    serve: Callable[..., Store], tmp_path: pathlib.Path, policy: str, stalled: int, below: str
) -> None:
    """All keys fit. Their values are asked for and not read, and then written again: no key goes, and none is refused."""
    flash = f"flash:{tmp_path / 'flash'}={256 * SHARDS}MiB"
    tiers = {"nothing": ["dram=64MiB"], "emulated": ["dram=32MiB", "emulated=40MiB"], "flash": ["dram=32MiB", flash]}
    if SHARDS > 1:
        tiers["nothing"], tiers["emulated"] = ["dram=96MiB"], ["dram=64MiB", "emulated=64MiB"]
    store = serve(*(flag for tier in tiers[below] for flag in ("--tier", tier)))
    with redis.Redis(port=store.port) as client:
        for name in NAMES:
            client.set(name, LARGE)
        client.config_set("maxmemory-policy", policy)
        before = client.dbsize()
        deaf = [store.connect() for _ in range(stalled)]
        for connection in deaf:
            connection.sendall(mget(NAMES))
        eventually(lambda: client.info("stats")["total_commands_processed"] > len(NAMES) + stalled, "all have asked")
        for number in range(3):
            for name in NAMES:
                client.set(name, LARGE + b"%d" % number)
        assert client.dbsize() == before
        if below != "flash":
            # A flash tier has buffers beside.
            stays_within(store, (128 if SHARDS > 1 else 96) * MIB)
        for connection in deaf:
            connection.close()
        eventually(lambda: held(store) == 0, "nothing is pinned any more")

        def has_its_reply_whole() -> bool:
            try:
                return client.mget(NAMES[:100]) == [LARGE + b"2"] * 100
            except redis.ResponseError as refused:
                # Some that have gone wait for the flash device still, and then take memory until their reply finds nobody.
                assert "output-buffer-total" in str(refused)
                return False

        eventually(has_its_reply_whole, "one that reads has its reply whole")


def test_what_is_pinned_is_bounded_and_read_slowly_is_whole(serve: Callable[..., Store]) -> None:
    store = serve("--tier", f"dram={64 * SHARDS}MiB")
    with redis.Redis(port=store.port) as client:
        for name in NAMES:
            client.set(name, LARGE)
        with store.connect() as slow:
            slow.sendall(mget(NAMES))
            got = slow.recv(1 << 16)
            assert held(store) <= 4 * MIB * SHARDS
            for name in NAMES:
                client.set(name, b"another value")
            expected = b"*%d\r\n" % len(NAMES) + (b"$%d\r\n%s\r\n" % (len(LARGE), LARGE)) * len(NAMES)
            while len(got) < len(expected):
                more = slow.recv(1 << 16)
                assert more, store.log()
                got += more
            assert got == expected
        eventually(lambda: held(store) == 0, "nothing is pinned any more")


def test_a_refused_reply_says_why_and_who_does_not_read_is_dropped_for_it(serve: Callable[..., Store]) -> None:
    store = serve("--tier", f"dram={64 * SHARDS}MiB")
    with redis.Redis(port=store.port) as client:
        client.config_set("stall-timeout-ms", 300)
        for name in NAMES:
            client.set(name, LARGE)
        deaf = [store.connect() for _ in range(3 * SHARDS)]
        for connection in deaf:
            connection.sendall(mget(NAMES))
        refusals = []

        def has_all() -> bool:
            try:
                return client.mget(NAMES) == [LARGE] * len(NAMES)
            except redis.ResponseError as refused:
                refusals.append(str(refused))
                return False

        eventually(has_all, "the one that reads gets its reply")
        assert all("read replies, ask for fewer keys at a time, or raise output-buffer-total" in one for one in refusals)
        if refusals and SHARDS == 1:
            assert client.info("stats")["dropped_clients"] > 0
        for connection in deaf:
            connection.close()


@pytest.mark.parametrize("leave", [False, True], ids=["all read", "half leave"])
def test_large_replies_wait_for_one_another(serve: Callable[..., Store], leave: bool) -> None:
    """Eight clients ask for 20 MB each at once, of a store of 64 MiB: who reads has all of it, and none is refused."""
    store = serve("--tier", "dram=64MiB")
    names = NAMES[:200]
    failures: list[object] = []
    start = threading.Barrier(8)

    def read(number: int) -> None:
        try:
            with redis.Redis(port=store.port, socket_timeout=PATIENCE_S) as client:
                client.ping()
                for _ in range(4):
                    start.wait()
                    if client.mget(names) != [LARGE] * len(names):
                        failures.append(number)
        except (redis.RedisError, threading.BrokenBarrierError) as error:
            failures.append(error)
            start.abort()

    def ask_and_leave() -> None:
        for _ in range(4):
            with store.connect() as leaver:
                start.wait()
                leaver.sendall(mget(names) * 3)
                leaver.recv(1 << 20)

    with redis.Redis(port=store.port) as client:
        for name in names:
            client.set(name, LARGE)
        leavers = range(1, 8, 2) if leave else range(0)
        threads = [threading.Thread(target=ask_and_leave) for _ in leavers]
        threads += [threading.Thread(target=read, args=(number,)) for number in range(8) if number not in leavers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert client.info("stats")["refused_replies"] == 0
        eventually(lambda: store.snapshot()["server"]["reply_buffer_bytes"] < 100_000, "nothing is left behind")
        # What a transaction asks for cannot wait; and each has its own reply.
        with client.pipeline(transaction=True) as pipe:
            key = names[0]
            pipe.get(key).get(key)
            assert pipe.execute() == [LARGE, LARGE]


def test_who_waits_behind_clients_that_never_read_has_its_reply(serve: Callable[..., Store]) -> None:
    store = serve("--tier", "dram=64MiB")
    names = NAMES[:200]
    with redis.Redis(port=store.port, socket_timeout=PATIENCE_S) as client:
        for name in names:
            client.set(name, LARGE)
        client.config_set("stall-timeout-ms", 1500)
        deaf = [store.connect() for _ in range(12)]
        for connection in deaf:
            connection.sendall(mget(names))

        def has_its_reply() -> bool:
            try:
                return client.mget(names) == [LARGE] * len(names)
            except redis.ResponseError as refused:
                assert "output-buffer-total" in str(refused)
                return False

        eventually(has_its_reply, "the one that reads has its reply")
        for connection in deaf:
            connection.close()
        assert client.mget(names) == [LARGE] * len(names)
