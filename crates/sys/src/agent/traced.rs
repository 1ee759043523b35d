//! A traced process (`ptrace`): stops, registers, and system calls that it is made to do.
//!
//! The kernel ties tracing to a thread: all calls come from the one that began it.

use std::io;
use std::time::{Duration, Instant};

use super::program::try_status;

/// How long a process may take until it stops: one that is frozen, or waits for a device, may never.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long a stop is waited for without sleeping: most come within some microseconds.
const SPIN: Duration = Duration::from_micros(100);
/// Then it is slept, for this part of the time that has passed and at most so long: what takes long is not asked for all the time, and
/// what has come is not left standing for much longer than it took.
const NAP_PART: u32 = 4;
const NAP_MAX: Duration = Duration::from_millis(2);

/// `PTRACE_GET_SYSCALL_INFO` (Linux 5.3) and the kinds of stops that it tells.
const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
const INFO_ENTRY: u8 = 1;
const INFO_EXIT: u8 = 2;
/// `PTRACE_GETSIGMASK` and `PTRACE_SETSIGMASK`, with the bytes of a mask.
const GET_MASK: libc::c_uint = 0x420a;
const SET_MASK: libc::c_uint = 0x420b;
const MASK_BYTES: usize = 8;
/// `PTRACE_EVENT_STOP`: a stop that was asked for, or the first one of a process that is traced from its birth.
pub(super) const EVENT_STOP: i32 = 128;
/// The code segment of 64-bit programs.
const SEGMENT_64: u64 = 0x33;

pub(super) type Registers = libc::user_regs_struct;

/// A system call: its number and arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub number: libc::c_long,
    pub arguments: [u64; 6],
}

impl Call {
    /// A call with the arguments that it has; the others are 0.
    pub fn of<const N: usize>(number: libc::c_long, arguments: [u64; N]) -> Self {
        let mut all = [0; 6];
        all[..N].copy_from_slice(&arguments);
        Call { number, arguments: all }
    }
}

/// Why a traced process stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// At the begin or the end of a system call.
    SystemCall,
    /// A `PTRACE_EVENT`.
    Event(i32),
    /// A signal is about to be delivered.
    Signal(i32),
}

/// A process, or a thread of one, that this thread traces. Dropped, it is left alone: whoever has it detaches or ends it.
#[derive(Debug)]
pub(super) struct Traced {
    pid: libc::pid_t,
    /// Signals that came while it was made to do something, for later.
    held_back: Vec<i32>,
    /// The last process that it has made.
    made: Option<libc::pid_t>,
    /// Whether its end is taken in here: a program's is for whoever waits for it.
    is_ours: bool,
    /// Tracing is tied to the thread.
    _here: std::marker::PhantomData<*const ()>,
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ECHILD))
}

impl Traced {
    /// Begins to trace a process (or thread) that runs; it goes on running.
    pub fn seize(pid: libc::pid_t, options: libc::c_int) -> io::Result<Self> {
        let traced = Traced { is_ours: false, ..Traced::already(pid) };
        // SAFETY: the request takes numbers alone.
        unsafe { traced.request(libc::PTRACE_SEIZE, 0, options as u64) }?;
        Ok(traced)
    }

    /// One that is traced by this thread from its birth, and that nobody else waits for.
    fn already(pid: libc::pid_t) -> Self {
        Traced { pid, held_back: Vec::new(), made: None, is_ours: true, _here: std::marker::PhantomData }
    }

    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// # Safety
    ///
    /// `data` is what the request wants: a number, or an address of enough bytes.
    unsafe fn request(&self, request: libc::c_uint, address: u64, data: u64) -> io::Result<libc::c_long> {
        // SAFETY: as the caller promises; the kernel refuses a process that this thread does not trace.
        match unsafe { libc::ptrace(request, self.pid, address, data) } {
            -1 => Err(io::Error::last_os_error()),
            done => Ok(done),
        }
    }

    /// Has it stop, wherever it is.
    pub fn interrupt(&self) -> io::Result<()> {
        // SAFETY: the request takes numbers alone.
        unsafe { self.request(libc::PTRACE_INTERRUPT, 0, 0) }.map(drop)
    }

    pub fn set_options(&self, options: libc::c_int) -> io::Result<()> {
        // SAFETY: the request takes numbers alone.
        unsafe { self.request(libc::PTRACE_SETOPTIONS, 0, options as u64) }.map(drop)
    }

    /// Has it go on until the next stop of a kind: `PTRACE_CONT` or `PTRACE_SYSCALL`.
    pub fn resume(&self, how: libc::c_uint, signal: i32) -> io::Result<()> {
        // SAFETY: the request takes numbers alone.
        unsafe { self.request(how, 0, signal as u64) }.map(drop)
    }

