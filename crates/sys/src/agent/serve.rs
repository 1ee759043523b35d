//! Server side of the agent's protocol: inside the program, on a thread of its own.

use std::cell::OnceCell;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use super::locks::{Locks, Refused};
use super::protocol::{Advice, Call, Policy, REQUEST_BYTES, Reply, Request};
use super::runs::Draw;
use crate::cpu_time::thread_cpu_time;
use crate::userfaultfd::{Features, Modes, Options, Userfault};

/// The largest node of a mask.
const NODE_BITS: libc::c_ulong = 64;

/// Connects to the socket that [`super::SOCKET_VARIABLE`] names and serves it on a thread that takes no signals. Does nothing if
/// there is no such variable or no listener: a program must run as if nothing had been loaded with it.
pub fn start() {
    let Some(name) = std::env::var_os(super::SOCKET_VARIABLE) else { return };
    let Ok(address) = SocketAddr::from_abstract_name(name.as_encoded_bytes()) else { return };
    let Ok(stream) = UnixStream::connect_addr(&address) else { return };
    without_signals(|| {
        let thread = std::thread::Builder::new().name("tiermem-agent".to_owned()).stack_size(128 << 10);
        // A program that may have no more threads goes on without an agent.
        let _ = thread.spawn(move || serve(stream));
    });
}

/// Runs `start` with all signals blocked, which a thread that it starts inherits: signals are for the program's threads.
fn without_signals(start: impl FnOnce()) {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets are as large as the calls want and outlive them; a set is valid when all zero. The mask is put back.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        start();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}

/// Answers requests until the other end goes away.
pub fn serve(mut stream: UnixStream) {
    let mut state = State::default();
    let mut request = [0; REQUEST_BYTES];
    while stream.read_exact(&mut request).is_ok() {
        let before = thread_cpu_time();
        let done = make(&Request::of(&request), &mut state);
        let cpu_ns = (thread_cpu_time() - before).as_nanos() as u64;
        let reply = match done {
            Ok(count) => Reply { errno: 0, count, cpu_ns },
            Err(Refused { error, left_bytes }) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                Reply { errno: u64::from(errno.unsigned_abs()), count: left_bytes, cpu_ns }
            }
        };
        if stream.write_all(&reply.to_bytes()).is_err() {
            return;
        }
    }
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// State that is undone when the other end goes away.
#[derive(Default)]
struct State {
    watch: WriteWatch,
    locks: Locks,
}

fn make(request: &Request, state: &mut State) -> Result<u64, Refused> {
    let call = Call::from_code(request.call).ok_or_else(invalid)?;
    let done = match call {
        Call::Lock => return state.locks.lock(pages(request)?),
        Call::Split => split(request.address, request.bytes, request.detail, request.nodes),
        Call::Mark => {
            let draw = Draw {
                granule_bytes: request.detail,
                origin: request.nodes,
                run_bytes: request.run_bytes,
                seed: request.seed,
            };
            mark(request.address, request.bytes, draw)
        }
        Call::Join => advise_mapped(request.address, request.bytes, libc::MADV_DODUMP).map(|_| 0),
        Call::WatchWrites => state.watch.add(request.address, request.bytes).map(|()| 0),
        Call::Advise => {
            let advice = Advice::from_code(request.detail).ok_or_else(invalid)?;
            advise(request.address, request.bytes, advice as libc::c_int).map(|()| 0)
        }
        Call::Bind => {
            let policy = Policy::from_code(request.detail).ok_or_else(invalid)?;
            bind(request.address, request.bytes, policy, request.nodes).map(|()| 0)
        }
        Call::Unlock => state.locks.unlock(pages(request)?),
    };
    Ok(done?)
}

/// A range of whole pages.
fn pages(request: &Request) -> io::Result<std::ops::Range<u64>> {
    let end = request.address.checked_add(request.bytes).ok_or_else(invalid)?;
    let is_whole = request.address.is_multiple_of(4096) && request.bytes.is_multiple_of(4096);
    if is_whole { Ok(request.address..end) } else { Err(invalid()) }
}

