//! Kind of cache that a curve describes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tiermem_policy::evict::Named;

use super::klru::{EvictionLaw, SampledCaches};
use super::krr::{Correction, KrrStack};
use super::{Aet, LruStack, Miniature, Model, Unit};

/// A cache policy together with the way in which it is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
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
    /// Any policy, simulated in [`Miniature`].
    Miniature(Named),
}

/// Before the names of policies that are to be simulated although there is a model of them.
const SIMULATED: &str = "mini-";

impl Kind {
    /// The names of the models; besides these every name of [`Named`] is taken, and simulated.
    pub const MODELS: [&str; 5] = ["lru", "aet", "klru", "redis", "krr"];

    /// The kind of that name, with `k` (from 1 on) where it has one. `mini-` before the name of a policy asks for simulation
    /// where there is a model as well.
    pub fn with_name(name: &str, k: f64) -> Option<Kind> {
        if !(k.is_finite() && k >= 1.0) {
            return None;
        }
        let whole_k = (k.round() as u32).max(1);
        Some(match name {
            "lru" => Kind::Lru,
            "aet" => Kind::Aet,
            "klru" => Kind::KLru { k },
            "redis" => Kind::Redis { k: whole_k },
            "krr" => Kind::Krr { k },
            other => {
                let policy: Named = other.strip_prefix(SIMULATED).unwrap_or(other).parse().ok()?;
                Kind::Miniature(policy.with_k(whole_k))
            }
        })
    }

    /// Its name without K.
    pub fn name(self) -> String {
        match self {
            Kind::Lru => "lru".to_owned(),
            Kind::Aet => "aet".to_owned(),
            Kind::KLru { .. } => "klru".to_owned(),
            Kind::Redis { .. } => "redis".to_owned(),
            Kind::Krr { .. } => "krr".to_owned(),
            Kind::Miniature(policy) if Self::MODELS.contains(&policy.name()) => {
                format!("{SIMULATED}{policy}")
            }
            Kind::Miniature(policy) => policy.name().to_owned(),
        }
    }

    /// Its K, if it has one.
    pub fn k(self) -> Option<f64> {
        match self {
            Kind::Lru | Kind::Aet => None,
            Kind::KLru { k } | Kind::Krr { k } => Some(k),
            Kind::Redis { k } => Some(f64::from(k)),
            Kind::Miniature(policy) => policy.k().map(f64::from),
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
            Kind::Miniature(policy) => Box::new(Miniature::new(policy, unit, sizes, rate, seed)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.k() {
            Some(k) => write!(f, "{}:{k}", self.name()),
            None => f.write_str(&self.name()),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    /// Takes what [`fmt::Display`] writes, such as `lru` or `klru:5`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, k) = match text.split_once(':') {
            Some((name, k)) => (name, k.parse().ok()),
            None => (text, Some(K_DEFAULT)),
        };
        k.and_then(|k| Kind::with_name(name, k)).ok_or_else(|| {
            let models = Kind::MODELS.join(", ");
            let policies = Named::ALL.map(Named::name).join(", ");
            format!("`{text}` has no curve: there are the models {models}, with a K from 1 on as in klru:5 where that means something, and by simulation {policies}")
        })
    }
}

/// Redis's own default.
const K_DEFAULT: f64 = 5.0;

impl From<Kind> for String {
    fn from(kind: Kind) -> String {
        kind.to_string()
    }
}

impl TryFrom<String> for Kind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for text in ["lru", "aet", "klru:2.5", "redis:10", "krr:16", "mini-redis:3", "mini-lru", "s3-fifo"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        assert_eq!("klru".parse(), Ok(Kind::KLru { k: 5.0 }));
        for text in ["", "klru:", "klru:0", "klru:nan", "belady", "mini-"] {
            assert!(text.parse::<Kind>().is_err(), "{text}");
        }
    }
}
