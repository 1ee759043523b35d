//! Control groups: version 1 as the machine has it, and version 2 over folders that look like it. A guest runs version 2 for
//! real.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::forked::{Signal, end_with_starter, fork_and, status_of};
use crate::mapping::SharedMapping;
use crate::swap::{SwapOptions, TestSwap};

const MIB: u64 = 1 << 20;

/// A group of the machine's that is ended and removed with this value.
struct TestGroup(Group);

impl TestGroup {
    /// None where it may not be made, or is of the other version: a test says so and does not run.
    fn make(name: &str, version: Version) -> Option<TestGroup> {
        let made = Hierarchy::of_memory().and_then(|hierarchy| {
            let name = format!("tiermem-{name}-{}", std::process::id());
            Ok((hierarchy.version() == version).then_some(hierarchy.own_group()?.create(&name)?))
        });
        match made {
            Ok(Some(group)) => Some(TestGroup(group)),
            Ok(None) => {
                eprintln!("not run: the machine's control groups are not of {version}");
                None
            }
            Err(error) => {
                eprintln!("not run: {error}");
                None
            }
        }
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        let _ = self.0.set_out_of_memory_waits(false);
        let _ = self.0.kill(Duration::from_secs(60));
        let _ = self.0.clone().remove();
    }
}

