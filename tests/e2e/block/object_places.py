"""Where objects lie: a directory, or a server of S3 of another make. Both are read here as docs/block-objects.md draws them."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator

import pytest

from store import eventually

HEADER = struct.Struct("<4sI16s16sQQII")
MANIFEST = "tiermem-volume.json"


class Directory:
    """Objects as files."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.place = f"objects:{path}"

    def objects(self) -> dict[str, bytes]:
        files = (path for path in self.path.rglob("*") if path.is_file())
        return {str(path.relative_to(self.path)): path.read_bytes() for path in files}


class Bucket:
    """moto's server: it keeps objects in memory, and heeds conditions."""

    bucket, prefix = "volumes", "some/disk"

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        directory.mkdir()
        log = directory / "log"
        with log.open("wb") as out:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        address = re.compile(r"Running on (http://[0-9.:]+)")
        eventually(lambda: address.search(log.read_text()) or self.process.poll() is not None, "the server of S3 listens")
        found = address.search(log.read_text())
        assert found, log.read_text()
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ENDPOINT", found[1])
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        import boto3

        self.client = boto3.client("s3", endpoint_url=found[1])
        self.client.create_bucket(Bucket=self.bucket)
        self.place = f"s3://{self.bucket}/{self.prefix}"

    def objects(self) -> dict[str, bytes]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix + "/")
        names = [item["Key"] for page in pages for item in page.get("Contents", [])]
        body = {name: self.client.get_object(Bucket=self.bucket, Key=name)["Body"].read() for name in names}
        return {name.removeprefix(self.prefix + "/"): data for name, data in body.items()}

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """The server does nothing, and does not go away."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def volume_of(objects: dict[str, bytes]) -> bytes:
    """The volume that objects are, put together by the document alone."""
    manifest = json.loads(objects[MANIFEST])
    assert (manifest["format"], manifest["version"]) == ("tiermem volume", 1)
    size, chunk_bytes = manifest["size_bytes"], manifest["chunk_bytes"]
    volume = bytearray(size)
    for name, data in objects.items():
        if name in (MANIFEST, "tiermem-label"):
            continue
        number = int(name.removeprefix("chunks/"), 16)
        assert name == f"chunks/{number:012x}"
        magic, length, which, _, chunk, _, payload_crc, header_crc = HEADER.unpack_from(data)
        payload = data[HEADER.size :]
        assert (magic, which.hex(), chunk, length) == (b"TMC1", manifest["volume"], number, len(payload)), name
        assert (zlib.crc32(payload), zlib.crc32(data[:60])) == (payload_crc, header_crc), name
        at = number * chunk_bytes
        assert at + length <= min(size, at + chunk_bytes), name
        volume[at : at + length] = payload
    return bytes(volume)
