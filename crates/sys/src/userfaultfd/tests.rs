//! Faults, served for real: a thread touches a page, this one gives it.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::forked::{fork_and, status_of};
use crate::mapping::{Access, HugePages, Pages, SharedMapping, memory_file};

const PAGE: usize = 4096;

/// None where this process may not have what a test needs, which then does not run and says so.
fn opened(features: Features) -> Option<Userfault> {
    match Userfault::open(Options { features, user_mode_is_enough: false }) {
        Ok(opened) => Some(opened),
        Err(error) => {
            eprintln!("not run: {error}");
            None
        }
    }
}

fn anonymous(pages: usize) -> Arc<SharedMapping> {
    Arc::new(SharedMapping::anonymous(pages * PAGE).unwrap())
}

/// Pages of 4 KiB by their numbers.
fn pages(mapping: &SharedMapping, first: usize, count: usize) -> Pages<'_> {
    mapping.pages(first * PAGE, count * PAGE).unwrap()
}

/// Waits until a message can be read, without reading it.
fn wait_for_message(of: &Userfault) {
    let mut polled = [PollFd::from_borrowed_fd(of.as_fd(), PollFlags::IN)];
    let a_minute = Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(poll(&mut polled, Some(&a_minute)).unwrap(), 1, "no message came");
}

/// The next message. A test that fails closes its descriptor, which wakes waiting threads.
fn next(of: &Userfault) -> Message {
    let mut found = None;
    let mut messages = Messages::with_room_for(1);
    while found.is_none() {
        wait_for_message(of);
        of.read(&mut messages, |message| found = Some(message)).unwrap();
    }
    found.unwrap()
}

fn fault(of: &Userfault) -> Fault {
    match next(of) {
        Message::Fault(fault) => fault,
        other => panic!("{other:?}"),
    }
}

/// A thread that reads a byte.
fn reader(mapping: &Arc<SharedMapping>, at: usize) -> JoinHandle<u8> {
    let mapping = Arc::clone(mapping);
    spawn(move || {
        let mut byte = [0];
        mapping.read(at, &mut byte);
        byte[0]
    })
}

fn writer(mapping: &Arc<SharedMapping>, at: usize, value: u64) -> JoinHandle<()> {
    let mapping = Arc::clone(mapping);
    spawn(move || mapping.store_u64(at, value))
}

fn done(bytes: usize) -> Progress {
    Progress { done_bytes: bytes as u64, outcome: Outcome::Done }
}

#[test]
fn a_missing_page_is_copied_to_who_waits_for_it() {
    let Some(uffd) = opened(Features::THREAD_ID) else { return };
    let mapping = anonymous(8);
    uffd.register(mapping.all_pages().unwrap(), Modes::MISSING).unwrap();
    assert_eq!(uffd.read(&mut Messages::with_room_for(4), |_| ()).unwrap(), 0, "nobody waits yet");
    let read = reader(&mapping, 3 * PAGE + 100);
    let first = fault(&uffd);
    assert_eq!((first.address, first.kind), (mapping.address() + 3 * PAGE as u64, FaultKind::Missing));
    assert!(!first.write && first.thread.is_some_and(|thread| thread != std::process::id()));
    let copied = uffd.copy(pages(&mapping, 3, 1), &[7; PAGE], Protection::None, Wake::Yes).unwrap();
    assert_eq!((copied, read.join().unwrap()), (done(PAGE), 7));

    // Told apart: a write; several pages and one wake.
    let write = writer(&mapping, 5 * PAGE, 9);
    assert!(fault(&uffd).write);
    assert_eq!(uffd.zero_pages(pages(&mapping, 4, 2), Wake::Later).unwrap(), done(2 * PAGE));
    uffd.wake(pages(&mapping, 4, 2)).unwrap();
    write.join().unwrap();
    assert_eq!((mapping.load_u64(5 * PAGE), mapping.load_u64(4 * PAGE)), (9, 0));

    uffd.unregister(mapping.all_pages().unwrap()).unwrap();
    assert_eq!(mapping.load_u64(7 * PAGE), 0, "the kernel's own again");
}

