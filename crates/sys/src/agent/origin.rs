//! Where an agent comes from: a program that is started with one, or one that already runs and is given one.

use std::cell::RefCell;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::batch::Place;
use super::client::Agent;
use super::program::{Memory, status, try_status};
use super::traced::{Call, EVENT_STOP, Halt, Registers, Traced};
use super::{calls, sandbox};

/// A process that is made by a traced one is traced from its birth; stops at system calls can be told from signals.
const OPTIONS: libc::c_int =
    libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEFORK;
/// Time between looks whether a program has begun.
const NAP: Duration = Duration::from_micros(50);
/// The bytes of a mask of signals, each blocked. (SIGKILL and SIGSTOP cannot be.)
const ALL_SIGNALS: u64 = !0;

/// One program at a time is given an agent. Threads that wait for stops take the processors from the programs that they wait for, the more
/// so as a recorder has a higher priority: each of a hundred programs that begin at once would stand still for longer.
static TURN: Mutex<()> = Mutex::new(());
/// So long a turn is kept for a program that does not come to stand.
const TURN_MAX: Duration = Duration::from_millis(20);

fn take_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Programs of this thread's that did not come to stand in time: they wait for a device, or are frozen.
    static LATE: RefCell<Vec<Traced>> = const { RefCell::new(Vec::new()) };
}

/// Leaves programs alone that come to stand only now, after [`attach`] has given up. Whoever attaches calls this now and then; the kernel does
/// it when the process ends.
pub fn leave_late() {
    LATE.with_borrow_mut(|late| {
        let mut still_late = Vec::new();
        for traced in std::mem::take(late) {
            match traced.try_halt() {
                Ok(None) if !traced.has_ended() => still_late.push(traced),
                Ok(Some(_)) => drop(go_on(traced)),
                _ => {}
            }
        }
        *late = still_late;
    });
}

/// Leaves a process that stands still alone.
fn go_on(traced: Traced) -> io::Result<()> {
    let registers = undisturbed(&traced)?;
    // SAFETY: these are the registers that it had, or those by which it does again what it was kept from.
    unsafe { traced.set_registers(&registers) }?;
    traced.detach()
}

/// Why a program has no agent.
#[derive(Debug, thiserror::Error)]
pub enum NoAgent {
    /// This machine's instructions are not known here.
    #[error("only programs for 64-bit x86 can have an agent")]
    Architecture,
    /// The program's system calls are filtered; one that is not expected may end it.
    #[error("the program filters its system calls (seccomp)")]
    Filtered,
    /// A debugger or another recorder traces it.
    #[error("process {0} traces the program already (a debugger, strace or another recorder)")]
    Traced(u32),
    /// It is the first process of a container, or adopts orphans: the agent would become its child.
    #[error("the program is the first process of a container, or adopts orphans as a supervisor does")]
    First,
    /// The program would not be given the rights of its file's owner if it were traced.
    #[error("the program's file has a set-user-ID bit, a set-group-ID bit or capabilities")]
    SetId,
    /// The system refused.
    #[error("the system refused: {0}")]
    Refused(#[from] io::Error),
}

/// A program that was started.
#[derive(Debug)]
pub struct Started {
    /// Its process.
    pub child: Child,
    /// Its agent, if it was asked for.
    pub agent: Option<Result<Agent, NoAgent>>,
}

/// Starts a program, with an agent from its very first instruction on. Where it can have none it runs without.
///
/// # Errors
/// If the program cannot be started.
pub fn start(mut command: Command, with_agent: bool) -> io::Result<Started> {
    if !with_agent {
        return Ok(Started { child: command.spawn()?, agent: None });
    }
    // The kernel withholds rights of the file from a program that is traced when it begins, unless root traces it.
    if !rustix::process::geteuid().is_root() && gives_rights(Path::new(command.get_program())) {
        return Ok(Started { child: command.spawn()?, agent: Some(Err(NoAgent::SetId)) });
    }
    let gate = Gate::before(&mut command)?;
    // The process waits before it begins the program until it is traced, and to start it ends when the program has begun: it is done by
    // another thread meanwhile. Tracing is tied to this one.
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let spawning = scope.spawn(|| {
            let spawned = command.spawn();
            // The gate's ends in the command go with it.
            drop(command);
            failed.store(spawned.is_err(), Relaxed);
            spawned
        });
        let traced = gate.pid().map_err(NoAgent::from).and_then(|pid| {
            Traced::seize(pid, libc::PTRACE_O_TRACEEXEC).map_err(|error| refused(pid, error))
        });
        gate.open();
        let traced = traced.and_then(|traced| {
            let has_begun = begun(&traced, || failed.load(Relaxed));
            has_begun.map(|()| traced).map_err(NoAgent::from)
        });
        let spawned =
            spawning.join().map_err(|_| io::Error::other("the thread that starts the program died"))?;
        let child = spawned?;
        let pid = child.id();
        let agent = traced.and_then(|mut traced| {
            let made = in_stopped(pid, &mut traced, Parent::Ours);
            traced.detach()?;
            made
        });
        Ok(Started { child, agent: Some(agent) })
    })
}

