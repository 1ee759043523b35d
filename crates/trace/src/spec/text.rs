//! Text form of a generator's description: parsing it, with errors that say what is valid, and writing it.

use std::fmt;
use std::str::FromStr;

use super::{KIND_NAMES, KINDS, Kind, Spec, TENANTS_MAX};
use crate::SpecError;
use crate::generate::{ALPHA_MAX, OBJECTS_MAX, SIZE_FORMS};

/// Splits a text at separators (of descriptions of tenants, and of settings), except within parentheses.
fn split_outside(text: &str, separator: char) -> Vec<&str> {
    let mut depth = 0usize;
    let outside = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => (),
        }
        c == separator && depth == 0
    };
    text.split(outside).collect()
}

/// A whole number, perhaps with `k`, `M` or `G` behind it for thousands, millions and milliards.
pub fn parse_count(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1_000),
        b'M' => (&text[..text.len() - 1], 1_000_000),
        b'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn kind_named(word: &str) -> Result<Kind, SpecError> {
    let found = KINDS.iter().find(|(name, _)| *name == word);
    found.map(|(_, kind)| *kind).ok_or_else(|| SpecError::Kind { kind: word.to_owned(), known: KIND_NAMES })
}

const ALPHA_FORM: &str = "a number from 0 to 3";

fn parse_alpha(text: &str) -> Option<f64> {
    text.parse().ok().filter(|alpha| (0.0..=ALPHA_MAX).contains(alpha))
}

impl Spec {
    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        let unknown =
            || SpecError::Key { kind: self.kind.name(), key: key.to_owned(), known: self.kind.settings() };
        if !self.kind.takes(key) {
            return Err(unknown());
        }
        let bad = |key, wanted| SpecError::Value { key, value: value.to_owned(), wanted };
        match key {
            "alpha" => self.alpha = parse_alpha(value).ok_or_else(|| bad("alpha", ALPHA_FORM))?,
            "alpha-then" => {
                let alpha = parse_alpha(value).ok_or_else(|| bad("alpha-then", ALPHA_FORM))?;
                self.alpha_then = Some(alpha);
            }
            "objects" => {
                let objects = parse_count(value).filter(|objects| (1..=OBJECTS_MAX).contains(objects));
                self.objects =
                    objects.ok_or_else(|| bad("objects", "a count from 1 to 2^48, such as 1000000 or 1M"))?;
            }
            "length" => {
                let length = parse_count(value).filter(|length| (1..=OBJECTS_MAX).contains(length));
                self.length =
                    length.ok_or_else(|| bad("length", "a count from 1 to 2^48, such as 10000 or 10k"))?;
            }
            "requests" => {
                self.requests =
                    parse_count(value).ok_or_else(|| bad("requests", "a count such as 1000000 or 10M"))?;
            }
            "size" => self.size = value.parse().map_err(|_| bad("size", SIZE_FORMS))?,
            "seed" => self.seed = value.parse().map_err(|_| bad("seed", "a whole number below 2^64"))?,
            "scramble" => self.scramble = value.parse().map_err(|_| bad("scramble", "true or false"))?,
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// Takes `key=value` parts.
    fn set_all<'a>(&mut self, parts: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
        let mut given: Vec<&str> = Vec::new();
        for part in parts {
            let wrong = |problem| SpecError::Part {
                kind: self.kind.name(),
                part: part.to_owned(),
                problem,
                known: self.kind.settings(),
            };
            let (key, value) = part.split_once('=').ok_or_else(|| wrong("is not key=value"))?;
            let (key, value) = (key.trim(), value.trim());
            if given.contains(&key) {
                return Err(wrong("is given twice"));
            }
            given.push(key);
            self.set(key, value)?;
        }
        Ok(())
    }

