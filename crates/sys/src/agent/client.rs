//! Requests to an agent, by the process that observes or places a program's memory.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::batch::{Batch, Place};
use super::calls;
use super::error::{AgentError, LockError};
use super::locks::{Locks, Refused};
use super::program::{Memory, share_memory};
use super::traced::{Call, Traced};
use crate::cpu_time::spent_by_thread;
use crate::pidfd::PidFd;
use crate::userfaultfd::{Features, Modes, Options, Userfault};

/// The largest node of a mask.
const NODE_BITS: u64 = 64;

/// Advice about a range of memory that a process can only give itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    /// Huge pages may be used here.
    HugePages = libc::MADV_HUGEPAGE,
    /// No new huge pages here.
    SmallPages = libc::MADV_NOHUGEPAGE,
}

/// The nodes from which a range takes its pages that it has not touched yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Policy {
    /// As the process does.
    Default = 0,
    /// From these if they have room (the first of them, on kernels before 5.15).
    Preferred = 5,
    /// From these alone.
    Bind = 2,
    /// From each in turn.
    Interleave = 3,
}

/// The cost of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Requests.
    pub requests: u64,
    /// Processor time.
    pub cpu: Duration,
}

/// An agent in a program's address space. Dropped, it gives back what it has locked, makes the program's mappings whole again, and ends.
#[derive(Debug)]
pub struct Agent {
    program: u32,
    /// `None` once it has ended.
    traced: Option<Traced>,
    memory: Memory,
    instruction: u64,
    requests: u64,
    cpu: Duration,
    watch: Option<Userfault>,
    locks: Locks,
    /// Ranges of which mappings were made.
    divided: Vec<(u64, u64)>,
}

impl Agent {
    pub(super) fn new(program: u32, traced: Traced, memory: Memory, instruction: u64) -> Self {
        Agent {
            program,
            traced: Some(traced),
            memory,
            instruction,
            requests: 0,
            cpu: Duration::ZERO,
            watch: None,
            locks: Locks::default(),
            divided: Vec::new(),
        }
    }

    /// The process that it is in.
    pub fn pid(&self) -> u32 {
        self.program
    }

    /// Its own process; `None` once it has ended.
    pub fn own_pid(&self) -> Option<u32> {
        self.traced.as_ref().and_then(|it| u32::try_from(it.pid()).ok())
    }

    /// The cost so far.
    pub fn spent(&self) -> Spent {
        let cpu = self.own_pid().and_then(spent_by_thread).unwrap_or(self.cpu);
        Spent { requests: self.requests, cpu }
    }

    /// Whether its address space is that of its program, which may have ended or begun another program. `None` where the kernel does not
    /// tell (`kcmp`).
    pub fn is_in(&self) -> Option<bool> {
        let agent = self.traced.as_ref()?.pid();
        match share_memory(agent, self.program as libc::pid_t) {
            Ok(is) => Some(is),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Some(false),
            Err(_) => None,
        }
    }

    /// Makes every granule of a range a mapping of its own, so that what the kernel tells of mappings it tells of
    /// granules. Granules are counted from `origin`. Returns how many were set apart, half of all.
    ///
    /// # Errors
    /// [`AgentError::Refused`] for a granule that is none, or if the program may have no more mappings.
    pub fn split(
        &mut self,
        address: u64,
        bytes: u64,
        granule_bytes: u64,
        origin: u64,
    ) -> Result<u64, AgentError> {
        let batch = calls::split(address, bytes, granule_bytes, origin).map_err(AgentError::Refused)?;
        // A part of what was divided before, as a huge page of it, does not take its place.
        let (mut start, mut end) = (address, address + bytes);
        self.divided.retain(|&(from, to)| {
            let is_apart = to < start || from > end;
            if !is_apart {
                (start, end) = (start.min(from), end.max(to));
            }
            is_apart
        });
        self.divided.push((start, end));
        // SAFETY: whether memory belongs to core dumps changes nothing that it holds.
        unsafe { self.make(&batch) }
    }

