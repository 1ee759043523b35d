//! Configuration of tenants: how they are identified, and what is declared of them.

use serde::Deserialize;
use tiermem_base::{Bytes, Nanos, TierSpec};
use tiermem_model::advisor::{Plan, Way};
use tiermem_model::partition::TenantTerms;
use tiermem_policy::ladder::TENANTS_MAX;

use super::{ConfigError, StoreConfig};
use crate::engine::{Aim, By, DATABASES, Declared, Division, PREFIX_BYTES_MAX, Tenancy};

/// K to choose from, at most: each has curves of its own.
const CANDIDATES_MAX: usize = 8;

/// The keys of `[tenants]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantsSection {
    /// `none` (default), `database`, `prefix` or `user`.
    pub by: String,
    /// Byte that ends a prefix. Default `:`.
    pub separator: String,
    /// Decisions while the store runs: `off` (default), `k`, or the objective
    /// by which memory is divided: `latency`, `mean`, `hits`, `fair`, `slo`.
    pub divide: String,
    /// Look-ups between two divisions. Default 1,000,000.
    pub window: u64,
    /// The part of the keys that curves are from. Default 0.01, and 0.001 from eight million keys on.
    pub sample_rate: Option<f64>,
    /// The K to choose from. Default 1, 5, 8, 16.
    pub candidates: Vec<u8>,
    /// Where curves come from: `krr` (default), `klru`, `miniature`, or `lru`, which takes one candidate alone.
    pub curves: String,
    /// Weight of earlier windows. Default 0.5.
    pub keep: f64,
    /// Least gain of another division. Default 0.02.
    pub gain: f64,
    /// Pieces that memory is divided in. Default 256.
    pub granules: u64,
    /// Cost of a miss where none is known. Default 1ms.
    pub miss_cost: Nanos,
}

impl Default for TenantsSection {
    fn default() -> Self {
        let plan = Plan::default();
        TenantsSection {
            by: "none".to_owned(),
            separator: ":".to_owned(),
            divide: Aim::Off.to_string(),
            window: plan.window,
            sample_rate: None,
            candidates: plan.ks,
            curves: "krr".to_owned(),
            keep: plan.keep,
            gain: plan.gain_least,
            granules: plan.granules,
            miss_cost: Nanos(plan.miss_ns as u64),
        }
    }
}

impl TenantsSection {
    /// Parameters of the division.
    fn plan(&self) -> Result<Plan, ConfigError> {
        let default = Plan::default();
        let error = |key, problem: String| Err(ConfigError::Value { key, problem });
        let within = |key, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                return Ok(value);
            }
            Err(ConfigError::Value { key, problem: format!("must be between {least} and {most}") })
        };
        let mut ks = self.candidates.clone();
        ks.sort_unstable();
        ks.dedup();
        if ks.is_empty() || ks.len() > CANDIDATES_MAX || !ks.iter().all(|k| (1..=64).contains(k)) {
            let problem = format!("must be 1 to {CANDIDATES_MAX} numbers between 1 and 64");
            return error("tenants.candidates", problem);
        }
        let way = match self.curves.as_str() {
            "krr" => Way::Krr,
            "klru" => Way::KLru,
            "miniature" => Way::Miniature,
            "lru" => Way::Lru,
            other => {
                return error("tenants.curves", format!("{other:?} is none of krr, klru, miniature, lru"));
            }
        };
        if way == Way::Lru && ks.len() > 1 {
            let problem =
                "lru knows nothing of K to choose one by: say `candidates = [5]` as well".to_owned();
            return error("tenants.curves", problem);
        }
        Ok(Plan {
            way,
            ks,
            rate: within("tenants.sample_rate", self.sample_rate.unwrap_or(default.rate), 1e-6, 1.0)?,
            thins: self.sample_rate.is_none(),
            keep: within("tenants.keep", self.keep, 0.0, 0.99)?,
            gain_least: within("tenants.gain", self.gain, 0.0, 1.0)?,
            granules: within("tenants.granules", self.granules as f64, 2.0, 4096.0)? as u64,
            miss_ns: self.miss_cost.0.max(1) as f64,
            ..default
        })
    }
}

/// The keys of a `[[tenant]]`: what `tiermem partition -o` writes, and what a division while the store runs keeps to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// The database's number, the prefix without what ends it, or the user's name.
    pub name: String,
    /// Its part of all memory; it has the same part of every tier. Default: an equal part of what is left.
    #[serde(default)]
    pub share: Option<Bytes>,
    /// Its sample size, 1 to 64. Default: the tiers' own.
    #[serde(default)]
    pub k: u8,
    /// Cost of a miss. Default: the measured one.
    #[serde(default)]
    pub miss_cost: Option<Nanos>,
    /// It gets no less memory.
    #[serde(default)]
    pub min: Option<Bytes>,
    /// It gets no more memory.
    #[serde(default)]
    pub max: Option<Bytes>,
    /// Weight of its misses relative to other tenants'. Default 1.
    #[serde(default)]
    pub weight: Option<f64>,
    /// The hit ratio that `slo` tries to keep.
    #[serde(default)]
    pub hit_ratio: Option<f64>,
    /// The mean latency of a look-up that `slo` tries to keep.
    #[serde(default)]
    pub latency: Option<Nanos>,
}