/// Leaves every second granule out of core dumps: a mapping has one set of such flags, so the kernel makes one of each
/// granule. Returns how many granules were set apart; a hole in the range is none and no error.
fn split(address: u64, bytes: u64, granule_bytes: u64, origin: u64) -> io::Result<u64> {
    let end = address.checked_add(bytes).ok_or_else(invalid)?;
    if granule_bytes < 4096 || !granule_bytes.is_multiple_of(4096) || !origin.is_multiple_of(4096) {
        return Err(invalid());
    }
    let mut apart = 0;
    // Which granules are the odd ones depends on the address and the origin alone, so that splitting twice, or a part,
    // changes nothing. The origin may lie behind the range, which has grown downward since.
    let pair = granule_bytes.checked_mul(2).ok_or_else(invalid)?;
    let from_odd = i128::from(address) - i128::from(origin) - i128::from(granule_bytes);
    let behind = from_odd.rem_euclid(i128::from(pair)) as u64;
    let first = if behind < granule_bytes { address } else { address.saturating_add(pair - behind) };
    let mut next = first.saturating_sub(if behind < granule_bytes { behind } else { 0 });
    while next < end {
        let (start, until) = (next.max(address), next.saturating_add(granule_bytes).min(end));
        next = next.saturating_add(pair);
        apart += u64::from(advise_mapped(start, until - start, libc::MADV_DONTDUMP)?);
    }
    Ok(apart)
}

/// Leaves runs out of core dumps, and nothing else of the range. Returns how many.
fn mark(address: u64, bytes: u64, draw: Draw) -> io::Result<u64> {
    if !draw.is_valid() {
        return Err(invalid());
    }
    advise_mapped(address, bytes, libc::MADV_DODUMP)?;
    let set = |run: std::ops::Range<u64>| advise_mapped(run.start, run.end - run.start, libc::MADV_DONTDUMP);
    draw.runs(address, bytes).map(|run| set(run.start..run.end).map(u64::from)).sum()
}

/// Gives advice about what is mapped of a range, and passes over what is not or is of a kind that has no such flag: a program
/// gives memory back whenever it likes. Returns whether all of it was mapped.
fn advise_mapped(address: u64, bytes: u64, advice: libc::c_int) -> io::Result<bool> {
    match advise(address, bytes, advice) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOMEM)) => Ok(false),
        Err(error) => Err(error),
    }
}

fn advise(address: u64, bytes: u64, advice: libc::c_int) -> io::Result<()> {
    let (address, bytes) = range(address, bytes)?;
    // SAFETY: none of the kinds of advice that get here (dump, do not dump, huge pages or not) changes what the memory
    // holds, whosever it is; the kernel refuses ranges that are not mapped.
    match unsafe { libc::madvise(address, bytes, advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn bind(address: u64, bytes: u64, policy: Policy, nodes: u64) -> io::Result<()> {
    let (address, bytes) = range(address, bytes)?;
    let mask: [libc::c_ulong; 1] = [nodes];
    let (mask, bits) = match policy {
        Policy::Default => (std::ptr::null(), 0),
        _ => (mask.as_ptr(), NODE_BITS + 1),
    };
    // SAFETY: mbind without flags says where pages to come are taken from and touches none that is there; the mask outlives
    // the call, which reads one bit less than it is told.
    let result = unsafe { libc::syscall(libc::SYS_mbind, address, bytes, policy as u64, mask, bits, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn range(address: u64, bytes: u64) -> io::Result<(*mut libc::c_void, usize)> {
    let address = usize::try_from(address).map_err(|_| invalid())?;
    let bytes = usize::try_from(bytes).map_err(|_| invalid())?;
    // Not dereferenced here: the kernel is told of a range.
    Ok((std::ptr::without_provenance_mut(address), bytes))
}

/// The descriptor through which ranges are write-protected so that the kernel remembers what is written.
#[derive(Default)]
struct WriteWatch {
    descriptor: OnceCell<Userfault>,
}

impl WriteWatch {
    fn add(&mut self, address: u64, bytes: u64) -> io::Result<()> {
        let descriptor = match self.descriptor.get() {
            Some(descriptor) => descriptor,
            None => {
                // Asynchronous protection stops no thread, so it does not matter which mode the faults come from.
                let options = Options { features: Features::WATCH_WRITES, user_mode_is_enough: true };
                let opened = Userfault::open(options).map_err(|error| error.into_io())?;
                self.descriptor.get_or_init(|| opened)
            }
        };
        descriptor.register_range(address, bytes, Modes::WRITE_PROTECT)
    }
}
