//! Child processes: what they inherit, and how they are ended together with all their descendants.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
};

/// Lets the next process that is started have this file under its number. Nothing else must be started meanwhile, or it has
/// it too; drop the file once the process is there.
pub fn inherit(file: impl AsFd) -> io::Result<()> {
    Ok(fcntl_setfd(file, FdFlags::empty())?)
}

/// Has a process that is going to be started end (SIGKILL) when the thread that starts it ends, however that happens.
pub fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before it was asked for.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls, which take no locks and allocate nothing.
    unsafe { command.pre_exec(ask) };
}

/// The resources that a process used until its end, with those of its own children whose end it has taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of the program.
    pub user: Duration,
    /// Processor time of the kernel for it.
    pub system: Duration,
    /// Page faults that took nothing from a disk.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// The most bytes that one of the processes had in memory. The kernel counts from what the process that started it had
    /// then, some MiB.
    pub peak_resident_bytes: u64,
}

/// Takes in the end of a child process that was not waited for, if it has ended: its status, and what it had used. From then on
/// its number may mean another process.
///
/// # Errors
/// If there is no such process, or its end has been taken in before.
pub fn take_end(pid: u32) -> io::Result<Option<(ExitStatus, Usage)>> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|&pid| pid > 0).ok_or(io::ErrorKind::InvalidInput)?;
    if !has_ended(pid)? {
        return Ok(None);
    }
    let mut status: libc::c_int = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both are as large as the call wants and outlive it; the usage is valid when all zero, should the call not fill
    // it.
    let (taken, usage) = unsafe {
        (libc::wait4(pid, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()), usage.assume_init())
    };
    match taken {
        0 => Ok(None),
        taken if taken == pid => Ok(Some((ExitStatus::from_raw(status), Usage::of(&usage)))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a child has ended. A child that is traced by this process tells of its stops too, which are no end.
fn has_ended(pid: libc::pid_t) -> io::Result<bool> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the information outlives the call, which fills it; it is valid when all zero, as it stays if nothing has happened.
    let (done, info) =
        unsafe { (libc::waitid(libc::P_PID, pid as libc::id_t, info.as_mut_ptr(), how), info.assume_init()) };
    match done {
        // SAFETY: `waitid` fills this field.
        0 => Ok(unsafe { info.si_pid() } != 0),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Usage {
    fn of(usage: &libc::rusage) -> Self {
        let spent = crate::cpu_time::spent_of(usage);
        Usage {
            user: spent.user,
            system: spent.system,
            minor_faults: usage.ru_minflt.max(0) as u64,
            major_faults: usage.ru_majflt.max(0) as u64,
            peak_resident_bytes: (usage.ru_maxrss.max(0) as u64).saturating_mul(1024),
        }
    }
}

/// Ends (SIGKILL) the group of processes that `leader` leads, if it still is there. The caller has started the leader as the
/// first of a group of its own and has not yet waited for its end, so that the number cannot mean another process.
pub fn end_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Ends (SIGKILL) a process and its descendants, as far as the kernel tells them (`/proc/PID/task/TID/children`): those whose parents have
/// ended before are not among them. The caller has started the process and not yet waited for its end, so that the number cannot mean another
/// one.
pub fn end_tree(process: u32) {
    // The parents first, so that no more are made meanwhile.
    let mut left = vec![process];
    while let Some(pid) = left.pop() {
        let children = children(pid);
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        left.extend(children);
    }
}

/// The children of a process; none where the kernel does not tell.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).ok();
    let texts = threads.filter_map(of_thread).collect::<Vec<_>>().join(" ");
    texts.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Sends a process a signal by its number. The caller has started it and has not yet waited for its end.
pub fn signal(process: u32, signal: i32) {
    if let Ok(process @ 1..) = i32::try_from(process) {
        // SAFETY: the call takes numbers alone. The process may have ended by itself.
        unsafe { libc::kill(process, signal) };
    }
}

/// Asks a process to come to an end by itself (SIGINT). The caller has started it and has not yet waited for its end.
pub fn interrupt(process: u32) {
    if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process(process, Signal::INT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_child_writes_to_what_it_inherits() {
        let (mut reader, writer) = io::pipe().unwrap();
        inherit(&writer).unwrap();
        // By its path: a shell need not know descriptors above 9.
        let script = format!("echo hello >/proc/self/fd/{}", writer.as_raw_fd());
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(text, "hello\n");
    }

    #[test]
    fn a_child_ends_with_the_thread_that_started_it() {
        let (mut reader, writer) = io::pipe().unwrap();
        let start = move || {
            let mut sleep = Command::new("sleep");
            end_with_parent(sleep.arg("1000").stdout(writer));
            sleep.spawn().unwrap()
        };
        let mut child = std::thread::spawn(start).join().unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn an_end_is_taken_in_once_with_what_was_used() {
        let (reader, writer) = io::pipe().unwrap();
        #[expect(clippy::zombie_processes, reason = "what is under test waits for it")]
        let child = Command::new("sh").args(["-c", "read line; exit 3"]).stdin(reader).spawn().unwrap();
        assert_eq!(take_end(child.id()).unwrap(), None);
        drop(writer);
        let (status, usage) = loop {
            if let Some(end) = take_end(child.id()).unwrap() {
                break end;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(status.code(), Some(3));
        assert!(usage.minor_faults > 0 && usage.peak_resident_bytes > 100_000, "{usage:?}");
        assert!(take_end(child.id()).is_err() && take_end(0).is_err() && take_end(u32::MAX).is_err());
    }

    #[test]
    fn a_tree_ends_with_all_its_branches() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (mut begun, begin) = io::pipe().unwrap();
        let mut command = Command::new("sh");
        // In sessions of their own, so that no group has them all.
        command
            .args(["-c", "setsid sh -c 'echo; sleep 1000 & wait' >&2 & wait"])
            .stdout(writer)
            .stderr(begin);
        let mut child = command.spawn().unwrap();
        drop(command);
        begun.read_exact(&mut [0]).unwrap();
        while children(child.id()).iter().all(|child| children(*child).is_empty()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        end_tree(child.id());
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
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
