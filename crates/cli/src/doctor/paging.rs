//! Doctor rows on paging: faults served in user space, advice
//! about other processes, swap, control groups, locked memory.

use tiermem_base::Bytes;
use tiermem_sys::control_group::{GroupError, Hierarchy, Version};
use tiermem_sys::kernel_probes;
use tiermem_sys::perf::NotMeasured;
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::process_advice::ProcessAdvice;
use tiermem_sys::swap::{self, SwapArea};
use tiermem_sys::userfaultfd::{Features, Way};

use super::facts::{Facts, Privileges};
use super::{Row, State};

/// The kernel's numbers of capabilities.
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const SYS_NICE: u32 = 23;

/// Features needed to serve all faults of a program, apart from privileges.
const FAULTS: Features = Features::EVENT_FORK
    .and(Features::EVENT_REMAP)
    .and(Features::EVENT_REMOVE)
    .and(Features::EVENT_UNMAP)
    .and(Features::POISON)
    .and(Features::MOVE);
/// Features needed to share memory among processes.
const SHARED: Features =
    Features::MISSING_SHMEM.and(Features::MINOR_SHMEM).and(Features::WRITE_PROTECT_SHARED);

/// One for each.
pub fn rows(facts: &Facts) -> Vec<Row> {
    vec![
        faults(
            (
                "userfaultfd faults",
                "serving a program's page faults in user space: missing, write-protect, move, poison, events",
            ),
            FAULTS,
            &facts.userfault,
            facts.privileges,
        ),
        faults(
            (
                "userfaultfd shared",
                "memory shared by processes: missing, minor and write-protect faults of memory files",
            ),
            SHARED,
            &facts.userfault,
            facts.privileges,
        ),
        advice(facts.privileges, &advice_taken()),
        swap_areas(swap::areas().map_err(|error| error.to_string()).as_deref(), facts.privileges),
        fault_times(&kernel_probes::fault_times()),
        control_groups(&Hierarchy::of_memory().and_then(|hierarchy| {
            let group = hierarchy.own_group()?;
            Ok((hierarchy.version(), group.path().display().to_string(), group.may_be_changed()))
        })),
        oom_daemons(&running(&OOM_DAEMONS)),
    ]
}

fn faults(
    (item, purpose): (&'static str, &'static str),
    needed: Features,
    userfault: &Result<(Features, Way), String>,
    privileges: Privileges,
) -> Row {
    let (offered, way) = match userfault {
        Ok(found) => *found,
        Err(error) => {
            let advice = "a kernel with CONFIG_USERFAULTFD; in a container, a profile that allows the call";
            return Row::lacking(item, State::No, purpose, error, advice);
        }
    };
    let missing = needed - offered;
    if !missing.is_empty() {
        let found = format!("not offered: {missing} (Linux {})", missing.kernel());
        return Row::lacking(item, State::Limited, purpose, found, "a newer kernel: Linux 6.8 has all");
    }
    let how = match way {
        Way::Call => "by the system call",
        Way::Device => "by /dev/userfaultfd",
        Way::UserModeOnly => {
            let found =
                "for faults of the program alone: its system calls fail (EFAULT) on pages that are not there";
            let advice =
                "CAP_SYS_PTRACE, the right to open /dev/userfaultfd, or sysctl vm.unprivileged_userfaultfd=1";
            return Row::lacking(item, State::Limited, purpose, found, advice);
        }
    };
    if needed.contains(Features::EVENT_FORK) && !privileges.has(SYS_PTRACE) {
        let found = "without fork events: a child of the program would read zeros";
        return Row::lacking(item, State::Limited, purpose, found, "run as root or with CAP_SYS_PTRACE");
    }
    Row::yes(item, purpose, how)
}

/// Advice that the kernel accepts, each with its name.
fn advice_taken() -> Result<Vec<&'static str>, String> {
    let own = PidFd::open(std::process::id()).map_err(|error| error.to_string())?;
    let all = [
        ("cold", ProcessAdvice::Cold),
        ("pageout", ProcessAdvice::PageOut),
        ("willneed", ProcessAdvice::WillNeed),
        ("collapse", ProcessAdvice::Collapse),
    ];
    Ok(all.into_iter().filter(|(_, advice)| own.may_advise(*advice).is_ok()).map(|(name, _)| name).collect())
}

