//! Doctor rows on recording: the kernel's interfaces, programs and privileges that it needs.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

use tiermem_sys::uring::{Bell, Ring};
use tiermem_sys::userfaultfd::Features;

use super::damon::{Damon, Files};
use super::facts::{Facts, Privileges};
use super::sources::AGENT_ADVICE;
use super::sources::{counters_advice, valgrind_advice, watching_advice};
use super::{Row, State};

/// What is of use, with the kernel's numbers.
const CAPABILITIES: [(u32, &str); 4] =
    [(19, "CAP_SYS_PTRACE"), (21, "CAP_SYS_ADMIN"), (23, "CAP_SYS_NICE"), (38, "CAP_PERFMON")];
/// Mappings of a process that the kernel allows by default, which granules are chosen for.
const MAPPINGS: u64 = 65_530;

/// One for each.
pub fn rows(facts: &Facts) -> Vec<Row> {
    let old = "Linux 6.7 or newer";
    vec![
        Row::tried(
            "referenced pages",
            "source refs (clear_refs and smaps of /proc/PID)",
            facts.referenced.as_ref(),
            "a kernel with CONFIG_PROC_PAGE_MONITOR",
        ),
        Row::tried("PAGEMAP_SCAN", "source writes: which pages were written", facts.scan.as_ref(), old),
        userfault(facts),
        Row::tried(
            "frame numbers",
            "record --physical (/proc/PID/pagemap)",
            facts.frames.as_ref(),
            "run as root or with CAP_SYS_ADMIN",
        ),
        Row::tried(
            "page-fault events",
            "source faults, record --physical (perf_event_open)",
            facts.faults.as_ref(),
            watching_advice(),
        ),
        Row::tried(
            "hardware counters",
            "source perf-mem; a virtual machine has none as a rule",
            facts.counter.as_ref(),
            counters_advice(&facts.counter),
        ),
        damon(&facts.damon),
        agent(&facts.agent),
        program("valgrind", "source lackey, record --physical", facts.valgrind.as_ref(), valgrind_advice()),
        program(
            "perf",
            "source perf-mem",
            facts.perf.as_ref(),
            "install it (apt-get install linux-perf, or linux-tools)",
        ),
        mappings(fs::read_to_string("/proc/sys/vm/max_map_count").ok()),
        privileges(facts.privileges),
        uring(),
    ]
}

fn userfault(facts: &Facts) -> Row {
    let (item, purpose) = ("userfaultfd", "source writes: a write protection that costs the program little");
    match &facts.userfault {
        Ok((offered, _)) if offered.contains(Features::WATCH_WRITES) => {
            Row::yes(item, purpose, "writes can be watched without waiting for them")
        }
        Ok(_) => Row::lacking(
            item,
            State::Limited,
            purpose,
            "it has no write protection that the kernel lifts by itself (WP_ASYNC)",
            "Linux 6.7 or newer",
        ),
        Err(error) => Row::lacking(
            item,
            State::No,
            purpose,
            error,
            "a kernel with CONFIG_USERFAULTFD; in a container, a profile that allows the call",
        ),
    }
}

fn damon(damon: &Damon) -> Row {
    let (item, purpose) = ("DAMON", "source damon (/sys/kernel/mm/damon)");
    let lacking = |state, found: String, advice| Row::lacking(item, state, purpose, found, advice);
    let what: Vec<&str> = [("vaddr", damon.watches_virtual), ("paddr", damon.watches_physical)]
        .into_iter()
        .filter(|(_, watches)| *watches == Some(true))
        .map(|(name, _)| name)
        .collect();
    let what = match (what.is_empty(), damon.watches_virtual) {
        (false, _) => format!("operations: {}", what.join(", ")),
        (true, None) => "operations are not told".to_owned(),
        (true, Some(_)) => "operations: neither vaddr nor paddr".to_owned(),
    };
    match &damon.files {
        Files::Missing => lacking(
            State::No,
            "not in sysfs".to_owned(),
            "a kernel with CONFIG_DAMON_SYSFS and CONFIG_DAMON_VADDR",
        ),
        Files::Hidden(error) => lacking(State::Unknown, error.clone(), "run as root"),
        Files::Monitors(0) => match damon.watches_virtual {
            Some(true) => Row::yes(item, purpose, what),
            Some(false) => lacking(State::Limited, what, "a kernel with CONFIG_DAMON_VADDR"),
            None => lacking(State::Unknown, what, "try it: tiermem record --source damon"),
        },
        Files::Monitors(count) => lacking(
            State::Limited,
            format!("{count} in use by somebody else, left alone; {what}"),
            "ask its user to stop using it",
        ),
    }
}

