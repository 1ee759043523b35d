//! The description of tiers.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tiermem_base::curve::{Curve, DEFAULT_CURVE, LOCAL_DRAM};
use tiermem_base::{Bytes, Nanos};
use tiermem_policy::ladder::LEVELS_MAX;
use tiermem_tier::device::MappedSpec;
use tiermem_tier::{Kind, TierSpec};

use super::ConfigError;

/// Addresses count sixteen bytes in 32 bits.
const TIER_BYTES_MAX: u64 = (u32::MAX as u64) << 4;

/// Less than this leaves a tier without a page for each of a few size classes, and tier 0 without room for the index.
const TIER_BYTES_MIN: u64 = 1 << 20;

/// What a tier is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierKind {
    /// The machine's local memory.
    Dram,
    /// Memory of another NUMA node.
    Numa,
    /// A file or device that is mapped and outlives the process.
    Dax,
    /// Local memory that charges a slower device's time.
    Emulated,
    /// A file on flash.
    Flash,
    /// Memory of another machine.
    Remote,
}

impl TierKind {
    const ALL: [(TierKind, &'static str); 6] = [
        (TierKind::Dram, "dram"),
        (TierKind::Numa, "numa"),
        (TierKind::Dax, "dax"),
        (TierKind::Emulated, "emulated"),
        (TierKind::Flash, "flash"),
        (TierKind::Remote, "remote"),
    ];

    /// The name in files and flags.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// One `[[tier]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierConfig {
    /// The name in figures.
    pub name: String,
    /// What it is made of.
    pub kind: TierKind,
    /// Bytes, with everything that is kept for it.
    pub capacity: Bytes,
    /// Which node's memory (`numa`).
    pub node: Option<u32>,
    /// The file or device (`dax`, `flash`). A file is made if it is not there.
    pub path: Option<PathBuf>,
    /// Whether what `path` holds may be overwritten, whatever it is (`dax`, `flash`); `--reset` says it for all tiers.
    #[serde(default)]
    pub reset: bool,
    /// Bytes that are written and emptied at once (`flash`). Default 2 MiB.
    pub segment: Option<Bytes>,
    /// Who comes in when it is full (`flash`): `seen` (default; who left memory before) or `all`.
    pub admission: Option<String>,
    /// What its items survive (`flash`): the death of the `process` (default), or loss of `power`.
    pub durability: Option<String>,
    /// Share that live items never fill (`flash`). Default 0.1.
    pub reserve: Option<f64>,
    /// Bytes that the device bears to be written, such as `"600TB"` (`flash`): for the estimate of its life.
    pub endurance: Option<Bytes>,
    /// How it is read and written (`flash`): `auto` (default), `uring` or `threads`.
    pub io: Option<String>,
    /// A named latency-bandwidth curve (`emulated`).
    pub curve: Option<String>,
    /// Instead of a curve: the latency of a read.
    pub read_latency: Option<Nanos>,
    /// Instead of a curve: the latency of a write.
    pub write_latency: Option<Nanos>,
    /// Instead of a curve: bytes per second, such as `"20GB/s"`.
    #[serde(default, deserialize_with = "bandwidth")]
    pub bandwidth: Option<Bytes>,
    /// The part of the device's bandwidth that this process is given; above 0, at most 1.
    pub bandwidth_share: Option<f64>,
    /// What a gigabyte costs, in any currency.
    pub price_per_gb: Option<f64>,
}

fn bandwidth<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
    let text = String::deserialize(from)?;
    text.strip_suffix("/s").unwrap_or(&text).parse().map(Some).map_err(serde::de::Error::custom)
}

impl TierConfig {
    fn new(name: &str, kind: TierKind, capacity: Bytes) -> Self {
        let emulated = kind == TierKind::Emulated;
        TierConfig {
            name: name.to_owned(),
            kind,
            capacity,
            node: None,
            path: None,
            reset: false,
            segment: None,
            admission: None,
            durability: None,
            reserve: None,
            endurance: None,
            io: None,
            curve: emulated.then(|| DEFAULT_CURVE.to_owned()),
            read_latency: None,
            write_latency: None,
            bandwidth: None,
            bandwidth_share: None,
            price_per_gb: None,
        }
    }