#[test]
fn a_part_that_is_done_is_told_and_then_the_reason() {
    let Some(uffd) = opened(Features::NONE) else { return };
    let mapping = anonymous(8);
    let copy = |first, count| {
        let bytes = vec![1; count * PAGE];
        uffd.copy(pages(&mapping, first, count), &bytes, Protection::None, Wake::Yes).unwrap()
    };
    assert_eq!(copy(0, 1), Progress { done_bytes: 0, outcome: Outcome::Absent }, "not registered");
    uffd.register(pages(&mapping, 0, 7), Modes::MISSING).unwrap();
    assert!(copy(2, 1).is_done());
    assert_eq!(copy(0, 6), Progress { done_bytes: 2 * PAGE as u64, outcome: Outcome::Again });
    assert_eq!(copy(2, 4), Progress { done_bytes: 0, outcome: Outcome::Exists });
    assert!(copy(3, 4).is_done());
    let short = uffd.copy(pages(&mapping, 0, 1), &[0; 5], Protection::None, Wake::Yes);
    assert!(matches!(short, Err(UserfaultError::Length { bytes: 4096, given: 5, .. })), "{short:?}");
}

#[test]
fn many_messages_are_read_at_once() {
    let Some(uffd) = opened(Features::EXACT_ADDRESS) else { return };
    let mapping = anonymous(8);
    uffd.register(mapping.all_pages().unwrap(), Modes::MISSING).unwrap();
    let readers: Vec<_> = (0..5).map(|page| reader(&mapping, page * PAGE + 8)).collect();
    let info = format!("/proc/self/fdinfo/{}", uffd.as_fd().as_raw_fd());
    while !std::fs::read_to_string(&info).unwrap().contains("pending:\t5") {
        std::thread::yield_now();
    }
    let mut addresses = Vec::new();
    let mut each = |message| match message {
        Message::Fault(fault) => addresses.push(fault.address - mapping.address()),
        other => panic!("{other:?}"),
    };
    let mut messages = Messages::with_room_for(4);
    assert_eq!(uffd.read(&mut messages, &mut each).unwrap(), 4);
    assert_eq!(uffd.read(&mut messages, &mut each).unwrap(), 1);
    addresses.sort_unstable();
    assert_eq!(addresses, [8, 4104, 8200, 12296, 16392]);
    uffd.copy(pages(&mapping, 0, 5), &[3; 5 * PAGE], Protection::None, Wake::Yes).unwrap();
    assert!(readers.into_iter().all(|reader| reader.join().unwrap() == 3));
}

#[test]
fn a_write_to_a_protected_page_waits_until_that_is_lifted() {
    let Some(uffd) = opened(Features::WRITE_PROTECT) else { return };
    let mapping = anonymous(4);
    uffd.register(mapping.all_pages().unwrap(), Modes::MISSING | Modes::WRITE_PROTECT).unwrap();
    uffd.copy(pages(&mapping, 0, 2), &[1; 2 * PAGE], Protection::Writes, Wake::Yes).unwrap();
    let all_ones = u64::from_ne_bytes([1; 8]);
    assert_eq!(mapping.load_u64(PAGE), all_ones, "reading is free");
    for round in 1..=2 {
        let write = writer(&mapping, PAGE + 8, round);
        let told = fault(&uffd);
        assert_eq!((told.kind, told.write), (FaultKind::WriteProtect, true));
        assert_eq!(told.address, mapping.address() + PAGE as u64);
        assert_ne!(mapping.load_u64(PAGE + 8), round);
        let lifted = uffd.write_protect(pages(&mapping, 1, 1), Protection::None, Wake::Yes).unwrap();
        assert_eq!(lifted, done(PAGE));
        write.join().unwrap();
        assert_eq!(mapping.load_u64(PAGE + 8), round);
        assert!(uffd.write_protect(pages(&mapping, 1, 1), Protection::Writes, Wake::Yes).unwrap().is_done());
    }
    let elsewhere = anonymous(1);
    let answer = uffd.write_protect(elsewhere.all_pages().unwrap(), Protection::Writes, Wake::Yes).unwrap();
    assert_eq!(answer, Progress { done_bytes: 0, outcome: Outcome::Absent });
}

