"""Small guest machines with two memory nodes, for tests of where pages are placed.

    result = Machine("two-nodes").run("mover /proc/self", files={"/bin/mover": "target/debug/mover"})
    assert result.exit_code == 0, result.output

A guest is emulated in software, so that it runs anywhere and may only be asked what happens, never how long it takes. It
starts within seconds from nothing but memory, runs one shell script as root, hands over what the script printed and what it
left in /out, and is gone: let a script do several things rather than starting several guests.

By hand: python tests/e2e/guest/machine.py --shape two-nodes --put target/debug/mover --script steps.sh
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import os
import pathlib
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from typing import Union

import guest_image
import guest_packages

CPUS = 2
MIB = 1 << 20
# A window of CXL memory has a multiple of this size.
CXL_UNIT_MIB = 256
# The kernel and the guest's tools need this much of node 0 before any file of a test.
NODE0_MIN_MIB = 192

# It only ends what hangs: on a busy machine a guest takes minutes for what it does in seconds elsewhere.
PATIENCE_S = 900

# With several processors, the emulator may end itself while the guest's kernel starts: an assertion of its own, about memory that one
# processor maps while another uses it (QEMU issue 1921). Nothing has run in the guest then, so that it can be started again.
EMULATOR_FAULT = "iotlb_to_section: Assertion"
# It may also run an instruction that the guest's kernel has replaced in the meantime: a breakpoint that stood there while the kernel
# patched itself (QEMU before 8.1; a program that opens and closes perf events all the time meets it within seconds). Nothing in a
# guest sets breakpoints in its kernel, and nothing of a guest outlives it, so that it can be started again here, too. One thread for
# all processors would not have the fault, and has tests wait for many minutes.
STALE_BREAKPOINT = "Oops: int3:"
STARTS = 3

PathLike = Union[str, "os.PathLike[str]"]


class GuestFailed(Exception):
    """The guest did not get as far as the end of the script; says how far it got."""


class EmulatorFailed(GuestFailed):
    """The guest was lost to a fault of the emulator that comes and goes: it may be started again."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What a script did: its exit code, what it printed (both streams, as they came), and the files it left in /out by
    their path below it."""

    exit_code: int
    output: str
    files_out: dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Machine:
    """A guest of some shape. Node 0 has both processors; node 1 has memory only:

    - `two-nodes`: ordinary memory.
    - `ram-disks`: the same, with two block devices of 160 MiB in memory, /dev/ram0 and /dev/ram1, for swap and file systems.
    - `two-nodes-hmat`: the firmware also tells latency and bandwidth of both nodes, as if node 1 were CXL memory, so that
      the kernel sorts it into a slower tier.
    - `cxl`: memory of a CXL device, online. Each access to it is emulated by a call, some hundred times slower than one
      to node 0: a test touches pages there, or a few MiB, and runs no large program from there.

    The processors have what emulation offers, up to AVX2 and FMA; a program built for AVX-512 ends with exit code 132.
    Pages stay where they are put until the script has them moved: the kernel's own balancing between nodes is off
    (/proc/sys/kernel/numa_balancing). Huge pages are as the kernel has them by default, which is always.
    """

    shape: str = "two-nodes"
    memory_mib: tuple[int, int] = (512, 512)

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ValueError(f"there is no shape {self.shape!r}; the shapes are {', '.join(SHAPES)}")
        if self.memory_mib[0] < NODE0_MIN_MIB or self.memory_mib[1] < 1:
            raise ValueError(f"{self.memory_mib} MiB are too little: node 0 needs {NODE0_MIN_MIB} for the system, node 1 some")
        if self.shape == "cxl" and self.memory_mib[1] % CXL_UNIT_MIB:
            raise ValueError(f"{self.memory_mib[1]} MiB of CXL memory are no multiple of {CXL_UNIT_MIB}")

    def run(
        self, script: str, files: Mapping[str, PathLike] | None = None, timeout_s: float = PATIENCE_S, under: Sequence[str] = ()
    ) -> Result:
        """Starts the guest, runs the script with busybox's shell in /root, and waits for the end. The emulator is started by the command
        `under`, if there is one.

        `files` gives paths in the guest and what is put there: files, which stay executable, or folders. Programs bring the
        libraries that they are linked with; libraries that are only loaded while they run have to be given. All of it is
        held in the memory of node 0.
        """
        packages = guest_packages.unpacked()
        shape = SHAPES[self.shape]
        with tempfile.TemporaryDirectory(prefix="guest-") as folder:
            place = pathlib.Path(folder)
            sources = {path: pathlib.Path(source) for path, source in (files or {}).items()}
            archive = guest_image.build(packages, script, sources, shape.modules, shape.prepare)
            archive.write(place / "initrd")
            self._check_size(place / "initrd")
            command = emulator(packages) + shape.hardware(*self.memory_mib) + self._devices(packages, place)
            for _ in range(STARTS - 1):
                with contextlib.suppress(EmulatorFailed):
                    return _run([*under, *command], place, timeout_s)
            return _run([*under, *command], place, timeout_s)

    def _check_size(self, initrd: pathlib.Path) -> None:
        """The kernel holds the archive and what is unpacked from it at the same time."""
        size_mib = initrd.stat().st_size // MIB
        least = NODE0_MIN_MIB + 2 * size_mib
        if self.memory_mib[0] < least:
            raise ValueError(f"the guest's files have {size_mib} MiB, so that node 0 needs at least {least} MiB of memory")

    def _devices(self, packages: pathlib.Path, place: pathlib.Path) -> list[str]:
        """What all shapes have: a console for the kernel, three ports for the script, no display, no network."""
        kernel = next(iter((packages / "boot").glob("vmlinuz-*")))
        options = ["-kernel", str(kernel), "-initrd", str(place / "initrd")]
        options += ["-append", "console=ttyS0 quiet panic=-1 nokaslr numa_balancing=disable"]
        options += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", f"file:{place}/console"]
        options += ["-device", "virtio-serial-pci,bus=pcie.0"]
        for port in ("output", "left", "ended"):
            options += ["-chardev", f"file,id={port},path={place}/{port}"]
            options += ["-device", f"virtserialport,chardev={port},name={port}"]
        return options


@dataclasses.dataclass(frozen=True)
class Shape:
    """What sets one kind of guest apart: its processor, its memory, and what it takes to have that online."""

    machine: str
    cpu: str
    # Options of the emulator; {node0} and {node1} stand for MiB.
    memory: tuple[str, ...]
    modules: tuple[str, ...] = ()
    prepare: str = ""

    def hardware(self, node0_mib: int, node1_mib: int) -> list[str]:
        options = ["-M", self.machine, "-cpu", self.cpu, "-accel", "tcg,thread=multi", "-smp", str(CPUS)]
        for option in self.memory:
            options += option.format(node0=node0_mib, node1=node1_mib, both=node0_mib + node1_mib).split()
        return options


TWO_NODES = (
    "-m {both}M",
    "-object memory-backend-ram,id=ram0,size={node0}M",
    "-object memory-backend-ram,id=ram1,size={node1}M",
    "-numa node,nodeid=0,memdev=ram0,cpus=0-1",
)
HMAT_FIGURES = tuple(
    f"-numa hmat-lb,initiator=0,target={node},hierarchy=memory,data-type={figure}"
    for node, latency_ns, mb_per_s in ((0, 96, 67_000), (1, 244, 48_000))
    for figure in (f"access-latency,latency={latency_ns}", f"access-bandwidth,bandwidth={mb_per_s}M")
)
PLAIN_NODES = (*TWO_NODES, "-numa node,nodeid=1,memdev=ram1", "-numa dist,src=0,dst=1,val=20")
SHAPES = {
    "two-nodes": Shape("q35", "max", PLAIN_NODES),
    "ram-disks": Shape("q35", "max", PLAIN_NODES, ("brd",), guest_image.PREPARE_RAM_DISKS),
    "two-nodes-hmat": Shape(
        "q35,hmat=on", "max", (*TWO_NODES, "-numa node,nodeid=1,memdev=ram1,initiator=0", *HMAT_FIGURES)
    ),
    "cxl": Shape(
        # The kernel makes no region where it may not flush all caches, as in what says that it is a virtual machine. Copies
        # by `rep movsb` would go byte by byte through the emulated device; without these two flags the kernel copies words.
        "q35,cxl=on",
        "max,-hypervisor,-erms,-fsrm",
        (
            "-m {node0}M",
            "-object memory-backend-ram,id=ram0,size={node0}M",
            # Without a node for what is there from the start the device's memory would join it.
            "-numa node,nodeid=0,memdev=ram0,cpus=0-1",
            "-object memory-backend-ram,id=ram1,size={node1}M",
            "-device pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl",
            "-device cxl-rp,port=0,bus=cxl,id=root,chassis=0,slot=2",
            "-device cxl-type3,bus=root,volatile-memdev=ram1,id=memory",
            "-M cxl-fmw.0.targets.0=cxl,cxl-fmw.0.size={node1}M",
        ),
        guest_image.CXL_MODULES,
        guest_image.PREPARE_CXL,
    ),
}


def emulator(packages: pathlib.Path) -> list[str]:
    """The unpacked emulator with its own loader, libraries and firmware."""
    libraries = [packages / "lib" / "x86_64-linux-gnu", packages / "usr" / "lib" / "x86_64-linux-gnu"]
    # The loader is named by its real path: the link to it leads out of the folder.
    command = [libraries[0] / "ld-linux-x86-64.so.2", "--inhibit-cache", "--library-path", ":".join(map(str, libraries))]
    command += [packages / "usr" / "bin" / "qemu-system-x86_64"]
    for firmware in ("qemu", "seabios"):
        command += ["-L", packages / "usr" / "share" / firmware]
    return [str(part) for part in command]


def _run(command: list[str], place: pathlib.Path, timeout_s: float) -> Result:
    def text(name: str) -> str:
        path = place / name
        return path.read_text(errors="replace").replace("\r\n", "\n") if path.exists() else ""

    def failure(what: str) -> GuestFailed:
        console = "\n".join(text("console").splitlines()[-30:])
        return GuestFailed(f"{what}\nThe script printed:\n{text('output') or '(nothing)'}\nThe console's end:\n{console}")

    try:
        # On a timeout the emulator is killed.
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise failure(f"the guest was not ready after {timeout_s} s: is the script's work too much for emulation?") from None
    if EMULATOR_FAULT in done.stderr and not text("output"):
        raise EmulatorFailed(str(failure(f"the emulator ended with {done.returncode}: {done.stderr.strip()}")))
    if STALE_BREAKPOINT in text("console"):
        raise EmulatorFailed(str(failure("the emulator ran a breakpoint that the guest's kernel had replaced")))
    if done.returncode != 0:
        raise failure(f"the emulator ended with {done.returncode}: {done.stderr.strip()}")
    if not text("ended"):
        said = [line for line in text("console").splitlines() if line.startswith("guest: ")]
        reason = said[-1] if said else "has it run out of memory, or switched itself off?"
        raise failure(f"the guest ended before its script did; {reason}")
    files_out = {}
    with tarfile.open(fileobj=io.BytesIO((place / "left").read_bytes())) as left:
        for member in left:
            file = left.extractfile(member)
            if member.isreg() and file:
                files_out[member.name.removeprefix("./")] = file.read()
    return Result(int(text("ended")), text("output"), files_out)


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs a shell script in a guest machine with two memory nodes.")
    parser.add_argument("--shape", choices=SHAPES, default="two-nodes")
    parser.add_argument("--memory-mib", metavar="NODE0,NODE1", default="512,512")
    parser.add_argument("--put", action="append", default=[], metavar="FILE[=PATH]", help="to /bin/ unless a path is given")
    parser.add_argument("--script", required=True, help="a file; - reads from standard input")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER", help="where to keep what the script leaves in /out")
    parser.add_argument("--timeout-s", type=float, default=PATIENCE_S)
    parser.add_argument("--under", default="", metavar="COMMAND", help="words that start the emulator")
    flags = parser.parse_args()
    files = {}
    for put in flags.put:
        source, _, path = put.partition("=")
        files[path or f"/bin/{pathlib.Path(source).name}"] = source
    script = sys.stdin.read() if flags.script == "-" else pathlib.Path(flags.script).read_text()
    try:
        node0, node1 = (int(size) for size in flags.memory_mib.split(","))
        result = Machine(flags.shape, (node0, node1)).run(script, files, flags.timeout_s, shlex.split(flags.under))
    except (ValueError, GuestFailed, guest_image.BadFile, guest_packages.Unavailable) as error:
        print(f"machine.py: {error}", file=sys.stderr)
        return 2
    print(result.output, end="")
    for name, data in result.files_out.items() if flags.out else ():
        path = flags.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
