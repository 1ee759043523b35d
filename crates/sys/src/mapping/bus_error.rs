//! Accesses to a mapped file that its device cannot serve: the file was shortened, or a page of the medium is bad.
//!
//! The kernel says so by SIGBUS to the thread that made the access, whose default is the end of the process. For ranges that are
//! [watched](Watch) a handler maps zeros of this process's own over what cannot be reached, and notes that in the range. So the access
//! returns, with zeros that are not the file's: whoever reads must ask [`Watch::is_lost`] *after* the access and before it believes
//! what it has read. The handler only makes system calls and writes atomics, which a handler may do.
//!
//! | what failed | what is replaced |
//! | --- | --- |
//! | an address behind the end of a regular file | all from the page behind that end on: one mapping, however large |
//! | another one | its page; a huge one where the device maps no smaller ones |
//!
//! Any other SIGBUS (an address outside of the ranges, or a signal that a process has sent) is as if there were no handler: the action
//! before it is put back, and takes the signal.

use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use rustix::fs::{FileType, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

pub(super) const PAGE_BYTES: usize = 4096;
/// Sizes of pages that devices map, the smallest first.
const GRANULES: [usize; 3] = [PAGE_BYTES, 2 << 20, 1 << 30];
/// Single pages that a range can note until they are taken; with more of them all of it counts as lost.
const NOTED_MAX: usize = 64;
/// Nothing is lost behind the file's end.
const NONE: usize = usize::MAX;

/// A range that is watched, or was: the list of them only grows, and what nobody watches any more is used again.
#[derive(Debug)]
struct Watched {
    is_taken: AtomicBool,
    start: AtomicUsize,
    /// 0: there is no range.
    len: AtomicUsize,
    file: AtomicI32,
    is_lost: AtomicBool,
    /// From this offset on all is lost.
    tail: AtomicUsize,
    /// Offsets of single pages. A page begins at a multiple of 4096, so its lowest bits say which of [`GRANULES`] it has.
    noted: [AtomicUsize; NOTED_MAX],
    noted_count: AtomicUsize,
    next: AtomicPtr<Watched>,
}

static FIRST: AtomicPtr<Watched> = AtomicPtr::new(ptr::null_mut());
/// What SIGBUS did before the handler.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// The watch over one mapped file. It must end before the range is unmapped.
#[derive(Debug)]
pub(super) struct Watch(&'static Watched);

impl Watch {
    /// Watches `len` bytes from `start` on, which are a mapping of this file from its first byte on.
    pub(super) fn over(start: *mut u8, len: usize, file: &impl AsRawFd) -> Self {
        BEFORE.get_or_init(handle_bus_errors);
        let is_free = |watched: &&Watched| {
            watched.is_taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let watched = all().find(is_free).unwrap_or_else(Watched::push_new);
        watched.take_lost();
        watched.file.store(file.as_raw_fd(), Ordering::Relaxed);
        watched.start.store(start.expose_provenance(), Ordering::Relaxed);
        watched.len.store(len, Ordering::Release);
        Watch(watched)
    }

    /// Whether something was lost since it was last taken.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Relaxed)
    }

    /// Notes that all from this offset on is lost, as the owner has found.
    pub(super) fn note_tail(&self, offset: usize) {
        self.0.note_tail(offset);
    }

    /// What was lost since this was last called, in order, none of it twice.
    pub(super) fn take_lost(&self) -> Vec<Range<usize>> {
        self.0.take_lost()
    }

    /// What the handler does about an address.
    #[cfg(test)]
    pub(super) fn replace(&self, address: usize) -> bool {
        self.0.replace(address)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.len.store(0, Ordering::Release);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

fn all() -> impl Iterator<Item = &'static Watched> {
    let at = |link: &AtomicPtr<Watched>| {
        // SAFETY: every element was leaked by `push_new`, so it lives for ever, and is reached through shared references only.
        unsafe { link.load(Ordering::Acquire).as_ref() }
    };
    std::iter::successors(at(&FIRST), move |watched| at(&watched.next))
}

impl Watched {
    /// A new element, taken, at the head of the list.
    fn push_new() -> &'static Watched {
        let new: &'static mut Watched = Box::leak(Box::new(Watched {
            is_taken: AtomicBool::new(true),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            file: AtomicI32::new(-1),
            is_lost: AtomicBool::new(false),
            tail: AtomicUsize::new(NONE),
            noted: [const { AtomicUsize::new(0) }; NOTED_MAX],
            noted_count: AtomicUsize::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
        }));
        let new = ptr::from_mut(new);
        let mut first = FIRST.load(Ordering::Acquire);
        loop {
            // SAFETY: it was just leaked, so that it lives for ever.
            let watched: &'static Watched = unsafe { &*new };
            watched.next.store(first, Ordering::Relaxed);
            match FIRST.compare_exchange(first, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return watched,
                Err(other) => first = other,
            }
        }
    }

    fn note_tail(&self, offset: usize) {
        self.tail.fetch_min(offset, Ordering::Relaxed);
        self.is_lost.store(true, Ordering::Release);
    }

    fn note_page(&self, offset: usize, granule: usize) {
        let at = self.noted_count.fetch_add(1, Ordering::Relaxed);
        match self.noted.get(at) {
            Some(noted) => noted.store(offset | granule, Ordering::Relaxed),
            None => self.tail.store(0, Ordering::Relaxed),
        }
        self.is_lost.store(true, Ordering::Release);
    }

    fn take_lost(&self) -> Vec<Range<usize>> {
        self.is_lost.store(false, Ordering::Relaxed);
        let len = self.len.load(Ordering::Relaxed);
        let tail = self.tail.swap(NONE, Ordering::Relaxed).min(len);
        let count = self.noted_count.swap(0, Ordering::Relaxed).min(NOTED_MAX);
        let page = |noted: &AtomicUsize| {
            let noted = noted.load(Ordering::Relaxed);
            let offset = noted / PAGE_BYTES * PAGE_BYTES;
            offset..(offset + GRANULES.get(noted % PAGE_BYTES).copied().unwrap_or(PAGE_BYTES)).min(tail)
        };
        let mut lost: Vec<Range<usize>> = self.noted[..count].iter().map(page).collect();
        lost.push(tail..len);
        lost.retain(|range| !range.is_empty());
        lost.sort_unstable_by_key(|range| range.start);
        lost.dedup();
        lost
    }

    /// Has zeros stand where an access to this address has failed. `false`: the address is not in the range, or the kernel gives none.
    fn replace(&self, address: usize) -> bool {
        let len = self.len.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let Some(offset) = address.checked_sub(start).filter(|offset| *offset < len) else { return false };
        // SAFETY: the owner keeps the file open as long as the range has a length.
        let file = unsafe { BorrowedFd::borrow_raw(self.file.load(Ordering::Relaxed)) };
        let regular =
            fstat(file).ok().filter(|it| FileType::from_raw_mode(it.st_mode) == FileType::RegularFile);
        let file_bytes = regular.and_then(|it| usize::try_from(it.st_size).ok());
        if let Some(bytes) = file_bytes
            && let Some(end) = bytes.checked_next_multiple_of(PAGE_BYTES).filter(|end| *end <= offset)
        {
            let is_replaced = map_zeros(start + end, len - end);
            if is_replaced {
                // The kernel has put zeros behind the end in the last page, too.
                self.note_tail(bytes / PAGE_BYTES * PAGE_BYTES);
            }
            return is_replaced;
        }
        GRANULES.iter().enumerate().any(|(number, bytes)| {
            let first = address / bytes * bytes;
            let is_within = first >= start && first + bytes <= start + len;
            let is_replaced = is_within && map_zeros(first, *bytes);
            if is_replaced {
                self.note_page(first - start, number);
            }
            is_replaced
        })
    }
}