    /// Leaves it alone, from a stop on. Signals that were held back reach it now.
    pub fn detach(mut self) -> io::Result<()> {
        // SAFETY: the request takes numbers alone.
        unsafe { self.request(libc::PTRACE_DETACH, 0, 0) }?;
        for signal in std::mem::take(&mut self.held_back) {
            // SAFETY: the call takes numbers alone. The process was there a moment ago, and nobody has taken in its end: it is a child of
            // this one, or its number is only used again after all others.
            unsafe { libc::kill(self.pid, signal) };
        }
        Ok(())
    }

    /// Whether it stands still by now, without waiting and without taking in its end, which is for others to see.
    pub fn try_halt(&self) -> io::Result<Option<Halt>> {
        self.wait(libc::WSTOPPED | libc::WNOHANG)
    }

    /// Whether it has ended; that is still there for others to see.
    pub fn has_ended(&self) -> bool {
        matches!(self.wait(libc::WEXITED | libc::WNOWAIT | libc::WNOHANG), Err(error) if is_gone(&error))
    }

    /// Whether it is there and traced: when another thread of a process begins a program, that thread takes the first one's place.
    fn is_there(&self) -> bool {
        // That it cannot be read, as no open files are left, does not mean that it has gone: given up amid a call that it was made to do, it
        // would go on with the registers of that call.
        let is_traced = match try_status(self.pid, "TracerPid") {
            Ok(tracer) => tracer.is_some_and(|tracer| tracer != "0"),
            Err(error) => {
                error.kind() != io::ErrorKind::NotFound && error.raw_os_error() != Some(libc::ESRCH)
            }
        };
        is_traced && !self.has_ended()
    }

    /// Waits until it stands still.
    ///
    /// # Errors
    /// No such process if it has ended; timed out if it does not come to stand.
    pub fn halt(&self) -> io::Result<Halt> {
        self.halt_within(PATIENCE)
    }

