"""Programs that the experiments run, each in a folder of its own, so that the system stays as it is.

They come from Debian, PyPI and the Go module proxy by these registries' own clients. A folder appears only when it is whole; from then on it
is found without a network. Delete it to get the program again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

# This only ends what hangs.
PATIENCE_S = 900
LIBRARIES = "usr/lib/x86_64-linux-gnu"


class Unavailable(Exception):
    """A program cannot be had here; says why, and what would help."""


class Programs:
    """The folder that holds them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def debian(self, name: str, *packages: str) -> Debian:
        """Packages of this system's release, with all that they need, unpacked."""
        return Debian(self._whole(name, lambda place: _unpack(place, packages)))

    def pip(self, name: str, *requirements: str) -> dict[str, str]:
        """Packages of PyPI; returns the environment in which this Python finds them."""
        words = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-warn-script-location"]
        # Packages hold programs for one version of Python.
        name = f"{name}-py{sys.version_info.major}{sys.version_info.minor}"
        place = self._whole(name, lambda place: _run([*words, "--target", str(place), *requirements]))
        return {"PYTHONPATH": str(place)}

    def go(self, name: str, module: str) -> Path:
        """A program written in Go, built here from `module@version`."""
        if not shutil.which("go"):
            raise Unavailable(f"{name} is built by Go, which is not here: install golang-go (1.21 or newer)")
        return self._whole(name, lambda place: _build_go(place, module)) / name

    def _whole(self, name: str, make: Callable[[Path], None]) -> Path:
        """The folder of this name, made if it is not there."""
        place = self.folder / name
        if not place.is_dir():
            self.folder.mkdir(parents=True, exist_ok=True)
            print(f"fetching {name} into {place}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="fetching-", dir=self.folder) as folder:
                made = Path(folder) / "made"
                made.mkdir()
                make(made)
                made.rename(place)
        return place


class Debian:
    """Unpacked packages. Programs run with the libraries that came with them, also the C library, whatever this system has."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, inside: str) -> Path:
        """Of a file, which must be there."""
        found = self.root / inside
        if not found.exists():
            raise Unavailable(f"{inside} is not in the packages of {self.root}: delete this folder to fetch them again")
        return found

    def command(self, inside: str, *first: str) -> list[str]:
        """How a program is started; libraries in the folders `first` come before others of the same name."""
        folders = [str(self.root / it) for it in (*first, LIBRARIES, "usr/lib", "lib/x86_64-linux-gnu", f"{LIBRARIES}/pulseaudio")]
        loader = self.path("lib64/ld-linux-x86-64.so.2")
        return [str(loader), "--library-path", ":".join(folders), str(self.path(inside))]


def _unpack(place: Path, packages: tuple[str, ...]) -> None:
    """Fetched by apt with all its state in a folder of its own, in which not one package is installed: it then names all that are needed."""
    for program in ("apt-get", "dpkg-deb"):
        if not shutil.which(program):
            raise Unavailable(f"there is no {program} here: {', '.join(packages)} are unpacked from Debian's packages")
    with tempfile.TemporaryDirectory(prefix="apt-", dir=place.parent) as state:
        archives = Path(state) / "cache" / "archives"
        for folder in (Path(state) / "lists" / "partial", archives / "partial"):
            folder.mkdir(parents=True)
        (Path(state) / "status").touch()
        options = [
            f"Dir::State={state}",
            f"Dir::State::Lists={state}/lists",
            f"Dir::State::Status={state}/status",
            f"Dir::Cache={state}/cache",
            "APT::Sandbox::User=root",
            "Acquire::Languages=none",
            "Acquire::Retries=3",
            "APT::Update::Error-Mode=any",
        ]
        apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
        _run([*apt, "update"])
        _run([*apt, "-y", "-d", "--no-install-recommends", "install", *packages])
        for package in sorted(archives.glob("*.deb")):
            _run(["dpkg-deb", "-x", str(package), str(place)])


def _build_go(place: Path, module: str) -> None:
    """The module cache goes with the build, and is writable so that it can."""
    with tempfile.TemporaryDirectory(prefix="go-", dir=place.parent) as state:
        folders = {"GOPATH": state, "GOBIN": str(place), "GOCACHE": f"{state}/cache", "GOFLAGS": "-modcacherw"}
        _run(["go", "install", module], folders)


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """A step of fetching; what it says when it fails is why there is no program."""
    base = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "PIP_ROOT_USER_ACTION": "ignore"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=base | (environment or {}), timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"{' '.join(command[:3])} took more than {PATIENCE_S} s: is the network there?") from late
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)} failed: {done.stderr.strip()[-2000:]}")
