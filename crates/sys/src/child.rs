//! Processes that this one starts: what they inherit, and ending them with all that they have started.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process_group};

/// Lets the next process that is started have this file under its number. Nothing else must be started meanwhile, or it has
/// it too; drop the file once the process is there.
pub fn inherit(file: impl AsFd) -> io::Result<()> {
    Ok(fcntl_setfd(file, FdFlags::empty())?)
}

/// Ends (SIGKILL) the group of processes that `leader` leads, if it still is there. The caller has started the leader as the
/// first of a group of its own and has not yet waited for its end, so that the number cannot mean anybody else.
pub fn end_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    #[test]
    fn a_child_writes_to_what_it_inherits() {
        let (mut reader, writer) = io::pipe().unwrap();
        inherit(&writer).unwrap();
        let script = format!("echo hello >&{}", writer.as_raw_fd());
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(text, "hello\n");
    }

    #[test]
    fn a_group_ends_with_all_its_members() {
        // The pipe ends when both the shell and what it started have gone.
        let (mut reader, writer) = io::pipe().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "sleep 1000 & wait"])
            .stdout(writer)
            .process_group(0)
            .spawn()
            .unwrap();
        end_group(child.id());
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        end_group(child.id());
    }
}
