//! Descriptions of generators as they stand on the command line: `zipf:alpha=0.99,objects=1000000,size=64-1024`.

use std::fmt;
use std::str::FromStr;

use tiermem_base::units::Bytes;

use crate::generate::{ALPHA_MAX, OBJECTS_MAX, Permutation, Phase, Scan, Sizes, Uniform, Zipf, ZipfRanks};
use crate::trace::{Extent, Trace};
use crate::{SpecError, TraceError};

/// Which generator is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Zipf`].
    Zipf,
    /// [`Uniform`].
    Uniform,
    /// [`Scan`].
    Scan,
    /// [`Phase`], half of the requests in each phase.
    Phase,
}

const KINDS: [(&str, Kind); 4] =
    [("zipf", Kind::Zipf), ("uniform", Kind::Uniform), ("scan", Kind::Scan), ("phase", Kind::Phase)];
const KIND_NAMES: &str = "zipf, uniform, scan, phase";

impl Kind {
    fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The settings that this generator takes, for error messages and help.
    pub fn settings(self) -> &'static str {
        match self {
            Kind::Zipf => "alpha, objects, requests, size, seed, scramble",
            Kind::Phase => "alpha, objects, requests, size, seed",
            Kind::Uniform | Kind::Scan => "objects, requests, size, seed",
        }
    }
}

/// A complete description of a synthetic trace; equal descriptions give equal traces.
///
/// Its text form is `KIND` or `KIND:key=value,...` with these settings, each with a default:
///
/// | setting | means | default |
/// | --- | --- | --- |
/// | `alpha` | exponent of the Zipf distribution, 0 to 3 | 0.99; `phase` 0.9 |
/// | `objects` | how many keys there are | 1M |
/// | `requests` | how long the trace is | 10M |
/// | `size` | bytes of a value: `300`, `4KiB`, or a range `64-1024` | 300 |
/// | `seed` | chooses the random stream | 1 |
/// | `scramble` | whether hot keys are scattered over the key space (`true`, `false`) | true |
///
/// Counts may end in `k`, `M` or `G` for thousands, millions and milliards.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Which generator.
    pub kind: Kind,
    /// The exponent, for `zipf` and `phase`.
    pub alpha: f64,
    /// Number of keys.
    pub objects: u64,
    /// Number of requests.
    pub requests: u64,
    /// The smallest and the largest size of a value in bytes, both included.
    pub size: (u32, u32),
    /// The seed.
    pub seed: u64,
    /// Whether ranks become keys by a permutation, for `zipf`.
    pub scramble: bool,
}

impl Spec {
    /// The description of a generator of this kind that leaves every setting at its default.
    pub fn new(kind: Kind) -> Spec {
        let alpha = if kind == Kind::Phase { 0.9 } else { 0.99 };
        Spec {
            kind,
            alpha,
            objects: 1_000_000,
            requests: 10_000_000,
            size: (300, 300),
            seed: 1,
            scramble: true,
        }
    }

    /// Whether a TRACE argument is meant as a description and not as a path.
    pub fn looks_like_one(text: &str) -> bool {
        let kind = text.split_once(':').map_or(text, |(kind, _)| kind);
        KINDS.iter().any(|(name, _)| *name == kind)
    }

