//! Replay of a log: the same events, through the same core, must give the same acts, one for one.

use std::io::{self, BufRead};
use std::str::FromStr;

use tiermem_policy::paging::{Act, Counts, Event, Outcome, PageRange, PageState, Role, Watermarks};

use super::logged::{CoreOptions, Logged, MAGIC, NEW_CORE, act_text};

/// A range of more pages is none of a program: 16 TiB.
const RANGE_PAGES_MAX: u64 = 1 << 32;
/// And so are more pages than that which are found at once: 64 GiB.
const FOUND_PAGES_MAX: u64 = 1 << 24;

/// What a log held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Events.
    pub events: u64,
    /// Acts, which were the same.
    pub acts: u64,
    /// What the core has counted.
    pub counts: Counts,
}

/// Why a log was not replayed to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error("cannot read the log: {0}")]
    Read(#[from] io::Error),
    /// A line that is none of a log.
    #[error("line {line} of the log is {text:?}, which is {problem}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What stands there, cut short.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The core does something else now.
    #[error("line {line}: the log has {logged:?}, and the core now answers {now:?}")]
    Differs {
        /// Its number, from 1.
        line: u64,
        /// What the log has; empty: no more acts.
        logged: String,
        /// What the core does; empty: no more acts.
        now: String,
    },
}

/// Replays a log.
///
/// # Errors
/// At the first line that cannot be, or that differs.
pub fn replay(log: impl BufRead) -> Result<Replayed, ReplayError> {
    let mut lines = (1..).zip(log.lines());
    let (_, first) = lines.next().unwrap_or((1, Ok(String::new())));
    let first = first?;
    let wrong = |line, text: &str, problem| {
        let text = text.chars().take(80).collect();
        ReplayError::Line { line, text, problem }
    };
    let options =
        options(MAGIC, &first).ok_or_else(|| wrong(1, &first, "not the beginning of a pager's log"))?;
    let core = Logged::new(&options);
    let mut core = core.map_err(|_| wrong(1, &first, "no configuration that can be"))?;
    let mut replayed = Replayed::default();
    let (mut acts, mut next): (Vec<Act>, usize) = (Vec::new(), 0);
    // The first act of the core: tickets of others mean nothing to it.
    let mut first_act = 0;
    for (line, text) in lines {
        let text = text?;
        if let Some(logged) = text.strip_prefix("> ") {
            let now = acts.get(next).map_or_else(String::new, act_text);
            if now != logged {
                return Err(ReplayError::Differs { line, logged: logged.to_owned(), now });
            }
            next += 1;
            continue;
        }
        if let Some(act) = acts.get(next) {
            return Err(ReplayError::Differs { line, logged: String::new(), now: act_text(act) });
        }
        if let Some(options) = self::options(NEW_CORE, &text) {
            let is_begun = core.is_idle() && core.begin_again(&options).is_ok();
            if !is_begun {
                return Err(wrong(line, &text, "no core that can begin here"));
            }
            first_act = acts.len();
            continue;
        }
        let (now_ms, event) =
            event(&text, &acts, first_act).ok_or_else(|| wrong(line, &text, "no event and no act"))?;
        core.on(event, now_ms, &mut acts);
        replayed.events += 1;
    }
    if let Some(act) = acts.get(next) {
        return Err(ReplayError::Differs { line: 0, logged: String::new(), now: act_text(act) });
    }
    if cfg!(debug_assertions) {
        core.audit();
    }
    Ok(Replayed { acts: next as u64, counts: core.counts(), ..replayed })
}

/// The options of a core that begins: behind the word that says so.
fn options(begins: &str, line: &str) -> Option<CoreOptions> {
    let mut words = line.split(' ');
    let is_begin = words.next() == Some(begins);
    let (evict, prefetch) = (words.next()?, words.next()?);
    let options = CoreOptions {
        evict: if evict == "kernel" { None } else { Some(evict.parse().ok()?) },
        prefetch: prefetch.parse().ok()?,
        drop_behind: flag(words.next()?)?,
        local_pages: number(words.next())?,
        dram_pages: number(words.next())?,
        swap_pages: number(words.next())?,
    };
    (is_begin && words.next().is_none()).then_some(options)
}

fn number<N: FromStr>(word: Option<&str>) -> Option<N> {
    word?.parse().ok()
}

