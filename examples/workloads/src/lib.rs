//! What the programs share: options from the command line, seeded random numbers, a checksum.
//!
//! The programs depend on nothing but the standard library and are built for the default processor, so that Valgrind
//! knows all of their instructions.
#![forbid(unsafe_code)]

use std::process::exit;

/// An option: its name, its default, and what it is.
pub type Setting = (&'static str, u64, &'static str);

/// Reads `--name value` pairs; values may have `KiB`, `MiB`, `GiB`, or `k`, `M`, `G` behind them. Prints help or what is wrong
/// and ends the process where there is nothing to run. The values come in the order of the settings.
pub fn settings<const N: usize>(about: &str, known: [Setting; N]) -> [u64; N] {
    let mut values = known.map(|(_, default, _)| default);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--help" || argument == "-h" {
            println!("{about}\n");
            for (name, default, what) in known {
                println!("  --{name:<12} {what} (default {default})");
            }
            exit(0);
        }
        let at = argument.strip_prefix("--").and_then(|name| known.iter().position(|(it, ..)| *it == name));
        let value = arguments.next().and_then(|text| number(&text));
        match at.zip(value) {
            Some((at, value)) => values[at] = value,
            None => {
                eprintln!(
                    "{argument}: no such option, or no whole number behind it; --help lists what there is"
                );
                exit(2);
            }
        }
    }
    values
}

fn number(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): good enough to scatter accesses, and a few instructions.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// Any number.
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0; without its last bit of evenness.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 to 1.
    #[inline]
    pub fn share(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Scatters the bits of a number.
#[inline]
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_have_units() {
        assert_eq!(
            ["5", "2KiB", "3M", "1GiB"].map(number),
            [Some(5), Some(2048), Some(3_000_000), Some(1 << 30)]
        );
        assert!(
            ["", "x", "5x", "-1", "99999999999999999999", "99999999999GiB"]
                .iter()
                .all(|it| number(it).is_none())
        );
    }

    #[test]
    fn a_seed_gives_one_sequence() {
        let numbers = |seed| {
            let mut rng = Rng::new(seed);
            [rng.number(), rng.below(10), rng.below(10)]
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        assert!((0..1000).all(|_| Rng::new(3).below(7) < 7 && Rng::new(3).share() < 1.0));
    }
}