    /// The trace described. Settings out of range, which [`FromStr`] refuses, are brought into it.
    pub fn open(&self) -> Trace {
        let objects = self.objects.clamp(1, OBJECTS_MAX);
        let alpha = if self.alpha.is_finite() { self.alpha.clamp(0.0, ALPHA_MAX) } else { 0.0 };
        let sizes = match self.size {
            (min, max) if min == max => Sizes::Fixed(min),
            (min, max) => Sizes::Uniform { min, max, seed: self.seed },
        };
        let requests = self.requests;
        let limited = |accesses: Box<dyn Iterator<Item = tiermem_base::Access> + Send>| {
            let mut left = requests;
            let counted = accesses.take_while(move |_| {
                let more = left > 0;
                left = left.saturating_sub(1);
                more
            });
            Trace::new(Box::new(counted.map(Ok::<_, TraceError>)), 0, Extent::Records(requests))
        };
        let zipf = || ZipfRanks::new(objects, alpha);
        match (self.kind, zipf()) {
            (Kind::Zipf, Some(ranks)) => {
                let keys = self.scramble.then(|| Permutation::new(objects, self.seed));
                limited(Box::new(Zipf::new(ranks, keys, sizes, self.seed)))
            }
            (Kind::Phase, Some(ranks)) => {
                limited(Box::new(Phase::new(ranks, objects, requests.div_ceil(2), sizes, self.seed)))
            }
            (Kind::Scan, _) => limited(Box::new(Scan::new(objects, sizes))),
            (Kind::Uniform | Kind::Zipf | Kind::Phase, _) => {
                limited(Box::new(Uniform::new(objects, sizes, self.seed)))
            }
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        let unknown =
            || SpecError::Key { kind: self.kind.name(), key: key.to_owned(), known: self.kind.settings() };
        if !self.kind.settings().split(", ").any(|known| known == key) {
            return Err(unknown());
        }
        let bad = |key, wanted| SpecError::Value { key, value: value.to_owned(), wanted };
        match key {
            "alpha" => {
                let alpha = value.parse().ok().filter(|alpha| (0.0..=ALPHA_MAX).contains(alpha));
                self.alpha = alpha.ok_or_else(|| bad("alpha", "a number from 0 to 3"))?;
            }
            "objects" => {
                let objects = count(value).filter(|objects| (1..=OBJECTS_MAX).contains(objects));
                self.objects =
                    objects.ok_or_else(|| bad("objects", "a count from 1 to 2^48, such as 1000000 or 1M"))?;
            }
            "requests" => {
                self.requests =
                    count(value).ok_or_else(|| bad("requests", "a count such as 1000000 or 10M"))?;
            }
            "size" => {
                self.size = size_range(value)
                    .ok_or_else(|| bad("size", "bytes such as 300, 4KiB or a range 64-1024"))?;
            }
            "seed" => self.seed = value.parse().map_err(|_| bad("seed", "a whole number below 2^64"))?,
            "scramble" => self.scramble = value.parse().map_err(|_| bad("scramble", "true or false"))?,
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

/// A whole number, perhaps with `k`, `M` or `G` behind it.
fn count(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1_000),
        b'M' => (&text[..text.len() - 1], 1_000_000),
        b'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn size_range(text: &str) -> Option<(u32, u32)> {
    let size = |text: &str| text.parse::<Bytes>().ok().and_then(|bytes| u32::try_from(bytes.0).ok());
    let (min, max) = match text.split_once('-') {
        Some((min, max)) => (size(min)?, size(max)?),
        None => (size(text)?, size(text)?),
    };
    (min <= max).then_some((min, max))
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (word, settings) = text.split_once(':').unwrap_or((text, ""));
        let Some((name, kind)) = KINDS.iter().find(|(name, _)| *name == word) else {
            return Err(SpecError::Kind { kind: word.to_owned(), known: KIND_NAMES });
        };
        let mut spec = Spec::new(*kind);
        let mut given: Vec<&str> = Vec::new();
        for part in settings.split(',').filter(|_| !settings.is_empty()) {
            let wrong = |problem| SpecError::Part {
                kind: name,
                part: part.to_owned(),
                problem,
                known: kind.settings(),
            };
            let (key, value) = part.split_once('=').ok_or_else(|| wrong("is not key=value"))?;
            let (key, value) = (key.trim(), value.trim());
            if given.contains(&key) {
                return Err(wrong("is given twice"));
            }
            given.push(key);
            spec.set(key, value)?;
        }
        Ok(spec)
    }
}

impl fmt::Display for Spec {
    /// The text form with every setting, which reads back as the same description.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind.name())?;
        if matches!(self.kind, Kind::Zipf | Kind::Phase) {
            write!(f, "alpha={},", self.alpha)?;
        }
        write!(f, "objects={},requests={},size={}", self.objects, self.requests, self.size.0)?;
        if self.size.1 != self.size.0 {
            write!(f, "-{}", self.size.1)?;
        }
        write!(f, ",seed={}", self.seed)?;
        if self.kind == Kind::Zipf {
            write!(f, ",scramble={}", self.scramble)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
                objects: 50_000_000,
                requests: 2000,
                size: (64, 1024),
                seed: 7,
                scramble: false,
            }
        );
        assert_eq!("scan".parse::<Spec>().unwrap(), Spec::new(Kind::Scan));
        assert_eq!("phase:".parse::<Spec>().unwrap().alpha, 0.9);
    }

    #[test]
    fn errors_tell_what_would_have_done() {
        for (text, wanted) in [
            ("zpif:alpha=1", "there is no generator `zpif`; the generators are zipf, uniform, scan, phase"),
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
            ("zipf:size=9-3", "must be bytes such as 300"),
            ("zipf:size=5GiB", "must be bytes such as 300"),
            ("zipf:requests=k", "must be a count"),
            ("zipf:requests=\u{e9}", "must be a count"),
            ("zipf:,", "is not key=value"),
        ] {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn every_kind_opens_with_as_many_requests_as_described() {
        for (name, _) in KINDS {
            let trace = crate::open(&format!("{name}:objects=10,requests=25,size=1-9")).unwrap();
            assert_eq!(trace.len_hint(), Some(25));
            let accesses: Vec<_> = trace.map(|access| access.unwrap()).collect();
            assert_eq!(accesses.len(), 25);
            assert!(accesses.iter().all(|access| access.key < 10 && (1..=9).contains(&access.size)));
        }
        assert_eq!(crate::open("scan:requests=0").unwrap().count(), 0);
    }

    proptest! {
        #[test]
        fn text_forms_read_back(
            kind in 0usize..4, alpha in 0.0f64..=3.0, objects in 1u64..=OBJECTS_MAX, requests in any::<u64>(),
            a in any::<u32>(), b in any::<u32>(), seed in any::<u64>(), scramble in any::<bool>(),
        ) {
            let base = Spec::new(KINDS[kind].1);
            let has = |key| base.kind.settings().contains(key);
            let spec = Spec {
                alpha: if has("alpha") { alpha } else { base.alpha },
                scramble: if has("scramble") { scramble } else { base.scramble },
                objects, requests, size: (a.min(b), a.max(b)), seed, ..base
            };
            prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
        }

        #[test]
        fn no_text_makes_it_panic(text in "(zipf|phase|scan|uniform)?:?.{0,60}") {
            let _ = text.parse::<Spec>();
        }
    }
}
