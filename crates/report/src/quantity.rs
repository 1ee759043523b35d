//! Quantities as text for people: each kind has its units, its ticks and its words.

/// Quantity on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Things: keys, requests.
    Count,
    /// Bytes, in binary units.
    Bytes,
    /// A share from 0 to 1, in percent.
    Share,
    /// Nanoseconds.
    Time,
    /// Money per month.
    Money,
}

const DECIMAL: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
const BINARY: [(f64, &str); 5] = [
    (1_125_899_906_842_624.0, "PiB"),
    (1_099_511_627_776.0, "TiB"),
    (1_073_741_824.0, "GiB"),
    (1_048_576.0, "MiB"),
    (1024.0, "KiB"),
];
const TIME: [(f64, &str); 6] =
    [(86_400e9, "d"), (3_600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs")];

impl Quantity {
    /// The factor of the unit for a value of this size, and the unit's name.
    fn unit(self, value: f64) -> (f64, &'static str) {
        let (units, smallest): (&[(f64, &'static str)], _) = match self {
            Quantity::Count | Quantity::Money => (&DECIMAL, (1.0, "")),
            Quantity::Bytes => (&BINARY, (1.0, "B")),
            Quantity::Time => (&TIME, (1.0, "ns")),
            Quantity::Share => return (0.01, "%"),
        };
        // A hair below a unit counts as the unit: ticks are computed.
        units.iter().copied().find(|(factor, _)| value.abs() >= factor * (1.0 - 1e-9)).unwrap_or(smallest)
    }

    /// The width of steps in which an axis up to `largest` is divided into at least `count` parts if possible: 1, 2 or 5 of the
    /// unit's tens.
    pub fn step(self, largest: f64, count: f64) -> f64 {
        let factor = match self {
            // Hours and minutes have their own round numbers.
            Quantity::Time if largest >= 60e9 => {
                const ROUND_S: [f64; 16] = [
                    5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0,
                    21_600.0, 43_200.0, 86_400.0, 172_800.0,
                ];
                let wanted = largest / 1e9 / count;
                if wanted <= 172_800.0 {
                    let fits = ROUND_S.iter().rev().find(|step| **step <= wanted);
                    return fits.copied().unwrap_or(ROUND_S[0]) * 1e9;
                }
                86_400e9
            }
            _ => self.unit(largest).0,
        };
        let rough = largest / factor / count;
        let ten = 10f64.powf(rough.log10().floor());
        let step = [5.0, 2.0, 1.0].into_iter().find(|step| step * ten <= rough * (1.0 + 1e-9)).unwrap_or(1.0);
        step * ten * factor
    }

    /// Short, for ticks.
    pub fn tick(self, value: f64) -> String {
        let (mut factor, mut unit) = self.unit(value);
        // Hours and days are not divided by tens: better 70 minutes than 1.17 hours.
        while self == Quantity::Time && factor > 1e9 && (value / factor).fract() > 1e-9 {
            (factor, unit) = TIME.iter().copied().find(|smaller| smaller.0 < factor).unwrap_or((1e9, "s"));
        }
        let number = trimmed(value / factor, 3);
        self.with_unit(&number, unit, value == 0.0)
    }

    /// To three or more digits, for values under the pointer and in tables.
    pub fn text(self, value: f64) -> String {
        match self {
            Quantity::Count if value.fract() == 0.0 && value.abs() < 1e15 => grouped(value as u64),
            Quantity::Share => {
                let percent = value * 100.0;
                let decimals = if percent != 0.0 && percent.abs() < 0.1 { 3 } else { 2 };
                format!("{percent:.decimals$}%")
            }
            Quantity::Money => money(value),
            _ => {
                let (factor, unit) = self.unit(value);
                self.with_unit(&trimmed(value / factor, 3), unit, false)
            }
        }
    }

    fn with_unit(self, number: &str, unit: &str, is_zero: bool) -> String {
        match self {
            _ if is_zero && self != Quantity::Share && self != Quantity::Money => "0".to_owned(),
            Quantity::Money => format!("${number}{unit}"),
            Quantity::Count | Quantity::Share => format!("{number}{unit}"),
            // A narrow space that does not break.
            Quantity::Bytes | Quantity::Time => format!("{number}\u{202f}{unit}"),
        }
    }
}

/// Money to three significant digits, and to the cent from a dollar on.
fn money(value: f64) -> String {
    match value {
        0.0 => "$0".to_owned(),
        value if value >= 1000.0 => format!("${}", grouped(value.round() as u64)),
        value if value >= 1.0 => format!("${value:.2}"),
        value => format!("${}", trimmed(value, 3)),
    }
}

/// A number to `digits` significant digits, without zeros at its end.
pub fn trimmed(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (digits - 1 - magnitude).clamp(0, 12) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        let texts = [
            (Quantity::Count, 1_234_567.0, "1,234,567", "1.23M"),
            (Quantity::Count, 0.0, "0", "0"),
            (Quantity::Bytes, 1536.0, "1.5\u{202f}KiB", "1.5\u{202f}KiB"),
            (Quantity::Bytes, 1023.0, "1023\u{202f}B", "1023\u{202f}B"),
            (Quantity::Share, 0.12345, "12.35%", "12.3%"),
            (Quantity::Share, 0.0, "0.00%", "0%"),
            (Quantity::Time, 1.5e6, "1.5\u{202f}ms", "1.5\u{202f}ms"),
            (Quantity::Time, 7200e9, "2\u{202f}h", "2\u{202f}h"),
            (Quantity::Time, 4200e9, "1.17\u{202f}h", "70\u{202f}min"),
            (Quantity::Money, 0.000_123_4, "$0.000123", "$0.000123"),
            (Quantity::Money, 12.5, "$12.50", "$12.5"),
            (Quantity::Money, 12_345.6, "$12,346", "$12.3k"),
        ];
        for (quantity, value, text, tick) in texts {
            assert_eq!((quantity.text(value).as_str(), quantity.tick(value).as_str()), (text, tick));
        }
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(Quantity::Count.step(100.0, 5.0), 20.0);
        assert_eq!(Quantity::Share.step(1.0, 5.0), 0.2);
        assert_eq!(Quantity::Bytes.step(40.0 * 1_048_576.0, 4.0), 10.0 * 1_048_576.0);
        assert_eq!(Quantity::Time.step(3_600e9, 5.0), 600e9);
        for quantity in [Quantity::Count, Quantity::Bytes, Quantity::Time, Quantity::Money] {
            for largest in [1e-6, 0.7, 3.0, 999.0, 1.1e6, 7.7e12, 3e17] {
                let parts = largest / quantity.step(largest, 4.0);
                assert!(
                    (3.9..=26.0).contains(&parts) || quantity == Quantity::Time,
                    "{quantity:?} {largest} {parts}"
                );
            }
        }
    }
}