#[test]
fn a_page_that_another_mapping_wrote_is_mapped_after_a_minor_fault() {
    let features = Features::MINOR_SHMEM | Features::MISSING_SHMEM | Features::WRITE_PROTECT_SHARED;
    let Some(uffd) = opened(features) else { return };
    let file = memory_file("tiermem-minor", 4 * PAGE as u64, HugePages::No).unwrap();
    let map = || Arc::new(SharedMapping::file(&file, 0, 4 * PAGE, Access::ReadWrite).unwrap());
    let (served, other) = (map(), map());
    uffd.register(served.all_pages().unwrap(), Modes::MISSING | Modes::MINOR | Modes::WRITE_PROTECT).unwrap();
    other.store_u64(0, 5);
    let read = reader(&served, 0);
    assert_eq!(fault(&uffd).kind, FaultKind::Minor);
    let mapped = uffd.map_file_pages(pages(&served, 0, 1), Protection::Writes, Wake::Yes).unwrap();
    assert_eq!((mapped, read.join().unwrap()), (done(PAGE), 5));
    // It was mapped protected.
    let write = writer(&served, 0, 6);
    assert_eq!(fault(&uffd).kind, FaultKind::WriteProtect);
    uffd.write_protect(pages(&served, 0, 1), Protection::None, Wake::Yes).unwrap();
    write.join().unwrap();
    assert_eq!(other.load_u64(0), 6);
    // A hole is missing, and has nothing to map.
    let nothing = uffd.map_file_pages(pages(&served, 1, 1), Protection::None, Wake::Yes).unwrap();
    assert_eq!(nothing, Progress { done_bytes: 0, outcome: Outcome::NoPage });
    let read = reader(&served, PAGE);
    assert_eq!(fault(&uffd).kind, FaultKind::Missing);
    uffd.copy(pages(&served, 1, 1), &[8; PAGE], Protection::None, Wake::Yes).unwrap();
    assert_eq!((read.join().unwrap(), other.load_u64(PAGE) as u8), (8, 8));
}

#[test]
fn a_page_is_moved_and_is_gone_where_it_was() {
    let Some(uffd) = opened(Features::MOVE) else { return };
    let (to, from) = (anonymous(4), anonymous(4));
    uffd.register(to.all_pages().unwrap(), Modes::MISSING).unwrap();
    from.store_u64(PAGE, 11);
    from.store_u64(2 * PAGE, 12);
    let read = reader(&to, PAGE);
    fault(&uffd);
    assert_eq!(uffd.shift(pages(&to, 1, 1), pages(&from, 1, 1), false, Wake::Yes).unwrap(), done(PAGE));
    assert_eq!((read.join().unwrap(), from.load_u64(PAGE)), (11, 0));
    let again = uffd.shift(pages(&to, 1, 1), pages(&from, 2, 1), false, Wake::Yes).unwrap();
    assert_eq!(again, Progress { done_bytes: 0, outcome: Outcome::Exists });
    // Page 3 was never touched.
    let hole = uffd.shift(pages(&to, 3, 1), pages(&from, 3, 1), false, Wake::Yes).unwrap();
    assert_eq!(hole, Progress { done_bytes: 0, outcome: Outcome::Absent });
    assert!(uffd.shift(pages(&to, 2, 2), pages(&from, 2, 2), true, Wake::Yes).unwrap().is_done());
    assert_eq!((to.load_u64(2 * PAGE), from.load_u64(2 * PAGE)), (12, 0));
    let target = uffd.shift(from.all_pages().unwrap(), to.all_pages().unwrap(), true, Wake::Yes);
    assert!(matches!(target, Err(UserfaultError::Refused { .. })), "the target is not registered");
    assert!(target.unwrap_err().to_string().contains("Linux 6.8"));
}

