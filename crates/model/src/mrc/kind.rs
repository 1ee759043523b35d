//! Which cache a curve speaks of.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::klru::{EvictionLaw, SampledCaches};
use super::krr::{Correction, KrrStack};
use super::{Aet, LruStack, Model, Unit};

/// A cache policy together with the way in which it is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// LRU by stack distances: [`LruStack`].
    Lru,
    /// LRU by reuse times: [`Aet`].
    Aet,
    /// K-LRU: [`SampledCaches`] with [`EvictionLaw::k_lru`].
    KLru {
        /// Objects drawn per eviction.
        k: f64,
    },
    /// Redis's eviction with its pool: [`SampledCaches`] with [`EvictionLaw::redis`].
    Redis {
        /// `maxmemory-samples`.
        k: u32,
    },
    /// K-LRU by the stack of KRR with K′ = K^1.4: [`KrrStack`].
    Krr {
        /// Objects drawn per eviction.
        k: f64,
    },
}

impl Kind {
    /// The names that [`Kind::with_name`] takes.
    pub const NAMES: [&str; 5] = ["lru", "aet", "klru", "redis", "krr"];

    /// The kind of that name, with `k` where it has one.
    pub fn with_name(name: &str, k: f64) -> Option<Kind> {
        Some(match name {
            "lru" => Kind::Lru,
            "aet" => Kind::Aet,
            "klru" => Kind::KLru { k },
            "redis" => Kind::Redis { k: k.round() as u32 },
            "krr" => Kind::Krr { k },
            _ => return None,
        })
    }

    /// Its name without K.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lru => "lru",
            Kind::Aet => "aet",
            Kind::KLru { .. } => "klru",
            Kind::Redis { .. } => "redis",
            Kind::Krr { .. } => "krr",
        }
    }

    /// Its K, if it has one.
    pub fn k(self) -> Option<f64> {
        match self {
            Kind::Lru | Kind::Aet => None,
            Kind::KLru { k } | Kind::Krr { k } => Some(k),
            Kind::Redis { k } => Some(f64::from(k)),
        }
    }

    /// A model of it that will see the share `rate` of a workload's objects. `sizes` are the sizes that will be asked for;
    /// models by distance answer for others as well.
    pub fn model(self, unit: Unit, sizes: &[u64], rate: f64, seed: u64) -> Box<dyn Model + Send> {
        match self {
            Kind::Lru => Box::new(LruStack::new(unit, rate)),
            Kind::Aet => Box::new(Aet::new(unit, rate)),
            Kind::KLru { k } => Box::new(SampledCaches::new(EvictionLaw::k_lru(k), unit, sizes, rate)),
            Kind::Redis { k } => Box::new(SampledCaches::new(EvictionLaw::redis(k), unit, sizes, rate)),
            Kind::Krr { k } => Box::new(KrrStack::new(unit, k, Correction::Power, rate, seed)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.k() {
            Some(k) => write!(f, "{}:{k}", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    /// Takes what [`fmt::Display`] writes, such as `lru` or `klru:5`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, k) = match text.split_once(':') {
            Some((name, k)) => (name, k.parse().ok().filter(|k: &f64| k.is_finite() && *k >= 1.0)),
            None => (text, Some(5.0)),
        };
        let kind = k.and_then(|k| Kind::with_name(name, k));
        kind.ok_or_else(|| {
            format!("`{text}` is no policy with a curve: there are {}, the last three with a K from 1 on as in klru:5", Kind::NAMES.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for text in ["lru", "aet", "klru:2.5", "redis:10", "krr:16"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        assert_eq!("klru".parse(), Ok(Kind::KLru { k: 5.0 }));
        for text in ["", "klru:", "klru:0", "klru:nan", "lfu"] {
            assert!(text.parse::<Kind>().is_err(), "{text}");
        }
    }
}
