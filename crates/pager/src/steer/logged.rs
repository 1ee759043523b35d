//! The core with a log of what goes in and what comes out.
//!
//! A line for each event, with its time and its fields, and behind it one for each act that it brought. An act is settled by its number
//! in the log. [`super::replay`] reads it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tiermem_base::Rng;
use tiermem_policy::evict::any_policy::Order;
use tiermem_policy::frames::{ConfigError, domains};
use tiermem_policy::paging::{
    Act, Config, Counts, Event, MoreDram, Outcome, PageState, Paging, Reclaim, Role, Saved, Ticket,
};
use tiermem_policy::{evict, prefetch};

/// The first word of a log, with its version.
pub const MAGIC: &str = "tiermem-pager-log-4";

/// The first word of a line that begins a new core, which knows no page; what is known is told behind it.
pub const NEW_CORE: &str = "core";

/// How a core is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreOptions {
    /// Who leaves; `None`: the kernel's own reclaim chooses, and nothing is paged out by advice.
    pub evict: Option<evict::Named>,
    /// What is fetched ahead.
    pub prefetch: prefetch::Named,
    /// Whether sweeps drop what they have passed.
    pub drop_behind: bool,
    /// Pages of local memory of a pool, beside [`Self::dram_pages`]; 0: there is no pool.
    pub local_pages: u32,
    /// Pages of DRAM from which pages leave: the group's limit, less the local memory of a pool.
    pub dram_pages: u32,
    /// Pages of flash.
    pub swap_pages: u32,
}

/// The core, and its log if there is one.
#[derive(Debug)]
pub struct Logged {
    core: Paging<Order>,
    /// What cores before it have counted.
    past: Counts,
    past_more_dram: MoreDram,
    rng: Rng,
    log: Option<Log>,
}

#[derive(Debug)]
struct Log {
    out: BufWriter<File>,
    line: String,
    acts: u64,
    numbers: HashMap<Ticket, u64>,
    failed: Option<io::Error>,
}

impl Logged {
    /// A core without a log.
    ///
    /// # Errors
    /// If it cannot be made so.
    pub fn new(options: &CoreOptions) -> Result<Self, ConfigError> {
        Ok(Logged {
            core: core(options)?,
            past: Counts::default(),
            past_more_dram: MoreDram::default(),
            rng: Rng::seeded(0),
            log: None,
        })
    }

    /// Puts a new core in the place of this one, which has no act under way; it knows no page yet.
    ///
    /// # Errors
    /// If it cannot be made so; the other one stays.
    pub fn begin_again(&mut self, options: &CoreOptions) -> Result<(), ConfigError> {
        let core = core(options)?;
        debug_assert_eq!(self.core.under_way(), 0, "acts are settled before");
        let past = std::mem::replace(&mut self.core, core);
        self.past += past.counts();
        self.past_more_dram += past.more_dram();
        if let Some(log) = &mut self.log {
            log.begin_again(options);
        }
        Ok(())
    }

    /// Writes a log from here on.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn log_to(&mut self, path: &Path, options: &CoreOptions) -> io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(out, "{MAGIC} {}", options_text(options))?;
        self.log = Some(Log { out, line: String::new(), acts: 0, numbers: HashMap::new(), failed: None });
        Ok(())
    }

    /// As [`Paging::on`].
    pub fn on(&mut self, event: Event, now: u64, acts: &mut Vec<Act>) {
        let before = acts.len();
        self.core.on(event, now, &mut self.rng, acts);
        if let Some(log) = &mut self.log {
            log.write(&event, now, acts.get(before..).unwrap_or_default());
        }
    }

    /// As [`Paging::is_due`].
    pub fn is_due(&self) -> bool {
        self.core.is_due()
    }

    /// Whether no act is under way.
    pub fn is_idle(&self) -> bool {
        self.core.under_way() == 0
    }

    /// As [`Paging::counts`], of all cores.
    pub fn counts(&self) -> Counts {
        let mut counts = self.past;
        counts += self.core.counts();
        counts
    }

    /// What so many more pages of DRAM would have saved, of all cores.
    pub fn saved_by(&self, pages: u64) -> Saved {
        let (past, now) = (self.past_more_dram.saved_by(pages), self.core.more_dram().saved_by(pages));
        Saved { faults: past.faults + now.faults, fetches: past.fetches + now.fetches }
    }

    /// As [`Paging::more_dram`], of all cores.
    pub fn more_dram(&self) -> MoreDram {
        let mut more_dram = self.past_more_dram.clone();
        more_dram += self.core.more_dram();
        more_dram
    }

    /// As [`Paging::audit`].
    pub fn audit(&self) {
        self.core.audit();
    }

    /// As [`Paging::tier`].
    pub fn tier(&self, page: u64) -> Option<u8> {
        self.core.tier(page)
    }

    /// As [`Paging::is_moving`].
    pub fn is_moving(&self, page: u64) -> bool {
        self.core.is_moving(page)
    }

    /// Hands on what was logged, for whoever follows the log. What cannot be written is told by [`Self::end`].
    pub fn flush(&mut self) {
        if let Some(log) = &mut self.log
            && log.failed.is_none()
        {
            log.failed = log.out.flush().err();
        }
    }

    /// Ends the log.
    ///
    /// # Errors
    /// If it is not whole.
    pub fn end(self) -> io::Result<Counts> {
        let counts = self.counts();
        match self.log {
            None => Ok(counts),
            Some(Log { failed: Some(error), .. }) => Err(error),
            Some(mut log) => log.out.flush().map(|()| counts),
        }
    }
}

