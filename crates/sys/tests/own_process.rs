//! Tests that need a process of their own: one watches every fork of its process, the other what the kernel says of a mapping, which it may
//! unite with those of other tests.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[path = "../src/forked.rs"]
#[allow(dead_code, reason = "tests of the library use the rest of it")]
mod forked;

use std::os::fd::AsFd;
use std::sync::{Arc, Barrier};
use std::thread::spawn;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tiermem_sys::aging::{is_allowed, make_old};
use tiermem_sys::mapping::{Mapping, Pages, SharedMapping};
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::smaps::Smaps;
use tiermem_sys::userfaultfd::{
    Features, Message, Messages, Modes, Options, Outcome, Progress, Protection, Userfault, UserfaultError,
    Wake,
};

use forked::{fork_and, status_of};

const PAGE: usize = 4096;

/// The next message.
fn next(of: &Userfault, messages: &mut Messages) -> Message {
    let mut found = None;
    let a_minute = Timespec { tv_sec: 60, tv_nsec: 0 };
    while found.is_none() {
        let mut polled = [PollFd::from_borrowed_fd(of.as_fd(), PollFlags::IN)];
        assert_eq!(poll(&mut polled, Some(&a_minute)).unwrap(), 1, "no message came");
        of.read(messages, |message| found = Some(message)).unwrap();
    }
    found.unwrap()
}

#[test]
fn a_childs_memory_is_served_through_its_own_descriptor() {
    let options = Options { features: Features::EVENT_FORK, user_mode_is_enough: false };
    let uffd = match Userfault::open(options) {
        Ok(opened) => opened,
        Err(error) => return eprintln!("not run: {error}"),
    };
    let mapping = Arc::new(SharedMapping::anonymous(2 * PAGE).unwrap());
    uffd.register(mapping.all_pages().unwrap(), Modes::MISSING).unwrap();
    let forking = Arc::clone(&mapping);
    // A fork holds the allocator's locks until it has been told of: this thread takes no memory and gives none back meanwhile.
    let mut messages = Messages::with_room_for(1);
    let begins = Arc::new(Barrier::new(2));
    let begun = Arc::clone(&begins);
    let parent = spawn(move || {
        begun.wait();
        fork_and(|| forking.load_u64(PAGE) == u64::from_ne_bytes([4; 8]))
    });
    begins.wait();
    let child = match next(&uffd, &mut messages) {
        Message::Fork(child) => child,
        other => panic!("{other:?}"),
    };
    let pid = parent.join().unwrap();
    let told = match next(&child, &mut messages) {
        Message::Fault(fault) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(told.address, mapping.address() + PAGE as u64);
    let page = Pages::of_other_process(told.address, PAGE as u64).unwrap();
    assert!(matches!(
        uffd.copy(page, &[4; PAGE], Protection::None, Wake::Yes),
        Err(UserfaultError::OtherProcess { .. })
    ));
    let own = mapping.pages(PAGE, PAGE).unwrap();
    assert!(child.copy(own, &[4; PAGE], Protection::None, Wake::Yes).is_err());
    assert!(child.copy(page, &[4; PAGE], Protection::None, Wake::Yes).unwrap().is_done());
    assert_eq!(status_of(pid), 0);
    let gone = child.copy(page, &[4; PAGE], Protection::None, Wake::Yes).unwrap();
    assert_eq!(gone, Progress { done_bytes: 0, outcome: Outcome::Gone });

    // The owner of the memory is found out, whatever the sender says.
    let options = Options::default();
    assert!(Userfault::of_other_process(child.as_fd().try_clone_to_owned().unwrap(), options).is_ok());
    let own = Userfault::of_other_process(uffd.as_fd().try_clone_to_owned().unwrap(), options);
    assert!(own.is_err_and(|error| error.to_string().contains("own memory")));
    let pipe = std::io::pipe().unwrap().0;
    assert!(Userfault::of_other_process(pipe.into(), options).is_err());
}

#[test]
fn what_is_made_old_is_referenced_no_more_until_it_is_touched() {
    let own = PidFd::open(std::process::id()).unwrap();
    if !is_allowed(own.as_fd()) {
        return;
    }
    let mut mapping = Mapping::anonymous(8 << 20).unwrap();
    mapping.bytes_mut().fill(1);
    let start = mapping.bytes().as_ptr().addr() as u64;
    let mut smaps = Smaps::open(std::process::id()).unwrap();
    let mut referenced = || {
        let mut found = 0;
        smaps
            .read(|usage| {
                if usage.start <= start && usage.end > start {
                    found = usage.referenced_bytes;
                }
            })
            .unwrap();
        found
    };
    let before = referenced();
    // 4 MiB in pieces, with ranges between them that are not mapped: the first one, some, the last one.
    let mut ranges: Vec<(u64, u64)> = (0..1024).map(|page| (start + page * 4096, 4096)).collect();
    for at in [0, 100, 101, 1024, 1028] {
        ranges.insert(at, (4096, 4096));
    }
    // A huge page that the kernel holds for a moment, as one that was just faulted in, is not split, and stays as it was.
    let after = (0..500)
        .map(|_| {
            make_old(own.as_fd(), &ranges).unwrap();
            let after = referenced();
            if after + (3 << 20) > before {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            after
        })
        .find(|after| after + (3 << 20) <= before);
    let after = after.expect("it is made old");
    mapping.bytes_mut()[..4 << 20].fill(2);
    assert!(referenced() >= after + (3 << 20));
    assert!(mapping.bytes()[4 << 20..].iter().all(|byte| *byte == 1));
}
