"""The kernel and the emulator of a guest machine, unpacked from Debian's packages into a folder of their own.

Nothing is installed, and apt's settings, lists and caches stay as they are: apt is run with a folder for each of these. The
emulator comes with every library that it needs, also the C library, so that it runs beside whatever this system has.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[3]

# The name that always leads to the newest kernel of its kind: small, and with all that a virtual machine has.
KERNEL = "linux-image-cloud-amd64"
PROGRAMS = ("qemu-system-x86", "busybox-static")
# CXL memory that is not persistent came with QEMU 8.1; weighted interleaving with Linux 6.9.
QEMU_MIN = (8, 1)
LINUX_MIN = (6, 9)

# These only end what hangs.
DOWNLOAD_PATIENCE_S = 600


class Unavailable(Exception):
    """The packages cannot be had here; says why and what would help."""


def cache() -> pathlib.Path:
    """Where the packages are unpacked: TIERMEM_GUEST_CACHE, else below cargo's target folder."""
    chosen = os.environ.get("TIERMEM_GUEST_CACHE")
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    return (pathlib.Path(chosen).expanduser() if chosen else pathlib.Path(target) / "guest").absolute()


def unpacked() -> pathlib.Path:
    """The folder that holds the unpacked packages; they are fetched if it is not there yet.

    Delete the folder to get newer packages. Several processes may ask at once: one fetches, the others wait.
    """
    place = cache() / "packages"
    if place.is_dir():
        return place
    cache().mkdir(parents=True, exist_ok=True)
    with _locked(cache() / "lock"):
        if not place.is_dir():
            with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache()) as folder:
                _Fetch(pathlib.Path(folder)).into(place)
    return place


class OutOfReach(Unavailable):
    """The mirror does not answer in time, of which nobody here is to blame."""


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Fetch:
    """One run of apt with all its state below `folder`."""

    def __init__(self, folder: pathlib.Path) -> None:
        if platform.machine() != "x86_64":
            raise Unavailable(f"guest machines are x86-64 and run programs built here, which are {platform.machine()}")
        for program in ("apt-get", "apt-cache", "dpkg-deb"):
            if shutil.which(program) is None:
                raise Unavailable(f"there is no {program} here: guest machines are made of Debian's packages")
        self.folder = folder
        self.codename, sources = backports_sources()
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        # Not one package is installed, as far as apt can see: it names all that are needed.
        (folder / "status").touch()
        (folder / "debian.sources").write_text(sources)
        self.options = []
        for option in (
            f"Dir::Etc::SourceList={folder}/debian.sources",
            "Dir::Etc::SourceParts=/dev/null",
            "Dir::Etc::Preferences=/dev/null",
            "Dir::Etc::PreferencesParts=/dev/null",
            f"Dir::State={folder}",
            f"Dir::State::Lists={folder}/lists",
            f"Dir::State::Status={folder}/status",
            f"Dir::Cache={folder}/cache",
            # The packages' user may not see this folder.
            "APT::Sandbox::User=root",
            "Acquire::Languages=none",
            "Acquire::Retries=3",
            # Else a mirror that cannot be reached is only warned of.
            "APT::Update::Error-Mode=any",
        ):
            self.options += ["-o", option]

    def into(self, place: pathlib.Path) -> None:
        """Fetches all that is needed and unpacks it; `place` appears only when it is whole."""
        backports = f"{self.codename}-backports"
        self._apt("apt-get", "-qq", "update")
        kernel = re.search(r"Depends: (linux-image-\S+)", self._apt("apt-cache", "depends", f"{KERNEL}/{backports}"))
        if kernel is None:
            raise Unavailable(f"{KERNEL} of {backports} names no kernel")
        self._apt("apt-get", "-qq", "-y", "-d", "--no-install-recommends", "-t", backports, "install", *PROGRAMS)
        # Without what a kernel's installation needs.
        archives = self.folder / "cache" / "archives"
        self._apt("apt-get", "-qq", "download", f"{kernel[1]}/{backports}", cwd=archives)
        packages = sorted(archives.glob("*.deb"))
        _check_versions(package.name for package in packages)
        root = self.folder / "root"
        root.mkdir()
        for package in packages:
            _run(["dpkg-deb", "-x", str(package), str(root)], f"{package.name} cannot be unpacked")
        (root / "packages.txt").write_text("".join(f"{package.name}\n" for package in packages))
        root.rename(place)

    def _apt(self, program: str, *arguments: str, cwd: pathlib.Path | None = None) -> str:
        return _run(
            [program, *self.options, *arguments],
            f"the packages of {self.codename}-backports cannot be had: is its mirror within reach?",
            cwd,
        )


