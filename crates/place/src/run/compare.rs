//! Comparison of strategies: trials alternate, so that changes on the machine affect all of them equally.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use tiermem_sys::affinity;
use tiermem_sys::numa::{Policy, Topology};

use super::error::RunError;
use super::strategy::{Placement, Strategy};
use super::trial::{Cold, Runner, Trial};
use super::welch::Sample;
use crate::capture::Stop;

/// Where the kernel has the weights of nodes, if it knows them.
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The strategies, in the order of the report.
    pub placements: Vec<Placement>,
    /// Trials of each.
    pub trials: u32,
    /// Whether it runs once beforehand, untimed and as the kernel places it, so that its files are in memory (or known).
    pub warm_up: bool,
    /// How each trial is started cold, if it is.
    pub cold: Option<Cold>,
    /// The processors on which it runs, the same in all trials.
    pub cpus: Vec<u32>,
}

/// The trials of one strategy.
#[derive(Clone, Debug)]
pub struct Series {
    /// The strategy, on this machine.
    pub placement: Placement,
    /// Its trials, in their order.
    pub trials: Vec<Trial>,
}

impl Series {
    /// Real time in seconds.
    pub fn real_s(&self) -> Sample {
        self.seconds(|trial| trial.real)
    }

    /// Processor time of the program in seconds.
    pub fn user_s(&self) -> Sample {
        self.seconds(|trial| trial.usage.user)
    }

    /// Processor time of the kernel for it in seconds.
    pub fn system_s(&self) -> Sample {
        self.seconds(|trial| trial.usage.system)
    }

    /// Any figure of its trials.
    pub fn of(&self, figure: impl Fn(&Trial) -> f64) -> Sample {
        Sample::of(self.trials.iter().map(figure))
    }

    fn seconds(&self, figure: impl Fn(&Trial) -> Duration) -> Sample {
        self.of(|trial| figure(trial).as_secs_f64())
    }
}

/// Result of a comparison.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// For each strategy what trials there were.
    pub series: Vec<Series>,
    /// A trial in which the program failed, which ended the comparison; what it took is not among the others. Of a single run
    /// it is.
    pub failed: Option<(Strategy, ExitStatus)>,
    /// How the trial in progress ended when it was asked to stop; it is not among the others.
    pub stopped: Option<ExitStatus>,
}

/// Placements of the strategies on this machine, for a program on these processors.
///
/// # Errors
/// If the machine lacks something, or the kernel refuses a policy.
pub fn placements(
    topology: &Topology,
    cpus: &[u32],
    strategies: &[Strategy],
) -> Result<Vec<Placement>, RunError> {
    let weights_known = Path::new(WEIGHTS).is_dir();
    let placement = |strategy: &Strategy| {
        let placement = strategy.resolve(topology, cpus, weights_known)?;
        // Checked before the program starts: afterwards a refused
        // policy could not be distinguished from a refused program.
        match &placement.policy {
            Policy::Default => Ok(placement),
            policy => {
                let refused = |source| RunError::Policy { strategy: strategy.to_string(), source };
                policy.check().map_err(refused).map(|()| placement.clone())
            }
        }
    };
    strategies.iter().map(placement).collect()
}

