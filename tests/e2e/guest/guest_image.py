"""The first file system of a guest machine: busybox, kernel modules, the programs of a test with their libraries, and
what is done at start. It is an archive in cpio's `newc` form, which the kernel unpacks into memory."""

from __future__ import annotations

import lzma
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable

# Where the guest's loader finds the libraries that programs bring along.
LIBRARIES = "usr/lib/guest"

# What the guest does: reach the state that was asked for, run the script, hand over what it said, how it ended and what it
# left in /out, each through a port of its own, and go off. The ports' names are in /sys/class/virtio-ports/*/name.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root LD_LIBRARY_PATH=/{libraries} TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /dev/pts
mount -t devpts devpts /dev/pts
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t debugfs debugfs /sys/kernel/debug
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
ifconfig lo 127.0.0.1 up
for module in /modules/*.ko; do insmod "$module" || echo "guest: $module was not loaded"; done

port() {{
    for name in /sys/class/virtio-ports/*/name; do
        if [ "$(cat "$name")" = "$1" ]; then name=${{name%/name}}; echo "/dev/${{name##*/}}"; fi
    done
}}
fail() {{
    echo "guest: $*"
    poweroff -f
    # The power goes off after the command has ended.
    sleep 60
}}
# Waits until a command succeeds; the first word says for what.
await() {{
    waited=0
    what=$1
    shift
    until "$@"; do
        waited=$((waited + 1))
        [ "$waited" -lt 600 ] || fail "$what did not come"
        sleep 0.05
    done
}}
output=$(port output) left=$(port left) ended=$(port ended)
[ -e "$output" ] && [ -e "$left" ] && [ -e "$ended" ] || fail "the ports to the outside are missing"
{prepare}
# Its size follows from all memory that there is by now.
mount -t tmpfs tmpfs /dev/shm
# A port can be opened once at a time, and programs open their output again as /dev/stdout: so they write into a pipe.
mkfifo /run/output
cat </run/output >"$output" &
reader=$!
cd /root
sh /run/script </dev/null >/run/output 2>&1
code=$?
# What the script has left running would hold the pipe open.
for process in /proc/[0-9]*; do
    process=${{process#/proc/}}
    [ "$process" = 1 ] || [ "$process" = "$reader" ] || kill -9 "$process" 2>/dev/null
done
wait "$reader"
tar -c -f "$left" -C /out . || fail "/out could not be handed over"
echo "$code" >"$ended"
poweroff -f
sleep 60
"""

# Makes one region of the device's whole memory; the kernel then brings it online as a node of its own. With names and order
# from the kernel's documentation of the CXL bus in sysfs.
PREPARE_CXL = """
cxl=/sys/bus/cxl/devices
endpoint() { ls -d $cxl/endpoint*/decoder*.0 >/dev/null 2>&1; }
await "the memory device's decoder" endpoint
decoder=$(ls -d $cxl/endpoint*/decoder*.0 | head -n 1)
size=$(cat $cxl/mem0/ram/size)
region=$(cat $cxl/decoder0.0/create_ram_region) && echo "$region" >$cxl/decoder0.0/create_ram_region &&
    echo 256 >$cxl/$region/interleave_granularity && echo 1 >$cxl/$region/interleave_ways &&
    echo ram >$decoder/mode && echo "$size" >$decoder/dpa_size &&
    echo "$size" >$cxl/$region/size && echo "${decoder##*/}" >$cxl/$region/target0 &&
    echo 1 >$cxl/$region/commit && echo "$region" >/sys/bus/cxl/drivers/cxl_region/bind ||
    fail "the region of CXL memory could not be made"
online() { [ "$(cat /sys/devices/system/node/has_memory)" = 0-1 ]; }
await "the node of CXL memory" online
"""

# The module has larger disks when it is loaded again.
PREPARE_RAM_DISKS = """
rmmod brd && insmod /modules/*-brd.ko rd_nr=2 rd_size=163840 || fail "the disks in memory could not be made"
"""

CXL_MODULES = ("cxl_acpi", "cxl_pci", "cxl_mem", "dax_cxl", "device_dax", "kmem")


class BadFile(Exception):
    """A file that cannot go into the guest; says why."""


class Archive:
    """A cpio archive that is built in memory; parents of a path are made with it."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.paths: set[str] = set()

    def folder(self, path: str) -> None:
        path = path.strip("/")
        if path and path not in self.paths:
            self._add(path, stat.S_IFDIR | 0o755, b"")

    def file(self, path: str, data: bytes, executable: bool = False) -> None:
        self._add(path.strip("/"), stat.S_IFREG | (0o755 if executable else 0o644), data)

    def link(self, path: str, to: str) -> None:
        self._add(path.strip("/"), stat.S_IFLNK | 0o777, to.encode())

    def _add(self, path: str, mode: int, data: bytes) -> None:
        if path in self.paths:
            raise BadFile(f"/{path} is put into the guest twice")
        if "/" in path:
            self.folder(path.rpartition("/")[0])
        self.paths.add(path)
        if len(data) >= 1 << 32:
            raise BadFile(f"/{path} has {len(data)} bytes; less than 4 GiB go into the guest")
        self._record(path, mode, data, len(self.paths))

    def _record(self, path: str, mode: int, data: bytes, inode: int) -> None:
        name = path.encode() + b"\0"
        # inode, mode, user, group, links, time, size, four device numbers, length of the name, checksum
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        # Header with name and data each end at a multiple of four bytes.
        self.parts += [header, name, bytes(-(len(header) + len(name)) % 4), data, bytes(-len(data) % 4)]

    def write(self, path: pathlib.Path) -> None:
        self._record("TRAILER!!!", 0, b"", 0)
        with path.open("wb") as out:
            out.writelines(self.parts)


def build(packages: pathlib.Path, script: str, files: dict[str, pathlib.Path], modules: Iterable[str], prepare: str) -> Archive:
    """The guest's files. `files` names them by their path in the guest; a folder brings all that is below it."""
    archive = Archive()
    for path in ("bin", "proc", "sys", "dev", "tmp", "run", "root", "out", "modules"):
        archive.folder(path)
    archive.file("init", INIT.format(libraries=LIBRARIES, prepare=prepare).encode(), executable=True)
    archive.file("run/script", script.encode())
    archive.file("bin/busybox", (packages / "bin" / "busybox").read_bytes(), executable=True)
    for number, (name, module) in enumerate(in_order(packages, modules)):
        archive.file(f"modules/{number:02}-{name}.ko", module)
    libraries: dict[str, pathlib.Path] = {}
    for path, source in sorted(files.items()):
        _put(archive, path.strip("/"), source, libraries)
    for path, source in sorted(libraries.items()):
        if path not in archive.paths:
            archive.file(path, _contents(source), executable=True)
    return archive


# ---- Programs


def _put(archive: Archive, path: str, source: pathlib.Path, libraries: dict[str, pathlib.Path]) -> None:
    if source.is_dir():
        archive.folder(path)
        for below in sorted(source.iterdir()):
            _put(archive, f"{path}/{below.name}", below, libraries)
        return
    if not source.is_file():
        raise BadFile(f"{source} is not there, or is neither a file nor a folder")
    archive.file(path, _contents(source), executable=bool(source.stat().st_mode & 0o111))
    if is_elf(source):
        for place, library in needed_libraries(source).items():
            if libraries.setdefault(place, library).read_bytes() != library.read_bytes():
                raise BadFile(f"two different libraries would be /{place}: {libraries[place]} and {library}")


def is_elf(path: pathlib.Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _contents(path: pathlib.Path) -> bytes:
    """The file, without what only debuggers need: that would fill the guest's memory."""
    if is_elf(path) and shutil.which("strip"):
        with tempfile.NamedTemporaryFile() as stripped:
            done = subprocess.run(["strip", "--strip-debug", "-o", stripped.name, str(path)], capture_output=True, check=False)
            if done.returncode == 0:
                return pathlib.Path(stripped.name).read_bytes()
    return path.read_bytes()


def needed_libraries(program: pathlib.Path) -> dict[str, pathlib.Path]:
    """By path in the guest, the libraries that a program is linked with, also indirectly, and its loader; none if it is static."""
    told = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
    if told.returncode != 0:
        if "not a dynamic executable" in told.stdout + told.stderr:
            return {}
        raise BadFile(f"ldd fails for {program}: {told.stderr.strip()}")
    missing = re.findall(r"^\s*(\S+) => not found", told.stdout, re.MULTILINE)
    if missing:
        raise BadFile(f"{program} is linked with libraries that are not here: {', '.join(missing)}")
    libraries = {f"{LIBRARIES}/{name}": pathlib.Path(path) for name, path in re.findall(r"^\s*(\S+) => (/\S+) \(", told.stdout, re.MULTILINE)}
    # The loader stands at the path that is written into the program.
    loaders = re.findall(r"^\s*(/\S+) \(", told.stdout, re.MULTILINE)
    return {**libraries, **{loader.strip("/"): pathlib.Path(loader) for loader in loaders}}


# ---- Kernel modules


def in_order(packages: pathlib.Path, names: Iterable[str]) -> list[tuple[str, bytes]]:
    """The modules and those that they depend on, each after its own dependencies."""
    found = {_name(path): path for path in (packages / "lib" / "modules").glob("*/kernel/**/*.ko*")}
    loaded: dict[str, bytes] = {}

    def load(name: str, by: str) -> None:
        if name in loaded:
            return
        if name not in found:
            raise BadFile(f"the kernel's package has no module {name}, which is wanted by {by}")
        data = found[name].read_bytes()
        data = lzma.decompress(data) if found[name].suffix == ".xz" else data
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in depends[1].decode().split(",") if depends else []:
            if other:
                load(other.replace("-", "_"), name)
        loaded[name] = data

    for name in names:
        load(name, "the guest")
    return list(loaded.items())


def _name(path: pathlib.Path) -> str:
    """A module's name: the file's, in which either dash may stand."""
    return path.name.partition(".")[0].replace("-", "_")
