//! Children that share the table of descriptors. Only processes of one thread can have them, and a test of the usual harness is
//! not one: so this is a program of its own, which runs its tests one after the other.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::time::Duration;

use tiermem_sys::child::take_end;
use tiermem_sys::mapping::{Pages, SharedMapping};
use tiermem_sys::shared_files::{SharedFilesChild, SharedFilesError};
use tiermem_sys::userfaultfd::{
    Features, Message, Messages, Modes, Options, Outcome, Protection, Userfault, Wake,
};

const LONG: Duration = Duration::from_secs(60);

fn main() {
    let tests: [(&str, fn()); 5] = [
        ("what_the_child_opens_its_parent_has", what_the_child_opens_its_parent_has),
        ("what_the_parent_opens_its_child_has", what_the_parent_opens_its_child_has),
        ("memory_is_not_shared", memory_is_not_shared),
        ("a_keeper_keeps_a_dead_programs_memory_waiting", a_keeper_keeps_a_dead_programs_memory_waiting),
        ("a_process_of_several_threads_is_refused", a_process_of_several_threads_is_refused),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for (name, test) in tests {
        if wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str())) {
            test();
            println!("test {name} ... ok");
        }
    }
}

fn ends_with(child: &SharedFilesChild, code: i32) {
    assert!(child.process().wait(LONG));
    let (status, _) = take_end(child.pid()).unwrap().unwrap();
    assert_eq!(status.code(), Some(code), "{status}");
}

fn what_the_child_opens_its_parent_has() {
    let (mut told, tell) = std::io::pipe().unwrap();
    let teller = tell.as_fd();
    let child = SharedFilesChild::start(move || {
        let opened = File::open("/proc/version").unwrap().into_raw_fd();
        rustix::io::write(teller, &opened.to_ne_bytes()).unwrap();
        7
    });
    let child = child.unwrap();
    let mut number = [0; 4];
    told.read_exact(&mut number).unwrap();
    ends_with(&child, 7);
    let link = fs::read_link(format!("/proc/self/fd/{}", i32::from_ne_bytes(number))).unwrap();
    assert_eq!(link.to_str(), Some("/proc/version"), "open, though the child has gone");
}

fn what_the_parent_opens_its_child_has() {
    let (told, mut tell) = std::io::pipe().unwrap();
    let listener = told.as_fd();
    let child = SharedFilesChild::start(move || {
        let mut number = [0; 4];
        rustix::io::read(listener, &mut number).unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", i32::from_ne_bytes(number))).unwrap();
        if link.to_str() == Some("/proc/uptime") { 3 } else { 4 }
    });
    let later = File::open("/proc/uptime").unwrap();
    tell.write_all(&later.as_raw_fd().to_ne_bytes()).unwrap();
    ends_with(&child.unwrap(), 3);
    // The child's end has closed nothing.
    drop((told, later));
}

fn memory_is_not_shared() {
    let value = std::cell::Cell::new(1);
    let cell = &value;
    let child = SharedFilesChild::start(move || {
        cell.set(2);
        cell.get()
    });
    ends_with(&child.unwrap(), 2);
    assert_eq!(value.get(), 1);
    let panicked = SharedFilesChild::start(|| panic!("this panic belongs to the test"));
    ends_with(&panicked.unwrap(), 101);
}

/// The pager dies; its keeper has the descriptor and can still serve, or end the program before it reads zeros.
fn a_keeper_keeps_a_dead_programs_memory_waiting() {
    let options = Options { features: Features::NONE, user_mode_is_enough: true };
    let uffd = match Userfault::open(options) {
        Ok(uffd) => uffd,
        Err(error) => return println!("not run: {error}"),
    };
    let mapping = SharedMapping::anonymous(4096).unwrap();
    uffd.register(mapping.all_pages().unwrap(), Modes::MISSING).unwrap();
    let keeper = &uffd;
    // The child has the descriptor by its number, and so it serves the parent's memory, which it does not have itself.
    let child = SharedFilesChild::start(move || {
        let mut messages = Messages::with_room_for(1);
        let mut fault = None;
        while fault.is_none() {
            keeper.read(&mut messages, |message| fault = Some(message)).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let Some(Message::Fault(fault)) = fault else { return 1 };
        let Ok(other) = Userfault::of_other_process(keeper.as_fd().try_clone_to_owned().unwrap(), options)
        else {
            return 2;
        };
        let page = Pages::of_other_process(fault.address, 4096).unwrap();
        let copied = other.copy(page, &[9; 4096], Protection::None, Wake::Yes).unwrap();
        if copied.outcome == Outcome::Done { 0 } else { 3 }
    });
    let child = child.unwrap();
    // This waits until the child has given the page.
    assert_eq!(mapping.load_u64(0), u64::from_ne_bytes([9; 8]));
    ends_with(&child, 0);
}

fn a_process_of_several_threads_is_refused() {
    let (ask, answer) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || answer.recv());
    assert!(matches!(SharedFilesChild::start(|| 0), Err(SharedFilesError::Threads(2))));
    drop(ask);
    thread.join().unwrap().unwrap_err();
}
