//! What the programs share: options from the command line, seeded random numbers, a checksum; pages whose every byte is known.
//!
//! The programs depend on little but the standard library and are built for the default processor, so that Valgrind
//! knows all of their instructions.
#![forbid(unsafe_code)]

mod pages;

use std::process::exit;

pub use pages::{PAGE_BYTES, PageError, PageSize, Pages};

/// An option: its name, its default, and what it is.
pub type Setting = (&'static str, u64, &'static str);
/// An option without a value: its name, and what it does.
pub type Flag = (&'static str, &'static str);

/// Reads `--name value` pairs; values may have `KiB`, `MiB`, `GiB`, or `k`, `M`, `G` behind them. Prints help or what is wrong
/// and ends the process where there is nothing to run. The values come in the order of the settings.
pub fn settings<const N: usize>(about: &str, known: [Setting; N]) -> [u64; N] {
    settings_and_flags(about, known, []).0
}

/// As [`settings`], with options that have no value: whether each was given.
pub fn settings_and_flags<const N: usize, const M: usize>(
    about: &str,
    known: [Setting; N],
    flags: [Flag; M],
) -> ([u64; N], [bool; M]) {
    let mut values = known.map(|(_, default, _)| default);
    let mut given = [false; M];
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--help" || argument == "-h" {
            println!("{about}\n");
            for (name, default, what) in known {
                println!("  --{name:<12} {what} (default {default})");
            }
            for (name, what) in flags {
                println!("  --{name:<12} {what}");
            }
            exit(0);
        }
        let name = argument.strip_prefix("--");
        if let Some(at) = name.and_then(|name| flags.iter().position(|(it, _)| *it == name)) {
            given[at] = true;
            continue;
        }
        let at = name.and_then(|name| known.iter().position(|(it, ..)| *it == name));
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
    (values, given)
}

/// Major page faults of this process so far: those that waited for a disk. `None` where `/proc` does not tell.
pub fn major_faults() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program may hold anything, also spaces; the twelfth field is the tenth behind it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(9)?.parse().ok()
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