fn advice(privileges: Privileges, taken: &Result<Vec<&'static str>, String>) -> Row {
    let (item, purpose) = ("process_madvise", "steering the kernel's paging of another process");
    match taken {
        Err(error) => Row::lacking(item, State::No, purpose, error, "Linux 5.10 or newer"),
        Ok(taken) if taken.is_empty() => {
            Row::lacking(item, State::No, purpose, "the kernel takes no advice", "Linux 5.10 or newer")
        }
        Ok(taken) if !privileges.has(SYS_NICE) => Row::lacking(
            item,
            State::No,
            purpose,
            format!("the kernel takes {}, and this user may not give it", taken.join(", ")),
            "run as root or with CAP_SYS_NICE",
        ),
        Ok(taken) if !taken.contains(&"willneed") => Row::lacking(
            item,
            State::Limited,
            purpose,
            format!("the kernel takes {}", taken.join(", ")),
            "Linux 5.15 or newer",
        ),
        Ok(taken) => Row::yes(item, purpose, taken.join(", ")),
    }
}

fn swap_areas(areas: Result<&[SwapArea], &String>, privileges: Privileges) -> Row {
    let (item, purpose) =
        ("swap", "where the kernel pages memory of no file out to; the machine's, not one program's");
    let text = |area: &SwapArea| {
        let (path, bytes, used) = (area.path.display(), Bytes(area.bytes), Bytes(area.used_bytes));
        format!("{path}: {bytes}, {used} used, priority {}", area.priority)
    };
    match areas {
        Err(error) => Row::lacking(item, State::Unknown, purpose, error, "a kernel with CONFIG_SWAP"),
        Ok([]) if privileges.has(SYS_ADMIN) => Row::lacking(
            item,
            State::Limited,
            purpose,
            "none is on; this user may turn it on",
            "a swap file on ext4 or xfs (mkswap, swapon), or zram",
        ),
        Ok([]) => Row::lacking(
            item,
            State::No,
            purpose,
            "none is on",
            "run as root or with CAP_SYS_ADMIN, and turn it on (mkswap, swapon)",
        ),
        Ok(areas) => Row::yes(item, purpose, areas.iter().map(text).collect::<Vec<_>>().join("; ")),
    }
}

fn fault_times(found: &Result<bool, NotMeasured>) -> Row {
    let (item, purpose) =
        ("fault times", "how long page faults wait for a disk (fault_p50_us, fault_p99_us)");
    match found {
        Ok(false) => Row::yes(item, purpose, "by events that the kernel counts, on a sample"),
        Ok(true) => Row::lacking(
            item,
            State::Limited,
            purpose,
            "faults within system calls are left out",
            "run as root or with CAP_PERFMON, or lower kernel.perf_event_paranoid to 1",
        ),
        Err(NotMeasured { source, advice }) => {
            Row::lacking(item, State::No, purpose, source.to_string(), advice)
        }
    }
}

fn control_groups(found: &Result<(Version, String, bool), GroupError>) -> Row {
    let (item, purpose) = ("control groups", "limits of memory and swap for one program");
    match found {
        Err(GroupError::NoController) => Row::lacking(
            item,
            State::No,
            purpose,
            "no mount has the memory controller",
            "mount -t cgroup2 none /sys/fs/cgroup; in a container, with the host's groups",
        ),
        Err(error) => Row::lacking(
            item,
            State::Unknown,
            purpose,
            error.to_string(),
            "run where /proc and the mount can be read",
        ),
        Ok((version, path, false)) => Row::lacking(
            item,
            State::No,
            purpose,
            format!("{version}; this user may make none below {path}"),
            "run as root, or in a group of one's own: systemd-run --user --scope -p Delegate=yes",
        ),
        Ok((Version::One, path, true)) => Row::lacking(
            item,
            State::Limited,
            purpose,
            format!("version 1, {path}; no memory.high, no memory.reclaim"),
            "boot with version 2 (systemd.unified_cgroup_hierarchy=1)",
        ),
        Ok((Version::Two, path, true)) => Row::yes(item, purpose, format!("version 2, {path}")),
    }
}

/// Programs that kill others when memory is short, or when there is much in swap.
const OOM_DAEMONS: [&str; 3] = ["systemd-oomd", "earlyoom", "nohang"];