def _run(command: list[str], complaint: str, cwd: pathlib.Path | None = None) -> str:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cwd, env=environment, timeout=DOWNLOAD_PATIENCE_S
        )
    except subprocess.TimeoutExpired as late:
        raise OutOfReach(f"{complaint} ({command[0]} took more than {DOWNLOAD_PATIENCE_S} s)") from late
    if done.returncode != 0:
        raise Unavailable(f"{complaint} {command[0]} says: {done.stderr.strip()}")
    return done.stdout


def _check_versions(names: Iterator[str]) -> None:
    """Old packages would make guests that fail in ways which are hard to understand."""
    for name in names:
        for package, least in (("qemu-system-x86_", QEMU_MIN), ("linux-image-", LINUX_MIN)):
            found = re.match(re.escape(package) + r"(?:\d+%3a)?(\d+)\.(\d+)", name)
            if found and (int(found[1]), int(found[2])) < least:
                raise Unavailable(f"{name} is too old for guest machines: {package[:-1]} {least[0]}.{least[1]} is needed")


# ---- apt's sources


def backports_sources(etc: pathlib.Path = pathlib.Path("/etc")) -> tuple[str, str]:
    """The release's name, and a sources list of it and its backports from the mirror that this system uses."""
    release = etc / "os-release"
    codename = re.search(r'^VERSION_CODENAME="?([a-z]+)"?$', release.read_text() if release.exists() else "", re.MULTILINE)
    if codename is None:
        raise Unavailable(f"{release} names no release: guest machines are made of Debian's packages")
    for uri, suites, components, signed_by in _sources(etc / "apt"):
        if codename[1] in suites and "main" in components:
            wanted = [codename[1], f"{codename[1]}-backports"]
            lines = ["Types: deb", f"URIs: {uri}", f"Suites: {' '.join(wanted)}", "Components: main", "Architectures: amd64"]
            if signed_by:
                # A key that stands in the list itself has lines of its own.
                lines.append("Signed-By:" + ("\n " if "\n" in signed_by else " ") + signed_by)
            return codename[1], "\n".join(lines) + "\n"
    raise Unavailable(f"apt's sources in {etc}/apt name no mirror of {codename[1]}")


def _sources(apt: pathlib.Path) -> Iterator[tuple[str, list[str], list[str], str]]:
    """All entries for binary packages: address, suites, components, and the key's file if one is named."""
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if path.suffix == ".list" and path.is_file():
            for line in path.read_text().splitlines():
                entry = re.match(r"\s*deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line)
                if entry:
                    key = re.search(r"signed-by=(\S+)", entry[1] or "", re.IGNORECASE)
                    yield entry[2], [entry[3]], entry[4].split(), key[1] if key else ""
        elif path.suffix == ".sources" and path.is_file():
            text = re.sub(r"^#.*\n?", "", path.read_text(), flags=re.MULTILINE)
            for stanza in re.split(r"\n\s*\n", text):
                found = re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE)
                fields = {name.lower(): value.strip() for name, value in found}
                if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes").lower() != "no":
                    for uri in fields.get("uris", "").split():
                        yield uri, fields.get("suites", "").split(), fields.get("components", "").split(), fields.get("signed-by", "")
