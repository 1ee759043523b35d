//! Affinity of threads: the processor core on which a thread runs, and its priority.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::numa;

/// The cores that the process may use: those of the first thread that was to be pinned, as they were before.
static ALLOWED: OnceLock<CpuSet> = OnceLock::new();

/// Keeps the calling thread on one core. An error names a core that the machine does not have or the process may not use.
pub fn pin_thread(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let before = sched_getaffinity(None)?;
    ALLOWED.get_or_init(|| before);
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

/// The cores that the calling thread may use.
pub fn thread_cores() -> io::Result<Vec<u32>> {
    let cores = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| cores.is_set(core)).map(|core| core as u32).collect())
}

/// Keeps a program that is going to be started, and all that it starts, on these cores. Cores that the process may not use
/// are left out.
///
/// # Errors
/// Invalid input if there are none, or if no core can have such a number.
pub fn pin_child(command: &mut Command, cores: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cores.is_empty() || cores.iter().any(|&core| core as usize >= CpuSet::MAX_CPU) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    cores.iter().for_each(|&core| set.set(core as usize));
    let ask = move || Ok(sched_setaffinity(None, &set)?);
    // SAFETY: between fork and exec the closure makes one system call, which takes no locks and allocates nothing; an error
    // of the system is a number.
    unsafe { command.pre_exec(ask) };
    Ok(())
}

/// Makes the calling thread a background thread, which runs when no other has work. It leaves the core to which the thread that
/// started it was pinned for any core of the same node that the process may use, so that the memory it takes is local to that
/// thread. Settings that the system refuses stay as they are.
pub fn step_back() {
    if let (Some(allowed), Ok(own)) = (ALLOWED.get(), sched_getaffinity(None))
        && let Some(wider) = wider(&own, allowed, numa::cores_beside)
    {
        let _ = sched_setaffinity(None, &wider);
    }
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread, and the parameters outlive the call, which reads them.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
}

/// While it lives, the thread that made it runs before others of ordinary priority. Threads and programs that it starts
/// meanwhile do so for good.
#[derive(Debug)]
pub struct Precedence {
    before: i32,
}

impl Precedence {
    /// For the calling thread; `None` where the system refuses, as it does to users without CAP_SYS_NICE.
    pub fn take() -> Option<Self> {
        /// Priority as the kernel counts it: -20 is first, 0 the usual one.
        const FIRST: i32 = -10;
        let before = getpriority_process(None).ok()?;
        (before > FIRST).then_some(())?;
        setpriority_process(None, FIRST).ok()?;
        Some(Precedence { before })
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        // What refuses that keeps a thread that is about to end.
        let _ = setpriority_process(None, self.before);
    }
}

/// The allowed cores of the node of the one core in `own`; none where that is no pin or there are no others.
fn wider(own: &CpuSet, allowed: &CpuSet, beside: impl Fn(u32) -> Vec<u32>) -> Option<CpuSet> {
    let pinned = (0..CpuSet::MAX_CPU).find(|&core| own.is_set(core)).filter(|_| own.count() == 1)?;
    let mut wider = CpuSet::new();
    let cores = beside(pinned as u32).into_iter().map(|core| core as usize);
    cores.filter(|&core| core < CpuSet::MAX_CPU && allowed.is_set(core)).for_each(|core| wider.set(core));
    (wider.count() > 1).then_some(wider)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cores: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cores.iter().for_each(|&core| set.set(core));
        set
    }

    #[test]
    fn a_thread_stays_where_it_is_pinned() {
        let pinned = std::thread::spawn(|| {
            pin_thread(0).unwrap();
            sched_getaffinity(None).unwrap().count()
        });
        assert_eq!(pinned.join().unwrap(), 1);
        assert!(pin_thread(100_000).is_err());
    }

    #[test]
    fn a_child_stays_where_it_is_pinned() {
        let all = thread_cores().unwrap();
        let core = *all.last().unwrap();
        let mut command = Command::new("grep");
        pin_child(command.args(["Cpus_allowed_list", "/proc/self/status"]), &[core]).unwrap();
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(text.split_whitespace().last(), Some(core.to_string().as_str()), "{text}");
        assert_eq!(thread_cores().unwrap(), all);
        assert!(pin_child(&mut command, &[]).is_err() && pin_child(&mut command, &[100_000]).is_err());
    }

    #[test]
    fn a_helper_leaves_the_pin_and_goes_last() {
        let all = sched_getaffinity(None).unwrap();
        let helper = std::thread::spawn(|| {
            pin_thread(0).unwrap();
            let helper = std::thread::spawn(|| {
                step_back();
                // SAFETY: 0 is the calling thread; the call reads no memory of ours.
                (sched_getaffinity(None).unwrap(), unsafe { libc::sched_getscheduler(0) })
            });
            helper.join().unwrap()
        });
        let (cores, policy) = helper.join().unwrap();
        assert_eq!(policy, libc::SCHED_IDLE);
        let beside = numa::cores_beside(0);
        if !beside.is_empty() {
            let shared = beside.into_iter().filter(|&core| all.is_set(core as usize)).count();
            assert_eq!(cores.count() as usize, shared);
        }
    }

    #[test]
    fn precedence_ends_when_it_is_given_up() {
        let checked = std::thread::spawn(|| {
            let before = getpriority_process(None).unwrap();
            let Some(taken) = Precedence::take() else { return };
            assert!(getpriority_process(None).unwrap() < before);
            assert!(Precedence::take().is_none());
            drop(taken);
            assert_eq!(getpriority_process(None).unwrap(), before);
        });
        checked.join().unwrap();
    }

    #[test]
    fn only_a_pin_is_widened_and_only_within_what_is_allowed() {
        let beside = |core: u32| if core < 4 { vec![0, 1, 2, 3] } else { Vec::new() };
        assert_eq!(wider(&set(&[2]), &set(&[1, 2, 5]), beside), Some(set(&[1, 2])));
        assert_eq!(wider(&set(&[1, 2]), &set(&[0, 1, 2]), beside), None, "that is the user's own mask");
        assert_eq!(wider(&set(&[2]), &set(&[2, 5]), beside), None);
        assert_eq!(wider(&set(&[7]), &set(&[2, 7]), beside), None);
    }
}
