//! Doctor rows on the sources of recordings that work here.

use super::damon::{Damon, Files};
use super::facts::{Facts, NO_COUNTERS};
use super::{Row, State};

/// Where no program can have an agent.
pub const AGENT_ADVICE: &str = "allow ptrace of child processes (kernel.yama.ptrace_scope of 1 or 0; in a container: a seccomp profile with ptrace), on \
     64-bit x86 with Linux 5.9 or newer";

/// One for each source of `tiermem record`, and one for `--physical`.
pub fn rows(facts: &Facts) -> Vec<Row> {
    vec![
        refs(facts),
        writes(facts),
        faults(facts),
        damon(facts.privileges.is_root, &facts.damon),
        perf_mem(facts),
        lackey(facts),
        physical(facts),
        sites(facts),
    ]
}

fn refs(facts: &Facts) -> Row {
    let (item, purpose) = ("source refs", "pages referenced, at little cost: where to begin");
    match (&facts.referenced, &facts.agent) {
        (Err(error), _) => Row::lacking(
            item,
            State::No,
            purpose,
            error,
            "a kernel with CONFIG_PROC_PAGE_MONITOR, and /proc as usual",
        ),
        (Ok(()), Err(_)) => Row::lacking(
            item,
            State::Limited,
            purpose,
            "without an agent the program's mappings are looked at as wholes",
            AGENT_ADVICE,
        ),
        (Ok(()), Ok(())) => {
            let huge = facts.huge_pages.as_deref() == Some("always");
            let found = "programs have huge pages, each referenced as one: --small-pages sees more";
            Row::yes(item, purpose, if huge { found } else { "" })
        }
    }
}

fn writes(facts: &Facts) -> Row {
    let (item, purpose) = ("source writes", "pages written, beside refs");
    let advice = match (&facts.written, &facts.agent) {
        (Ok(()), Ok(())) => return Row::yes(item, purpose, ""),
        (Ok(()), Err(_)) => AGENT_ADVICE,
        (Err(_), _) => "Linux 6.7 or newer, with userfaultfd; see the rows userfaultfd and PAGEMAP_SCAN",
    };
    let found = match &facts.written {
        Ok(()) => "programs can have no agent, and only an agent can have writes watched",
        Err(error) => error,
    };
    Row::lacking(item, State::No, purpose, found, advice)
}

fn faults(facts: &Facts) -> Row {
    let purpose = "where pages are first touched";
    Row::tried("source faults", purpose, facts.faults.as_ref(), watching_advice())
}

fn sites(facts: &Facts) -> Row {
    let (item, purpose) = ("record --sites", "which code first touches memory, of programs that it starts");
    match &facts.first_touches {
        Ok(false) => Row::yes(item, purpose, ""),
        Ok(true) => Row::lacking(
            item,
            State::Limited,
            purpose,
            "memory that system calls touch first is left out",
            watching_advice(),
        ),
        Err(error) => Row::lacking(
            item,
            State::No,
            purpose,
            error,
            "x86-64, and root, CAP_PERFMON or kernel.perf_event_paranoid at most 2",
        ),
    }
}

/// For page faults of other processes.
pub fn watching_advice() -> &'static str {
    "run as root or with CAP_PERFMON, or lower kernel.perf_event_paranoid to 1"
}

fn damon(is_root: bool, damon: &Damon) -> Row {
    let (item, purpose) = ("source damon", "the kernel's own monitor: a cost that does not grow with memory");
    let no = |found: &str, advice| Row::lacking(item, State::No, purpose, found, advice);
    let rebuilt = "a kernel with CONFIG_DAMON_SYSFS and CONFIG_DAMON_VADDR; refs works without";
    match (&damon.files, damon.watches_virtual) {
        (Files::Missing, _) => no("the kernel has no DAMON in sysfs", rebuilt),
        (_, Some(false)) => no("this kernel's DAMON does not watch the addresses of processes", rebuilt),
        (Files::Hidden(_), _) => no("its files are root's", "run as root; refs works without"),
        (Files::Monitors(1..), _) => no(
            "it is in use by somebody else, whose monitors are left alone",
            "ask its user to stop using it; refs works without",
        ),
        (Files::Monitors(0), _) if !is_root => no("its files are root's", "run as root; refs works without"),
        (Files::Monitors(0), Some(true)) => Row::yes(item, purpose, ""),
        (Files::Monitors(0), None) => Row::lacking(
            item,
            State::Unknown,
            purpose,
            "nobody uses it, but what it can watch is not told before a monitor is made",
            "try it: tiermem record --source damon",
        ),
    }
}

fn perf_mem(facts: &Facts) -> Row {
    let (item, purpose) = ("source perf-mem", "samples of loads and stores, with level and latency");
    let no = |found: &str, advice| Row::lacking(item, State::No, purpose, found, advice);
    match (&facts.counter, facts.samplers.as_slice(), &facts.perf) {
        (Err(error), ..) => no(&format!("hardware counters: {error}"), counters_advice(&facts.counter)),
        (_, [], _) => {
            no("no event that samples accesses (mem-loads, ibs_op, arm_spe)", counters_advice(&facts.counter))
        }
        (.., None) => no("perf is not in PATH", "install it (apt-get install linux-perf, or linux-tools)"),
        (Ok(()), samplers, Some(_)) => Row::yes(item, purpose, samplers.join(", ")),
    }
}