fn agent(agent: &Result<(), String>) -> Row {
    let (item, purpose) = ("agent", "granules of refs, source writes, and following a plan");
    Row::tried(item, purpose, agent.as_ref(), AGENT_ADVICE)
}

fn program(item: &'static str, purpose: &'static str, file: Option<&PathBuf>, advice: &'static str) -> Row {
    match file {
        Some(file) => Row::yes(item, purpose, file.display().to_string()),
        None => Row::lacking(item, State::No, purpose, "not in PATH", advice),
    }
}

fn mappings(text: Option<String>) -> Row {
    let (item, purpose) = ("mappings", "source refs makes one of each granule (vm.max_map_count)");
    match text.and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(most @ MAPPINGS..) => Row::yes(item, purpose, most.to_string()),
        Some(most) => Row::lacking(
            item,
            State::Limited,
            purpose,
            most.to_string(),
            "a larger --granule, or sysctl vm.max_map_count=65530",
        ),
        None => Row::lacking(item, State::Unknown, purpose, "", "read /proc/sys/vm/max_map_count"),
    }
}

fn privileges(privileges: Privileges) -> Row {
    let (item, purpose) =
        ("privileges", "programs of other users, frame numbers, page faults, DAMON, weights");
    let has: Vec<&str> = CAPABILITIES
        .into_iter()
        .filter(|(number, _)| privileges.has(*number))
        .map(|(_, name)| name)
        .collect();
    let user = if privileges.is_root { "root" } else { "not root" };
    let found = if has.is_empty() {
        format!("{user}, none of the capabilities that help")
    } else {
        format!("{user}, {}", has.join(", "))
    };
    let advice = "run as root, or give what a row asks for (setcap, or the container's settings)";
    match (privileges.is_root, has.len()) {
        (true, count) if count == CAPABILITIES.len() => Row::yes(item, purpose, found),
        (false, 0) => Row::lacking(item, State::No, purpose, found, advice),
        _ => Row::lacking(item, State::Limited, purpose, found, advice),
    }
}

fn uring() -> Row {
    let made = File::open("/dev/null").and_then(|file| {
        let ring: Ring<()> = Ring::new(Arc::new(file), 1, Bell::new()?)?;
        drop(ring);
        Ok(())
    });
    let made = made.map_err(|error: std::io::Error| error.to_string());
    Row::tried(
        "io_uring",
        "flash tiers of the store and the block cache; threads do it otherwise",
        made.as_ref(),
        "Linux 5.6 or newer; sysctl kernel.io_uring_disabled=0; in a container, a profile that allows it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_mappings_limit_granules() {
        let state = |text: &str| mappings(Some(text.to_owned())).state;
        assert_eq!((state("65530\n"), state("1000\n")), (State::Yes, State::Limited));
        assert_eq!((state("many"), mappings(None).state), (State::Unknown, State::Unknown));
    }

    #[test]
    fn privileges_are_all_some_or_none() {
        let of = |is_root, capabilities| super::privileges(Privileges { is_root, capabilities });
        assert_eq!(of(true, u64::MAX).state, State::Yes);
        assert_eq!(of(false, 0).state, State::No);
        let some = of(false, 1 << 38);
        assert_eq!((some.state, some.found.as_str()), (State::Limited, "not root, CAP_PERFMON"));
        // Root in a container has lost some.
        assert_eq!(of(true, 0).state, State::Limited);
    }

    #[test]
    fn monitors_and_operations_are_told() {
        let of = |files, watches_virtual| {
            super::damon(&Damon { files, watches_virtual, watches_physical: Some(true) })
        };
        assert_eq!(of(Files::Monitors(0), Some(true)).found, "operations: vaddr, paddr");
        let other = of(Files::Monitors(2), Some(false));
        assert_eq!(other.state, State::Limited);
        assert_eq!(other.found, "2 in use by somebody else, left alone; operations: paddr");
        assert_eq!(of(Files::Missing, Some(false)).state, State::No);
    }
}
