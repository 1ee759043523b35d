//! What is said of a run or an attachment beside its report.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tiermem_base::{Bytes, Nanos};

use crate::machine::{Left, MachineError};
use crate::steer::{PlanFound, Steered};

/// What is said of a run beside its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Processes are left in the group, and a keeper waits for their end.
    ProcessesLeft {
        /// How many.
        count: usize,
    },
    /// The swap stays on until other paged programs have ended.
    SwapLeft {
        /// The file.
        path: PathBuf,
    },
    /// The program was not steered, or not to its end.
    NotSteered(String),
    /// Nobody brings pages to the nodes of a pool any more, while the program runs.
    PoolLeft(String),
    /// The plan was not followed, or not to the end.
    PlanNotFollowed(PlanFound),
    /// References were not told of each process.
    ReferencesFailed(String),
    /// The log is not whole.
    LogNotWhole(String),
    /// No log was written, as there was nothing to steer.
    NoLog,
    /// Nothing can be asked of it while it goes on.
    NoControl(String),
    /// The kernel's counts of the group cannot be kept fresh.
    NoFreshCounts {
        /// Why.
        error: String,
        /// Whether a policy goes on to page out.
        evicts: bool,
    },
    /// DRAM and flash are full, and the program waits for room.
    Full {
        /// The limits of both; `None`: all of the machine's swap.
        limits: (u64, Option<u64>),
        /// For how long at most.
        patience: Duration,
    },
    /// It has found room.
    HasRoom,
    /// It could not wait for room.
    NoRoomWait(String),
    /// Something could not be taken away.
    NotTakenAway(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::ProcessesLeft { count } => write!(
                f,
                "{count} of the program's processes go on; their limit and their swap go with the last of them"
            ),
            Note::SwapLeft { path } => write!(
                f,
                "{} stays on: pages of other paged programs lie there; it goes with the last of them",
                path.display()
            ),
            Note::PlanNotFollowed(PlanFound { misfit: Some(misfit), .. }) => {
                write!(f, "the plan was not followed: {misfit}; record this program and make a plan of that")
            }
            Note::PlanNotFollowed(PlanFound { regions, .. }) => write!(
                f,
                "the plan was not followed: none of its {regions} regions was found; record this program, as it was started here, and make \
                 a plan of that"
            ),
            Note::ReferencesFailed(why) => write!(
                f,
                "--references granule: what a process uses could not be told, so that the policy heard of its page faults alone: {why}"
            ),
            Note::LogNotWhole(error) => write!(f, "the log is not whole: {error}"),
            Note::NoControl(error) => write!(f, "`tiermem pager set` will not reach it: {error}"),
            Note::NoLog => write!(f, "no log was written: nothing of the program was in swap"),
            Note::NotSteered(reason) => write!(f, "paged by the kernel alone (--how swap): {reason}"),
            Note::PoolLeft(reason) => write!(
                f,
                "pages are brought to their nodes no longer: {reason}; the program goes on, and what comes to memory comes to the other node"
            ),
            Note::NoFreshCounts { error, evicts } => {
                write!(f, "the process that keeps the kernel's counts fresh cannot be started: {error}; ")?;
                f.write_str(match evicts {
                    true => {
                        "nothing is dropped behind sweeps until it can, and if tiermem is killed, the kernel may kill the program although \
                         there is swap; --evict kernel goes without it"
                    }
                    false => "nothing is dropped behind sweeps until it can",
                })
            }
            Note::Full { limits: (dram_bytes, flash_bytes), patience } => {
                let flash = flash_bytes.map_or_else(
                    || "all of the machine's swap".to_owned(),
                    |bytes| format!("{} of flash", Bytes(bytes)),
                );
                write!(
                    f,
                    "the program waits: its {} of DRAM and {flash} are full; make room within {}: `tiermem pager set dram=SIZE`, or \
                     flash=SIZE; then the kernel kills it",
                    Bytes(*dram_bytes),
                    Nanos(patience.as_nanos() as u64)
                )
            }
            Note::HasRoom => f.write_str("the program has room again, and goes on"),
            Note::NoRoomWait(error) => {
                write!(
                    f,
                    "the program will not wait for room when DRAM and flash are full, but be killed: the process that would end its wait \
                     cannot be started: {error}"
                )
            }
            Note::NotTakenAway(error) => {
                write!(f, "{error}; the next `tiermem run --dram` or `tiermem pager status` tries again")
            }
        }
    }
}

impl Note {
    /// What is to be said of steering; a log was asked for or not.
    pub(super) fn of_steering(steered: &Steered, is_logged: bool) -> Vec<Note> {
        let Steered { gave_up, log_failed, has_begun, plan, references_failed, .. } = steered;
        let mut notes: Vec<Note> = gave_up.clone().map(Note::NotSteered).into_iter().collect();
        let is_missed = |plan: &&PlanFound| plan.misfit.is_some() || plan.regions_found == 0;
        notes.extend(plan.as_ref().filter(is_missed).cloned().map(Note::PlanNotFollowed));
        notes.extend(references_failed.clone().map(Note::ReferencesFailed));
        notes.extend(log_failed.clone().map(Note::LogNotWhole));
        notes.extend((is_logged && gave_up.is_none() && !has_begun).then_some(Note::NoLog));
        notes
    }

    /// What is to be said of what was to be taken away.
    pub(super) fn of_left(left: Result<Left, MachineError>) -> Option<Note> {
        match left {
            Ok(Left::Nothing) => None,
            Ok(Left::SwapOfOthers(path)) => Some(Note::SwapLeft { path }),
            Ok(Left::SwapStays(reason)) => Some(Note::NotTakenAway(reason)),
            Err(error) => Some(Note::NotTakenAway(error.to_string())),
        }
    }
}