    /// Reads `0.7*zipf(alpha=0.9)`; the weight and the parentheses may be missing.
    fn read_tenant(text: &str) -> Result<(f64, Spec), SpecError> {
        let bad = |wanted| SpecError::Value { key: "mix", value: text.to_owned(), wanted };
        // A `*` behind a parenthesis is no weight's.
        let head = text.find('(').unwrap_or(text.len());
        let (weight, rest) = match text[..head].find('*') {
            Some(star) => {
                let weight = text[..star].trim().parse::<f64>().ok();
                let weight = weight.filter(|weight| *weight > 0.0 && *weight <= 1e9);
                (weight.ok_or_else(|| bad("WEIGHT*KIND(...) with a weight above 0"))?, &text[star + 1..])
            }
            None => (1.0, text),
        };
        let (word, settings) = match rest.split_once('(') {
            Some((word, settings)) => {
                let inside = settings.trim_end().strip_suffix(')');
                (word, inside.ok_or_else(|| bad("KIND(key=value,...): a parenthesis is not closed"))?)
            }
            None => (rest, ""),
        };
        let mut spec = Spec::new(kind_named(word.trim())?);
        if spec.kind == Kind::Mix {
            return Err(bad("a generator other than mix"));
        }
        let own_length = |part: &&str| part.split_once('=').is_some_and(|(key, _)| key.trim() == "requests");
        let parts = split_outside(settings, ',');
        if parts.iter().any(own_length) {
            return Err(bad("without `requests`, which the mix has: mix:...,requests=N"));
        }
        spec.set_all(parts.into_iter().filter(|_| !settings.trim().is_empty()))?;
        Ok((weight, spec))
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (word, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut spec = Spec::new(kind_named(word)?);
        let parts = split_outside(settings, ',');
        if spec.kind != Kind::Mix {
            spec.set_all(parts.into_iter().filter(|_| !settings.is_empty()))?;
            return Ok(spec);
        }
        let tenants = split_outside(parts.first().copied().unwrap_or_default(), '+');
        if tenants.len() > TENANTS_MAX {
            let value = format!("{} tenants", tenants.len());
            return Err(SpecError::Value { key: "mix", value, wanted: "at most 65536 tenants" });
        }
        spec.tenants = tenants.into_iter().map(Spec::read_tenant).collect::<Result<_, _>>()?;
        spec.set_all(parts.into_iter().skip(1))?;
        Ok(spec)
    }
}

impl Spec {
    /// The settings that this kind takes, each with its value if it has one.
    fn settings_text(&self) -> String {
        let value = |key: &str| {
            Some(match key {
                "alpha" => self.alpha.to_string(),
                "alpha-then" => self.alpha_then?.to_string(),
                "objects" => self.objects.to_string(),
                "length" => self.length.to_string(),
                "requests" => self.requests.to_string(),
                "size" => self.size.to_string(),
                "seed" => self.seed.to_string(),
                _ => self.scramble.to_string(),
            })
        };
        let keys = self.kind.settings().split(", ");
        keys.filter_map(|key| Some(format!("{key}={}", value(key)?))).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for Spec {
    /// The text form with every setting, which reads back as the same description.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind.name())?;
        for ((weight, spec), number) in self.tenants.iter().zip(0..) {
            let joint = if number == 0 { "" } else { "+" };
            let settings = spec.settings_text();
            // A tenant has no length of its own.
            let own: Vec<_> = split_outside(&settings, ',')
                .into_iter()
                .filter(|part| !part.starts_with("requests="))
                .collect();
            write!(f, "{joint}{weight}*{}({})", spec.kind.name(), own.join(","))?;
        }
        let comma = if self.tenants.is_empty() { "" } else { "," };
        write!(f, "{comma}{}", self.settings_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{SizeDistribution, Workload};
    use proptest::prelude::*;

    #[test]
    fn descriptions_read_as_they_are_documented() {
        let spec: Spec =
            "zipf:alpha=0.8,objects=50M,requests=2k,size=64-1KiB,seed=7,scramble=false".parse().unwrap();
        assert_eq!(
            spec,
            Spec {
                kind: Kind::Zipf,
                alpha: 0.8,
                alpha_then: None,
                objects: 50_000_000,
                length: Spec::new(Kind::Zipf).length,
                requests: 2000,
                size: SizeDistribution::Uniform { min: 64, max: 1024 },
                seed: 7,
                scramble: false,
                tenants: Vec::new(),
            }
        );
        assert_eq!("scan".parse::<Spec>().unwrap(), Spec::new(Kind::Scan));
        assert_eq!("phase:".parse::<Spec>().unwrap().alpha, 0.9);
        let ycsb: Spec = "ycsb-f:objects=1k".parse().unwrap();
        assert_eq!((ycsb.kind, ycsb.size), (Kind::Ycsb(Workload::F), SizeDistribution::Fixed(1000)));
    }

    #[test]
    fn mixes_read_as_they_are_documented() {
        let spec: Spec =
            "mix:0.7*zipf(alpha=0.9, size=lognormal(300,1.2))+scan+ 2 * ycsb-a ( ),requests=5M,seed=3"
                .parse()
                .unwrap();
        let zipf = Spec {
            alpha: 0.9,
            size: SizeDistribution::Lognormal { median: 300, sigma: 1.2 },
            ..Spec::new(Kind::Zipf)
        };
        let ycsb = Spec::new(Kind::Ycsb(Workload::A));
        let tenants = vec![(0.7, zipf), (1.0, Spec::new(Kind::Scan)), (2.0, ycsb)];
        assert_eq!(spec, Spec { tenants, requests: 5_000_000, seed: 3, ..Spec::new(Kind::Mix) });
    }

    #[test]
    fn errors_tell_what_would_have_done() {
        for (text, wanted) in [
            (
                "zpif:alpha=1",
                "there is no generator `zpif`; the generators are zipf, uniform, scan, loop, streams, phase, ycsb-a",
            ),
            (
                "uniform:alpha=1",
                "`uniform` has no setting `alpha`; its settings are objects, requests, size, seed",
            ),
            ("zipf:alpha", "`alpha` in the description of `zipf` is not key=value"),
            ("zipf:seed=1,seed=2", "is given twice"),
            ("zipf:alpha=4", "`alpha=4` must be a number from 0 to 3"),
            ("zipf:alpha=nan", "must be a number from 0 to 3"),
            ("zipf:objects=0", "must be a count from 1 to 2^48"),
            ("zipf:objects=18446744073709551615G", "must be a count"),
            ("streams:length=0", "`length=0` must be a count from 1 to 2^48"),
            ("zipf:length=5", "`zipf` has no setting `length`"),
            ("zipf:size=9-3", "must be bytes such as 300"),
            ("zipf:size=5GiB", "must be bytes such as 300"),
            ("zipf:size=pareto(1)", "`size=pareto(1)` must be bytes such as 300"),
            ("zipf:requests=k", "must be a count"),
            ("zipf:requests=\u{e9}", "must be a count"),
            ("zipf:,", "is not key=value"),
            ("mix", "there is no generator ``"),
            ("mix:zipf+zpif", "there is no generator `zpif`"),
            ("mix:0*zipf", "`mix=0*zipf` must be WEIGHT*KIND(...) with a weight above 0"),
            ("mix:zipf(alpha=1", "a parenthesis is not closed"),
            ("mix:zipf(requests=1)", "without `requests`, which the mix has"),
            ("mix:zipf,objects=1", "`mix` has no setting `objects`; its settings are requests, seed"),
            ("mix:mix", "a generator other than mix"),
            ("ycsb-a:alpha=1", "`ycsb-a` has no setting `alpha`"),
        ] {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    fn any_spec() -> impl Strategy<Value = Spec> {
        let sizes = prop_oneof![
            any::<u32>().prop_map(SizeDistribution::Fixed),
            (0u32..99, 99u32..).prop_map(|(min, max)| SizeDistribution::Uniform { min, max }),
            (1u32.., 0.0f64..9.0).prop_map(|(median, sigma)| SizeDistribution::Lognormal { median, sigma }),
        ];
        let then = prop::option::of(0.0f64..=3.0);
        let numbers =
            ((0.0f64..=3.0, then), 1u64..=OBJECTS_MAX, 1u64..=OBJECTS_MAX, any::<u64>(), any::<u64>());
        (0..KINDS.len() - 1, numbers, sizes, any::<bool>()).prop_map(
            |(kind, ((alpha, then), objects, length, requests, seed), size, scramble)| {
                let base = Spec::new(KINDS[kind].1);
                Spec {
                    alpha: if base.kind.takes("alpha") { alpha } else { base.alpha },
                    alpha_then: then.filter(|_| base.kind.takes("alpha-then")),
                    scramble: if base.kind.takes("scramble") { scramble } else { base.scramble },
                    length: if base.kind.takes("length") { length } else { base.length },
                    objects,
                    requests,
                    size,
                    seed,
                    ..base
                }
            },
        )
    }

    proptest! {
        #[test]
        fn text_forms_read_back(spec in any_spec()) {
            prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
        }

        #[test]
        fn mixes_read_back(
            tenants in prop::collection::vec((0.001f64..1000.0, any_spec()), 1..5), requests in any::<u64>(),
        ) {
            let own = |(weight, spec): (f64, Spec)| {
                let requests = Spec::new(spec.kind).requests;
                (weight, Spec { requests, ..spec })
            };
            let tenants = tenants.into_iter().map(own).collect();
            let spec = Spec { tenants, requests, ..Spec::new(Kind::Mix) };
            prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
        }

        #[test]
        fn no_text_makes_it_panic(text in "(zipf|phase|scan|uniform|mix|ycsb-e)?:?.{0,60}") {
            let _ = text.parse::<Spec>();
        }

        #[test]
        fn nearly_good_mixes_do_not_make_it_panic(text in "mix:[0-9.*+(),=zipfscan]{0,60}") {
            let _ = text.parse::<Spec>();
        }
    }
}
