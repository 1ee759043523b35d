//! Position of a hotspot that moves through memory again and again: predicted by its speed, corrected by the accesses seen.

/// A hotspot that moves through a stretch, again and again, as a plan tells it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sweep {
    /// The first granule of the stretch.
    pub first: u32,
    /// Its granules, at least 1.
    pub granules: u32,
    /// How many granules the hotspot moves in a second; negative if downward.
    pub granules_per_s: f64,
    /// Granules that are hot at once.
    pub hot: u32,
    /// Granules of fast memory that move with it, ahead of it for the most part.
    pub window: u32,
    /// Of the stretch, every n-th granule moves with it, because moving is too slow for all: 1 for all. The others stay in the
    /// memory where they always lie.
    pub every: u32,
}

impl Sweep {
    /// Whether a granule moves with it.
    pub fn moves(&self, granule: u32) -> bool {
        granule.checked_sub(self.first).is_some_and(|at| at < self.granules && at.is_multiple_of(self.every))
    }
}

/// How much of an error in place is corrected at once.
const PLACE_GAIN: f64 = 0.7;
/// How much of the speed that an error speaks of is believed at once.
const SPEED_GAIN: f64 = 0.2;
/// The speed may become this many times the planned one, or this small a part of it.
const SPEED_RANGE: f64 = 8.0;

/// A hotspot that is followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    sweep: Sweep,
    /// Its place within the stretch, in granules, at `at_ns`; `None` before it was seen.
    place: Option<f64>,
    at_ns: u64,
    granules_per_s: f64,
}

impl Position {
    pub fn new(sweep: Sweep) -> Self {
        Position { sweep, place: None, at_ns: 0, granules_per_s: sweep.granules_per_s }
    }

    pub fn sweep(&self) -> &Sweep {
        &self.sweep
    }

    /// Where it is at a time, as far as is known.
    pub fn at(&self, now_ns: u64) -> Option<f64> {
        let passed_s = (now_ns as f64 - self.at_ns as f64) / 1e9;
        Some((self.place? + self.granules_per_s * passed_s).rem_euclid(f64::from(self.sweep.granules)))
    }

    /// Notes that the hotspot was seen at a place, in the middle of a stretch of time.
    pub fn seen(&mut self, place: f64, at_ns: u64) {
        let round = f64::from(self.sweep.granules);
        let Some(predicted) = self.at(at_ns) else {
            (self.place, self.at_ns) = (Some(place), at_ns);
            return;
        };
        // The shorter way around.
        let error = (place - predicted + round / 2.0).rem_euclid(round) - round / 2.0;
        let since_s = (at_ns.saturating_sub(self.at_ns)) as f64 / 1e9;
        if since_s > 0.0 {
            let (planned, direction) = (self.sweep.granules_per_s.abs(), self.sweep.granules_per_s.signum());
            let corrected = self.granules_per_s + SPEED_GAIN * error / since_s;
            // It does not turn round: what looks like that is an error of more than half a round.
            let speed = (corrected * direction).clamp(planned / SPEED_RANGE, planned * SPEED_RANGE);
            self.granules_per_s = speed * direction;
        }
        self.place = Some((predicted + PLACE_GAIN * error).rem_euclid(round));
        self.at_ns = at_ns;
    }

    /// Notes that nothing was accessed until now: the hotspot stays where it is.
    pub fn rested(&mut self, now_ns: u64) {
        self.at_ns = now_ns;
    }

    /// How far a granule of the stretch lies ahead of a place, in the direction in which the hotspot moves.
    pub fn ahead(&self, granule: u32, place: f64) -> f64 {
        let offset = f64::from(granule - self.sweep.first) + 0.5 - place;
        (offset * self.sweep.granules_per_s.signum()).rem_euclid(f64::from(self.sweep.granules))
    }
}

/// The middle of accesses on a ring of granules: the direction in which their weights pull it. `None` if they pull it nowhere.
pub(super) fn middle(ring: u32, accesses: impl Iterator<Item = (u32, f64)>) -> Option<f64> {
    let turn = std::f64::consts::TAU / f64::from(ring);
    let (mut x, mut y, mut sum) = (0.0, 0.0, 0.0);
    for (granule, weight) in accesses {
        let angle = (f64::from(granule) + 0.5) * turn;
        (x, y, sum) = (x + weight * angle.cos(), y + weight * angle.sin(), sum + weight);
    }
    // Accesses that are spread evenly have no middle.
    (sum > 0.0 && x.hypot(y) > 0.05 * sum).then(|| (y.atan2(x) / turn).rem_euclid(f64::from(ring)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP: Sweep =
        Sweep { first: 10, granules: 100, granules_per_s: 10.0, hot: 4, window: 20, every: 1 };

    #[test]
    fn a_hotspot_that_is_faster_than_planned_is_followed() {
        let mut position = Position::new(SWEEP);
        assert_eq!(position.at(0), None);
        for tick in 0..200_u64 {
            position.seen((13.0 * tick as f64 / 10.0).rem_euclid(100.0), tick * 100_000_000);
        }
        let next = (13.0 * 20.5_f64).rem_euclid(100.0);
        let predicted = position.at(20_500_000_000).unwrap();
        assert!((predicted - next).abs() < 1.0, "{predicted} {next}");
    }

    #[test]
    fn middles_lie_on_the_ring() {
        let near_the_end = [(99, 1.0), (0, 1.0)];
        let middle_of = |accesses: &[(u32, f64)]| middle(100, accesses.iter().copied());
        let wrapped = middle_of(&near_the_end).unwrap();
        assert!(!(1e-6..=100.0 - 1e-6).contains(&wrapped), "{wrapped}");
        assert!((middle_of(&[(30, 2.0), (31, 2.0)]).unwrap() - 31.0).abs() < 1e-9);
        let even: Vec<_> = (0..100).map(|at| (at, 1.0)).collect();
        assert_eq!((middle_of(&even), middle_of(&[])), (None, None));
    }

    #[test]
    fn what_was_passed_is_furthest_ahead() {
        let up = Position::new(SWEEP);
        assert!(up.ahead(10 + 51, 50.0) < 2.0 && up.ahead(10 + 48, 50.0) > 97.0);
        let down = Position::new(Sweep { granules_per_s: -10.0, ..SWEEP });
        assert!(down.ahead(10 + 48, 50.0) < 2.0 && down.ahead(10 + 51, 50.0) > 97.0);
    }
}