#[test]
fn who_touches_a_poisoned_page_gets_sigbus() {
    let Some(uffd) = opened(Features::POISON) else { return };
    let mapping = anonymous(2);
    uffd.register(mapping.all_pages().unwrap(), Modes::MISSING).unwrap();
    assert_eq!(uffd.poison(pages(&mapping, 1, 1), Wake::Yes).unwrap(), done(PAGE));
    // A system call is told.
    let (_reader, pipe) = std::io::pipe().unwrap();
    // SAFETY: the kernel reads one byte of a mapping that is there.
    let written = unsafe {
        let address = std::ptr::with_exposed_provenance::<libc::c_void>(mapping.address() as usize + PAGE);
        libc::write(pipe.as_raw_fd(), address, 1)
    };
    assert_eq!((written, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
    // A child inherits the poison, and dies of it.
    let status = status_of(fork_and(|| mapping.load_u64(PAGE) == 0));
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:#x}");
}

#[test]
fn while_pages_are_being_dropped_filling_answers_again() {
    let Some(uffd) = opened(Features::EVENT_REMOVE) else { return };
    let mapping = anonymous(4);
    uffd.register(mapping.all_pages().unwrap(), Modes::MISSING).unwrap();
    let fill = || uffd.copy(pages(&mapping, 0, 4), &[2; 4 * PAGE], Protection::None, Wake::Yes).unwrap();
    assert!(fill().is_done());
    let dropping = Arc::clone(&mapping);
    let dropped = spawn(move || dropping.discard(0, 4 * PAGE));
    wait_for_message(&uffd);
    // A thread that drops them waits. The kernel's count is an error's number now.
    assert_eq!(fill(), Progress { done_bytes: 0, outcome: Outcome::Again });
    assert_eq!(uffd.zero_pages(pages(&mapping, 0, 1), Wake::Yes).unwrap().outcome, Outcome::Again);
    match next(&uffd) {
        Message::Remove { start, end } => {
            assert_eq!((start, end), (mapping.address(), mapping.address() + 4 * PAGE as u64));
        }
        other => panic!("{other:?}"),
    }
    dropped.join().unwrap().unwrap();
    assert!(fill().is_done());
}

#[test]
fn ranges_that_move_or_go_are_told() {
    let Some(uffd) = opened(Features::EVENT_REMAP | Features::EVENT_UNMAP) else { return };
    let mapping = SharedMapping::anonymous(4 * PAGE).unwrap();
    let (start, all) = (mapping.address(), 4 * PAGE as u64);
    uffd.register(mapping.all_pages().unwrap(), Modes::MISSING).unwrap();
    uffd.copy(mapping.pages(0, PAGE).unwrap(), &[6; PAGE], Protection::None, Wake::Yes).unwrap();
    let moved = spawn(move || {
        let old = std::ptr::with_exposed_provenance_mut::<libc::c_void>(start as usize);
        let len = 4 * PAGE;
        // SAFETY: reserves addresses, and moves the test's own mapping there, which is unmapped below.
        unsafe {
            let target = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            libc::mremap(old, len, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, target).addr() as u64
        }
    });
    let (from, to, bytes) = loop {
        match next(&uffd) {
            Message::Remap { from, to, bytes } => break (from, to, bytes),
            // The place where it was, whose unmapping is told, too.
            Message::Unmap { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((from, bytes), (start, all));
    // Older and newer kernels also tell that the old place is unmapped; that is read by the next reader.
    std::mem::forget(mapping);
    let unmapped = spawn(move || {
        let now = moved.join().unwrap();
        let address = std::ptr::with_exposed_provenance_mut::<libc::c_void>(now as usize);
        // SAFETY: the mapping is the test's own, and no code reaches into it any more.
        assert_eq!(unsafe { libc::munmap(address, 4 * PAGE) }, 0);
        now
    });
    loop {
        match next(&uffd) {
            Message::Unmap { start, end } if start == to => break assert_eq!(end, to + all),
            Message::Unmap { start: old, .. } => assert_eq!(old, start),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(unmapped.join().unwrap(), to);
}

#[test]
fn for_faults_of_the_program_alone_a_system_call_fails() {
    let Ok(uffd) = Userfault::user_mode_only(Features::NONE) else {
        return eprintln!("not run: this kernel has no userfaultfd for the program's own faults");
    };
    let mapping = anonymous(1);
    uffd.register(mapping.all_pages().unwrap(), Modes::MISSING).unwrap();
    let (_reader, pipe) = std::io::pipe().unwrap();
    let address = std::ptr::with_exposed_provenance::<libc::c_void>(mapping.address() as usize);
    // SAFETY: the kernel reads one byte of a mapping that is there.
    let written = unsafe { libc::write(pipe.as_raw_fd(), address, 1) };
    assert_eq!((written, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EFAULT)));
    assert_eq!(uffd.way(), Way::UserModeOnly);
}

#[test]
fn what_is_refused_says_why_and_what_helps() {
    let Ok((all, _)) = offered() else { return };
    let unknown = Options { features: Features::from_bits(1 << 60), user_mode_is_enough: true };
    match Userfault::open(unknown) {
        Err(OpenError::Lacks { missing, offered }) => assert_eq!((missing.bits(), offered), (1 << 60, all)),
        other => panic!("{other:?}"),
    }
    let options = Options { user_mode_is_enough: true, ..Options::default() };
    let (one, other) = (Userfault::open(options).unwrap(), Userfault::open(options).unwrap());
    let mapping = anonymous(2);
    one.register(mapping.all_pages().unwrap(), Modes::MISSING).unwrap();
    let busy = other.register(mapping.all_pages().unwrap(), Modes::MISSING).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    assert!(busy.to_string().contains("another userfaultfd has this range"), "{busy}");
    let address = mapping.address();
    drop(mapping);
    let nowhere = Pages::of_this_process(address, 2 * PAGE as u64).unwrap();
    let hole = one.register(nowhere, Modes::MISSING).unwrap_err().to_string();
    assert!(hole.contains("cannot register 8192 bytes") && hole.contains("without holes"), "{hole}");
}

/// As many huge pages more as a test needs, given back when it ends.
struct HugePool {
    before: u64,
}

const HUGE_POOL: &str = "/proc/sys/vm/nr_hugepages";

impl HugePool {
    fn grow(pages: u64) -> Option<HugePool> {
        let before: u64 = std::fs::read_to_string(HUGE_POOL).ok()?.trim().parse().ok()?;
        std::fs::write(HUGE_POOL, (before + pages).to_string()).ok()?;
        let pool = HugePool { before };
        let now: u64 = std::fs::read_to_string(HUGE_POOL).ok()?.trim().parse().ok()?;
        (now == before + pages).then_some(pool)
    }
}

impl Drop for HugePool {
    fn drop(&mut self) {
        let _ = std::fs::write(HUGE_POOL, self.before.to_string());
    }
}

#[test]
fn huge_pages_are_served_whole() {
    const HUGE: usize = 2 << 20;
    let Some(_pool) = HugePool::grow(2) else {
        return eprintln!("not run: no huge pages are to be had (vm.nr_hugepages, as root)");
    };
    let features = Features::MISSING_HUGETLBFS | Features::MINOR_HUGETLBFS;
    let Some(uffd) = opened(features) else { return };
    let file = memory_file("tiermem-huge", 2 * HUGE as u64, HugePages::Of2MiB).unwrap();
    let map = || Arc::new(SharedMapping::file(&file, 0, 2 * HUGE, Access::ReadWrite).unwrap());
    let (served, other) = (map(), map());
    uffd.register(served.all_pages().unwrap(), Modes::MISSING | Modes::MINOR).unwrap();
    let read = reader(&served, HUGE + 5 * PAGE);
    assert_eq!(fault(&uffd).address, served.address() + HUGE as u64);
    let page = served.pages(HUGE, HUGE).unwrap();
    assert_eq!(uffd.copy(page, &vec![3; HUGE], Protection::None, Wake::Yes).unwrap(), done(HUGE));
    assert_eq!(read.join().unwrap(), 3);
    let part = uffd.copy(served.pages(0, PAGE).unwrap(), &[3; PAGE], Protection::None, Wake::Yes);
    assert!(part.is_err_and(|error| error.to_string().contains("whole huge pages")));
    other.store_u64(0, 4);
    let read = reader(&served, 0);
    assert_eq!(fault(&uffd).kind, FaultKind::Minor);
    uffd.map_file_pages(served.pages(0, HUGE).unwrap(), Protection::None, Wake::Yes).unwrap();
    assert_eq!(read.join().unwrap(), 4);
}
