"""Programs that would notice anybody who meddles with them (`hostile/hostile.c`): what they print, their exit code and their files are the
same alone, under `tiermem record` and under `tiermem run`."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import time

import pytest

from programs import tool
from store import PATIENCE_S, binary, eventually

# What observes: the agent divides memory and watches writes, or there is none.
WAYS = {
    "record": ["record", "--slice", "50ms", "--source", "refs", "--source", "writes", "-o", "app.rec", "--report", "report"],
    "record without an agent": ["record", "--no-agent", "--slice", "50ms", "-o", "app.rec", "--report", "report"],
    "run": ["run", "--report", "report"],
}
OURS = {"app.rec", "report"}
PROGRAMS = [
    "closes", "numbers", "looks", "forks", "spawns", "execs", "execs later", "waits", "unshares", "drops", "filters", "strict", "stack",
    "nofile", "space", "maps", "locks", "traces", "signals", "ignores", "killed 9", "killed 6", "killed 15", "exits 0", "exits 3", "exits 125",
]  # fmt: skip


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = pathlib.Path(__file__).parent / "hostile" / "hostile.c"
    program = tmp_path_factory.mktemp("hostile") / "hostile"
    subprocess.run([tool("cc"), "-O1", "-o", str(program), str(source)], check=True, timeout=PATIENCE_S)
    return str(program)


def shown(folder: pathlib.Path, command: list[str], **options: object) -> tuple[int, bytes, list[bytes], dict[str, bytes]]:
    """What a program shows of itself when it is run in an empty folder: its exit code as a shell tells it, what it prints, and its files."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=2 * PATIENCE_S, check=False, **options)
    said = [line for line in done.stderr.splitlines() if not line.startswith(b"tiermem: ")]
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in OURS}
    # A program that is ended by a signal has 128 and its number as its code.
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return code, done.stdout, said, files


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_shows_the_same_alone_and_observed(hostile: str, tmp_path: pathlib.Path, program: str) -> None:
    command = [hostile, *program.split()]
    alone = shown(tmp_path / "alone", command)
    for way, arguments in WAYS.items():
        assert shown(tmp_path / way.replace(" ", "-"), [binary(), *arguments, "--", *command]) == alone, way


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_descendant_shows_the_same_alone_and_observed(hostile: str, tmp_path: pathlib.Path, program: str) -> None:
    """It gets its agent while it runs; and one that begins the program late has had an agent before."""
    for name, script in {"child": '"$0" $1; exit $?', "late": '(sleep 0.25; exec "$0" $1); exit $?'}.items():
        command = ["sh", "-c", script, hostile, program]
        alone = shown(tmp_path / name, command)
        # A shell tells its programs in which folder they are.
        shutil.rmtree(tmp_path / name)
        assert shown(tmp_path / name, [binary(), *WAYS["record"], "--", *command]) == alone, name


def test_what_keeps_a_program_from_huge_pages_is_said_alone(hostile: str, tmp_path: pathlib.Path) -> None:
    """`--small-pages` is what the user asks for; the recorder does without huge pages itself, which is nothing of the program's."""
    for options, enabled in [([], b"THP_enabled:\t1"), (["--small-pages"], b"THP_enabled:\t0")]:
        _, out, _, _ = shown(tmp_path / f"{enabled[-1]}", [binary(), *WAYS["record"], *options, "--", hostile, "looks"])
        assert enabled in out.splitlines()


def test_what_the_program_was_given_is_passed_on(hostile: str, tmp_path: pathlib.Path) -> None:
    """Signals that are ignored or blocked, a closed standard input, no huge pages, and a parent that ignores SIGPIPE, as Python does."""
    set_thp_disable = 41  # PR_SET_THP_DISABLE
    where_asked_for = 2  # PR_THP_DISABLE_EXCEPT_ADVISED; older kernels refuse it, and nothing is set then.

    def given(flags: int) -> None:
        ctypes.CDLL(None).prctl(set_thp_disable, 1, flags, 0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGUSR1, signal.SIGTRAP})
        os.close(0)

    for flags, restores in [(0, False), (where_asked_for, True)]:
        settings = {"preexec_fn": functools.partial(given, flags), "restore_signals": restores}
        alone = shown(tmp_path / "alone", [hostile, "looks"], **settings)
        observed = shown(tmp_path / "record", [binary(), *WAYS["record"], "--", hostile, "looks"], **settings)
        assert observed == alone


