//! The agent in a program of its own: what it does for others, and that the program does not notice.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tiermem_sys::agent::{self, Advice, Agent, AgentError, LockError, NoAgent, Policy};
use tiermem_sys::mapping::Mapping;
use tiermem_sys::page_scan::PageScan;

const BYTES: u64 = 16 << 20;

/// What the tests watch: maps and fills memory, says where, and does what it is told by lines.
#[test]
#[ignore = "a program for the other tests"]
fn target() {
    let mut mapping = Mapping::anonymous(BYTES as usize).unwrap();
    mapping.bytes_mut().fill(7);
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nat {}", mapping.bytes().as_ptr().addr()).unwrap();
    for line in std::io::stdin().lock().lines() {
        match line.unwrap().as_str() {
            "look" => writeln!(out, "sees {}", sights(&mapping)).unwrap(),
            "write" => {
                mapping.bytes_mut()[3 * 4096] = 8;
                writeln!(out, "written").unwrap();
            }
            "exec" => {
                let error = std::os::unix::process::CommandExt::exec(Command::new("sleep").arg("1000"));
                panic!("{error}");
            }
            _ => return,
        }
    }
}

/// What a program can find out about itself.
fn sights(mapping: &Mapping) -> String {
    let names = |folder: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|it| it.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    let own = std::process::id();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kept = ["TracerPid", "Threads", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp:"];
    let kept: Vec<&str> =
        status.lines().filter(|line| kept.iter().any(|name| line.starts_with(name))).collect();
    // The descriptor of the listing itself is the lowest free one in both.
    format!(
        "{:?} {} {:?} {:?} {}",
        names("/proc/self/fd"),
        names("/proc/self/task").len(),
        // Of each thread.
        names("/proc/self/task")
            .iter()
            .map(|it| std::fs::read_to_string(format!("/proc/{own}/task/{it}/children")).unwrap())
            .collect::<Vec<_>>(),
        kept,
        mapping.bytes().iter().all(|byte| *byte == 7 || *byte == 8)
    )
}

struct Target {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    start: u64,
}

impl Target {
    fn start(with_agent: bool) -> (Self, Option<Agent>) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["target", "--exact", "--ignored", "--nocapture"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut started = agent::start(command, with_agent).unwrap();
        let (stdin, stdout) = (started.child.stdin.take().unwrap(), started.child.stdout.take().unwrap());
        let mut target = Target { child: started.child, stdin, stdout: BufReader::new(stdout), start: 0 };
        target.start = target.answer("at ").parse().unwrap();
        (target, started.agent.map(Result::unwrap))
    }

    fn answer(&mut self, to: &str) -> String {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            if let Some(answer) = line.trim_end().strip_prefix(to) {
                return answer.to_owned();
            }
            line.clear();
        }
        panic!("the program has ended");
    }

    fn ask(&mut self, what: &str, to: &str) -> String {
        writeln!(self.stdin, "{what}").unwrap();
        self.answer(to)
    }

    fn mappings(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap();
        let bounds = |line: &str| {
            let (range, _) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
        };
        let (start, end) = (self.start, self.start + BYTES);
        maps.lines().filter_map(bounds).filter(|(from, to)| *from < end && *to > start).count()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_range_is_split_into_granules_and_joined_again() {
    let (mut target, agent) = Target::start(true);
    let mut agent = agent.unwrap();
    let start = target.start;
    let apart = agent.split(start, BYTES, 1 << 20, start).unwrap();
    assert_eq!((apart, target.mappings()), (8, 16));
    // Again, and parts of it, and from an origin behind it: the same granules.
    assert_eq!(agent.split(start, BYTES, 1 << 20, start).unwrap(), apart);
    assert_eq!(agent.split(start + (5 << 19), 1 << 20, 1 << 20, start).unwrap(), 1);
    assert_eq!(agent.split(start, BYTES, 1 << 20, start + (64 << 20)).unwrap(), apart);
    assert_eq!(target.mappings(), 16);
    agent.join(start, BYTES).unwrap();
    assert!(target.mappings() <= 3);
    assert!(target.ask("look", "sees ").ends_with("true"));
    // More granules than one list of calls has.
    assert_eq!(agent.split(start, BYTES, 4096, start).unwrap(), 2048);
    assert_eq!(target.mappings(), 4096);
    assert_eq!(agent.spent().requests, 6);
    // What the agent has divided is whole when it goes, even if a part was divided again.
    agent.join(start + (2 << 20), 1 << 20).unwrap();
    agent.split(start + (2 << 20), 1 << 20, 4096, start).unwrap();
    drop(agent);
    assert!(target.mappings() <= 3);
}

#[test]
fn what_is_not_mapped_is_passed_over() {
    let (_target, agent) = Target::start(true);
    let mut agent = agent.unwrap();
    agent.join(0, 4096).unwrap();
    assert_eq!(agent.split(0, 1 << 16, 4096, 0).unwrap(), 0);
}

#[test]
fn wrong_requests_are_refused_and_do_no_harm() {
    let (mut target, agent) = Target::start(true);
    let mut agent = agent.unwrap();
    assert!(matches!(agent.split(0, 1 << 20, 100, 0), Err(AgentError::Refused(_))));
    assert!(matches!(agent.split(u64::MAX - 10, 1 << 20, 4096, 0), Err(AgentError::Refused(_))));
    assert!(matches!(agent.bind(4096, 4096, Policy::Bind, 1 << 63), Err(AgentError::Refused(_))));
    assert!(matches!(agent.advise(0, 4096, Advice::SmallPages), Err(AgentError::Refused(_))));
    assert!(matches!(agent.watch_writes(0, 100), Err(AgentError::Refused(_))));
    assert!(matches!(agent.lock(0, 4096), Err(LockError::Agent { .. })));
    agent.advise(target.start, BYTES, Advice::SmallPages).unwrap();
    assert!(target.ask("look", "sees ").ends_with("true"));
}

#[test]
fn memory_is_locked_and_unlocked() {
    let (target, agent) = Target::start(true);
    let (mut agent, start) = (agent.unwrap(), target.start);
    let locked = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", target.child.id())).unwrap();
        status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap().trim().to_owned()
    };
    assert_eq!(agent.lock(start, 1 << 20).unwrap(), 1 << 20);
    assert_eq!(agent.lock(start, 2 << 20).unwrap(), 1 << 20);
    assert_eq!(locked(), "2048 kB");
    assert_eq!(agent.unlock(start, 1 << 20).unwrap(), 1 << 20);
    assert_eq!(locked(), "1024 kB");
    drop(agent);
    assert_eq!(locked(), "0 kB");
}

#[test]
fn written_pages_are_remembered_by_the_kernel() {
    let (mut target, agent) = Target::start(true);
    let (mut agent, start) = (agent.unwrap(), target.start);
    let Ok(()) = agent.watch_writes(start, BYTES) else { return };
    let mut scan = PageScan::open(target.child.id()).unwrap();
    // Kernels before 6.7 know no such scan.
    let Ok(()) = scan.written(start, start + BYTES, |_| {}) else { return };
    target.ask("write", "written");
    let mut told = Vec::new();
    scan.written(start, start + BYTES, |written| told.push(written.start)).unwrap();
    assert_eq!(told, [start + 3 * 4096]);
}

#[test]
fn a_program_does_not_notice_its_agent() {
    let (mut alone, none) = Target::start(false);
    let (mut observed, agent) = Target::start(true);
    assert!(none.is_none());
    assert_eq!(observed.ask("look", "sees "), alone.ask("look", "sees "));
    // Nor one that is brought in later, while it waits for a line.
    drop(agent);
    let mut agent = agent::attach(observed.child.id()).unwrap();
    assert_eq!(agent.split(observed.start, BYTES, 1 << 20, observed.start).unwrap(), 8);
    assert_eq!(observed.ask("look", "sees "), alone.ask("look", "sees "));
    assert_ne!(agent.is_in(), Some(false));
    // And one that is killed costs the requests alone.
    let pid = observed.child.id();
    drop(observed);
    assert_ne!(agent.is_in(), Some(true), "{pid} has ended");
}

#[test]
fn an_agent_knows_that_its_program_has_begun_another() {
    let (mut target, agent) = Target::start(true);
    let agent = agent.unwrap();
    if agent.is_in().is_none() {
        return;
    }
    writeln!(target.stdin, "exec").unwrap();
    while agent.is_in() == Some(true) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(agent);
    let again = agent::attach(target.child.id()).unwrap();
    assert_eq!(again.is_in(), Some(true));
}

#[test]
fn two_agents_and_a_program_that_is_none() {
    let (target, agent) = Target::start(true);
    // It is not traced itself, so another one may come.
    let second = agent::attach(target.child.id()).unwrap();
    assert_eq!((second.is_in(), agent.unwrap().is_in()), (Some(true), Some(true)));
    assert!(matches!(agent::attach(u32::MAX / 2), Err(NoAgent::Refused(_))));
    let failed = agent::start(Command::new("/no/such/program"), true).unwrap_err();
    assert_eq!(failed.kind(), std::io::ErrorKind::NotFound);
}