/// The processors of this list that may be used; all of them if there is no list.
///
/// # Errors
/// If the list names one that the machine does not have or this process may not use.
pub fn usable_cpus(asked: Option<&[u32]>) -> Result<Vec<u32>, RunError> {
    let failed = |cpus: &[u32], source| RunError::Cpus { cpus: cpus.to_vec(), source };
    let allowed = affinity::thread_cores().map_err(|source| failed(asked.unwrap_or(&[]), source))?;
    let Some(asked) = asked else { return Ok(allowed) };
    let others: Vec<u32> = asked.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
    if asked.is_empty() || !others.is_empty() {
        let reason = format!("this process may use {allowed:?}");
        return Err(failed(&others, std::io::Error::other(reason)));
    }
    let mut cpus = asked.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Runs all trials. `progress` gets the number of trials so far.
///
/// # Errors
/// If the program cannot be run as requested.
pub fn compare(options: &Options, stop: &Stop, mut progress: impl FnMut(u64)) -> Result<Outcome, RunError> {
    let series = |placement: &Placement| Series { placement: placement.clone(), trials: Vec::new() };
    let mut outcome =
        Outcome { series: options.placements.iter().map(series).collect(), failed: None, stopped: None };
    let mut runner = Runner::new(&options.command, &options.cpus)?;
    if options.warm_up {
        let placement = Placement::default_on(&Topology::read());
        let trial = runner.run(&placement, None, stop)?;
        outcome.ends(&placement.strategy, &trial, stop);
    }
    let is_single = options.trials == 1 && options.placements.len() == 1;
    let mut done = 0;
    for round in 0..options.trials as usize {
        // Each begins a round in turn, so that none always comes behind the same other.
        for at in 0..outcome.series.len() {
            let at = (at + round) % outcome.series.len();
            if outcome.stopped.is_some() || outcome.failed.is_some() {
                return Ok(outcome);
            }
            let placement = outcome.series[at].placement.clone();
            let trial = runner.run(&placement, options.cold, stop)?;
            if !outcome.ends(&placement.strategy, &trial, stop) || is_single {
                outcome.series[at].trials.push(trial);
                done += 1;
                progress(done);
            }
        }
    }
    Ok(outcome)
}

impl Outcome {
    /// Whether a run is the last one, since it failed or was ended.
    fn ends(&mut self, strategy: &Strategy, trial: &Trial, stop: &Stop) -> bool {
        self.stopped = stop.is_asked().then_some(trial.status);
        if self.stopped.is_none() && !trial.status.success() {
            self.failed = Some((strategy.clone(), trial.status));
        }
        self.stopped.is_some() || self.failed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str], strategies: &[Strategy], trials: u32) -> Options {
        let cpus = usable_cpus(None).unwrap();
        let placements = placements(&Topology::read(), &cpus, strategies).unwrap();
        let command = words.iter().map(OsString::from).collect();
        Options { command, placements, trials, warm_up: true, cold: None, cpus }
    }

    #[test]
    fn strategies_take_turns() {
        let path = std::env::temp_dir().join(format!("tiermem-turns-{}", std::process::id()));
        let script = format!("echo $PPID >>{}", path.display());
        let default = [Strategy::Default, Strategy::Default];
        let mut told = Vec::new();
        let compared =
            compare(&options(&["sh", "-c", &script], &default, 3), &Stop::default(), |done| told.push(done));
        let outcome = compared.unwrap();
        let counts: Vec<_> = outcome.series.iter().map(|series| series.trials.len()).collect();
        assert_eq!((counts, outcome.failed, outcome.stopped), (vec![3, 3], None, None));
        assert_eq!(told, [1, 2, 3, 4, 5, 6]);
        // One more than the trials: the one that warms.
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 7);
        std::fs::remove_file(path).unwrap();
        let real = outcome.series[0].real_s();
        assert!(real.count == 3 && real.mean > 0.0 && real.deviation >= 0.0, "{real:?}");
    }

    #[test]
    fn a_trial_that_fails_ends_the_comparison() {
        let outcome =
            compare(&options(&["false"], &[Strategy::Default], 3), &Stop::default(), |_| {}).unwrap();
        assert_eq!(outcome.failed.map(|(_, status)| status.code()), Some(Some(1)));
        assert!(outcome.series[0].trials.is_empty());
        let single = Options { warm_up: false, ..options(&["false"], &[Strategy::Default], 1) };
        assert_eq!(compare(&single, &Stop::default(), |_| {}).unwrap().series[0].trials.len(), 1);
    }

    #[test]
    fn who_is_asked_to_stop_keeps_what_there_is() {
        let stop = Stop::default();
        let asking = stop.clone();
        let options =
            Options { warm_up: false, ..options(&["sh", "-c", "sleep 0.05"], &[Strategy::Default], 1000) };
        let outcome = compare(&options, &stop, |done| {
            if done == 2 {
                asking.stop();
            }
        });
        let outcome = outcome.unwrap();
        assert!(outcome.stopped.is_some() && outcome.failed.is_none());
        assert_eq!(outcome.series[0].trials.len(), 2);
    }

    #[test]
    fn processors_are_those_that_may_be_used() {
        let all = usable_cpus(None).unwrap();
        assert_eq!(usable_cpus(Some(&[all[0], all[0]])).unwrap(), [all[0]]);
        assert!(usable_cpus(Some(&[100_000])).unwrap_err().to_string().contains("100000"));
        assert!(usable_cpus(Some(&[])).is_err());
    }
}