@pytest.mark.parametrize("way", ["record", "run"])
def test_a_terminal_is_the_programs(hostile: str, tmp_path: pathlib.Path, way: str) -> None:
    def session(command: list[str]) -> tuple[int, str]:
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(tmp_path)
            os.execv(command[0], command)
        said = b""
        deadline = time.monotonic() + PATIENCE_S
        sent = 0
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    read = os.read(terminal, 4096)
                except OSError:
                    break
                said += read
                # A line once it reads, and the end of the input once it has read that.
                if sent == 0 and b"foreground" in said:
                    os.write(terminal, b"hello\n")
                    sent = 1
                elif sent == 1 and b"read hello" in said:
                    os.write(terminal, b"\x04")
                    sent = 2
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()

    alone = session([hostile, "reads"])
    assert alone[0] == 0 and "terminal 1 1 1, foreground 1" in alone[1] and "read hello" in alone[1]
    observed = session([binary(), *WAYS[way], "--", hostile, "reads"])
    kept = [line for line in observed[1].splitlines() if not line.startswith("tiermem: ")]
    assert (observed[0], kept) == (0, alone[1].splitlines())


def test_a_program_outlives_a_recorder_that_is_killed(hostile: str, tmp_path: pathlib.Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        recorder = subprocess.Popen([binary(), *WAYS["record"], "--", hostile, "closes"], cwd=tmp_path, stdout=out, stderr=out)
        log = tmp_path / "hostile.log"
        eventually(lambda: log.exists() and log.stat().st_size > 0, "the program writes its log")
        [program, agent] = sorted(map(int, pathlib.Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split()))
        assert pathlib.Path(f"/proc/{agent}/comm").read_text() == "tiermem-agent\n"
        recorder.kill()
        recorder.wait()
        assert pathlib.Path(f"/proc/{program}").exists(), "the program has ended with its recorder"
    eventually(lambda: b"0 failed" in (tmp_path / "out").read_bytes(), "the program has done its work")
    eventually(lambda: not pathlib.Path(f"/proc/{agent}").exists(), "the agent has ended with its recorder")


def test_signals_reach_the_program_and_end_the_recording(tmp_path: pathlib.Path) -> None:
    script = "import signal, sys, time; signal.signal({0}, lambda *_: (print('cleaning up'), sys.exit(7))); print('ready', flush=True)\n"
    script += "while True: time.sleep(0.01)"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        command = [binary(), *WAYS["record"], "--", "python3", "-c", script.format(int(number))]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)
        ) as recorder:
            assert recorder.stdout is not None and recorder.stdout.readline() == "ready\n"
            recorder.send_signal(number)
            assert (recorder.communicate(timeout=PATIENCE_S)[0], recorder.returncode) == ("cleaning up\n", 7)


def test_a_program_that_waits_is_not_interrupted_by_agents_that_come_and_go(hostile: str, tmp_path: pathlib.Path) -> None:
    """System calls that report an interruption even where no handler runs, as `epoll_wait` does."""
    with subprocess.Popen([hostile, "waits", "now"], stdout=subprocess.PIPE, text=True) as program:
        came = 0
        while program.poll() is None:
            command = [binary(), "record", "--pid", str(program.pid), "--inject", "--slice", "5ms", "--duration", "5ms", "-o", "app.rec"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            came += done.returncode == 0 and "no agent" not in done.stderr
            # A wait that begins anew has its whole timeout again, 50 ms here: agents that come more often would never let it end.
            time.sleep(0.1)
        assert came > 0 and program.stdout is not None and program.stdout.read() == "interrupted 0\n"


def test_a_program_goes_on_when_the_time_of_its_recording_is_over(tmp_path: pathlib.Path) -> None:
    for arguments, goes_on in [([], True), (["--end-program"], False)]:
        command = [binary(), *WAYS["record"], "--duration", "300ms", *arguments, "--", "sh", "-c", "echo $$ >pid; exec sleep 1000"]
        assert subprocess.run(command, cwd=tmp_path, timeout=PATIENCE_S, check=False).returncode == 0
        program = int((tmp_path / "pid").read_text())
        assert pathlib.Path(f"/proc/{program}").exists() == goes_on
        if goes_on:
            assert "tiermem" not in pathlib.Path(f"/proc/{program}/maps").read_text()
            os.kill(program, signal.SIGKILL)


def test_a_program_that_cannot_be_run_has_the_codes_of_env(tmp_path: pathlib.Path) -> None:
    (tmp_path / "text").write_text("")
    (tmp_path / "broken").write_text("#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o755)
    for way in ("record", "run"):
        for program, code in [("no-such-program", 127), ("./text", 126), ("/", 126), ("./broken", 127)]:
            done = subprocess.run(
                [binary(), *WAYS[way], "--", program], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done
