//! Report on a program with placed memory: its measurements, or the reasons for missing ones.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tiermem_model::placement::Misfit;
use tiermem_policy::placement::Shares;

use crate::capture::CaptureError;
use crate::capture::live::Ending;

/// Why a program could not be run under a plan.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It could not be started or looked at.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The plan is not for this program.
    #[error("{0}")]
    Misfit(Misfit),
    /// Its pages cannot be moved.
    #[error("pages of the program cannot be moved: {0}")]
    Move(io::Error),
}

/// Measurements of a placed program.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Slices of time.
    pub slices: u64,
    /// From start to end.
    pub wall: Duration,
    /// Accesses to fast memory, as the source estimates them.
    pub fast_accesses: f64,
    /// Accesses to slow memory.
    pub slow_accesses: f64,
    /// Accesses to pages of which the kernel did not tell where they lie.
    pub unknown_accesses: f64,
    /// Pages moved by the plan.
    pub moved_pages: u64,
    /// Pages that the plan names and that were touched before their place was known, moved there once.
    pub corrected_pages: u64,
    /// Pages that could not be moved, by the kernel's error number.
    pub failed_pages: BTreeMap<i32, u64>,
    /// The time that moving took, of one processor.
    pub moving: Duration,
    /// Slices in which the program was followed by what was seen.
    pub departed_slices: u64,
    /// Slices in which nothing was followed, as that would have been worse than first touch.
    pub resting_slices: u64,
    /// Accesses to the plan's regions, and how many were to fast memory or would have been.
    pub shares: Shares,
    /// The shares for which it last began to rest.
    pub rested_for: Option<Shares>,
    /// The plan's regions that were found.
    pub regions_found: usize,
    /// Why the shares of memory say nothing of what was asked for, if they do not.
    pub not_measured: Option<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// How the recording ended.
    pub ending: Option<Ending>,
}

impl Report {
    /// The share of accesses that went to slow memory; `None` where that was not measured.
    pub fn slow_share(&self) -> Option<f64> {
        let all = self.fast_accesses + self.slow_accesses;
        let share = if all > 0.0 { self.slow_accesses / all } else { 0.0 };
        self.not_measured.is_none().then_some(share)
    }

    /// The share of accesses to the plan's regions that would have gone to slow memory by first touch.
    pub fn undisturbed_slow_share(&self) -> Option<f64> {
        (self.shares.accesses > 0.0).then(|| 1.0 - self.shares.normal().undisturbed)
    }
}
