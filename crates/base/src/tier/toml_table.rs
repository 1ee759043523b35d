//! TOML form of a tier: a `[[tier]]` table, whose keys stand side by side and of which some contradict each other.

use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::capacity::Capacity;
use super::error::TierError;
use super::kind::TierKind;
use super::price::{Per, PriceTable};
use super::spec::{FlashOptions, Speed, TierLocation, TierSpec};
use crate::units::{Bandwidth, Bytes, Nanos};

/// All keys. Those of a price stand here as well: a user who looks for the price of a tier would not find them in a table within
/// the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    kind: TierKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<Capacity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    curve: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_latency: Option<Nanos>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_latency: Option<Nanos>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth: Option<Bandwidth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_per_gb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_each: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per: Option<Per>,
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    date: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segment: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserve: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endurance: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    io: Option<String>,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    reset: bool,
}

impl Table {
    /// Puts together what belongs together, and refuses what contradicts itself.
    fn spec(self) -> Result<TierSpec, TierError> {
        let name = self.name.unwrap_or_else(|| self.kind.name().to_owned());
        let place = match (self.node, self.path) {
            (Some(_), Some(_)) => {
                return Err(TierError::new(
                    name,
                    "path",
                    "contradicts node: a tier lies on a node or in a file, so leave one of them out",
                ));
            }
            (Some(node), None) => Some(TierLocation::Node(node)),
            (None, Some(path)) if path.as_os_str().is_empty() => {
                return Err(TierError::new(
                    name,
                    "path",
                    "is empty: name a file or device, such as \"/srv/tier\"",
                ));
            }
            (None, path) => path.map(TierLocation::Path),
        };
        let speed = speed(&name, self.curve, self.read_latency, self.write_latency, self.bandwidth)?;
        let price = PriceTable {
            price_per_gb: self.price_per_gb,
            price_each: self.price_each,
            per: self.per,
            currency: self.currency,
            date: self.date,
            source: self.source,
        };
        let spec = TierSpec {
            kind: self.kind,
            capacity: self.capacity,
            place,
            speed,
            bandwidth_share: self.bandwidth_share,
            price: price.price(&name)?,
            flash: FlashOptions {
                segment: self.segment,
                admission: self.admission,
                durability: self.durability,
                reserve: self.reserve,
                endurance: self.endurance,
                io: self.io,
            },
            reset: self.reset,
            name,
        };
        spec.check().map(|()| spec)
    }
}

/// A curve, or all three figures, or neither.
fn speed(
    tier: &str,
    curve: Option<String>,
    read_latency: Option<Nanos>,
    write_latency: Option<Nanos>,
    bandwidth: Option<Bandwidth>,
) -> Result<Speed, TierError> {
    let figures = [
        ("read_latency", read_latency.is_some()),
        ("write_latency", write_latency.is_some()),
        ("bandwidth", bandwidth.is_some()),
    ];
    let given = figures.into_iter().find(|(_, is_given)| *is_given).map(|(key, _)| key);
    match (curve, read_latency, write_latency, bandwidth) {
        (Some(_), ..) if given.is_some() => {
            let problem =
                format!("contradicts {}: give a curve, or figures, not both", given.unwrap_or_default());
            Err(TierError::new(tier, "curve", problem))
        }
        (Some(curve), ..) => Ok(Speed::Curve(curve)),
        (None, None, None, None) => Ok(Speed::Usual),
        (None, Some(read_latency), Some(write_latency), Some(bandwidth)) => {
            Ok(Speed::Figures { read_latency, write_latency, bandwidth })
        }
        _ => {
            let missing = figures.into_iter().find(|(_, is_given)| !is_given).map_or("", |(key, _)| key);
            let problem = "is missing: give read_latency, write_latency and bandwidth, or a curve";
            Err(TierError::new(tier, missing, problem))
        }
    }
}

impl From<TierSpec> for Table {
    fn from(spec: TierSpec) -> Self {
        let (node, path) = match spec.place {
            Some(TierLocation::Node(node)) => (Some(node), None),
            Some(TierLocation::Path(path)) => (None, Some(path)),
            None => (None, None),
        };
        let (curve, read_latency, write_latency, bandwidth) = match spec.speed {
            Speed::Usual => (None, None, None, None),
            Speed::Curve(curve) => (Some(curve), None, None, None),
            Speed::Figures { read_latency, write_latency, bandwidth } => {
                (None, Some(read_latency), Some(write_latency), Some(bandwidth))
            }
        };
        let price = spec.price.map(PriceTable::from).unwrap_or_default();
        let FlashOptions { segment, admission, durability, reserve, endurance, io } = spec.flash;
        Table {
            name: Some(spec.name),
            kind: spec.kind,
            capacity: spec.capacity,
            node,
            path,
            curve,
            read_latency,
            write_latency,
            bandwidth,
            bandwidth_share: spec.bandwidth_share,
            price_per_gb: price.price_per_gb,
            price_each: price.price_each,
            per: price.per,
            currency: price.currency,
            date: price.date,
            source: price.source,
            segment,
            admission,
            durability,
            reserve,
            endurance,
            io,
            reset: spec.reset,
        }
    }
}

impl<'de> Deserialize<'de> for TierSpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Table::deserialize(from)?.spec().map_err(D::Error::custom)
    }
}

impl Serialize for TierSpec {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Table::from(self.clone()).serialize(to)
    }
}
