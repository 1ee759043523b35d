//! Scale of an axis: where values are along it, and where its ticks are.

use crate::quantity::Quantity;

/// Spread of values along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Evenly.
    Linear,
    /// By their logarithms; both ends are above 0.
    Log,
}

/// One axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Title of the axis, for people.
    pub title: String,
    /// Quantity of its numbers.
    pub quantity: Quantity,
    /// Spread of its values.
    pub spread: Spread,
    /// Its ends.
    pub range: (f64, f64),
}

impl Axis {
    /// From 0 up to a round number at or above `largest`.
    pub fn from_zero(title: &str, quantity: Quantity, largest: f64) -> Self {
        let largest = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
        let step = quantity.step(largest, 4.0);
        let end = (largest / step - 1e-9).ceil() * step;
        Axis { title: title.to_owned(), quantity, spread: Spread::Linear, range: (0.0, end) }
    }

    /// From 0 to `largest` exactly.
    pub fn up_to(title: &str, quantity: Quantity, largest: f64) -> Self {
        let largest = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
        Axis { title: title.to_owned(), quantity, spread: Spread::Linear, range: (0.0, largest) }
    }

    /// By logarithms from `smallest` to `largest`, at least a factor of two.
    pub fn log(title: &str, quantity: Quantity, smallest: f64, largest: f64) -> Self {
        let smallest = if smallest > 0.0 && smallest.is_finite() { smallest } else { 1.0 };
        let largest = if largest.is_finite() { largest.max(2.0 * smallest) } else { 2.0 * smallest };
        Axis { title: title.to_owned(), quantity, spread: Spread::Log, range: (smallest, largest) }
    }

    /// Where a value stands, 0 at the start and 1 at the end; what lies outside is moved to the nearer end.
    pub fn place(&self, value: f64) -> f64 {
        let (start, end) = self.range;
        let share = match self.spread {
            Spread::Linear => (value - start) / (end - start),
            Spread::Log => (value.max(start) / start).ln() / (end / start).ln(),
        };
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// Ticks with their labels, at most about `wanted` of them.
    pub fn ticks(&self, wanted: f64) -> Vec<(f64, String)> {
        let values = match self.spread {
            Spread::Linear => self.linear_ticks(wanted),
            Spread::Log => self.log_ticks(wanted),
        };
        values.into_iter().map(|value| (value, self.quantity.tick(value))).collect()
    }

    fn linear_ticks(&self, wanted: f64) -> Vec<f64> {
        let (start, end) = self.range;
        // The widest round steps that give at least a good half of the ticks wanted.
        let step = self.quantity.step(end - start, (wanted * 0.55).max(1.0));
        let count = ((end - start) / step + 1e-9).floor() as usize;
        (0..=count.min(50)).map(|at| start + at as f64 * step).collect()
    }

    fn log_ticks(&self, wanted: f64) -> Vec<f64> {
        let (start, end) = self.range;
        let base: f64 = if self.quantity == Quantity::Bytes { 2.0 } else { 10.0 };
        let first = (start.ln() / base.ln() - 1e-9).ceil() as i32;
        let last = (end.ln() / base.ln() + 1e-9).floor() as i32;
        // Powers of two go by fours, sixteens ... so that few are left.
        let mut every = 1;
        while f64::from(last - first) / f64::from(every) > wanted {
            every += 1;
        }
        let aligned = |power: &i32| power.rem_euclid(every) == 0;
        let powers: Vec<f64> = (first..=last).filter(aligned).map(|power| base.powi(power)).collect();
        if base == 2.0 && powers.len() >= 2 {
            return powers;
        }
        // Within few decades: their ones, twos and fives, where there is room for them.
        let decades = (start.log10().floor() as i32)..=(end.log10().ceil() as i32);
        let fine = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(decade)));
        let fine: Vec<f64> = fine.filter(|value| *value >= start * 0.999 && *value <= end * 1.001).collect();
        if powers.len() < 2 || fine.len() as f64 <= wanted + 1.0 { fine } else { powers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_between_the_ends() {
        let linear = Axis::from_zero("", Quantity::Count, 97.0);
        assert_eq!(linear.range, (0.0, 100.0));
        assert_eq!([-5.0, 0.0, 50.0, 100.0, 500.0].map(|v| linear.place(v)), [0.0, 0.0, 0.5, 1.0, 1.0]);
        let log = Axis::log("", Quantity::Count, 1.0, 10_000.0);
        assert!((log.place(100.0) - 0.5).abs() < 1e-12 && log.place(0.0) == 0.0);
        for strange in
            [Axis::from_zero("", Quantity::Share, f64::NAN), Axis::log("", Quantity::Time, 0.0, 0.0)]
        {
            assert!(strange.place(f64::NAN) == 0.0 && !strange.ticks(5.0).is_empty(), "{strange:?}");
        }
    }

    #[test]
    fn there_are_enough_ticks_and_not_too_many() {
        for largest in [3.0, 17.0, 999.0, 65_536.0, 1e9, 7.3e13] {
            for quantity in [Quantity::Count, Quantity::Bytes, Quantity::Time, Quantity::Money] {
                for axis in [Axis::from_zero("", quantity, largest), Axis::log("", quantity, 1.0, largest)] {
                    let ticks = axis.ticks(6.0);
                    assert!((2..=14).contains(&ticks.len()), "{axis:?}: {ticks:?}");
                    assert!(
                        ticks.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 != two[1].1),
                        "{ticks:?}"
                    );
                }
            }
        }
    }
}
