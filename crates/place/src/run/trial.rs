//! One run of a program under a strategy, and what it took.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use tiermem_sys::numa::{self, Policy};
use tiermem_sys::{affinity, cpu_time};

use crate::capture::program::{self, Program};
use crate::capture::{CaptureError, Stop};

/// How often it is looked where the program's pages lie.
const LOOK: Duration = Duration::from_millis(50);

/// What a run took.
#[derive(Clone, Debug)]
pub struct Trial {
    /// From start to end, in seconds.
    pub real_s: f64,
    /// Processor time of the program, in seconds.
    pub user_s: f64,
    /// Processor time of the kernel for it, in seconds.
    pub system_s: f64,
    /// Pages on each node, when there were most of them.
    pub pages: BTreeMap<u32, u64>,
    /// How it ended.
    pub status: ExitStatus,
}

/// Runs a program once: on these processors, with memory from where the policy says.
///
/// # Errors
/// If it cannot be started; a policy that the kernel refuses is such a case.
pub fn run(command: &[OsString], policy: &Policy, cpus: &[u32], stop: &Stop) -> Result<Trial, CaptureError> {
    let (file, arguments) = program::resolve(command)?;
    let mut program = Command::new(file);
    program.args(arguments);
    affinity::pin_child(&mut program, cpus).map_err(CaptureError::Program)?;
    numa::set_child_policy(&mut program, policy).map_err(CaptureError::Program)?;
    let (before, begun) = (cpu_time::children_spent(), Instant::now());
    let mut program = Program::start(program, stop).map_err(CaptureError::Program)?;
    let watch = tiermem_sys::pidfd::PidFd::open(program.pid()).map_err(CaptureError::Wait)?;
    let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
    while !watch.wait(LOOK) {
        // A process that is just ending has no pages to tell of.
        let held = numa::held(program.pid()).unwrap_or_default();
        if held.values().sum::<u64>() >= pages.values().sum() {
            pages = held;
        }
        if stop.is_asked() {
            break;
        }
    }
    let status = program.wait().map_err(CaptureError::Wait)?;
    let real_s = begun.elapsed().as_secs_f64();
    let after = cpu_time::children_spent();
    let user_s = after.user.saturating_sub(before.user).as_secs_f64();
    let system_s = after.system.saturating_sub(before.system).as_secs_f64();
    Ok(Trial { real_s, user_s, system_s, pages, status })
}

/// Writes back and drops what the kernel has of files in memory, so that the next run reads them anew.
///
/// # Errors
/// If this user may not.
pub fn drop_page_cache() -> io::Result<()> {
    tiermem_sys::disk::write_back_everything();
    fs::write("/proc/sys/vm/drop_caches", "3")
}