/// Whether a program has rights by its file that those who start it do not have.
fn gives_rights(file: &Path) -> bool {
    let mode = file.metadata().map_or(0, |meta| meta.mode());
    let has_capabilities = rustix::fs::getxattr(file, "security.capability", &mut [0_u8; 64]).is_ok();
    mode & (libc::S_ISUID | libc::S_ISGID) != 0 || has_capabilities
}

/// What a process that is going to be started waits at.
struct Gate {
    pid: PipeReader,
    go: PipeWriter,
}

impl Gate {
    fn before(command: &mut Command) -> io::Result<Self> {
        // All ends are closed when the program begins.
        let (pid, mut tell) = io::pipe()?;
        let (mut wait, go) = io::pipe()?;
        let ask = move || {
            tell.write_all(&std::process::id().to_ne_bytes())?;
            // Whatever is read, or that the other end has gone: the program begins.
            wait.read(&mut [0]).map(drop)
        };
        // SAFETY: between fork and exec the closure makes three system calls, which take no locks and allocate nothing.
        unsafe { command.pre_exec(ask) };
        Ok(Gate { pid, go })
    }

    /// The number of the process.
    fn pid(&self) -> io::Result<libc::pid_t> {
        let mut bytes = [0; 4];
        (&self.pid).read_exact(&mut bytes)?;
        libc::pid_t::try_from(u32::from_ne_bytes(bytes)).map_err(io::Error::other)
    }

    fn open(self) {
        // A process that has gone needs no gate.
        let _ = (&self.go).write_all(&[0]);
    }
}

