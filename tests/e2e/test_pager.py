"""`tiermem run --dram`: a program in less DRAM than it needs, what it is told, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from programs import tool, workload
from store import PATIENCE_S, ROOT, binary, eventually, tiermem
from test_hostile import PROGRAMS, hostile, shown  # noqa: F401  (a fixture)

MIB = 1 << 20
SWAPS = pathlib.Path("/proc/swaps")
# Fills memory, goes over it and checks each page; then does what the test says.
EATER = """
import os, sys, time
pages = int(sys.argv[1]) * 256
memory = bytearray(pages * 4096)
for page in range(pages):
    memory[page * 4096:page * 4096 + 4] = page.to_bytes(4, "little")
for _ in range(2):
    for page in range(pages):
        assert memory[page * 4096:page * 4096 + 4] == page.to_bytes(4, "little"), page
print("right", flush=True)
"""


def eater(mib: int, then: str = "") -> list[str]:
    return [sys.executable, "-c", EATER + then, str(mib)]


def groups() -> list[str]:
    """Control groups of paged programs."""
    found = []
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(folder, name) for name in names if name.startswith("tiermem-pager-")]
    return found


def areas() -> list[str]:
    return [line.split()[0] for line in SWAPS.read_text().splitlines()[1:]]


def assert_nothing_is_left() -> None:
    assert areas() == [] and groups() == []
    assert list(pathlib.Path("/run/tiermem/pager").glob("*.json")) == []
    assert list(pathlib.Path("/var/lib/tiermem").glob("tiermem-pager-*")) == []


@pytest.fixture(autouse=True)
def machine() -> Iterator[None]:
    """A machine without swap, whose groups and swap can be made."""
    if os.geteuid() != 0:
        pytest.skip("it takes root")
    if not SWAPS.exists() or areas():
        pytest.skip("the kernel has no swap, or some is on")
    tried = tiermem("run", "--dram", "16MiB", "--flash", "1MiB", "--", "true")
    if tried.returncode == 125:
        pytest.skip(f"not here: {tried.stderr.strip()}")
    yield
    # Others may have turned theirs on meanwhile.
    left = [area for area in areas() if area.startswith(("/var/lib/tiermem/", "/tmp/pytest"))]
    for area in left:
        subprocess.run(["swapoff", area], check=False)
    assert left == [], "a test has left swap on"


def run(*arguments: str) -> subprocess.CompletedProcess:
    return tiermem("run", "--format", "json", *arguments)


def test_a_program_runs_in_half_of_what_it_needs() -> None:
    done = run("--dram", "64MiB", "--flash", "256MiB", "--how", "swap", "--", *eater(120))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "right\n"
    told = json.loads(done.stderr)
    assert told["how"] == "swap" and told["ended"] == "exit status: 0"
    # It needs its array, and what Python needs.
    assert 120 * MIB <= told["required_bytes"] <= 150 * MIB
    assert told["dram_bytes"] == told["tiers"][0]["capacity_bytes"] == 64 * MIB
    assert told["charged_peak_bytes"] <= 64 * MIB
    assert told["overcommit"] == pytest.approx(told["required_bytes"] / (64 * MIB), abs=0.001)
    assert 40 * MIB <= told["flash_peak_bytes"] <= 150 * MIB
    # Each of two passes brings in what does not fit.
    assert told["major_faults"] > 0 and told["read_bytes"] >= 2 * 50 * MIB and told["written_bytes"] >= 50 * MIB
    dram, flash = told["dram_bytes"], told["flash_peak_bytes"]
    saved = 1 - (dram * 4.875 + flash * 0.16) / (told["required_bytes"] * 4.875)
    assert told["tcm_saved"] == pytest.approx(saved, abs=0.001)
    slices = told["slices"]
    assert 0 < len(slices) <= 1000 and [it["at_s"] for it in slices] == sorted(it["at_s"] for it in slices)
    assert sum(it["major_faults"] for it in slices) == told["major_faults"]
    assert_nothing_is_left()


def test_with_all_the_dram_that_it_needs_nothing_is_paged() -> None:
    done = run("--dram", "512MiB", "--flash", "64MiB", "--", *eater(60))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stderr)
    assert told["overcommit"] == 1 and told["flash_peak_bytes"] == 0 and told["tcm_saved"] == 0
    assert_nothing_is_left()


def test_dram_by_the_overcommit_ratio(tmp_path: pathlib.Path) -> None:
    report = tmp_path / "r.json"
    arguments = ["--overcommit", "2", "--required", "128MiB", "--flash", f"{tmp_path}=128MiB", "--report", str(report)]
    done = tiermem("run", *arguments, "--", *eater(100))
    assert done.returncode == 0, done.stderr
    assert json.loads(report.read_text())["dram_bytes"] == 64 * MIB
    by_tiers = tiermem("run", "--tier", "dram=64MiB", "--tier", f"flash:{tmp_path}/a=64MiB", "--report", str(report), "--", "true")
    assert by_tiers.returncode == 0, by_tiers.stderr
    assert json.loads(report.read_text())["flash_bytes"] == 64 * MIB
    assert list(tmp_path.iterdir()) == [report]


def test_dram_by_a_recording_of_the_program(tmp_path: pathlib.Path) -> None:
    recording, report = tmp_path / "app.rec", tmp_path / "record.json"
    recorded = tiermem("record", "--slice", "20ms", "--format", "json", "--report", str(report), "-o", str(recording), "--", *eater(100))
    if recorded.returncode == 125:
        pytest.skip(f"not here: {recorded.stderr.strip()}")
    (told,) = json.loads(report.read_text())
    if told["rss_max_bytes"] is None:
        pytest.skip("nothing tells here what is in memory")
    assert told["rss_max_bytes"] > 50 * MIB
    arguments = ["--overcommit", "2", "--required", str(recording), "--flash", f"{tmp_path}=256MiB"]
    done = run(*arguments, "--how", "swap", "--", *eater(20))
    assert done.returncode == 0 and f"{recording} tells that the program needs" in done.stderr, done.stderr
    # In whole pages.
    assert json.loads(done.stderr.splitlines()[-1])["dram_bytes"] == pytest.approx(told["rss_max_bytes"] / 2, abs=4096)
    trace = tmp_path / "trace.csv"
    trace.write_text("time_ns,op,key,size,tenant\n1,load,4096,8,0\n")
    for wrong, said in [(trace, "or a recording of `tiermem record`"), (tmp_path / "none.rec", "neither a size, such as 12GiB, nor a recording")]:
        done = tiermem("run", "--overcommit", "2", "--required", str(wrong), "--", "echo", "it ran")
        assert (done.returncode, done.stdout) == (125, "") and said in done.stderr, done.stderr
    assert_nothing_is_left()


def test_what_finds_no_room_ends_with_the_reason_and_nobody_else_does() -> None:
    bystander = subprocess.Popen(eater(30, "sys.stdin.read()"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    done = run("--dram", "32MiB", "--flash", "32MiB", "--wait-when-full", "0s", "--", *eater(200))
    assert done.returncode == 128 + signal.SIGKILL
    reason = "the kernel killed it for want of memory: it had 32MiB of DRAM and 32MiB of flash; give it more of one"
    assert reason in done.stderr
    assert bystander.communicate("", timeout=PATIENCE_S)[0] == "right\n" and bystander.returncode == 0
    assert_nothing_is_left()


def test_memory_that_is_only_reserved_counts_nothing() -> None:
    # 0x4000 is MAP_NORESERVE, for which older Pythons have no name.
    reserve = "import mmap; memory = mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE | 0x4000); memory[5] = 1"
    done = run("--dram", "64MiB", "--flash", "16MiB", "--", sys.executable, "-c", reserve)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr)["required_bytes"] < 64 * MIB


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dram", "64MiB"], "no swap is on, so that there is no room for what does not fit into DRAM; give it flash: --flash 8GiB"),
        (["--flash", "64MiB"], "--flash needs a limit of DRAM: --dram 2GiB"),
        (["--dram", "15MiB", "--flash", "64MiB"], "--dram 15MiB: it is from 16MiB to the machine's"),
        (["--dram", "100TiB", "--flash", "64MiB"], "--dram 100TiB: it is from 16MiB to the machine's"),
        (["--dram", "64MiB", "--flash", "/dev/shm=64MiB"], "choose a path on ext4 or xfs"),
        (["--dram", "64MiB", "--flash", "/no/such/folder=64MiB"], "its folder is not there"),
        (["--dram", "64MiB", "--flash", "/=15TiB"], "make it smaller, or make room"),
        (["--dram", "64MiB", "--flash", "/var/tmp=4KiB"], "are too few"),
        (["--overcommit", "0.5", "--required", "1GiB"], "is not a ratio from 1 to 1000"),
        (["--tier", "flash=1GiB"], "a program needs DRAM"),
        (["--tier", "dram=64MiB", "--tier", "compressed=64MiB"], "dram=SIZE, with --pool tiers numa=SIZE"),
        (["--tier", "dram=64MiB", "--tier", "numa=64MiB"], "takes --pool tiers"),
        (["--dram", "64MiB", "--pool", "tiers"], "a pool has memory of two nodes"),
        (["--dram", "64MiB", "--pool", "100:0"], "a pool has memory of two nodes"),
        (["--dram", "64MiB", "--pool", "95:5"], "each node of a pool gives at least 4MiB"),
        (["--dram", "64MiB", "--pool", "50:50", "--evict", "kernel"], "--pool takes a policy, such as --evict lfu-da"),
        (["--dram", "64MiB", "--pool", "50:50", "--how", "swap"], "--pool is for --how kernel or auto"),
        (["--dram", "64MiB", "--flash", "64MiB", "--log", "/no/such/folder/log"], "cannot make the log /no/such/folder/log"),
        (["--pool", "50:50"], "--pool needs a limit of DRAM: --dram 2GiB"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_do(arguments: list[str], said: str) -> None:
    done = tiermem("run", *arguments, "--", "echo", "it ran")
    assert done.returncode == 125 and done.stdout == "", done.stdout
    assert said in done.stderr
    assert_nothing_is_left()


@pytest.mark.skipif(len(list(pathlib.Path("/sys/devices/system/node").glob("node[0-9]*"))) != 1, reason="there are several nodes")
def test_a_pool_on_a_machine_with_one_node_is_refused() -> None:
    done = tiermem("run", "--dram", "64MiB", "--pool", "50:50", "--flash", "64MiB", "--", "echo", "it ran")
    assert (done.returncode, done.stdout) == (125, "") and "a pool takes two nodes with memory, and this machine has one" in done.stderr
    assert_nothing_is_left()


def test_a_file_that_is_there_is_left_alone(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mine"
    path.write_text("dear to me")
    done = tiermem("run", "--dram", "64MiB", "--flash", f"{path}=64MiB", "--", "true")
    assert done.returncode == 125 and "files that are there are left alone" in done.stderr
    assert path.read_text() == "dear to me"


def test_swap_that_is_on_is_used_and_stays(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "swap"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 128 * MIB)
    path.chmod(0o600)
    subprocess.run(["mkswap", path], check=True, capture_output=True)
    subprocess.run(["swapon", path], check=True)
    try:
        for flash in ([], ["--flash", "100MiB"]):
            done = run("--dram", "32MiB", *flash, "--", *eater(60))
            assert done.returncode == 0, done.stderr
            told = json.loads(done.stderr)
            assert told["flash_peak_bytes"] > 20 * MIB and told["foreign_bytes"] is None
            assert areas() == [str(path)] and groups() == []
        more = tiermem("run", "--dram", "32MiB", "--flash", "1GiB", "--", "true")
        assert more.returncode == 125 and "the swap that is on has" in more.stderr
    finally:
        subprocess.run(["swapoff", path], check=True)


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -TERM $$", 143), ("exit 0", 0)])
def test_exit_codes_are_the_programs(script: str, code: int) -> None:
    assert run("--dram", "64MiB", "--flash", "1MiB", "--", "sh", "-c", script).returncode == code


def test_what_is_no_program_leaves_nothing() -> None:
    assert run("--dram", "64MiB", "--flash", "1MiB", "--", "no-such-program").returncode == 127
    assert run("--dram", "64MiB", "--flash", "1MiB", "--", "/etc/passwd").returncode == 126
    assert_nothing_is_left()


def test_two_at_once_do_not_harm_each_other() -> None:
    command = [binary(), "run", "--dram", "32MiB", "--flash", "96MiB", "--", *eater(60)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for one in both:
        out, error = one.communicate(timeout=PATIENCE_S)
        assert (one.returncode, out) == (0, "right\n"), error
    # The swap of one may stay on for another; the last one's end takes all away.
    assert_nothing_is_left()


def status() -> list[dict]:
    done = tiermem("pager", "status", "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_program_goes_on_under_its_limit_when_the_pager_is_killed_or_stopped(tmp_path: pathlib.Path, how: signal.Signals) -> None:
    # Three passes: the pager drops what is behind them, and that comes back as active pages, which reclaim must know.
    go = tmp_path / "go"
    os.mkfifo(go)
    then = f"open({str(go)!r}).read()\nfor page in range(pages): assert memory[page * 4096] == page & 255\nprint('still right', flush=True)"
    command = [binary(), "run", "--dram", "32MiB", "--flash", "96MiB", "--", *eater(60, then)]
    pager = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert pager.stdout is not None and pager.stdout.readline() == "right\n"
    (before,) = status()
    assert before["pid"] == pager.pid and before["dram_bytes"] == 32 * MIB and before["swapped_bytes"] > 0
    # What steers is not paged out itself; what is steered is not locked.
    assert locked_kib(pager.pid) > 1000 and locked_kib(children(pager.pid)[0]) == 0
    pager.send_signal(how)
    if how == signal.SIGKILL:
        pager.wait()
        (after,) = status()
        assert after["pid"] is None and after["id"] == before["id"] and after["swap"] in areas()
    go.write_text("go")
    assert pager.stdout.readline() == "still right\n"
    pager.send_signal(signal.SIGCONT)
    pager.wait(timeout=PATIENCE_S)
    # What is left goes at the next start.
    eventually(lambda: status() == [], "the run is over")
    assert_nothing_is_left()


def locked_kib(pid: int) -> int:
    return int(re.search(r"VmLck:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def children(pid: int) -> list[int]:
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_killed_at_any_moment_the_next_run_takes_all_away() -> None:
    command = [binary(), "run", "--dram", "16MiB", "--flash", "16MiB", "--", "sleep", "0.2"]
    for turn in range(12):
        pager = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            pager.wait(timeout=turn * 0.004)
        except subprocess.TimeoutExpired:
            pager.kill()
        pager.wait()
    eventually(lambda: status() == [], "all runs are over")
    assert_nothing_is_left()


def test_a_child_that_outlives_the_program_keeps_its_limit_and_all_goes_with_it(tmp_path: pathlib.Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f"(read line <{go}) </dev/null >/dev/null 2>&1 & exit 7"
    done = tiermem("run", "--dram", "32MiB", "--flash", "16MiB", "--", "sh", "-c", script)
    assert done.returncode == 7
    assert re.search(r"[12] of the program's processes go on; their limit and their swap go with the last of them", done.stderr)
    (left,) = status()
    assert left["processes"] >= 1 and left["dram_bytes"] == 32 * MIB
    go.write_text("go\n")
    eventually(lambda: areas() == [] and groups() == [], "the keeper has taken all away")
    eventually(lambda: status() == [], "the register is empty")
    assert_nothing_is_left()


def test_what_outlives_the_program_can_be_asked_and_changed(tmp_path: pathlib.Path) -> None:
    go, done_with = tmp_path / "go", tmp_path / "done"
    os.mkfifo(go)
    then = f"open({str(go)!r}).read()\nfor page in range(pages): assert memory[page * 4096] == page & 255\nopen({str(done_with)!r}, 'w')"
    script = '"$@" </dev/null >/dev/null 2>&1 & exit 0'
    done = tiermem("run", "--dram", "32MiB", "--flash", "96MiB", "--", "sh", "-c", script, "sh", *eater(60, then))
    assert done.returncode == 0, done.stderr
    eventually(lambda: [run["evict"] for run in status()] == ["kernel"], "the keeper answers")
    (left,) = status()
    assert left["pid"] is not None and left["prefetch"] == "none" and left["prefetched_pages"] is None
    changed = tiermem("pager", "set", "dram=48MiB", "flash=90MiB", "--format", "json")
    assert changed.returncode == 0, changed.stderr
    (told,) = json.loads(changed.stdout)
    assert told["dram_bytes"] == 48 * MIB and told["flash_bytes"] == 90 * MIB
    assert status()[0]["dram_bytes"] == 48 * MIB
    refused = tiermem("pager", "set", "dram=1MiB")
    assert refused.returncode == 1 and "it is from 16MiB" in refused.stderr
    # It steers as well, if it is asked to.
    steered = tiermem("pager", "set", "prefetch=readahead")
    assert steered.returncode == 0 or "steering takes" in steered.stderr, steered.stderr
    go.write_text("go")
    eventually(lambda: areas() == [] and groups() == [], "the keeper has taken all away")
    assert done_with.exists()
    eventually(lambda: status() == [], "the register is empty")
    assert_nothing_is_left()


def test_who_is_not_root_is_told_what_it_takes() -> None:
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", binary(), "run", "--dram", "64MiB", "--flash", "64MiB", "--", "true"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == 125 and "root" in done.stderr, done.stderr


def swept(*arguments: str, passes: int = 3) -> dict:
    """A program that passes over 96 MiB in half of that, and checks every byte."""
    sweep = workload("sweep", f"--size {96 * MIB} --passes {passes} --small-pages")
    done = run("--dram", "48MiB", "--flash", "128MiB", *arguments, "--", *sweep)
    skip_where_nothing_is_steered(done)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1])


def skip_where_nothing_is_steered(done: subprocess.CompletedProcess[str]) -> None:
    """A superuser may lack the rights, as in a container."""
    if done.returncode == 125 and "steering takes" in done.stderr:
        pytest.skip("programs cannot be steered here")


def test_the_kernel_alone_takes_no_orders(tmp_path: pathlib.Path) -> None:
    for flag in (["--evict", "lru"], ["--prefetch", "none"], ["--drop-behind", "on"], ["--log", str(tmp_path / "log")]):
        done = run("--dram", "64MiB", "--flash", "64MiB", "--how", "swap", *flag, "--", "true")
        assert done.returncode == 125 and f"{flag[0]} is for --how kernel" in done.stderr
    done = run("--dram", "64MiB", "--flash", "64MiB", *flag, "--", "true")
    assert done.returncode == 0 and "nothing of the program was in swap" in done.stderr or "paged by the kernel alone" in done.stderr
    assert not (tmp_path / "log").exists()


def test_a_sweep_is_fetched_ahead() -> None:
    swap = swept("--how", "swap")
    steered = swept("--how", "kernel")
    assert swap["prefetched_pages"] is None
    used, late = steered["prefetch_used_pages"], steered["prefetch_late_pages"]
    assert used > 0.9 * steered["prefetched_pages"] > 10_000 and late < used / 2
    # Most of what had to be waited for is there before it is needed; a busy machine may be too late for some.
    assert steered["major_faults"] < 0.7 * swap["major_faults"]
    assert_nothing_is_left()


def test_the_report_can_be_a_page(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "r.html"
    done = tiermem("run", "--dram", "32MiB", "--flash", "64MiB", "--report", str(page), "--", *eater(50))
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "of DRAM</h1>" in text and "Bytes by tier" in text and "Page faults over time" in text


def test_where_nothing_is_paged_or_asked_for_nothing_is_watched() -> None:
    done = run("--dram", "256MiB", "--flash", "16MiB", "--", *eater(30))
    told = json.loads(done.stderr)
    assert (told["prefetched_pages"], told["kernel_evicted_pages"]) in [(0, 0), (None, None)]
    nothing = ["--prefetch", "none", "--drop-behind", "off"]
    assert swept("--how", "kernel", *nothing, passes=1)["how"] == "swap"


def test_a_sweep_drops_what_it_has_passed(tmp_path: pathlib.Path) -> None:
    kept = swept("--how", "kernel", "--drop-behind", "off", passes=12)
    dropped = swept("--how", "kernel", "--log", str(tmp_path / "log"), passes=12)
    assert kept["dropped_behind_pages"] == 0 and dropped["dropped_behind_pages"] > 20_000
    # Half of it stays, and the other half is read in each pass.
    assert dropped["read_bytes"] < 0.85 * kept["read_bytes"]
    same = tiermem("pager", "replay", str(tmp_path / "log"))
    assert same.stdout.endswith(" acts, all the same\n"), same.stdout + same.stderr
    assert_nothing_is_left()


@pytest.mark.parametrize("evict", ["kernel", "lru", "clock", "random", "s3-fifo", "lhd"])
def test_every_byte_is_right_whoever_leaves(evict: str, tmp_path: pathlib.Path) -> None:
    program = tmp_path / "hostile"
    source = ROOT / "examples" / "workloads" / "hostile.c"
    subprocess.run([tool("cc"), "-O2", "-pthread", "-o", str(program), str(source)], check=True, timeout=PATIENCE_S)
    flags = ["--seconds", "4", "--size", str(64 * MIB), "--threads", "3", "--folder", str(tmp_path)]
    how = ["--how", "kernel", "--evict", evict, "--log", str(tmp_path / "log")]
    done = run("--dram", "24MiB", "--flash", "256MiB", *how, "--", str(program), *flags)
    skip_where_nothing_is_steered(done)
    assert done.returncode == 0, done.stdout + done.stderr
    # Through the core alone, what has happened brings the same acts, one for one.
    same = tiermem("pager", "replay", str(tmp_path / "log"))
    told = re.fullmatch(r"(\d+) events, (\d+) acts, all the same\n", same.stdout)
    assert told and int(told[1]) > 1000 and (evict == "kernel" or int(told[2]) > 1000), same.stdout + same.stderr
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["how"] == "kernel" and told["major_faults"] > 0
    assert_nothing_is_left()


def test_a_guard_that_cannot_be_started_is_told_once(tmp_path: pathlib.Path) -> None:
    copy, go = tmp_path / "tiermem", tmp_path / "go"
    shutil.copy(binary(), copy)
    os.mkfifo(go)
    first = f"open({str(go)!r}).read()\n"
    arguments = ["--dram", "32MiB", "--flash", "128MiB", "--how", "kernel", "--evict", "lru", "--wait-when-full", "0s"]
    pipe = subprocess.PIPE
    pager = subprocess.Popen([copy, "run", *arguments, "--", sys.executable, "-c", first + EATER, "60"], stdout=pipe, stderr=pipe, text=True)
    with go.open("w"):
        # The program runs. No other process of this binary can be started from here on.
        copy.chmod(0)
    out, error = pager.communicate(timeout=PATIENCE_S)
    if "steering takes" in error:
        pytest.skip("programs cannot be steered here")
    assert (pager.returncode, out) == (0, "right\n"), error
    assert error.count("the process that keeps the kernel's counts fresh cannot be started: Permission denied") == 1, error
    assert "--evict kernel goes without it" in error
    assert_nothing_is_left()


def test_ways_of_paging_are_compared() -> None:
    done = run("--dram", "48MiB", "--flash", "64MiB", "--compare", "swap,kernel", "--trials", "2", "--", *eater(50))
    assert done.returncode == 0 and done.stdout == 4 * "right\n", done.stderr
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["trials"] == 2 and [row["how"] for row in told["hows"]] == ["swap", "kernel"]
    for row in told["hows"]:
        assert row["trials"] == 2 and row["real_s"] > 0 and row["required_bytes"] > 50 * MIB
    assert [(row["figure"], row["how"], row["against"]) for row in told["comparisons"]] == [
        (figure, "kernel", "swap") for figure in ("real", "user", "system")
    ]
    wrong = tiermem("run", "--dram", "48MiB", "--flash", "64MiB", "--compare", "swap,remote", "--", "true")
    assert wrong.returncode == 125 and "none of auto, swap and kernel" in wrong.stderr
    placed = tiermem("run", "--compare", "swap,kernel", "--", "true")
    assert placed.returncode == 125 and "are compared with --dram" in placed.stderr
    failed = run("--dram", "48MiB", "--flash", "64MiB", "--compare", "swap,kernel", "--", "sh", "-c", "exit 4")
    assert failed.returncode == 4


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_shows_the_same_alone_and_with_less_dram(hostile: str, tmp_path: pathlib.Path, program: str) -> None:  # noqa: F811
    command = [hostile, *program.split()]
    alone = shown(tmp_path / "alone", command)
    # What a program locks needs DRAM.
    limited = [binary(), "run", "--dram", "512MiB", "--flash", "16MiB", "--report", "report", "--", *command]
    assert shown(tmp_path / "limited", limited) == alone
    # Some leave processes behind.
    eventually(lambda: status() == [] and areas() == [], "all is taken away")


# Goes over its memory again and again for a while.
PASSES = """
before = time.monotonic()
while time.monotonic() < before + 4:
    for page in range(pages):
        memory[page * 4096]
"""


def test_what_is_fetched_ahead_does_not_push_out_files() -> None:
    """Between pages of swap and of files the kernel chooses by what each had to be read again. What is fetched ahead counts, too."""

    def swappiness(how: str) -> tuple[int, int]:
        """The last one of the program's group, and that of the group above it."""
        arguments = ["run", "--how", how, "--dram", "64MiB", "--flash", "256MiB", "--", *eater(96, PASSES)]
        found = []
        with subprocess.Popen([binary(), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            while running.poll() is None:
                for group in map(pathlib.Path, groups()):
                    # It may be gone by now.
                    with contextlib.suppress(OSError):
                        found.append([int((it / "memory.swappiness").read_text()) for it in (group, group.parent)])
                time.sleep(0.05)
        if how == "kernel" and running.returncode == 125:
            pytest.skip("nothing can be steered here")
        assert running.returncode == 0
        if not found:
            pytest.skip("control groups of version 2 have no swappiness of their own")
        return tuple(found[-1])

    own, above = swappiness("swap")
    assert own == above
    # A sweep is fetched ahead: it waits for few pages.
    own, _ = swappiness("kernel")
    assert 130 < own <= 180
    assert_nothing_is_left()