    /// The tier to set up, in pages that are divided by this factor between size classes. Call it on a checked
    /// configuration: what is missing there is taken as DRAM's.
    pub fn spec(&self, class_factor: f64) -> TierSpec {
        let kind = match (self.kind, self.node, &self.path) {
            (TierKind::Emulated, ..) => {
                Kind::Emulated(self.device_curve().with_bandwidth_share(self.bandwidth_share.unwrap_or(1.0)))
            }
            (TierKind::Numa, Some(node), _) => Kind::Numa(node),
            (TierKind::Dax, _, Some(path)) => {
                let (path, layout) = (path.clone(), class_factor.to_bits());
                Kind::Mapped(MappedSpec { path, layout, reset: self.reset })
            }
            _ => Kind::Dram,
        };
        TierSpec { name: self.name.clone(), kind, capacity: self.capacity, price_per_gb: self.price_per_gb }
    }

    fn device_curve(&self) -> Curve {
        if let (Some(read), Some(write), Some(bandwidth)) =
            (self.read_latency, self.write_latency, self.bandwidth)
        {
            return Curve::custom(read, write, bandwidth.0 as f64 / 1e9);
        }
        Curve::named(self.curve.as_deref().unwrap_or(DEFAULT_CURVE)).unwrap_or(LOCAL_DRAM)
    }

    fn error(&self, problem: impl Into<String>) -> ConfigError {
        ConfigError::Tier { name: self.name.clone(), problem: problem.into() }
    }
}

/// 512 MiB of DRAM and 2 GiB of emulated CXL memory.
pub(super) fn default_tiers() -> Vec<TierConfig> {
    vec![
        TierConfig::new("dram", TierKind::Dram, Bytes(512 << 20)),
        TierConfig::new("cxl", TierKind::Emulated, Bytes(2 << 30)),
    ]
}

impl FromStr for TierConfig {
    type Err = ConfigError;

    /// Reads the short form `kind=size`, for some kinds with where: `numa:1=2GiB`, `dax:/dev/dax0.0=2GiB`,
    /// `flash:/srv/tiermem.flash=8GiB`. The tier is named after its kind.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let error = |problem: String| ConfigError::Tier { name: text.to_owned(), problem };
        let (kind, size) = text
            .rsplit_once('=')
            .ok_or_else(|| error("write it as kind=size, for example dram=512MiB".to_owned()))?;
        let (kind, place) = kind.split_once(':').map_or((kind, None), |(kind, place)| (kind, Some(place)));
        let known = TierKind::ALL.into_iter().find(|(_, name)| *name == kind);
        let (kind, name) = known.ok_or_else(|| {
            let names = TierKind::ALL.map(|(_, name)| name).join(", ");
            error(format!("{kind:?} is no kind of tier; there are {names}"))
        })?;
        let capacity = size.parse::<Bytes>().map_err(|it| error(it.to_string()))?;
        let mut tier = TierConfig::new(name, kind, capacity);
        match (kind, place) {
            (_, None) => {}
            (TierKind::Numa, Some(node)) => {
                tier.node = Some(node.parse().map_err(|_| error(format!("{node:?} is no node's number")))?);
            }
            (TierKind::Dax | TierKind::Flash, Some(path)) => tier.path = Some(path.into()),
            (_, Some(_)) => return Err(error(format!("a tier of kind {name} takes nothing behind a colon"))),
        }
        Ok(tier)
    }
}