/// Waits until a traced process begins its program. Signals reach it meanwhile.
fn begun(traced: &Traced, has_failed: impl Fn() -> bool) -> io::Result<()> {
    loop {
        // Its end is not taken in here: whoever starts it waits for that if there is no such program.
        match traced.try_halt()? {
            Some(Halt::Event(libc::PTRACE_EVENT_EXEC)) => return Ok(()),
            Some(Halt::Signal(signal)) => traced.resume(libc::PTRACE_CONT, signal)?,
            Some(_) => traced.resume(libc::PTRACE_CONT, 0)?,
            None if has_failed() || traced.has_ended() => {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            None => std::thread::sleep(NAP),
        }
    }
}

/// Gives a program that runs an agent. Its first thread stands still meanwhile, some milliseconds at most, and a system call that it waits
/// in begins anew.
///
/// # Errors
/// Where it can have none; it goes on as before.
pub fn attach(pid: u32) -> Result<Agent, NoAgent> {
    let number = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    // Its numbers, from outside to inside of containers.
    let numbers = status(number, "NSpid").unwrap_or_default();
    if numbers.split_ascii_whitespace().next_back() == Some("1") {
        return Err(NoAgent::First);
    }
    let own = std::process::id().to_string();
    let parent =
        if status(number, "PPid").is_some_and(|parent| parent == own) { Parent::Ours } else { Parent::Init };
    // Not even to be interrupted: a call that it waits in is then begun anew by a call of another name, which a filter may not know.
    if is_filtered(number)? {
        return Err(NoAgent::Filtered);
    }
    let mut turn = Some(take_turn());
    // What it makes before it stands still is not traced.
    let mut traced = Traced::seize(number, 0).map_err(|error| refused(number, error))?;
    traced.interrupt()?;
    loop {
        let halted = if turn.is_some() { traced.halt_within(TURN_MAX) } else { traced.halt() };
        match halted {
            Ok(Halt::Event(EVENT_STOP)) => break,
            Ok(Halt::Signal(signal)) => traced.resume(libc::PTRACE_CONT, signal)?,
            Ok(_) => traced.resume(libc::PTRACE_CONT, 0)?,
            Err(error) if error.kind() == io::ErrorKind::TimedOut && turn.is_some() => turn = None,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                LATE.with_borrow_mut(|late| late.push(traced));
                return Err(error.into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    let _turn = turn.unwrap_or_else(take_turn);
    let made = in_stopped(pid, &mut traced, parent);
    traced.detach()?;
    made
}

fn refused(pid: libc::pid_t, error: io::Error) -> NoAgent {
    let tracer = status(pid, "TracerPid").and_then(|text| text.parse().ok());
    match tracer {
        Some(tracer) if tracer > 0 => NoAgent::Traced(tracer),
        _ => NoAgent::Refused(error),
    }
}

/// Whose child an agent becomes: never the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    /// This process's, which is the program's parent too.
    Ours,
    /// That of orphans: it is made by a process between, which ends at once.
    Init,
}

/// Makes an agent in a process that stands still, which is as it was afterwards.
fn in_stopped(program: u32, traced: &mut Traced, parent: Parent) -> Result<Agent, NoAgent> {
    let before = undisturbed(traced)?;
    let made = may_have_one(traced).and_then(|()| {
        let mask = traced.mask()?;
        traced.set_options(OPTIONS)?;
        traced.set_mask(ALL_SIGNALS)?;
        let made = born(program, traced, parent);
        traced.set_mask(mask)?;
        traced.set_options(0)?;
        made
    });
    // SAFETY: these are the registers that it had, or those by which it does again what it was kept from.
    unsafe { traced.set_registers(&before) }?;
    made
}

/// Registers of a process that stands still with which it goes on as if it had not been interrupted.
fn undisturbed(traced: &Traced) -> io::Result<Registers> {
    let mut registers = traced.registers()?;
    if registers.orig_rax.cast_signed() >= 0 {
        // A few calls report that they were interrupted even where no handler runs. The program must not see that: it does them again,
        // unless a signal of its own has come as well.
        if registers.rax.cast_signed() == -i64::from(libc::EINTR) && !has_signal(traced.pid()) {
            (registers.rax, registers.rip) = (registers.orig_rax, registers.rip - 2);
        }
    } else if let Some(abort) = traced.restartable().and_then(|at| abort_of(traced.pid(), at, registers.rip))
    {
        // Within a restartable sequence (rseq) it goes on where the kernel would have it go on.
        registers.rip = abort;
    }
    Ok(registers)
}

/// Where a restartable sequence that contains an instruction begins anew; `at` is the address of the program's `struct rseq`.
fn abort_of(pid: libc::pid_t, at: u64, instruction: u64) -> Option<u64> {
    const SEQUENCE_OFFSET: u64 = 8;
    let memory = Memory::open(pid).ok()?;
    let mut word = [0; 8];
    memory.read(at + SEQUENCE_OFFSET, &mut word).ok()?;
    // struct rseq_cs: version and flags, start, bytes until it is done, where to go.
    let mut sequence = [0; 32];
    memory.read(u64::from_ne_bytes(word), &mut sequence).ok()?;
    let (words, _) = sequence.as_chunks::<8>();
    let [_, start, bytes, abort] = *words else { return None };
    let [start, bytes, abort] = [start, bytes, abort].map(u64::from_ne_bytes);
    (instruction.wrapping_sub(start) < bytes).then_some(abort)
}

/// Whether a signal waits for it that it has not blocked.
fn has_signal(pid: libc::pid_t) -> bool {
    let mask = |field| u64::from_str_radix(&status(pid, field).unwrap_or_default(), 16).unwrap_or(0);
    (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") != 0
}

/// Whether a process that stands still can be made to do calls without harm.
fn may_have_one(traced: &Traced) -> Result<(), NoAgent> {
    let pid = traced.pid();
    if !traced.is_64_bit()? {
        return Err(NoAgent::Architecture);
    }
    if traced.dispatches_calls() || is_filtered(pid)? {
        return Err(NoAgent::Filtered);
    }
    // The agent would be the first process of the namespace of its children.
    let namespace = |name| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
    if namespace("pid_for_children") != namespace("pid") {
        return Err(NoAgent::First);
    }
    Ok(())
}

/// Whether its system calls are filtered, unless in the way that this process's are: what that allows it, it allows this one. (Strict mode has
/// no filters.)
fn is_filtered(pid: libc::pid_t) -> io::Result<bool> {
    let filters = |pid| io::Result::Ok((try_status(pid, "Seccomp")?, try_status(pid, "Seccomp_filters")?));
    let (mode, count) = filters(pid)?;
    if mode.as_deref().is_none_or(|mode| mode == "0") {
        return Ok(false);
    }
    let own = libc::pid_t::try_from(std::process::id()).map_err(io::Error::other)?;
    Ok(count.is_none() || filters(own)? != (mode, count))
}

/// Whether orphans of the program's descendants become its children (`PR_SET_CHILD_SUBREAPER`), as an agent would.
fn adopts(traced: &mut Traced, memory: &Memory, instruction: u64) -> io::Result<bool> {
    /// Below the stack, and below what leaf functions use there.
    const BELOW: u64 = 4096;
    let address = (traced.registers()?.rsp - BELOW) & !7;
    let mut kept = [0; 8];
    memory.read(address, &mut kept)?;
    let ask = Call::of(libc::SYS_prctl, [libc::PR_GET_CHILD_SUBREAPER as u64, address]);
    // SAFETY: the caller puts its registers back, and the bytes are put back here.
    let asked = unsafe { traced.call(instruction, ask) };
    let mut answer = [0; 4];
    let read = memory.read(address, &mut answer);
    memory.write(address, &kept)?;
    read?;
    Ok(asked? != 0 || i32::from_ne_bytes(answer) != 0)
}

fn born(program: u32, traced: &mut Traced, parent: Parent) -> Result<Agent, NoAgent> {
    let memory = Memory::open(traced.pid())?;
    let instruction = memory.find_instruction(traced.pid())?;
    let mut agent = match parent {
        Parent::Ours => child(traced, instruction, calls::clone_sibling())?.0,
        Parent::Init => {
            if adopts(traced, &memory, instruction)? {
                return Err(NoAgent::First);
            }
            let (mut between, number) = child(traced, instruction, calls::clone_child(0))?;
            let made = child(&mut between, instruction, calls::clone_child(libc::SIGCHLD));
            between.end();
            // SAFETY: its registers are put back by the caller; the child is none that the program knows.
            unsafe { traced.call(instruction, calls::wait_for(number)) }?;
            made?.0
        }
    };
    match begin(&mut agent, &memory, instruction) {
        Ok(()) => Ok(Agent::new(program, agent, memory, instruction)),
        Err(error) => {
            agent.end();
            Err(error.into())
        }
    }
}

/// Has a stopped process make another one, which stands still too, and is ended should this one end. Returns its number as the maker
/// knows it.
fn child(maker: &mut Traced, instruction: u64, clone: Call) -> io::Result<(Traced, i64)> {
    // SAFETY: the caller puts its registers back; the new process does nothing before it is told what.
    let number = unsafe { maker.call(instruction, clone) }?;
    if number < 0 {
        return Err(io::Error::from_raw_os_error(-number as i32));
    }
    let made =
        maker.take_made().ok_or_else(|| io::Error::other("the kernel does not tell of a new process"))?;
    made.halt()?;
    made.set_options(OPTIONS | libc::PTRACE_O_EXITKILL)?;
    Ok((made, number))
}

fn begin(agent: &mut Traced, memory: &Memory, instruction: u64) -> io::Result<()> {
    agent.set_mask(ALL_SIGNALS)?;
    let mut place = Place::map(agent, memory, instruction, sandbox::STEPS)?;
    let steps = sandbox::first_steps(place.base());
    // SAFETY: they concern the new process alone.
    unsafe { place.run(&steps) }.map(drop)
}