/// For the processor's counters.
pub fn counters_advice(counter: &Result<(), String>) -> &'static str {
    match counter {
        Err(error) if error != NO_COUNTERS => {
            "run as root or with CAP_PERFMON, or lower kernel.perf_event_paranoid to 1 or less"
        }
        _ => {
            "run outside of a virtual machine, or record there with perf mem and bring the text: tiermem record --import"
        }
    }
}

fn lackey(facts: &Facts) -> Row {
    let (item, purpose) = ("source lackey", "every access of a small program, a hundred times slower");
    let found = "the program must not use AVX-512: build it for x86-64-v3 at most";
    match &facts.valgrind {
        Some(_) => Row::yes(item, purpose, if cfg!(target_arch = "x86_64") { found } else { "" }),
        None => Row::lacking(item, State::No, purpose, "valgrind is not in PATH", valgrind_advice()),
    }
}

/// How to install Valgrind.
pub fn valgrind_advice() -> &'static str {
    "install it (apt-get install valgrind)"
}

fn physical(facts: &Facts) -> Row {
    let (item, purpose) = ("record --physical", "traces of what reaches memory, with physical addresses");
    match (&facts.valgrind, &facts.frames, &facts.faults) {
        (None, ..) => Row::lacking(item, State::No, purpose, "valgrind is not in PATH", valgrind_advice()),
        (_, Err(error), _) => {
            let found = format!("no frame numbers: {error}");
            Row::lacking(item, State::No, purpose, found, "run as root or with CAP_SYS_ADMIN")
        }
        (_, _, Err(error)) => {
            let found = format!("pages that move are noticed late: {error}");
            Row::lacking(item, State::Limited, purpose, found, watching_advice())
        }
        _ => Row::yes(item, purpose, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Facts)) -> Facts {
        let mut facts = Facts::gather();
        facts.referenced = Ok(());
        facts.written = Ok(());
        facts.faults = Ok(());
        facts.first_touches = Ok(false);
        facts.frames = Ok(());
        facts.counter = Ok(());
        facts.samplers = vec!["ibs_op".to_owned()];
        facts.agent = Ok(());
        facts.valgrind = Some("b".into());
        facts.perf = Some("c".into());
        facts.privileges.is_root = true;
        facts.damon =
            Damon { files: Files::Monitors(0), watches_virtual: Some(true), watches_physical: None };
        change(&mut facts);
        facts
    }

    fn states(facts: &Facts) -> Vec<State> {
        rows(facts).iter().map(|row| row.state).collect()
    }

    #[test]
    fn with_all_that_is_needed_all_sources_work() {
        assert_eq!(states(&with(|_| {})), [State::Yes; 8]);
    }

    #[test]
    fn sources_need_what_they_need_and_no_more() {
        use State::{Limited, No, Yes};
        let no = || Err("refused".to_owned());
        for (facts, expected) in [
            (with(|facts| facts.agent = no()), [Limited, No, Yes, Yes, Yes, Yes, Yes, Yes]),
            (with(|facts| facts.referenced = no()), [No, Yes, Yes, Yes, Yes, Yes, Yes, Yes]),
            (with(|facts| facts.written = no()), [Yes, No, Yes, Yes, Yes, Yes, Yes, Yes]),
            (with(|facts| facts.faults = no()), [Yes, Yes, No, Yes, Yes, Yes, Limited, Yes]),
            (with(|facts| facts.frames = no()), [Yes, Yes, Yes, Yes, Yes, Yes, No, Yes]),
            (with(|facts| facts.counter = no()), [Yes, Yes, Yes, Yes, No, Yes, Yes, Yes]),
            (with(|facts| facts.samplers.clear()), [Yes, Yes, Yes, Yes, No, Yes, Yes, Yes]),
            (with(|facts| facts.perf = None), [Yes, Yes, Yes, Yes, No, Yes, Yes, Yes]),
            (with(|facts| facts.valgrind = None), [Yes, Yes, Yes, Yes, Yes, No, No, Yes]),
            (with(|facts| facts.first_touches = Ok(true)), [Yes, Yes, Yes, Yes, Yes, Yes, Yes, Limited]),
            (
                with(|facts| facts.first_touches = Err("refused".to_owned())),
                [Yes, Yes, Yes, Yes, Yes, Yes, Yes, No],
            ),
            (with(|facts| facts.privileges.is_root = false), [Yes, Yes, Yes, No, Yes, Yes, Yes, Yes]),
        ] {
            assert_eq!(states(&facts), expected);
        }
    }

    #[test]
    fn monitors_of_others_are_a_reason_not_to_use_damon() {
        let state = |files, watches_virtual| {
            damon(true, &Damon { files, watches_virtual, watches_physical: None }).state
        };
        assert_eq!(state(Files::Monitors(1), Some(true)), State::No);
        assert_eq!(state(Files::Monitors(0), Some(false)), State::No);
        assert_eq!(state(Files::Monitors(0), None), State::Unknown);
        assert_eq!(state(Files::Missing, Some(false)), State::No);
        assert_eq!(state(Files::Hidden(String::new()), None), State::No);
    }
}