    /// Lets the kernel make one mapping of them again.
    ///
    /// # Errors
    /// As of [`Agent::split`].
    pub fn join(&mut self, address: u64, bytes: u64) -> Result<(), AgentError> {
        self.divided.retain(|(start, end)| *start < address || *end > address + bytes);
        // SAFETY: whether memory belongs to core dumps changes nothing that it holds.
        unsafe { self.make(&calls::join(address, bytes)) }.map(drop)
    }

    /// Has the kernel remember which pages of a range are written ([`crate::page_scan`] asks for them).
    ///
    /// # Errors
    /// What the kernel refuses: memory of a kind that cannot be watched, or that the program watches itself.
    pub fn watch_writes(&mut self, address: u64, bytes: u64) -> Result<(), AgentError> {
        let watch = match self.watch.take() {
            Some(watch) => watch,
            None => self.open_watch()?,
        };
        let watched = watch.register_range(address, bytes, Modes::WRITE_PROTECT);
        self.watch = Some(watch);
        watched.map_err(AgentError::Refused)
    }

    /// The descriptor is made by the agent, as it concerns its maker's memory, and is this process's then.
    fn open_watch(&mut self) -> Result<Userfault, AgentError> {
        let number = self.call(Call::of(libc::SYS_userfaultfd, [calls::USERFAULT_FLAGS as u64]))?;
        let taken = self.take_descriptor(number);
        self.call(calls::close(number))?;
        let options = Options { features: Features::WATCH_WRITES, user_mode_is_enough: true };
        Userfault::begin_for_other_process(taken?, options)
            .map_err(|error| AgentError::Refused(error.into_io()))
    }

