//! Messages of a `userfaultfd`: faults, and changes that its process makes to its memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::abi::{self, RawMessage};
use super::features::Features;
use super::open::Userfault;

/// Why a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// There is no page.
    Missing,
    /// The page is protected from writes.
    WriteProtect,
    /// The file has the page, and it is not mapped.
    Minor,
}

/// A thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it touched: the page's first address, or the byte's where exact addresses were asked for.
    pub address: u64,
    /// The thread, where thread ids were requested.
    pub thread: Option<u32>,
    /// Whether it writes.
    pub write: bool,
    /// Why.
    pub kind: FaultKind,
}

/// A message. Behind all but the faults stands a thread that waits until the message has been read.
#[derive(Debug)]
pub enum Message {
    /// A thread waits for a page.
    Fault(Fault),
    /// The process has a child. This is about its memory, which has the same ranges registered.
    ///
    /// A process that watches its own memory: `fork` holds the C library's allocator locks until this message has been read, so the
    /// thread that reads must neither take nor give back memory before, or both wait for ever.
    Fork(Userfault),
    /// A range has moved, by `mremap`.
    Remap {
        /// Where it was.
        from: u64,
        /// Where it is.
        to: u64,
        /// Its length.
        bytes: u64,
    },
    /// Pages of a range are being dropped: they will be missing.
    Remove {
        /// The first address.
        start: u64,
        /// Behind the last one.
        end: u64,
    },
    /// A range is no longer mapped.
    Unmap {
        /// The first address.
        start: u64,
        /// Behind the last one.
        end: u64,
    },
    /// A kind that is not known here.
    Unknown(u8),
}

/// Where messages are read into, many at once.
#[derive(Debug)]
pub struct Messages {
    raw: Vec<RawMessage>,
}

impl Messages {
    /// A buffer for at most `count` messages, at least one.
    pub fn with_room_for(count: usize) -> Self {
        Messages { raw: vec![RawMessage::default(); count.max(1)] }
    }
}

impl Userfault {
    /// Reads the messages that are there, as many as there is room for, in one system call. Returns how many. None are there: 0,
    /// without waiting.
    ///
    /// # Errors
    /// The system's error; for a child's message, that there are too many open files (`EMFILE`).
    pub fn read(&self, messages: &mut Messages, mut each: impl FnMut(Message)) -> io::Result<usize> {
        let bytes = size_of_val(messages.raw.as_slice());
        let read = loop {
            // SAFETY: the kernel writes at most as many bytes as the vector has; every pattern of bits is a message.
            let read =
                unsafe { libc::read(self.as_fd().as_raw_fd(), messages.raw.as_mut_ptr().cast(), bytes) };
            match usize::try_from(read) {
                Ok(read) => break read,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                    error => return Err(error),
                },
            }
        };
        debug_assert!(read.is_multiple_of(size_of::<RawMessage>()), "whole messages are read: {read}");
        let count = read / size_of::<RawMessage>();
        messages.raw.iter().take(count).for_each(|raw| each(self.message(raw)));
        Ok(count)
    }

    fn message(&self, raw: &RawMessage) -> Message {
        let [first, second, third] = raw.numbers;
        match raw.event {
            abi::EVENT_FAULT => Message::Fault(self.fault(first, second, third)),
            abi::EVENT_FORK => {
                // The number is one of 32 bits.
                let number = first as u32 as i32;
                // SAFETY: the kernel has just made this descriptor for the reader of the message, and says so once.
                Message::Fork(Userfault::of_child(unsafe { OwnedFd::from_raw_fd(number) }, self))
            }
            abi::EVENT_REMAP => Message::Remap { from: first, to: second, bytes: third },
            abi::EVENT_REMOVE => Message::Remove { start: first, end: second },
            abi::EVENT_UNMAP => Message::Unmap { start: first, end: second },
            other => Message::Unknown(other),
        }
    }

    fn fault(&self, flags: u64, address: u64, thread: u64) -> Fault {
        let kind = match flags {
            _ if flags & abi::FAULT_WRITE_PROTECT != 0 => FaultKind::WriteProtect,
            _ if flags & abi::FAULT_MINOR != 0 => FaultKind::Minor,
            _ => FaultKind::Missing,
        };
        let names_threads = self.features().contains(Features::THREAD_ID);
        let thread = names_threads.then_some(thread as u32);
        Fault { address, thread, write: flags & abi::FAULT_WRITE != 0, kind }
    }
}
