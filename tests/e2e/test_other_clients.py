"""node-redis and Jedis, unmodified: a small program each, in `node/` and `java/`, which drives what the store has.

Both libraries come from their package registries at pinned versions: npm holds them against the lock file, and the jars
are held against `jars.sha256`."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable

import pytest
import redis

from programs import tool
from store import PATIENCE_S, ROOT, Store

HERE = pathlib.Path(__file__).parent
# What each program prints for a part, and the command without which it leaves that part out.
PARTS = {name: name for name in ("set", "expire", "mget", "scan", "hset", "multi", "subscribe")}
NODE_PARTS = PARTS | {"hello": "hello", "tracking": "client|tracking"}


def workshop(name: str) -> pathlib.Path:
    """Where a library is kept between runs, apart from the sources."""
    directory = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))) / f"e2e-{name}"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def fetch(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * PATIENCE_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def node() -> list[str]:
    program, npm = tool("node"), tool("npm")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 20:
        pytest.skip(f"node-redis needs Node 20 or newer, and here is {version.strip()}")
    directory = workshop("node")
    wanted = (HERE / "node" / "package-lock.json").read_bytes()
    made = directory / "made-from"
    if not made.exists() or made.read_bytes() != wanted:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / "node" / name, directory)
        fetch(npm, "ci", "--no-fund", "--no-audit", "--prefix", str(directory))
        made.write_bytes(wanted)
    return [program, shutil.copy(HERE / "node" / "client.mjs", directory)]


@pytest.fixture(scope="module")
def jedis() -> list[str]:
    program = tool("java")
    tool("javac")  # Java runs a source file only where there is a compiler.
    jars = workshop("java")
    wanted = {name: digest for digest, name in map(str.split, (HERE / "java" / "jars.sha256").read_text().splitlines())}

    def sums() -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in jars.glob("*.jar")}

    if sums() != wanted:
        pom = str(HERE / "java" / "pom.xml")
        fetch(tool("mvn"), "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={jars}")
        assert sums() == wanted
    return [program, "-cp", f"{jars}/*", str(HERE / "java" / "Client.java")]


def drive(command: list[str], protocol: int, parts: dict[str, str], serve: Callable[..., Store]) -> None:
    store = serve()
    with redis.Redis(port=store.port, decode_responses=True) as client:
        commands = set(client.command_list())
    arguments = [*command, str(store.port), str(protocol)]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        try:
            assert program.stdin and program.stdout and program.stderr
            said = []
            while "reconnect" not in said:
                line = program.stdout.readline()
                assert line, f"it ended after {said}: {program.stderr.read()}"
                said.append(line.strip())
            assert set(said) == {part for part, needed in parts.items() if needed in commands} | {"reconnect"}
            store.close()
            serve("--listen", f"127.0.0.1:{store.port}")
            out, errors = program.communicate("go\n", timeout=PATIENCE_S)
            assert out.split() == ["reconnected"], errors
            assert program.returncode == 0, errors
        finally:
            program.kill()


@pytest.mark.parametrize("protocol", [2, 3])
def test_node_redis(node: list[str], protocol: int, serve: Callable[..., Store]) -> None:
    drive(node, protocol, NODE_PARTS, serve)


@pytest.mark.parametrize("protocol", [2, 3])
def test_jedis(jedis: list[str], protocol: int, serve: Callable[..., Store]) -> None:
    drive(jedis, protocol, PARTS, serve)