    fn take_descriptor(&self, number: i64) -> Result<OwnedFd, AgentError> {
        let process = PidFd::open(self.agent()?.pid().unsigned_abs()).map_err(AgentError::Lost)?;
        let process = std::os::fd::AsFd::as_fd(&process);
        // SAFETY: the call takes numbers alone.
        let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
        match i32::try_from(taken) {
            // SAFETY: the kernel has just returned this descriptor, and no other code knows of it.
            Ok(taken) if taken >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(taken) }),
            _ => Err(AgentError::Refused(io::Error::last_os_error())),
        }
    }

    /// Gives advice about a range.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn advise(&mut self, address: u64, bytes: u64, advice: Advice) -> Result<(), AgentError> {
        self.call(calls::advise(address, bytes, advice as i32)).map(drop)
    }

    /// Says from which nodes (one bit each) a range takes pages that it has not touched yet.
    ///
    /// # Errors
    /// What the kernel refuses: nodes that the machine does not have.
    pub fn bind(&mut self, address: u64, bytes: u64, policy: Policy, nodes: u64) -> Result<(), AgentError> {
        let mut batch = Batch::default();
        let mask = batch.datum(&nodes.to_ne_bytes());
        self.make_with(1, move |base| {
            // The call reads one bit less than it is told.
            let (mask, bits) =
                if policy == Policy::Default { (0, 0) } else { (base.of(mask), NODE_BITS + 1) };
            batch.push(Call::of(libc::SYS_mbind, [address, bytes, policy as u64, mask, bits, 0]), false);
            batch
        })
        .map(drop)
    }

    /// Brings a range of whole pages into memory and keeps it there, until it is unlocked or this value is dropped. What is locked
    /// already, by the program or before, is left alone. Returns how many bytes were locked: all that was not yet, or none.
    ///
    /// # Errors
    /// If the program may not lock so much ([`LockError::Limit`] says how much), or the kernel refuses.
    pub fn lock(&mut self, address: u64, bytes: u64) -> Result<u64, LockError> {
        let pid = self.program;
        let failed = |source| LockError::Agent { pid, address, bytes, source };
        let range = pages(address, bytes).map_err(|error| failed(AgentError::Refused(error)))?;
        let agent = self.agent().map_err(failed)?.pid().unsigned_abs();
        let mut locks = std::mem::take(&mut self.locks);
        let locked = locks.lock(agent, range, &mut |call| self.call(call).map(drop));
        self.locks = locks;
        locked.map_err(|Refused { error, left_bytes }| match error {
            AgentError::Refused(_) if left_bytes < bytes => {
                LockError::Limit { pid, address, bytes, left_bytes }
            }
            error => failed(error),
        })
    }

    /// Undoes it, for what of the range was locked by [`Agent::lock`]. Returns how many bytes that were.
    ///
    /// # Errors
    /// If the agent has gone.
    pub fn unlock(&mut self, address: u64, bytes: u64) -> Result<u64, AgentError> {
        let range = pages(address, bytes).map_err(AgentError::Refused)?;
        let mut locks = std::mem::take(&mut self.locks);
        let unlocked = locks.unlock(range, &mut |call| self.call(call).map(drop));
        self.locks = locks;
        unlocked
    }

    fn agent(&self) -> Result<&Traced, AgentError> {
        self.traced.as_ref().ok_or_else(|| AgentError::Lost(io::Error::from_raw_os_error(libc::ESRCH)))
    }

    /// Gives the agent the limits that its program has by now, so that neither gets by it what is not allowed to the other.
    fn take_limits(&mut self) {
        self.requests += 1;
        let (Some(traced), Ok(program)) = (&self.traced, libc::pid_t::try_from(self.program)) else { return };
        for resource in [libc::RLIMIT_AS, libc::RLIMIT_MEMLOCK] {
            let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the limit is as large as the calls want and outlives them, and neither process is this one.
            unsafe {
                if libc::prlimit64(program, resource, std::ptr::null(), &raw mut limit) == 0 {
                    libc::prlimit64(traced.pid(), resource, &raw const limit, std::ptr::null_mut());
                }
            }
        }
    }

    /// Makes one call that points to nothing.
    fn call(&mut self, call: Call) -> Result<i64, AgentError> {
        self.take_limits();
        let instruction = self.instruction;
        if !self.memory.has_instruction(instruction) {
            let found = self.memory.find_instruction(self.agent()?.pid()).map_err(AgentError::Refused)?;
            self.instruction = found;
        }
        let instruction = self.instruction;
        let Some(traced) = self.traced.as_mut() else { return self.agent().map(|_| 0) };
        // SAFETY: the agent has no code of its own to go back to; the sandbox allows it calls about its memory alone, of which those here
        // change no contents.
        match unsafe { traced.call(instruction, call) } {
            Ok(done @ 0..) => Ok(done),
            Ok(error) => Err(AgentError::Refused(io::Error::from_raw_os_error(-error as i32))),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// # Safety
    ///
    /// The calls change nothing that memory holds.
    unsafe fn make(&mut self, batch: &Batch) -> Result<u64, AgentError> {
        self.make_with(batch.len(), |_| batch.clone())
    }

    fn make_with(
        &mut self,
        calls: usize,
        batch: impl FnOnce(super::batch::Base) -> Batch,
    ) -> Result<u64, AgentError> {
        self.take_limits();
        let Some(traced) = self.traced.as_mut() else { return self.agent().map(|_| 0) };
        let done = Place::map(traced, &self.memory, self.instruction, calls).and_then(|mut place| {
            let batch = batch(place.base());
            // SAFETY: all batches here are of advice, binding and locks, which change no contents.
            unsafe { place.run(&batch) }
        });
        done.map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) | None => self.lost(error),
            Some(_) => AgentError::Refused(error),
        })
    }

    /// It does not answer: it is no use any more.
    fn lost(&mut self, error: io::Error) -> AgentError {
        self.finish();
        AgentError::Lost(error)
    }

    fn finish(&mut self) {
        self.cpu = self.spent().cpu;
        if let Some(traced) = self.traced.take() {
            traced.end();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.traced.is_some() && self.is_in() != Some(false) {
            // What cannot be put back ends with the agent, and is no harm to the program.
            let _ = self.unlock(0, !0xfff);
            for (start, end) in std::mem::take(&mut self.divided) {
                let _ = self.join(start, end - start);
            }
        }
        self.finish();
    }
}

/// A range of whole pages.
fn pages(address: u64, bytes: u64) -> io::Result<std::ops::Range<u64>> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let end = address.checked_add(bytes).ok_or_else(invalid)?;
    let is_whole = address.is_multiple_of(4096) && bytes.is_multiple_of(4096);
    if is_whole { Ok(address..end) } else { Err(invalid()) }
}