#[test]
fn mounts_of_both_versions_are_told_apart() {
    let folder = std::env::temp_dir().join(format!("tiermem-mounts-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let two = |controllers: &str| {
        fs::write(folder.join("cgroup.controllers"), controllers).unwrap();
        format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", folder.display())
    };
    let one = "30 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:5 master:3 - cgroup cgroup rw,cpu,cpuacct\n\
               35 31 0:32 /docker/x /sys/fs/cgroup/my\\040memory rw - cgroup cgroup rw,memory\n";
    // With both, the one that has the controller counts, whichever comes first.
    let found = Hierarchy::among(format!("{}{one}", two("cpu io\n")).as_bytes()).unwrap();
    assert_eq!((found.version(), found.mount_point()), (Version::One, Path::new("/sys/fs/cgroup/my memory")));
    let found = Hierarchy::among(two("cpu memory\n").as_bytes()).unwrap();
    assert_eq!((found.version(), found.mount_point()), (Version::Two, folder.as_path()));
    for none in ["", "36 35 98:0 / / rw - ext4 /dev/root rw,memory\n", "35 31 0:32 / / rw\n", "- - - -"] {
        assert!(matches!(Hierarchy::among(none.as_bytes()), Err(GroupError::NoController)), "{none}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_own_group_lies_below_what_is_mounted() {
    let folder = std::env::temp_dir().join(format!("tiermem-own-{}", std::process::id()));
    for group in ["", "a/b", "c"] {
        fs::create_dir_all(folder.join(group)).unwrap();
        fs::write(folder.join(group).join("cgroup.procs"), "").unwrap();
    }
    let hierarchy = |root: &str, kind: &str| {
        let line = format!("35 31 0:32 {root} {} rw - {kind} x rw,memory\n", folder.display());
        fs::write(folder.join("cgroup.controllers"), "memory").unwrap();
        Hierarchy::among(line.as_bytes()).unwrap()
    };
    let path = |group: Result<Group, GroupError>| group.unwrap().path().to_owned();
    let one = hierarchy("/", "cgroup");
    assert_eq!(path(one.group_in("5:cpu:/x\n3:hugetlb,memory:/a/b\n0::/c\n")), folder.join("a/b"));
    assert!(matches!(one.group_in("5:cpu:/x\n0::/c\n"), Err(GroupError::NoController)));
    let two = hierarchy("/docker/1", "cgroup2");
    assert_eq!(path(two.group_in("3:memory:/a\n0::/docker/1/c\n")), folder.join("c"));
    // In a container whose groups are named from the host's root.
    assert_eq!(path(two.group_in("0::/elsewhere\n")), folder);
    assert!(two.group_in("0::/docker/1/gone\n").unwrap_err().to_string().contains("open the control group"));
    fs::remove_dir_all(&folder).unwrap();
}

/// A folder with the files of a group of version 2.
struct Fake(PathBuf);

impl Fake {
    fn make(name: &str, files: &[(&str, &str)]) -> (Fake, Group) {
        let path = std::env::temp_dir().join(format!("tiermem-fake-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("cgroup.procs"), "").unwrap();
        files.iter().for_each(|(file, text)| fs::write(path.join(file), text).unwrap());
        let group = Group::open(Version::Two, path.clone()).unwrap();
        (Fake(path), group)
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn version_2_is_written_as_its_files_want_it() {
    let (fake, group) = Fake::make(
        "limits",
        &[
            ("memory.max", "max\n"),
            ("memory.swap.max", "max\n"),
            ("memory.high", "max\n"),
            ("memory.current", "1048576\n"),
            ("memory.peak", "2097152\n"),
            ("memory.swap.current", "4096\n"),
            ("memory.stat", "anon 10\nfile 20\n"),
            ("memory.events", "low 0\nhigh 3\nmax 4\noom 5\noom_kill 6\noom_group_kill 0\n"),
            ("memory.reclaim", ""),
            ("memory.oom.group", "0\n"),
            ("cgroup.kill", ""),
            ("cgroup.subtree_control", "cpu\n"),
        ],
    );
    assert_eq!(group.memory_limit().unwrap(), Limit::Unlimited);
    group.set_limits(Limit::Bytes(4 * MIB), Limit::Bytes(0)).unwrap();
    group.set_high(Limit::Bytes(2 * MIB)).unwrap();
    assert_eq!((fake.text("memory.max").as_str(), fake.text("memory.swap.max").as_str()), ("4194304", "0"));
    assert_eq!(
        (group.swap_limit().unwrap(), group.high().unwrap()),
        (Limit::Bytes(0), Limit::Bytes(2 * MIB))
    );
    group.set_memory_limit(Limit::Unlimited).unwrap();
    assert_eq!(fake.text("memory.max"), "max");
    assert_eq!((group.usage_bytes().unwrap(), group.peak_bytes().unwrap()), (MIB, 2 * MIB));
    assert_eq!((group.swap_usage_bytes().unwrap(), group.stat().unwrap()["file"]), (4096, 20));
    let events = Events { high: Some(3), limit: 4, out_of_memory: Some(5), killed: Some(6), waits_now: None };
    assert_eq!(group.events().unwrap(), events);
    assert_eq!(group.reclaim(8192).unwrap(), 0);
    assert_eq!(fake.text("memory.reclaim"), "8192");
    group.reclaim_all().unwrap();
    assert_eq!(fake.text("memory.reclaim"), "1048576");
    group.set_killed_together(true).unwrap();
    group.kill(Duration::ZERO).unwrap();
    assert_eq!((fake.text("cgroup.kill").as_str(), fake.text("memory.oom.group").as_str()), ("1", "1"));
    group.add(7).unwrap();
    assert_eq!((fake.text("cgroup.procs").as_str(), group.processes().unwrap()), ("7", vec![7]));
    assert!(matches!(group.kill(Duration::ZERO), Err(GroupError::StillThere { left: 1, .. })));
    group.create("below").unwrap();
    assert_eq!(fake.text("cgroup.subtree_control"), "+memory");
    assert!(fake.0.join("below").is_dir() && group.create("below").is_err());
    for name in ["", "a/b", "..", ".hidden"] {
        assert!(matches!(group.create(name), Err(GroupError::Form { .. })), "{name}");
    }
}

#[test]
fn what_is_missing_or_broken_is_said_with_its_file() {
    let (fake, group) = Fake::make("broken", &[("memory.max", "many\n"), ("memory.events", "high\n")]);
    let text = |error: GroupError| error.to_string();
    assert!(text(group.memory_limit().unwrap_err()).contains("memory.max: \"many\" is not a number"));
    assert!(text(group.events().unwrap_err()).contains("a name and a number"));
    assert!(text(group.swap_limit().unwrap_err()).contains("have no memory.swap.max"));
    assert!(text(group.reclaim_all().unwrap_err()).contains("memory.current"));
    assert!(text(group.set_high(Limit::Unlimited).unwrap_err()).contains("version 2"));
    assert!(text(group.out_of_memory_waits().unwrap_err()).contains("version 1 alone"));
    assert!(matches!(group.watch_pressure(PressureLevel::Low), Err(GroupError::Unsupported { .. })));
    assert!(group.watch_stalls(Duration::from_millis(100), Duration::from_secs(1)).is_err());
    fs::write(fake.0.join("cgroup.procs"), "12\nx\n").unwrap();
    assert!(text(group.processes().unwrap_err()).contains("\"x\""));
    assert!(text(group.clone().remove().unwrap_err()).contains("remove the control group"));
    fs::remove_dir_all(&fake.0).unwrap();
    assert!(matches!(group.high(), Err(GroupError::Io { .. })), "gone, not of another version");
}

#[test]
fn version_1_limits_in_any_order() {
    let Some(made) = TestGroup::make("limits", Version::One) else { return };
    let group = &made.0;
    assert_eq!(
        (group.memory_limit().unwrap(), group.swap_limit().unwrap()),
        (Limit::Unlimited, Limit::Unlimited)
    );
    // Shrinking, growing, both, and back.
    let steps = [(8, 8), (4, 2), (64, 64), (2, 100), (100, 0), (1, 1)];
    for (memory, swap) in steps.map(|(memory, swap)| (Limit::Bytes(memory * MIB), Limit::Bytes(swap * MIB))) {
        group.set_limits(memory, swap).unwrap();
        assert_eq!((group.memory_limit().unwrap(), group.swap_limit().unwrap()), (memory, swap));
    }
    group.set_limits(Limit::Unlimited, Limit::Unlimited).unwrap();
    assert_eq!(group.memory_limit().unwrap(), Limit::Unlimited);
    assert!(matches!(group.set_high(Limit::Unlimited), Err(GroupError::Unsupported { .. })));
    assert!(group.set_killed_together(true).is_err());
    assert_eq!((group.usage_bytes().unwrap(), group.processes().unwrap()), (0, vec![]));
    assert!(group.add(u32::MAX).is_err());
    group.create("below").unwrap().remove().unwrap();
    assert!(group.watch_stalls(Duration::from_millis(100), Duration::from_secs(1)).is_err());
}

/// A child that writes this memory when told to, in a group.
struct Child {
    pid: libc::c_int,
    go: Signal,
    done: Signal,
    /// Both pipes.
    _open: [std::os::fd::OwnedFd; 4],
}

impl Child {
    fn start(mapping: &SharedMapping, group: &Group) -> Child {
        let (to_child, to_test) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let (may_go, go) = (Signal::of(to_child.0.as_fd()), Signal::of(to_child.1.as_fd()));
        let (done, is_done) = (Signal::of(to_test.0.as_fd()), Signal::of(to_test.1.as_fd()));
        let pid = fork_and(|| {
            let write =
                || (0..mapping.len()).step_by(4096).for_each(|at| mapping.store_u64(at, at as u64 + 1));
            let is_right =
                || (0..mapping.len()).step_by(4096).all(|at| mapping.load_u64(at) == at as u64 + 1);
            end_with_starter()
                && may_go.wait()
                && {
                    write();
                    is_done.send()
                }
                && may_go.wait()
                && is_right()
        });
        group.add(pid as u32).unwrap();
        let open = [to_child.0.into(), to_child.1.into(), to_test.0.into(), to_test.1.into()];
        Child { pid, go, done, _open: open }
    }
}

#[test]
fn version_1_has_a_process_wait_for_memory_and_tells() {
    let Some(made) = TestGroup::make("waits", Version::One) else { return };
    let group = &made.0;
    // Some swap, so that it is memory's own limit that is met first, and too little, should there be any.
    group.set_limits(Limit::Bytes(4 * MIB), Limit::Bytes(MIB)).unwrap();
    group.set_out_of_memory_waits(true).unwrap();
    assert!(group.out_of_memory_waits().unwrap());
    let mut watch = group.watch_out_of_memory().unwrap();
    let mut pressure = group.watch_pressure(PressureLevel::Low).unwrap();
    assert!(!watch.wait(Duration::ZERO).unwrap());
    let mapping = SharedMapping::anonymous(8 << 20).unwrap();
    let child = Child::start(&mapping, group);
    assert_eq!(group.processes().unwrap(), [child.pid as u32]);
    assert!(child.go.send());
    assert!(watch.wait(Duration::from_secs(60)).unwrap(), "told");
    assert!(pressure.wait(Duration::from_secs(60)).unwrap(), "it was tried to reclaim");
    // Told once; the process waits, and none was killed.
    assert!(!watch.wait(Duration::ZERO).unwrap());
    let events = group.events().unwrap();
    assert!(
        events.limit > 0 && events.waits_now == Some(true) && events.killed.unwrap_or(0) == 0,
        "{events:?}"
    );
    assert!(group.usage_bytes().unwrap() > 3 * MIB);
    group.set_limits(Limit::Bytes(64 * MIB), Limit::Unlimited).unwrap();
    assert!(child.done.wait() && child.go.send());
    assert_eq!(status_of(child.pid), 0);
    assert!(group.peak_bytes().unwrap() >= 8 * MIB);
    assert_eq!(group.events().unwrap().waits_now, Some(false));
}

#[test]
fn version_1_kills_who_is_in_it() {
    let Some(made) = TestGroup::make("kill", Version::One) else { return };
    let mapping = SharedMapping::anonymous(1 << 20).unwrap();
    let children = [Child::start(&mapping, &made.0), Child::start(&mapping, &made.0)];
    assert!(made.0.clone().remove().unwrap_err().to_string().contains("processes or groups below"));
    made.0.kill(Duration::from_secs(60)).unwrap();
    assert!(made.0.processes().unwrap().is_empty());
    for child in children {
        let status = status_of(child.pid);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL, "{status:#x}");
    }
    made.0.kill(Duration::ZERO).unwrap();
}

#[test]
fn version_1_is_reclaimed_from_and_keeps_its_limit() {
    let Some(made) = TestGroup::make("reclaim", Version::One) else { return };
    let Some(_swap) = TestSwap::on("reclaim", 32 << 20, SwapOptions::default()) else { return };
    let group = &made.0;
    group.set_limits(Limit::Bytes(64 * MIB), Limit::Unlimited).unwrap();
    let mapping = SharedMapping::anonymous(8 << 20).unwrap();
    let child = Child::start(&mapping, group);
    assert!(child.go.send() && child.done.wait());
    let before = group.usage_bytes().unwrap();
    assert!(before >= 8 * MIB);
    let freed = group.reclaim(4 * MIB).unwrap();
    assert!((3 * MIB..=8 * MIB).contains(&freed), "{freed} of {before}");
    assert!(group.swap_usage_bytes().unwrap() >= 3 * MIB);
    assert_eq!(group.memory_limit().unwrap(), Limit::Bytes(64 * MIB));
    assert!(!group.out_of_memory_waits().unwrap());
    set_swappiness(group, 150).unwrap();
    assert_eq!(swappiness(group).unwrap(), 150);
    assert!(set_swappiness(group, 201).is_err());
    group.reclaim_all().unwrap();
    assert!(group.usage_bytes().unwrap() < 4 * MIB, "{}", group.usage_bytes().unwrap());
    assert!(child.go.send());
    assert_eq!(status_of(child.pid), 0, "its bytes are what they were");
}

#[test]
fn version_2_limits_and_has_memory_back() {
    let Some(made) = TestGroup::make("limits", Version::Two) else { return };
    let group = &made.0;
    assert_eq!(group.memory_limit().unwrap(), Limit::Unlimited);
    for (memory, swap) in [(8, 8), (4, 2), (64, 0)] {
        let (memory, swap) = (Limit::Bytes(memory * MIB), Limit::Bytes(swap * MIB));
        group.set_limits(memory, swap).unwrap();
        assert_eq!((group.memory_limit().unwrap(), group.swap_limit().unwrap()), (memory, swap));
    }
    assert!(set_swappiness(group, 100).unwrap_err().to_string().contains("version 1"));
    group.set_high(Limit::Bytes(32 * MIB)).unwrap();
    assert_eq!(group.high().unwrap(), Limit::Bytes(32 * MIB));
    let mapping = SharedMapping::anonymous(8 << 20).unwrap();
    let child = Child::start(&mapping, group);
    assert_eq!(group.processes().unwrap(), [child.pid as u32]);
    assert!(child.go.send() && child.done.wait());
    assert!(group.usage_bytes().unwrap() >= 8 * MIB && group.peak_bytes().unwrap() >= 8 * MIB);
    assert!(group.stat().unwrap()["anon"] >= 8 * MIB);
    // Without swap there is little to take back: an answer, not an error.
    assert!(group.reclaim(4 * MIB).unwrap() < 8 * MIB);
    assert!(matches!(group.out_of_memory_waits(), Err(GroupError::Unsupported { .. })));
    assert!(child.go.send());
    assert_eq!(status_of(child.pid), 0);
}

#[test]
fn version_2_kills_together_and_tells() {
    let Some(made) = TestGroup::make("kill", Version::Two) else { return };
    let group = &made.0;
    let ended_by_kill = |child: &Child| {
        let status = status_of(child.pid);
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL
    };
    let mapping = SharedMapping::anonymous(8 << 20).unwrap();
    group.set_limits(Limit::Bytes(4 * MIB), Limit::Bytes(0)).unwrap();
    group.set_killed_together(true).unwrap();
    let mut watch = group.watch_out_of_memory().unwrap();
    assert!(!watch.wait(Duration::ZERO).unwrap());
    let (greedy, beside) = (Child::start(&mapping, group), Child::start(&mapping, group));
    assert!(greedy.go.send());
    assert!(watch.wait(Duration::from_secs(60)).unwrap(), "told");
    assert!(ended_by_kill(&greedy) && ended_by_kill(&beside));
    let events = group.events().unwrap();
    assert!(events.limit > 0 && events.out_of_memory > Some(0) && events.killed >= Some(2), "{events:?}");
    let children = [Child::start(&mapping, group), Child::start(&mapping, group)];
    group.kill(Duration::from_secs(60)).unwrap();
    assert!(children.iter().all(ended_by_kill) && group.processes().unwrap().is_empty());
    // Times that the kernel takes, where it measures them at all.
    match group.watch_stalls(Duration::from_millis(150), Duration::from_secs(1)) {
        Ok(mut watch) => assert!(!watch.wait(Duration::ZERO).unwrap()),
        Err(error) => eprintln!("no stalls are told here: {error}"),
    }
}