impl TenantConfig {
    /// Terms that a division must keep; [`None`] where none were declared.
    fn terms(&self) -> Result<Option<TenantTerms>, ConfigError> {
        let parts = [
            self.miss_cost.map(|it| format!("miss={}ns", it.0)),
            self.min.map(|it| format!("min={}", it.0)),
            self.max.map(|it| format!("max={}", it.0)),
            self.weight.map(|it| format!("weight={it}")),
            self.hit_ratio.map(|it| format!("hits={it}")),
            self.latency.map(|it| format!("latency={}ns", it.0)),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            return Ok(None);
        }
        let terms = format!("{}:{}", self.name, parts.join(",")).parse();
        terms.map(Some).map_err(|problem| ConfigError::Value { key: "tenant", problem })
    }
}

impl StoreConfig {
    /// What divides memory, as the file's own sections say it.
    pub(super) fn division(&self) -> Result<Division, ConfigError> {
        let error = |key, problem: String| ConfigError::Value { key, problem };
        let aim: Aim = self.tenants.divide.parse().map_err(|problem| error("tenants.divide", problem))?;
        if self.tenants.window == 0 {
            return Err(error("tenants.window", "must be at least 1".to_owned()));
        }
        let terms = self.declared_tenants.iter().map(TenantConfig::terms).filter_map(Result::transpose);
        Ok(Division {
            aim,
            window: self.tenants.window,
            declared: terms.collect::<Result<_, _>>()?,
            terms: Vec::new(),
            memory_bytes: self.memory_tiers().filter_map(TierSpec::known_bytes).fold(0, u64::saturating_add),
            tells_apart: aim != Aim::Off || self.tenants.by != "none",
        })
    }

    /// The tenants that engines begin with.
    pub(super) fn tenancy(&self) -> Result<Tenancy, ConfigError> {
        let error = |key, problem: String| Err(ConfigError::Value { key, problem });
        let by = match (self.tenants.by.as_str(), self.tenants.separator.as_bytes()) {
            ("none", _) => By::Nobody,
            ("database", _) => By::Database,
            ("prefix", &[separator]) => By::Prefix(separator),
            ("user", _) => By::User,
            ("prefix", _) => return error("tenants.separator", "must be one byte, such as \":\"".to_owned()),
            (other, _) => {
                return error("tenants.by", format!("{other:?} is none of none, database, prefix, user"));
            }
        };
        if by == By::Nobody && !self.declared_tenants.is_empty() {
            return error(
                "tenant",
                "tenants are not told apart: give by = \"prefix\", \"database\" or \"user\" in [tenants]"
                    .to_owned(),
            );
        }
        if self.declared_tenants.len() >= TENANTS_MAX {
            return error("tenant", format!("there can be {} at most", TENANTS_MAX - 1));
        }
        let total = self.memory_tiers().filter_map(TierSpec::known_bytes).fold(0, u64::saturating_add);
        let shares = self.declared_tenants.iter().filter_map(|tenant| tenant.share);
        let shares = shares.map(|it| it.0).fold(0, u64::saturating_add);
        if shares > total {
            return error(
                "tenant",
                format!("shares of {} are more than the {} of memory", Bytes(shares), Bytes(total)),
            );
        }
        let mut declared: Vec<Declared> = Vec::with_capacity(self.declared_tenants.len());
        for tenant in &self.declared_tenants {
            let name = &tenant.name;
            if declared.iter().any(|other| other.name == *name) {
                return error("tenant.name", format!("{name:?} is there twice"));
            }
            if by == By::Database && !(0..DATABASES).any(|db| db.to_string() == *name) {
                return error("tenant.name", format!("{name:?} is no database: 0 to {}", DATABASES - 1));
            }
            if let By::Prefix(separator) = by
                && (name.len() >= PREFIX_BYTES_MAX || name.as_bytes().contains(&separator))
            {
                let problem =
                    format!("{name:?} begins no key: a prefix has no separator and less than 64 bytes");
                return error("tenant.name", problem);
            }
            if tenant.k > 64 {
                return error("tenant.k", format!("{name:?}: must be between 1 and 64"));
            }
            let share = tenant.share.map(|share| share.0 as f64 / total.max(1) as f64);
            declared.push(Declared { name: name.clone(), share, k: tenant.k });
        }
        let owners = match by {
            By::User => self.users()?.owners(),
            _ => Ok(Vec::new()),
        };
        let owners =
            owners.map_err(|shared| ConfigError::Value { key: "user", problem: shared.to_string() })?;
        let (plan, division) = (self.tenants.plan()?, self.live()?.division);
        Ok(Tenancy { by, declared, plan, division, owners })
    }
}