    /// Waits so long at most until it stands still.
    pub fn halt_within(&self, patience: Duration) -> io::Result<Halt> {
        let begun = Instant::now();
        let exits = if self.is_ours { libc::WEXITED } else { 0 };
        loop {
            if let Some(halt) = self.wait(libc::WSTOPPED | exits | libc::WNOHANG)? {
                return Ok(halt);
            }
            match begun.elapsed() {
                waited if waited < SPIN => std::thread::yield_now(),
                _ if !self.is_ours && !self.is_there() => return Err(gone()),
                waited if waited < patience => std::thread::sleep((waited / NAP_PART).min(NAP_MAX)),
                _ => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }

    /// Waits until it stands still, however long that takes: it cannot be left amid a call that is not its own.
    fn halt_at_last(&self) -> io::Result<Halt> {
        loop {
            match self.halt() {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                halted => return halted,
            }
        }
    }

    fn wait(&self, how: libc::c_int) -> io::Result<Option<Halt>> {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the information outlives the call, which fills it; it is valid when all zero, as it stays if nothing has happened.
        let (done, info) = unsafe {
            let done =
                libc::waitid(libc::P_PID, self.pid as libc::id_t, info.as_mut_ptr(), how | libc::__WALL);
            (done, info.assume_init())
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `waitid` fills these of the fields.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        if pid == 0 {
            return Ok(None);
        }
        match info.si_code {
            libc::CLD_TRAPPED | libc::CLD_STOPPED => {}
            _ => return Err(gone()),
        }
        Ok(Some(match (status & 0xff, status >> 8) {
            (signal, 0) if signal == libc::SIGTRAP | 0x80 => Halt::SystemCall,
            (signal, 0) => Halt::Signal(signal),
            (_, event) => Halt::Event(event),
        }))
    }

    pub fn registers(&self) -> io::Result<Registers> {
        let mut registers = std::mem::MaybeUninit::<Registers>::zeroed();
        // SAFETY: the registers are as large as the request fills, and valid when all zero.
        unsafe {
            self.request(libc::PTRACE_GETREGS, 0, registers.as_mut_ptr().expose_provenance() as u64)?;
            Ok(registers.assume_init())
        }
    }

    /// Sets its registers.
    ///
    /// # Safety
    ///
    /// It goes on from there: either with registers that it had, or in code that ends in a stop before the program's own goes on.
    pub unsafe fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let address = std::ptr::from_ref(registers).expose_provenance() as u64;
        // SAFETY: the registers outlive the request, which reads them.
        unsafe { self.request(libc::PTRACE_SETREGS, 0, address) }.map(drop)
    }

    /// The signals that it has blocked.
    pub fn mask(&self) -> io::Result<u64> {
        let mut mask = 0_u64;
        let address = std::ptr::from_mut(&mut mask).expose_provenance() as u64;
        // SAFETY: the mask has as many bytes as the request is told.
        unsafe { self.request(GET_MASK, MASK_BYTES as u64, address) }?;
        Ok(mask)
    }

    pub fn set_mask(&self, mask: u64) -> io::Result<()> {
        let address = std::ptr::from_ref(&mask).expose_provenance() as u64;
        // SAFETY: the mask has as many bytes as the request is told, and outlives it.
        unsafe { self.request(SET_MASK, MASK_BYTES as u64, address) }.map(drop)
    }

    fn message(&self) -> io::Result<u64> {
        let mut message = 0_u64;
        let address = std::ptr::from_mut(&mut message).expose_provenance() as u64;
        // SAFETY: the request writes one number of this size.
        unsafe { self.request(libc::PTRACE_GETEVENTMSG, 0, address) }?;
        Ok(message)
    }

    /// Whether it stands at the begin or at the end of a system call.
    fn stage(&self) -> io::Result<u8> {
        let mut info = [0_u8; 128];
        let address = info.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the request fills at most as many bytes as it is told.
        unsafe { self.request(GET_SYSCALL_INFO, info.len() as u64, address) }?;
        Ok(info[0])
    }

    /// Whether its system calls are intercepted (`PR_SET_SYSCALL_USER_DISPATCH`); unknown, and none, before Linux 6.4.
    pub fn dispatches_calls(&self) -> bool {
        const GET_DISPATCH: libc::c_uint = 0x4211;
        let mut config = [0_u64; 4];
        let address = config.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the request fills as many bytes as it is told.
        let done = unsafe { self.request(GET_DISPATCH, size_of_val(&config) as u64, address) };
        done.is_ok() && config[0] != 0
    }

    /// Where the kernel is told of a restartable sequence that runs; `None` without any, and before Linux 5.13.
    pub fn restartable(&self) -> Option<u64> {
        const GET_RSEQ: libc::c_uint = 0x420f;
        let mut config = [0_u64; 3];
        let address = config.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the request fills as many bytes as it is told.
        let done = unsafe { self.request(GET_RSEQ, size_of_val(&config) as u64, address) };
        (done.is_ok() && config[0] != 0).then_some(config[0])
    }

    /// Whether it runs 64-bit code, the only kind that can be made to do calls here.
    pub fn is_64_bit(&self) -> io::Result<bool> {
        Ok(self.registers()?.cs == SEGMENT_64)
    }

    /// Has it do a system call and stand still again. `instruction` is the address of a `syscall` instruction in its memory. Returns what
    /// the kernel returned, an error as a negative number. Its registers are others afterwards.
    ///
    /// # Safety
    ///
    /// Its registers are put back before it goes on by itself, and the call does it no harm.
    pub unsafe fn call(&mut self, instruction: u64, call: Call) -> io::Result<i64> {
        let [rdi, rsi, rdx, r10, r8, r9] = call.arguments;
        let number = call.number as u64;
        let mut registers = Registers { rdi, rsi, rdx, r10, r8, r9, ..self.registers()? };
        // No number there: the kernel does not begin anew a call of the program's that this one has interrupted.
        (registers.rip, registers.rax, registers.orig_rax) = (instruction, number, u64::MAX);
        // SAFETY: it stops at the end of the call, and goes nowhere from there before its registers are put back.
        unsafe { self.set_registers(&registers) }?;
        let mut has_begun = false;
        loop {
            self.resume(libc::PTRACE_SYSCALL, 0)?;
            match self.halt_at_last()? {
                Halt::SystemCall => match self.stage()? {
                    INFO_ENTRY => has_begun = true,
                    INFO_EXIT if has_begun => return Ok(self.registers()?.rax.cast_signed()),
                    // The end of the call that it was in has written its result over what was set.
                    // SAFETY: as above.
                    _ => unsafe { self.set_registers(&registers) }?,
                },
                Halt::Event(EVENT_STOP) => {}
                Halt::Event(_) => {
                    self.made = libc::pid_t::try_from(self.message()?).ok();
                }
                // What comes of the call itself, and not from another process: it is not to be made here.
                Halt::Signal(libc::SIGSYS | libc::SIGSEGV | libc::SIGILL | libc::SIGBUS | libc::SIGTRAP) => {
                    return Err(io::Error::other("the program's system calls are intercepted"));
                }
                Halt::Signal(signal) => self.held_back.push(signal),
            }
        }
    }

    /// The process that the last call has made, traced as this one is.
    pub fn take_made(&mut self) -> Option<Traced> {
        self.made.take().map(Traced::already)
    }

    /// Ends it and takes in its end.
    pub fn end(self) {
        // SAFETY: the call takes numbers alone; as long as this thread traces it and has not taken in its end, the number means it.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        while self.halt().is_ok() {}
    }
}
