//! Phases of a program: slices in which it accesses the same granules.
//!
//! Each slice joins the phase that it is most like, or begins one. A program has many slices that are like no other, such as those in
//! which it fills its memory: only so many phases are kept at a time, and a further one takes the place of the one that had the fewest
//! slices. A phase that comes again and again stays, whatever passes between.

use super::program::Program;

/// The most phases of a plan: those with the most slices.
const PHASES_MAX: usize = 8;
/// The most that are kept while slices are gone through.
const CANDIDATES_MAX: usize = 32;
/// Two slices are of one phase if the cosine of the angle between their accesses is so large.
const ALIKE: f64 = 0.7;
/// The least number of slices in a phase.
const PHASE_SLICES_MIN: usize = 2;

/// Slices that are alike.
#[derive(Clone, Debug)]
pub(super) struct FoundPhase {
    /// The mean accesses of each granule.
    pub mean: Vec<f64>,
    /// The slices in which it begins.
    pub runs: Vec<usize>,
    slices: usize,
    /// The length of `mean`.
    length: f64,
}

impl FoundPhase {
    /// The cosine of the angle between its accesses and those of a slice, which have such a length.
    fn likeness(&self, accesses: &[(u32, f32)], length: f64) -> f64 {
        let dot: f64 =
            accesses.iter().map(|(granule, count)| self.mean[*granule as usize] * f64::from(*count)).sum();
        dot / (length * self.length).max(f64::MIN_POSITIVE)
    }

    fn join(&mut self, accesses: &[(u32, f32)]) {
        self.slices += 1;
        let weight = 1.0 / self.slices as f64;
        self.mean.iter_mut().for_each(|mean| *mean *= 1.0 - weight);
        for (granule, count) in accesses {
            self.mean[*granule as usize] += weight * f64::from(*count);
        }
        self.length = self.mean.iter().map(|mean| mean * mean).sum::<f64>().sqrt();
    }
}

/// How long phases last that began at these times, all phases together: the median. `None` if there was no change.
pub(super) fn typical_ns<'a>(began_ns: impl Iterator<Item = &'a u64>) -> Option<u64> {
    let mut began_ns: Vec<u64> = began_ns.copied().collect();
    began_ns.sort_unstable();
    let mut lasted: Vec<u64> = began_ns.windows(2).map(|pair| pair[1] - pair[0]).collect();
    lasted.sort_unstable();
    lasted.get(lasted.len() / 2).copied()
}

/// The phases of a program, in the order in which they first come.
pub(super) fn find(program: &Program<'_>) -> Vec<FoundPhase> {
    let mut phases: Vec<FoundPhase> = Vec::new();
    let (mut accesses, mut before) = (Vec::new(), None);
    for slice in 0..program.slices().len() {
        program.accesses(slice, &mut accesses);
        let length = accesses.iter().map(|(_, count)| f64::from(*count).powi(2)).sum::<f64>().sqrt();
        if length <= 0.0 {
            continue;
        }
        let likeness = phases.iter().map(|phase| phase.likeness(&accesses, length));
        let most = likeness.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        let at = match most {
            Some((at, likeness)) if likeness >= ALIKE => at,
            _ => {
                let mean = vec![0.0; program.granules() as usize];
                let begun = FoundPhase { mean, runs: Vec::new(), slices: 0, length: 0.0 };
                let least = (0..phases.len()).min_by_key(|at| phases[*at].slices);
                match least.filter(|_| phases.len() >= CANDIDATES_MAX) {
                    Some(at) => {
                        phases[at] = begun;
                        before = None;
                        at
                    }
                    None => {
                        phases.push(begun);
                        phases.len() - 1
                    }
                }
            }
        };
        phases[at].join(&accesses);
        if before.replace(at) != Some(at) {
            phases[at].runs.push(slice);
        }
    }
    phases.retain(|phase| phase.slices >= PHASE_SLICES_MIN);
    phases.sort_by_key(|phase| std::cmp::Reverse(phase.slices));
    phases.truncate(PHASES_MAX);
    phases.sort_by_key(|phase| phase.runs.first().copied());
    phases
}
