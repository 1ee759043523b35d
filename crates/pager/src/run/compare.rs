//! Comparison of ways of paging: trials alternate, so that changes on the machine affect all of them equally.

use std::time::Duration;

use tiermem_place::capture::Stop;
use tiermem_place::run::welch::Sample;

use super::ended::Ended;
use super::error::RunError;
use super::how::AskedHow;
use super::note::Note;
use super::program_run::{Options, run};
use super::report::Report;

/// The trials of one way.
#[derive(Clone, Debug)]
pub struct Series {
    /// What was asked for.
    pub how: AskedHow,
    /// The reports of its trials, in their order.
    pub reports: Vec<Report>,
}

impl Series {
    /// Any figure of its trials.
    pub fn of(&self, figure: impl Fn(&Report) -> f64) -> Sample {
        Sample::of(self.reports.iter().map(figure))
    }

    /// A time of its trials in seconds.
    pub fn seconds(&self, time: impl Fn(&Report) -> Duration) -> Sample {
        self.of(|report| time(report).as_secs_f64())
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// For each way what trials there were.
    pub series: Vec<Series>,
    /// A trial in which the program failed or was stopped, which ended the comparison; it is not among the others.
    pub cut_short: Option<(AskedHow, Ended)>,
    /// What was said of the trials, each once.
    pub notes: Vec<Note>,
}

/// Runs the program `trials` times in each way, one after the other. `progress` gets the number of trials so far.
///
/// # Errors
/// If it cannot be run as asked for.
pub fn compare(
    options: &Options,
    hows: &[AskedHow],
    trials: u32,
    stop: &Stop,
    mut progress: impl FnMut(u64),
) -> Result<Compared, RunError> {
    let series = hows.iter().map(|&how| Series { how, reports: Vec::new() }).collect();
    let mut compared = Compared { series, ..Compared::default() };
    let mut done = 0;
    for round in 0..trials as usize {
        // Each begins a round in turn, so that none always comes behind the same other.
        for at in 0..hows.len() {
            let at = (at + round) % hows.len();
            let how = hows[at];
            let (report, notes) = run(&Options { how, ..options.clone() }, stop)?;
            let new: Vec<Note> = notes.into_iter().filter(|note| !compared.notes.contains(note)).collect();
            compared.notes.extend(new);
            if stop.is_asked() || !report.ended.status().is_some_and(|status| status.success()) {
                compared.cut_short = Some((how, report.ended));
                return Ok(compared);
            }
            compared.series[at].reports.push(report);
            done += 1;
            progress(done);
        }
    }
    Ok(compared)
}
