"""What all tests share. Tests assert what the store does, never how long it takes."""

from __future__ import annotations

import os
import pathlib
import secrets
import subprocess
from collections.abc import Callable, Iterator

import pytest
import redis

import sharding
from peer import Redis
from programs import RedisCli, tool
from sharding import Sharded
from store import PATIENCE_S, ROOT, Store

# It asserts as tests do, and is imported by them.
pytest.register_assert_rewrite("browser", "heatmaps", "recorder")

# Granules and slices of the recording that tests look at.
GRANULES = 2048
SLICES = 12
# Tests that ask how the whole machine stands (DAMON, tracing, swap, control groups): one of them at a time.
MACHINE_WIDE = ("test_doctor", "test_pager", "test_heatmap", "test_observe", "test_record", "test_run")
# Files that take minutes. They begin first, or one process would still run the last of them when all others have ended.
LONG = ("test_guest_placement", "test_guest_control_groups", "test_block_experiments", "test_tenants")


def pytest_configure() -> None:
    """A seed for tests that are named by theirs: all processes that run tests must collect the same ones."""
    os.environ.setdefault("TIERMEM_KILL_SEED", str(secrets.randbits(32)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes run the tests, one takes a whole file, whose tests share a server."""
    for item in items:
        group = "machine" if item.path.name.startswith(MACHINE_WIDE) else item.path.stem
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A recording of 8 GiB with a period of 540 granules and a hotspot that moves."""
    path = tmp_path_factory.mktemp("heatmap") / "llama.parquet"
    # Without -p, so that it is built as the tests in Rust have built it: with the features of the whole workspace. It may be slow, where
    # nothing is built yet.
    example = ["run", "--quiet", "--example", "synthetic_recording"]
    subprocess.run(
        [tool("cargo"), *example, "--", str(path), str(GRANULES), str(SLICES)],
        cwd=ROOT, check=True, timeout=20 * PATIENCE_S,
    )  # fmt: skip
    return path


@pytest.fixture
def serve(tmp_path: pathlib.Path) -> Iterator[Callable[..., Store]]:
    """Starts servers with the flags that a test wants."""
    stores: list[Store] = []

    def start(*flags: str, env: dict[str, str] | None = None) -> Store:
        directory = tmp_path / f"store{len(stores)}"
        directory.mkdir()
        stores.append(Store(directory, *flags, env=env))
        return stores[-1]

    yield start
    for store in stores:
        store.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One server for a whole file, for tests that only use it."""
    store = Store(tmp_path_factory.mktemp("store"))
    yield store
    store.close()


@pytest.fixture
def store(shared: Store) -> Store:
    """The file's server, empty."""
    with redis.Redis(port=shared.port) as client:
        client.flushall()
    return shared


@pytest.fixture
def cli(store: Store) -> RedisCli:
    """Runs redis-cli against the file's server."""
    program = tool("redis-cli")

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess:
        options = {"capture_output": True, "timeout": PATIENCE_S, "text": True, **options}
        return subprocess.run([program, "-p", str(store.port), *arguments], check=False, **options)

    return run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each file of tests over several shards says how many."""
    if "running" in metafunc.fixturenames:
        metafunc.parametrize("running", metafunc.module.SHARD_COUNTS, indirect=True, scope="module")


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sharded]:
    """A store of as many shards as a file's tests ask for."""
    sharded = sharding.start(tmp_path_factory.mktemp("store"), request.param)
    yield sharded
    sharded.store.close()


@pytest.fixture
def sharded(running: Sharded) -> Sharded:
    """That store, empty."""
    running.clear()
    return running


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A real Redis for a whole file."""
    tool("redis-server")
    peer = Redis(tmp_path_factory.mktemp("redis"))
    yield peer
    peer.close()