/// Those of these programs that run. The kernel cuts names after 15 characters.
fn running(names: &[&'static str]) -> Vec<&'static str> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let name_of = |process: std::fs::DirEntry| std::fs::read_to_string(process.path().join("comm")).ok();
    let found: std::collections::BTreeSet<String> = processes.filter_map(name_of).collect();
    names
        .iter()
        .copied()
        .filter(|name| found.contains(&format!("{}\n", name.get(..15).unwrap_or(name))))
        .collect()
}

fn oom_daemons(running: &[&str]) -> Row {
    let (item, purpose) = ("out-of-memory daemons", "who kills programs that swap, before the kernel would");
    match running {
        [] => Row::yes(item, purpose, "none runs"),
        some => Row::lacking(
            item,
            State::Limited,
            purpose,
            format!("{} may kill a program in less DRAM than it needs", some.join(", ")),
            "systemd-oomd is asked to spare it (version 2, root); have others avoid it: earlyoom --avoid NAME",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(capability: u32) -> Privileges {
        Privileges { is_root: false, capabilities: 1 << capability }
    }

    #[test]
    fn faults_need_features_a_way_and_a_right() {
        let state = |offered: Features, way, privileges| {
            let row = faults(("a", "b"), FAULTS, &Ok((offered, way)), privileges);
            (row.state, row.found)
        };
        assert_eq!(state(FAULTS, Way::Device, rights(SYS_PTRACE)).0, State::Yes);
        let (lacking, found) = state(FAULTS - Features::MOVE, Way::Call, rights(SYS_PTRACE));
        assert_eq!((lacking, found.as_str()), (State::Limited, "not offered: move (Linux 6.8)"));
        assert_eq!(state(FAULTS, Way::UserModeOnly, rights(SYS_PTRACE)).0, State::Limited);
        assert!(state(FAULTS, Way::Call, rights(SYS_NICE)).1.contains("fork"));
        // Shared memory has no fork events of its own.
        let shared = faults(("a", "b"), SHARED, &Ok((SHARED, Way::Call)), Privileges::default());
        assert_eq!(shared.state, State::Yes);
        assert_eq!(faults(("a", "b"), SHARED, &Err("no".to_owned()), rights(0)).state, State::No);
    }

    #[test]
    fn advice_needs_a_kernel_and_a_right() {
        let state = |privileges, taken: &[&'static str]| advice(privileges, &Ok(taken.to_vec())).state;
        assert_eq!(state(rights(SYS_NICE), &["cold", "pageout", "willneed"]), State::Yes);
        assert_eq!(state(rights(SYS_NICE), &["cold", "pageout"]), State::Limited);
        assert_eq!(state(rights(SYS_ADMIN), &["cold", "pageout", "willneed"]), State::No);
        assert_eq!(state(rights(SYS_NICE), &[]), State::No);
        assert_eq!(advice(rights(SYS_NICE), &Err("no".to_owned())).state, State::No);
    }

    #[test]
    fn swap_is_told_area_by_area() {
        let area =
            SwapArea { path: "/swap".into(), is_device: false, bytes: 1 << 30, used_bytes: 0, priority: -2 };
        let row = swap_areas(Ok(&[area.clone(), area]), rights(0));
        assert_eq!((row.state, row.found.matches("/swap: 1GiB").count()), (State::Yes, 2), "{}", row.found);
        assert_eq!(swap_areas(Ok(&[]), rights(SYS_ADMIN)).state, State::Limited);
        assert_eq!(swap_areas(Ok(&[]), rights(0)).state, State::No);
        assert_eq!(swap_areas(Err(&"no".to_owned()), rights(0)).state, State::Unknown);
    }

    #[test]
    fn daemons_that_kill_are_told() {
        assert_eq!(oom_daemons(&[]).state, State::Yes);
        let row = oom_daemons(&["earlyoom"]);
        assert!(row.state == State::Limited && row.found.contains("earlyoom"), "{}", row.found);
        let mut daemon = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        // What was started becomes that program a little later.
        while running(&["sleep"]).is_empty() {
            std::thread::yield_now();
        }
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        assert!(running(&["no-such-daemon"]).is_empty());
    }

    #[test]
    fn fault_times_are_limited_where_the_kernel_may_not_be_watched() {
        assert_eq!(fault_times(&Ok(false)).state, State::Yes);
        assert_eq!(fault_times(&Ok(true)).state, State::Limited);
        let refused = NotMeasured { source: std::io::ErrorKind::PermissionDenied.into(), advice: "root" };
        let row = fault_times(&Err(refused));
        assert_eq!((row.state, row.found.as_str(), row.advice), (State::No, "permission denied", "root"));
    }

    #[test]
    fn control_groups_are_told_with_their_version() {
        let state = |version, may| control_groups(&Ok((version, "/g".to_owned(), may))).state;
        assert_eq!(state(Version::Two, true), State::Yes);
        assert_eq!(state(Version::One, true), State::Limited);
        assert_eq!(state(Version::Two, false), State::No);
        assert_eq!(control_groups(&Err(GroupError::NoController)).state, State::No);
    }
}