impl Log {
    fn write(&mut self, event: &Event, now: u64, acts: &[Act]) {
        self.line.clear();
        let numbers = &mut self.numbers;
        // A text takes all that is written to it.
        let _ = writeln!(self.line, "{now} {}", text(event, |ticket| numbers.remove(&ticket)));
        for act in acts {
            self.numbers.insert(act.ticket(), self.acts);
            self.acts += 1;
            let _ = writeln!(self.line, "> {}", act_text(act));
        }
        self.write_line();
    }

    fn begin_again(&mut self, options: &CoreOptions) {
        self.numbers.clear();
        self.line.clear();
        let _ = writeln!(self.line, "{NEW_CORE} {}", options_text(options));
        self.write_line();
    }

    fn write_line(&mut self) {
        if self.failed.is_none()
            && let Err(error) = self.out.write_all(self.line.as_bytes())
        {
            self.failed = Some(error);
        }
    }
}

fn core(options: &CoreOptions) -> Result<Paging<Order>, ConfigError> {
    let CoreOptions { local_pages, dram_pages, swap_pages, .. } = *options;
    let mut config = match local_pages {
        0 => Config::kernel(dram_pages, swap_pages),
        _ => Config::pool(local_pages, dram_pages, swap_pages),
    };
    config.prefetch = options.prefetch;
    config.drop_behind = options.drop_behind;
    config.reclaim = if options.evict.is_some() { Reclaim::Order } else { Reclaim::Kernel };
    config.references = options.evict.map_or(config.references, Config::references_of);
    // Where the kernel chooses, the order is not asked.
    let policy = options.evict.unwrap_or(evict::Named::Fifo);
    let order = Order::new(policy, domains(&config.frames()), u64::from(local_pages) + u64::from(dram_pages));
    Paging::new(config, order)
}

fn options_text(options: &CoreOptions) -> String {
    let CoreOptions { evict, prefetch, drop_behind, local_pages, dram_pages, swap_pages } = options;
    let evict = evict.map_or("kernel", evict::Named::name);
    let drop_behind = u8::from(*drop_behind);
    format!("{evict} {prefetch} {drop_behind} {local_pages} {dram_pages} {swap_pages}")
}

/// An act, without its ticket.
pub fn act_text(act: &Act) -> String {
    match *act {
        Act::PageOut { page, from, to, clean, .. } => {
            let to = to.map_or(-1, i32::from);
            format!("out {page} {from} {to} {}", u8::from(clean))
        }
        Act::Fetch { page, from, to, .. } => format!("fetch {page} {from} {to}"),
    }
}

fn text(event: &Event, number_of: impl FnOnce(Ticket) -> Option<u64>) -> String {
    match *event {
        Event::Fault { page, major, write } => {
            format!("fault {page} {} {}", u8::from(major), u8::from(write))
        }
        Event::Used { page, write } => format!("used {page} {}", u8::from(write)),
        Event::Referenced { first, pages_log2 } => format!("referenced {first} {pages_log2}"),
        Event::Found { pages, state } => {
            let state = match state {
                PageState::Present => "present",
                PageState::Swapped => "swapped",
                PageState::Absent => "absent",
            };
            format!("{state} {} {}", pages.first, pages.end)
        }
        Event::Discarded { pages } => format!("discarded {} {}", pages.first, pages.end),
        Event::Unmapped { pages } => format!("unmapped {} {}", pages.first, pages.end),
        Event::Settled { ticket, outcome } => {
            let outcome = match outcome {
                Outcome::Done => "done",
                Outcome::Refused => "refused",
                Outcome::Touched => "touched",
            };
            // Each ticket is settled once.
            format!("{outcome} {}", number_of(ticket).unwrap_or(u64::MAX))
        }
        Event::Capacity { dram_pages, watermarks } => {
            format!("capacity {dram_pages} {} {}", watermarks.low, watermarks.high)
        }
        Event::Charged { pages } => format!("charged {pages}"),
        Event::Planned { pages, role } => {
            format!("planned {} {} {}", pages.first, pages.end, role_text(role))
        }
        Event::Step { budget } => format!("step {budget}"),
    }
}

/// The role of pages in a plan, in one word.
fn role_text(role: Role) -> String {
    match role {
        Role::Held => "held".to_owned(),
        Role::Swept { sweep, is_down: false } => format!("up-{sweep}"),
        Role::Swept { sweep, is_down: true } => format!("down-{sweep}"),
        Role::Phase { phase } => format!("phase-{phase}"),
        Role::Free => "free".to_owned(),
    }
}
