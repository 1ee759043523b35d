//! Facts that several rows use, determined once.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tiermem_sys::kernel_probes;
use tiermem_sys::pagemap::{PAGE_BYTES, PageEntry, PageMap};
use tiermem_sys::perf::{FaultWatch, FirstTouchWatch};
use tiermem_sys::userfaultfd::{self, Features, Way};

use super::damon::Damon;

const DEVICES: &str = "/sys/bus/event_source/devices";
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Text where there are no counters.
pub const NO_COUNTERS: &str = "this machine shows none";

/// Facts about this machine; a failed check has its reason.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Privileges of this process.
    pub privileges: Privileges,
    /// Referenced pages can be read.
    pub referenced: Result<(), String>,
    /// Written pages can be read.
    pub written: Result<(), String>,
    /// The call that reads them.
    pub scan: Result<(), String>,
    /// Features of userfaultfd, and how it was opened.
    pub userfault: Result<(Features, Way), String>,
    /// Page faults are reported with their addresses.
    pub faults: Result<(), String>,
    /// Page faults are sampled with stacks; whether those of system calls are left out.
    pub first_touches: Result<bool, String>,
    /// Frame numbers can be read.
    pub frames: Result<(), String>,
    /// The kernel's monitor.
    pub damon: Damon,
    /// The processor's counters.
    pub counter: Result<(), String>,
    /// Events by which accesses are sampled.
    pub samplers: Vec<String>,
    /// Whether a program that is started can have an agent.
    pub agent: Result<(), String>,
    /// Path of valgrind, if installed.
    pub valgrind: Option<PathBuf>,
    /// Path of perf, if installed.
    pub perf: Option<PathBuf>,
    /// When programs have huge pages: always, madvise or never.
    pub huge_pages: Option<String>,
}

impl Facts {
    /// Of this machine.
    pub fn gather() -> Self {
        let text = |error: std::io::Error| error.to_string();
        let told = |is_told: bool| {
            if is_told { Ok(()) } else { Err("the kernel takes the call, but does not tell it".to_owned()) }
        };
        Facts {
            privileges: Privileges::read(),
            referenced: kernel_probes::referenced_pages().map_err(text).and_then(told),
            written: kernel_probes::written_pages().map_err(text).and_then(told),
            scan: kernel_probes::pagemap_scan().map_err(text),
            userfault: userfaultfd::offered().map_err(|error| error.to_string()),
            faults: FaultWatch::open(&[std::process::id()]).map(drop).map_err(|error| text(error.into())),
            first_touches: FirstTouchWatch::before_start().map(|it| it.is_user_only()).map_err(text),
            frames: frames(),
            damon: Damon::read(),
            counter: kernel_probes::hardware_counter().map_err(|error| match error.kind() {
                ErrorKind::NotFound | ErrorKind::Unsupported => NO_COUNTERS.to_owned(),
                _ => error.to_string(),
            }),
            samplers: samplers(Path::new(DEVICES)),
            agent: kernel_probes::agent().map_err(|error| error.to_string()),
            valgrind: program("valgrind"),
            perf: program("perf"),
            huge_pages: fs::read_to_string(HUGE_PAGES).ok().and_then(|text| chosen(&text)),
        }
    }
}

/// Privileges of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// It is root's.
    pub is_root: bool,
    /// Its capabilities, a bit each.
    pub capabilities: u64,
}

impl Privileges {
    fn read() -> Self {
        Privileges::of(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn of(status: &str) -> Self {
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        // Real, effective, saved, and that for files.
        let user = field("Uid:").and_then(|line| line.split_whitespace().nth(1));
        let bits = field("CapEff:").and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
        Privileges { is_root: user == Some("0"), capabilities: bits.unwrap_or_default() }
    }

    /// Whether it has the capability of this number.
    pub fn has(self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }
}

fn frames() -> Result<(), String> {
    let map = PageMap::open(std::process::id()).map_err(|error| error.to_string())?;
    // A page that is there: of this function's own stack.
    let here = 0_u8;
    match map.page((&raw const here).addr() as u64 / PAGE_BYTES) {
        PageEntry::Frame(_) => Ok(()),
        PageEntry::Hidden => Err("the kernel hides them from this user".to_owned()),
        PageEntry::Absent | PageEntry::Gone => {
            Err("the page map does not tell a page that is there".to_owned())
        }
    }
}

/// The events by which processors sample accesses: of Intel, AMD and Arm.
fn samplers(devices: &Path) -> Vec<String> {
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            match name.as_str() {
                "ibs_op" => Some(name),
                arm if arm.starts_with("arm_spe") => Some(name),
                cpu if cpu.starts_with("cpu") && entry.path().join("events/mem-loads").exists() => {
                    Some(format!("{name}/mem-loads"))
                }
                _ => None,
            }
        })
        .collect();
    found.sort();
    found
}

/// The first program of this name in PATH.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let runs = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(runs)
}

/// The word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_the_effective_ones() {
        let root = Privileges::of("Uid:\t1\t0\t1\t1\nCapPrm:\t0\nCapEff:\t0000000000200000\n");
        assert!(root.is_root && root.has(21) && !root.has(20));
        assert_eq!(Privileges::of(""), Privileges::default());
    }

    #[test]
    fn events_that_sample_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cpu/events", "cpu_core/events", "ibs_op", "arm_spe_0", "software", "ibs_fetch"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("cpu_core/events/mem-loads"), "event=0xcd").unwrap();
        assert_eq!(samplers(folder.path()), ["arm_spe_0", "cpu_core/mem-loads", "ibs_op"]);
        assert!(samplers(&folder.path().join("none")).is_empty());
    }

    #[test]
    fn the_choice_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("always\n"), None);
    }

    #[test]
    fn programs_are_looked_for_in_path() {
        assert!(program("sh").is_some_and(|file| file.ends_with("sh")));
        assert_eq!(program("no-such-program"), None);
    }
}
