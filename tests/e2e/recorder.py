"""Clients that know what they have stored, and a store that dies under them again and again: what must, may and must not be
there afterwards."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Callable, Iterator

import redis

from store import PATIENCE_S, Store, eventually

THREADS = 4
KEYS = 3000


def connect(store: Store, db: int = 0) -> redis.Redis:
    # Nothing is sent twice: whoever records must know what was.
    return redis.Redis(port=store.port, db=db, socket_timeout=PATIENCE_S, retry=None)


def scan(client: redis.Redis, count: int = 100) -> set[bytes]:
    return set(client.scan_iter(count=count))


def fill(store: Store, count: int, size: int = 1000) -> dict[str, bytes]:
    """Stores `count` keys; what they are."""
    made = {f"key:{key}": f"{key}:".encode() + b"v" * size for key in range(count)}
    names = list(made)
    with connect(store) as client:
        for start in range(0, count, 1000):
            pipe = client.pipeline(transaction=False)
            for name in names[start : start + 1000]:
                pipe.set(name, made[name])
            pipe.execute()
    return made


def get_all(client: redis.Redis, names: list[str]) -> list[bytes | None]:
    return [value for at in range(0, len(names), 500) for value in client.mget(names[at : at + 500])]


class Recorder(threading.Thread):
    """A client with keys of its own in database `db`: it knows each key's last acknowledged value and when its time is over,
    and what was under way when the store died."""

    def __init__(self, db: int, known: dict[str, list], rng: random.Random) -> None:
        super().__init__()
        self.db, self.known, self.rng = db, known, rng
        self.stop = threading.Event()
        self.error: BaseException | None = None
        # Keys whose last request was not answered, with what it would have made of them.
        self.unsure: dict[str, list] = {}
        self.store: Store | None = None

    def begin(self, store: Store) -> None:
        self.store = store
        self.start()

    def run(self) -> None:
        try:
            self.work()
        except (redis.ConnectionError, redis.TimeoutError):
            pass
        except BaseException as error:  # noqa: BLE001 - Shown by the test itself.
            self.error = error

    def work(self) -> None:
        assert self.store is not None
        with connect(self.store, self.db) as client:
            while not self.stop.is_set():
                batch = {}
                pipe = client.pipeline(transaction=False)
                flushes = self.rng.random() < 0.0005
                for _ in range(1 if flushes else self.rng.choice([1, 20])):
                    key = f"{self.db}:{self.rng.randrange(KEYS)}"
                    if key in batch:
                        continue
                    batch[key] = self.change(pipe, key)
                if flushes:
                    batch = {key: [None, None] for key in self.known}
                    pipe.reset()
                    pipe.flushdb()
                self.unsure = batch
                pipe.execute()
                self.known.update(batch)
                self.unsure = {}

    def change(self, pipe: redis.client.Pipeline, key: str) -> list:
        choice = self.rng.random()
        if choice < 0.15:
            pipe.delete(key)
            return [None, None]
        version = f"{key}:{self.rng.random()}:".encode()
        value = version + b"x" * self.rng.choice([10, 100, 1000, 4000, 20_000])
        if choice < 0.3:
            expires_ms = int(time.time() * 1000) + self.rng.choice([50, 500, 3_600_000])
            pipe.set(key, value, pxat=expires_ms)
            return [value, expires_ms]
        pipe.set(key, value)
        return [value, None]

    def check(self, store: Store) -> tuple[int, int]:
        """Compares what is there with what is known: keys found, and keys whose time was over. Whatever is missing is lost,
        and must stay so."""
        found = expired = 0
        keys = list(self.known.keys() | self.unsure.keys())
        with connect(store, self.db) as client:
            now_ms = int(time.time() * 1000)
            values = get_all(client, keys)
            assert scan(client) <= {key.encode() for key in keys}
        for key, value in zip(keys, values):
            may = [self.known.get(key, [None, None])] + [self.unsure[it] for it in [key] if it in self.unsure]
            alive = [it for it in may if it[0] is not None and (it[1] is None or it[1] > now_ms - 1000)]
            assert value is None or value in [it[0] for it in alive], f"key {key} has what it must not have"
            found += value is not None
            expired += value is None and may[0][1] is not None and may[0][1] <= now_ms + 1000
            self.known[key] = [None, None] if value is None else next(it for it in alive if it[0] == value)
        return found, expired


def is_announced(store: Store) -> bool:
    """Whether a restart would find all that lies on flash, if there is any."""
    flash = [tier["items"] for tier in store.snapshot()["engine"]["tiers"] if tier["kind"] == "flash"]
    with connect(store) as client:
        return not flash or client.info("tiers")["flash_recoverable_items"] >= flash[0]


def settled(store: Store, count: Callable[[Store], int]) -> int:
    """What is counted once nothing is on its way between tiers any more, and what moved to flash is announced, however slow the machine."""
    counts: list[int] = []

    def is_settled() -> bool:
        counts.append(count(store))
        time.sleep(0.5)
        # What moved after the count is not among what was announced.
        return is_announced(store) and count(store) == counts[-1]

    eventually(is_settled, "what lies on flash is announced, and no more comes")
    return counts[-1]


@dataclasses.dataclass
class Life:
    """What a store left behind that was started, worked with and ended."""

    number: int
    # Items that should outlive it, where it was counted before the end.
    kept: int | None
    # Keys that were there in the next life, and keys that were missing with their time over.
    found: int
    expired: int

    def is_kept_found(self) -> bool:
        return self.kept is None or self.found <= self.kept <= self.found + self.expired


def lives(
    start: Callable[[], Store], end: Callable[[Store, int], None], rounds: int, quiet: Callable[[Store], int] | None
) -> Iterator[Life]:
    """Has clients work with a store that is started and ended `rounds` times, and checks all of their keys after each end.
    With `quiet`, which counts items, the clients are done and what they have done has settled when the end comes."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    known: list[dict[str, list]] = [{} for _ in range(THREADS)]
    store = start()
    found_ever = 0
    for number in range(rounds):
        threads = [Recorder(db, known[db], random.Random(rng.random())) for db in range(THREADS)]
        for thread in threads:
            thread.begin(store)
        time.sleep(rng.uniform(0.05, 1.5))
        kept = None
        if quiet is not None:
            for thread in threads:
                thread.stop.set()
            for thread in threads:
                thread.join(PATIENCE_S)
            time.sleep(1.5)
            kept = settled(store, quiet)
        end(store, number)
        for thread in threads:
            thread.join(PATIENCE_S)
            assert thread.error is None, thread.error
        assert "panicked" not in store.log()
        store = start()
        counted = 0
        for thread in threads:
            with connect(store, thread.db) as client:
                counted += client.dbsize()
        checked = [thread.check(store) for thread in threads]
        life = Life(number, kept, sum(found for found, _ in checked), sum(expired for _, expired in checked))
        if quiet is not None:
            assert life.found <= counted <= life.found + life.expired, f"{counted} counted, {life}"
        found_ever += life.found
        yield life
    assert found_ever > 0