/// Maps memory of the process's own over a part of a watched range.
fn map_zeros(start: usize, len: usize) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    let start = ptr::with_exposed_provenance_mut(start);
    // SAFETY: the pages are a part of a mapping that its owner has and that cannot be reached as it is. They stay mapped, to read and
    // to write as before; what they hold is said to be lost.
    unsafe { mmap_anonymous(start, len, ProtFlags::READ | ProtFlags::WRITE, flags) }.is_ok()
}

/// Sets the handler. Returns the action before.
fn handle_bus_errors() -> libc::sigaction {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
    // SAFETY: an action is numbers and an optional address, for which zeros stand for the default action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut before = action;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both actions outlive the calls, and the handler has the form that SA_SIGINFO asks for. The calls fail for a number that
    // is no signal only.
    unsafe {
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before);
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
    }
    before
}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO what it knows of the signal; the number of the last error is this thread's.
    let (code, address, errno_at) =
        unsafe { ((*info).si_code, (*info).si_addr().addr(), libc::__errno_location()) };
    // SAFETY: the address is that of this thread's number.
    let errno = unsafe { *errno_at };
    // What a process has sent is no access.
    let is_access = code > 0;
    let is_replaced = is_access && all().any(|watched| watched.replace(address));
    // SAFETY: as above. Whoever was interrupted finds the number as it was.
    unsafe { *errno_at = errno };
    if is_replaced {
        return;
    }
    if let Some(before) = BEFORE.get() {
        // SAFETY: the action was taken from the kernel. The access is tried again when this returns, and fails again.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    }
    if !is_access {
        // SAFETY: sends this thread the signal again, which the action before takes as soon as this returns.
        unsafe { libc::raise(signal) };
    }
}
