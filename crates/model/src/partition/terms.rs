//! Terms of a tenant (bounds and promises), parsed from text.

use std::fmt;
use std::str::FromStr;

use tiermem_base::{Bytes, Nanos};
use tiermem_policy::partition::Promise;

use super::Terms;

/// The time of a look-up that finds its key, for promises of a mean latency: a round trip within one machine.
const HIT_NS: f64 = 50_000.0;

/// A tenant's terms.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantTerms {
    /// The tenant.
    pub name: String,
    /// The cost of a miss.
    pub miss: Option<Nanos>,
    /// Its bounds and promises.
    pub terms: Terms,
}

impl TenantTerms {
    /// The terms for one of `parts` equal parts of all memory.
    pub fn part(&self, parts: u64) -> TenantTerms {
        let Terms { least_bytes, most_bytes, .. } = self.terms;
        let most_bytes = if most_bytes == u64::MAX { most_bytes } else { most_bytes / parts };
        TenantTerms {
            terms: Terms { least_bytes: least_bytes / parts, most_bytes, ..self.terms },
            ..self.clone()
        }
    }
}

impl FromStr for TenantTerms {
    type Err = String;

    /// Reads `NAME:miss=2ms,min=64MiB,max=1GiB,weight=2,hits=0.9,latency=300us`, each part as one likes.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, parts) =
            text.rsplit_once(':').ok_or_else(|| format!("{text:?} has no NAME: before its terms"))?;
        let mut found = TenantTerms { name: name.to_owned(), miss: None, terms: Terms::default() };
        for part in parts.split(',') {
            let (word, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not WORD=VALUE"))?;
            let bytes = || value.parse::<Bytes>().map(|bytes| bytes.0).map_err(|error| error.to_string());
            let time = || value.parse::<Nanos>().map_err(|error| error.to_string());
            let number = |least: f64, most: f64| {
                let number = value.parse::<f64>().ok().filter(|number| (least..=most).contains(number));
                number.ok_or_else(|| format!("{part:?} is out of bounds: {least} to {most}"))
            };
            match word {
                "miss" => found.miss = Some(time()?),
                "min" => found.terms.least_bytes = bytes()?,
                "max" => found.terms.most_bytes = bytes()?,
                "weight" => found.terms.weight = number(1e-6, 1e6)?,
                "hits" => found.terms.promise = Some(Promise::HitRatio(number(0.0, 1.0)?)),
                "latency" => {
                    let latency_ns = time()?.0 as f64;
                    found.terms.promise = Some(Promise::MeanLatency { latency_ns, hit_ns: HIT_NS });
                }
                _ => return Err(format!("{word:?} is none of miss, min, max, weight, hits, latency")),
            }
        }
        if found.terms.least_bytes > found.terms.most_bytes {
            return Err(format!("{name:?} is to have at least more than at most"));
        }
        Ok(found)
    }
}

impl fmt::Display for TenantTerms {
    /// Writes what [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { least_bytes, most_bytes, weight, promise } = self.terms;
        let mut parts = Vec::new();
        parts.extend(self.miss.map(|Nanos(ns)| format!("miss={ns}ns")));
        parts.extend((least_bytes > 0).then(|| format!("min={least_bytes}")));
        parts.extend((most_bytes < u64::MAX).then(|| format!("max={most_bytes}")));
        parts.extend(match promise {
            None => None,
            Some(Promise::HitRatio(hits)) => Some(format!("hits={hits}")),
            Some(Promise::MeanLatency { latency_ns, .. }) => Some(format!("latency={latency_ns}ns")),
        });
        if parts.is_empty() || weight != Terms::default().weight {
            parts.push(format!("weight={weight}"));
        }
        write!(f, "{}:{}", self.name, parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read() {
        let read = |text: &str| text.parse::<TenantTerms>();
        let full = read("web:miss=2ms,min=64MiB,max=1GiB,weight=2,hits=0.9").unwrap();
        assert_eq!((full.name.as_str(), full.miss), ("web", Some(Nanos(2_000_000))));
        assert_eq!((full.terms.least_bytes, full.terms.most_bytes), (64 << 20, 1 << 30));
        assert_eq!((full.terms.weight, full.terms.promise), (2.0, Some(Promise::HitRatio(0.9))));
        assert_eq!(read("a:b:min=1").unwrap().name, "a:b");
        for text in [
            "web:miss=2ms,min=64MiB,max=1GiB,weight=2,hits=0.9",
            "a:b:weight=1",
            "c:latency=300us,weight=0.5",
        ] {
            let terms = read(text).unwrap();
            assert_eq!(read(&terms.to_string()).unwrap(), terms, "{terms}");
        }
        for wrong in [
            "web",
            "web:",
            "web:min",
            "web:min=x",
            "web:hits=1.1",
            "web:weight=0",
            "web:size=1",
            "w:min=2,max=1",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