/// Checks each tier by itself and the list as a whole.
pub(super) fn validate(tiers: &[TierConfig]) -> Result<(), ConfigError> {
    let first = tiers.first().ok_or(ConfigError::NoTier)?;
    for (number, tier) in tiers.iter().enumerate() {
        if tier.kind == TierKind::Remote {
            return Err(
                tier.error("the kind remote is not supported yet; use dram, numa, dax, emulated or flash")
            );
        }
        if tier.kind == TierKind::Flash {
            if number + 1 != tiers.len() || number == 0 {
                return Err(tier.error("a flash tier is the last one, below memory"));
            }
            super::FlashTier::of(tier)?;
        }
        if (tier.kind == TierKind::Numa) != tier.node.is_some() {
            return Err(
                tier.error("a tier of kind numa, and no other, has a node: node = 1, or --tier numa:1=2GiB")
            );
        }
        if tier.kind == TierKind::Dax && tier.path.is_none() {
            return Err(tier.error(
                "a tier of kind dax has a path: path = \"/dev/dax0.0\", or --tier dax:/dev/dax0.0=2GiB",
            ));
        }
        if !matches!(tier.kind, TierKind::Dax | TierKind::Flash) && tier.path.is_some() {
            return Err(
                tier.error(format!("a path is for the kinds dax and flash, not {}", tier.kind.name()))
            );
        }
        if tier.capacity.0 == 0 {
            return Err(tier.error("its capacity is zero"));
        }
        if tier.capacity.0 < TIER_BYTES_MIN {
            let least = Bytes(TIER_BYTES_MIN);
            return Err(
                tier.error(format!("its capacity of {} is too small: give at least {least}", tier.capacity))
            );
        }
        if tiers[..number].iter().any(|other| other.name == tier.name) {
            return Err(tier.error("another tier has that name"));
        }
        let measures = [tier.read_latency.is_some(), tier.write_latency.is_some(), tier.bandwidth.is_some()];
        let described = measures.iter().filter(|given| **given).count();
        if tier.kind != TierKind::Emulated && (tier.curve.is_some() || described > 0) {
            let name = tier.kind.name();
            return Err(
                tier.error(format!("curve, latencies and bandwidth describe an emulated tier, not {name}"))
            );
        }
        if tier.kind == TierKind::Emulated && number > 0 {
            match (tier.curve.is_some(), described) {
                (true, 0) | (false, 3) => {}
                (true, _) => return Err(tier.error("give a curve, or latencies and bandwidth, not both")),
                (false, _) => {
                    return Err(tier.error("give a curve, or read_latency, write_latency and bandwidth"));
                }
            }
        }
        if let Some(Err(problem)) = tier.curve.as_deref().map(Curve::named) {
            return Err(tier.error(problem));
        }
        if tier.bandwidth.is_some_and(|bandwidth| bandwidth.0 == 0) {
            return Err(tier.error("its bandwidth is zero"));
        }
        if tier.kind != TierKind::Flash && tier.capacity.0 > TIER_BYTES_MAX {
            return Err(
                tier.error(format!("one shard addresses at most {} of a tier", Bytes(TIER_BYTES_MAX)))
            );
        }
        if tier.bandwidth_share.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
            return Err(tier.error("bandwidth_share must be above 0 and at most 1"));
        }
        if tier.price_per_gb.is_some_and(|price| !(price >= 0.0 && price.is_finite())) {
            return Err(tier.error("price_per_gb must be a number that is not negative"));
        }
    }
    let slotted = tiers.iter().filter(|tier| tier.kind != TierKind::Flash).count();
    if slotted > LEVELS_MAX {
        return Err(ConfigError::TooManyTiers { given: slotted, most: LEVELS_MAX });
    }
    if first.kind != TierKind::Dram {
        return Err(first.error("tier 0 must be of kind dram: the index lives there"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_read_or_explained() {
        let tier: TierConfig = "emulated=2GiB".parse().unwrap();
        assert_eq!((tier.name.as_str(), tier.capacity), ("emulated", Bytes(2 << 30)));
        let tier: TierConfig = "dax:/dev/dax=0=2GiB".parse().unwrap();
        assert_eq!((tier.path, tier.capacity), (Some("/dev/dax=0".into()), Bytes(2 << 30)));
        let tier: TierConfig = "numa:1=2GiB".parse().unwrap();
        assert_eq!(tier.spec(1.08).kind, Kind::Numa(1));
        for (text, part) in [
            ("dram", "kind=size"),
            ("tape=1GiB", "no kind of tier"),
            ("dram=x", "not a size"),
            ("numa:x=1GiB", "no node's number"),
            ("dram:/f=1GiB", "takes nothing behind a colon"),
        ] {
            let error = text.parse::<TierConfig>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