fn flag(word: &str) -> Option<bool> {
    match word {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// What a plan says, in one word.
fn role(word: &str) -> Option<Role> {
    match word.split_once('-') {
        Some(("up", sweep)) => Some(Role::Swept { sweep: sweep.parse().ok()?, is_down: false }),
        Some(("down", sweep)) => Some(Role::Swept { sweep: sweep.parse().ok()?, is_down: true }),
        Some(("phase", phase)) => Some(Role::Phase { phase: phase.parse().ok()? }),
        _ if word == "held" => Some(Role::Held),
        _ if word == "free" => Some(Role::Free),
        _ => None,
    }
}

/// The time and the event of a line; acts are known by their numbers.
fn event(line: &str, acts: &[Act], first_act: usize) -> Option<(u64, Event)> {
    let words: Vec<&str> = line.split(' ').collect();
    let (now_ms, kind, fields) = (number(words.first().copied())?, *words.get(1)?, words.get(2..)?);
    let range = |first: &str, end: &str, most: u64| {
        let pages = PageRange { first: first.parse().ok()?, end: end.parse().ok()? };
        (pages.end.checked_sub(pages.first)? <= most).then_some(pages)
    };
    let found = |first: &str, end: &str, state| {
        Some(Event::Found { pages: range(first, end, FOUND_PAGES_MAX)?, state })
    };
    let settled = |word: &str, outcome| {
        let number = word.parse::<usize>().ok().filter(|number| *number >= first_act)?;
        let ticket = acts.get(number)?.ticket();
        Some(Event::Settled { ticket, outcome })
    };
    let event = match (kind, fields) {
        ("fault", [page, major, write]) => {
            Event::Fault { page: page.parse().ok()?, major: flag(major)?, write: flag(write)? }
        }
        ("used", [page, write]) => Event::Used { page: page.parse().ok()?, write: flag(write)? },
        ("referenced", [first, log2]) => Event::Referenced {
            first: first.parse().ok()?,
            pages_log2: log2.parse().ok().filter(|log2| *log2 < 40)?,
        },
        ("present", [first, end]) => found(first, end, PageState::Present)?,
        ("swapped", [first, end]) => found(first, end, PageState::Swapped)?,
        ("absent", [first, end]) => {
            Event::Found { pages: range(first, end, RANGE_PAGES_MAX)?, state: PageState::Absent }
        }
        ("discarded", [first, end]) => Event::Discarded { pages: range(first, end, RANGE_PAGES_MAX)? },
        ("unmapped", [first, end]) => Event::Unmapped { pages: range(first, end, RANGE_PAGES_MAX)? },
        ("done", [act]) => settled(act, Outcome::Done)?,
        ("refused", [act]) => settled(act, Outcome::Refused)?,
        ("touched", [act]) => settled(act, Outcome::Touched)?,
        ("capacity", [dram_pages, low, high]) => Event::Capacity {
            dram_pages: dram_pages.parse().ok()?,
            watermarks: Watermarks { low: low.parse().ok()?, high: high.parse().ok()? },
        },
        ("charged", [pages]) => Event::Charged { pages: pages.parse().ok()? },
        ("planned", [first, end, role]) => {
            Event::Planned { pages: range(first, end, RANGE_PAGES_MAX)?, role: self::role(role)? }
        }
        ("step", [budget]) => Event::Step { budget: budget.parse().ok()? },
        _ => return None,
    };
    Some((now_ms, event))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_base::Rng;
    use tiermem_policy::{evict, prefetch};

    /// A log of a program that sweeps and jumps, with refusals, scans and a limit that changes.
    fn log(
        evict: Option<evict::Named>,
        prefetch: prefetch::Named,
        local_pages: u32,
        is_changed: bool,
    ) -> (String, Counts) {
        let path = std::env::temp_dir().join(format!(
            "tiermem-pager-log-{}-{prefetch}-{evict:?}-{local_pages}-{is_changed}",
            std::process::id()
        ));
        let options = CoreOptions {
            evict,
            prefetch,
            drop_behind: false,
            local_pages,
            dram_pages: 256,
            swap_pages: 4096,
        };
        let mut core = Logged::new(&options).unwrap();
        core.log_to(&path, &options).unwrap();
        let mut rng = Rng::seeded(3);
        let mut in_swap = vec![false; 1000];
        for now in 0..4000_u64 {
            let page = if now % 3 == 0 { rng.below(1000) } else { now % 1000 };
            let mut acts = Vec::new();
            if now == 1000 {
                let swept = Role::Swept { sweep: 1, is_down: false };
                let phase = Role::Phase { phase: 3 };
                for (first, end, role) in
                    [(0, 100, Role::Held), (0, 900, swept), (900, 990, phase), (50, 60, Role::Free)]
                {
                    core.on(Event::Planned { pages: PageRange { first, end }, role }, now, &mut acts);
                }
            }
            if now == 2000 && is_changed {
                core.begin_again(&CoreOptions { evict: Some(evict::Named::Sieve), ..options }).unwrap();
                let pages = PageRange { first: 0, end: 1000 };
                core.on(Event::Found { pages, state: PageState::Present }, now, &mut acts);
                in_swap.fill(false);
            }
            core.on(Event::Fault { page, major: in_swap[page as usize], write: false }, now, &mut acts);
            if now % 10 == 0 {
                core.on(Event::Referenced { first: 320, pages_log2: 5 }, now, &mut acts);
            }
            if now % 64 == 0 {
                core.on(Event::Step { budget: 64 }, now, &mut acts);
            }
            if now % 500 == 0 {
                let state = if now % 1000 == 0 { PageState::Present } else { PageState::Swapped };
                core.on(Event::Found { pages: PageRange { first: 10, end: 40 }, state }, now, &mut acts);
                let dram_pages = 200 + (now / 100) as u32;
                core.on(
                    Event::Capacity { dram_pages, watermarks: Watermarks::of(dram_pages) },
                    now,
                    &mut acts,
                );
            }
            while !acts.is_empty() {
                for act in std::mem::take(&mut acts) {
                    let outcome = if rng.below(10) == 0 { Outcome::Refused } else { Outcome::Done };
                    let swap_tier = if local_pages > 0 { 2 } else { 1 };
                    if let (Act::PageOut { page, to, .. }, Outcome::Done) = (&act, outcome)
                        && to.is_none_or(|to| to >= swap_tier)
                    {
                        in_swap[*page as usize] = true;
                    }
                    core.on(Event::Settled { ticket: act.ticket(), outcome }, now, &mut acts);
                }
            }
        }
        let counts = core.end().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        (text, counts)
    }

    #[test]
    fn the_same_events_give_the_same_acts() {
        for evict in [None, Some(evict::Named::Lru), Some(evict::Named::Random), Some(evict::Named::Lhd)] {
            for prefetch in prefetch::Named::ALL {
                let (text, counts) = log(evict, prefetch, 0, false);
                let replayed = replay(text.as_bytes()).unwrap();
                assert_eq!(replayed.counts, counts);
                let acts = text.lines().filter(|line| line.starts_with('>')).count() as u64;
                assert_eq!((replayed.acts, replayed.events), (acts, text.lines().count() as u64 - acts - 1));
                // Where the kernel chooses, nothing leaves by advice, and too little comes back for a trend.
                let may_rest =
                    evict.is_none() && matches!(prefetch, prefetch::Named::None | prefetch::Named::Leap(_));
                assert!(acts > 0 || may_rest, "{evict:?} {prefetch}");
            }
        }
    }

    #[test]
    fn pages_of_a_pool_change_places_in_the_log() {
        let (text, counts) = log(Some(evict::Named::Lfu), prefetch::Named::None, 100, false);
        assert!(text.contains(" 0 100 256 4096\n"));
        let replayed = replay(text.as_bytes()).unwrap();
        assert_eq!(replayed.counts, counts);
        assert!(
            counts.moved_up > 0 && counts.moved_down > 0 && counts.paged_out > counts.moved_down,
            "{counts:?}"
        );
    }

    #[test]
    fn a_log_tells_of_a_core_in_the_place_of_another() {
        let (text, counts) = log(Some(evict::Named::Lru), prefetch::Named::None, 0, true);
        let replayed = replay(text.as_bytes()).unwrap();
        assert_eq!(replayed.counts, counts);
        let at = text.find("\ncore sieve none 0 0 256 4096\n").unwrap();
        let acts_before = text[..at].lines().filter(|line| line.starts_with('>')).count() as u64;
        assert!(acts_before > 0 && replayed.acts > acts_before);
        // Another policy decides otherwise, and an act of the core before cannot be settled any more.
        let other = replay(text.replacen("core sieve", "core random", 1).as_bytes()).unwrap_err();
        assert!(matches!(other, ReplayError::Differs { .. }), "{other}");
        for wrong in
            ["core lru none 0 0 0 0", "core lru none 0 256 4096", "core lru none 0 0 256 4096\n5 done 0"]
        {
            let text = format!("{}\n{wrong}\n", &text[..at]);
            assert!(matches!(replay(text.as_bytes()).unwrap_err(), ReplayError::Line { .. }), "{wrong}");
        }
    }

    #[test]
    fn a_decision_that_differs_is_told_with_its_line() {
        let (text, _) = log(Some(evict::Named::Lru), prefetch::Named::None, 0, false);
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| line.starts_with("> out")).unwrap();
        let with = |line: Option<&str>| {
            let mut lines = lines.clone();
            match line {
                Some(line) => lines[at] = line,
                None => _ = lines.remove(at),
            }
            replay(lines.join("\n").as_bytes()).unwrap_err().to_string()
        };
        let line = at + 1;
        assert!(
            with(Some("> out 5 0 1 0")).starts_with(&format!("line {line}: the log has \"out 5 0 1 0\""))
        );
        assert!(with(None).contains(&format!("line {line}")));
        for wrong in [
            "> fetch",
            "x",
            "5 fault 3",
            "5 done 99999999",
            "5 present 0 99999999999",
            "5 planned 0 9 up",
            "5 planned 9 0 held",
        ] {
            assert!(with(Some(wrong)).contains(&format!("line {line}")), "{wrong}");
        }
        assert!(replay(&b""[..]).is_err() && replay(&b"tiermem-pager-log-2 lru none 0 0\n"[..]).is_err());
    }
}
