//! Trial: one run of a program under a strategy, its times, and where its pages were.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tiermem_sys::child::Usage;
use tiermem_sys::cpu_time::thread_cpu_time;
use tiermem_sys::numa::{self, Policy, Weights};
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::{affinity, page_cache};

use super::error::RunError;
use super::residency::Residency;
use super::strategy::Placement;
use crate::capture::program::{self, Program};
use crate::capture::{CaptureError, Stop};

/// When a program's pages are looked at first, and how long after that at most.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LOOKS_APART_MAX: Duration = Duration::from_millis(500);
/// A look at residency delays the program's own page faults, so it may take one part in this number of the time. Its time is that of the
/// processor: where other programs have the processors meanwhile, this one does not wait for the look.
const LOOK_SHARE: u32 = 20;

/// How a program is started cold: without its files in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cold {
    /// The machine's whole page cache is dropped.
    Whole,
    /// The files that the program mapped in its last run are dropped, where no other process has them mapped.
    Files,
}

/// Figures of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// From before it was started until it had ended.
    pub real: Duration,
    /// Resources used by it and by all descendants that it waited for.
    pub usage: Usage,
    /// Its exit status.
    pub status: ExitStatus,
    /// Where its pages lay when it had most of them; none if it ended too soon to be looked at.
    pub residency: Residency,
    /// Anything that could not be restored, and how to fix it.
    pub left: Option<String>,
}

/// What is run, and on which processors.
#[derive(Clone, Debug)]
pub(super) struct Runner {
    command: Vec<OsString>,
    cpus: Vec<u32>,
    /// The files that it has mapped in the runs so far.
    pub files: BTreeSet<PathBuf>,
}

impl Runner {
    /// Finds the program.
    pub fn new(command: &[OsString], cpus: &[u32]) -> Result<Self, RunError> {
        let (file, _) = program::resolve(command)?;
        Ok(Runner { command: command.to_vec(), cpus: cpus.to_vec(), files: BTreeSet::from([file]) })
    }

    /// Runs it once.
    pub fn run(&mut self, placement: &Placement, cold: Option<Cold>, stop: &Stop) -> Result<Trial, RunError> {
        let mut weights = match placement.weights.is_empty() {
            true => None,
            false => Some(Weights::set(&placement.weights)?),
        };
        if let Some(cold) = cold {
            self.cool(cold)?;
        }
        let mut command = program::command(&self.command)?;
        let failed = |source| RunError::Cpus { cpus: self.cpus.clone(), source };
        affinity::pin_child(&mut command, &self.cpus).map_err(failed)?;
        // A kernel without nodes places memory by default, and refuses even that.
        if placement.policy != Policy::Default {
            let strategy = placement.strategy.to_string();
            let refused = |source| RunError::Policy { strategy, source };
            numa::set_child_policy(&mut command, &placement.policy).map_err(refused)?;
        }
        let begun = Instant::now();
        let (program, _) = Program::start(command, stop, false).map_err(CaptureError::Program)?;
        let watch = PidFd::open(program.pid()).map_err(CaptureError::Program)?;
        let mut looks = Looks::new(begun);
        while !watch.wait(looks.next.saturating_duration_since(Instant::now())) {
            looks.look_if_due(program.pid());
        }
        let real = begun.elapsed();
        let status = program.wait().map_err(CaptureError::Wait)?;
        let left = weights.as_mut().and_then(Weights::restore);
        let usage = program.usage().unwrap_or_default();
        self.files.extend(looks.most.files.iter().cloned());
        Ok(Trial { real, usage, status, residency: looks.most, left })
    }

    /// Takes its files out of memory.
    fn cool(&self, cold: Cold) -> Result<(), RunError> {
        match cold {
            Cold::Whole => page_cache::drop_all()
                .map_err(|source| RunError::Cold { path: "/proc/sys/vm/drop_caches".into(), source }),
            Cold::Files => {
                for path in self.files.iter().filter(|path| path.is_file()) {
                    page_cache::drop_file(path)
                        .map_err(|source| RunError::Cold { path: path.clone(), source })?;
                }
                Ok(())
            }
        }
    }
}

/// Looks at where a program's pages lie, seldom enough not to hold it up.
struct Looks {
    next: Instant,
    pause: Duration,
    most: Residency,
}

impl Looks {
    fn new(begun: Instant) -> Self {
        Looks { next: begun + FIRST_LOOK, pause: FIRST_LOOK, most: Residency::default() }
    }

    fn look_if_due(&mut self, pid: u32) {
        if Instant::now() < self.next {
            return;
        }
        let begun = thread_cpu_time();
        let residency = Residency::of_program(pid);
        let took = thread_cpu_time().saturating_sub(begun);
        if residency.total() >= self.most.total() {
            self.most = residency;
        }
        self.pause = (self.pause * 2).min(LOOKS_APART_MAX);
        self.next = Instant::now() + self.pause.max(took.saturating_mul(LOOK_SHARE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_sys::numa::Topology;

    fn run(words: &[&str], cold: Option<Cold>) -> Result<Trial, RunError> {
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        let cpus = affinity::thread_cores().unwrap();
        let placement = Placement::default_on(&Topology::read());
        Runner::new(&command, &cpus)?.run(&placement, cold, &Stop::default())
    }

    #[test]
    fn a_run_tells_what_it_took() {
        let trial = run(&["sh", "-c", "sleep 0.1; exit 3"], None).unwrap();
        assert_eq!(trial.status.code(), Some(3));
        assert!(trial.real >= Duration::from_millis(100) && trial.usage.minor_faults > 0, "{trial:?}");
        if std::path::Path::new("/proc/self/numa_maps").exists() {
            assert!(trial.residency.total() > 0, "{trial:?}");
        }
    }

    #[test]
    fn programs_that_end_at_once_or_are_none_do_no_harm() {
        assert!(run(&["true"], None).unwrap().status.success());
        assert!(run(&["true"], Some(Cold::Files)).unwrap().status.success());
        for (words, reason) in [
            (&["no-such-program"][..], "it is not in PATH"),
            (&["/proc/self/maps"], "not executable"),
            (&[], "no program"),
        ] {
            let error = run(words, None).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        // Executable, but nothing can execute it.
        let path = std::env::temp_dir().join(format!("tiermem-none-{}", std::process::id()));
        std::fs::write(&path, "#!/no/such/interpreter\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(matches!(
            run(&[path.to_str().unwrap()], None),
            Err(RunError::Program(CaptureError::Program(_)))
        ));
        std::fs::remove_file(path).unwrap();
    }
}
