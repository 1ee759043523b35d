//! Changes of a mapped file by calls: `truncate`, `write`, `fallocate`. Stores through a mapping are none.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// Events come in whole; their number does not matter.
const EVENTS_BYTES: usize = 4096;

/// What tells of the changes of one file.
#[derive(Debug)]
pub(super) struct Changes(OwnedFd);

impl Changes {
    /// Of this file from now on. `None` where the system tells of none, or of no more files.
    pub(super) fn of(file: &File) -> Option<Self> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        inotify::add_watch(&events, path, WatchFlags::MODIFY).ok()?;
        Some(Changes(events))
    }

    /// Whether there were any since this was last asked.
    pub(super) fn take(&self) -> bool {
        let mut events = [0; EVENTS_BYTES];
        let mut were_any = false;
        while rustix::io::read(&self.0, &mut events[..]).is_ok_and(|bytes| bytes > 0) {
            were_any = true;
        }
        were_any
    }
}
