//! Description of one tier.

use std::path::{Path, PathBuf};

use super::capacity::Capacity;
use super::error::TierError;
use super::kind::{TierKind, listed};
use super::price::Price;
use crate::latency_curve::{Curve, LOCAL_DRAM, Surcharge};
use crate::units::{Bandwidth, Bytes, Nanos};

/// Where a tier's bytes lie, for the kinds that have to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierLocation {
    /// On this NUMA node (`numa`).
    Node(u32),
    /// In this file or device (`dax`, `flash`).
    Path(PathBuf),
}

/// How fast a tier is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Speed {
    /// As its kind usually is: [`TierKind::usual_curve`].
    #[default]
    Usual,
    /// As a named curve says.
    Curve(String),
    /// In figures.
    Figures {
        /// Latency of a read.
        read_latency: Nanos,
        /// Latency of a write.
        write_latency: Nanos,
        /// Bytes a second, either way.
        bandwidth: Bandwidth,
    },
}

/// A store's options for a tier of kind `flash`. The words are parsed by the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlashOptions {
    /// Bytes that are written and emptied at once.
    pub segment: Option<Bytes>,
    /// Which items come in when it is full: `seen` or `all`.
    pub admission: Option<String>,
    /// The failures that its items survive: the death of the `process`, or loss of `power`.
    pub durability: Option<String>,
    /// Share that live items never fill.
    pub reserve: Option<f64>,
    /// Bytes that the device bears to be written.
    pub endurance: Option<Bytes>,
    /// How it is read and written: `auto`, `uring` or `threads`.
    pub io: Option<String>,
}

/// Description of a tier. A description from a file or a flag has passed [`TierSpec::check`]; call it for one that was put
/// together in code.
#[derive(Clone, Debug, PartialEq)]
pub struct TierSpec {
    /// Its name in tables and metrics.
    pub name: String,
    /// Its kind.
    pub kind: TierKind,
    /// Its capacity, everything kept for it counted. Commands that only compare or price tiers need not know it.
    pub capacity: Option<Capacity>,
    /// Where its bytes lie.
    pub place: Option<TierLocation>,
    /// How fast it is. An engine charges it to what is emulated; the memory of other kinds takes the time that it takes, and
    /// this is what it is expected to take.
    pub speed: Speed,
    /// The part of the device's bandwidth that this process is given, above 0 and at most 1.
    pub bandwidth_share: Option<f64>,
    /// Its price.
    pub price: Option<Price>,
    /// The options of a store on flash.
    pub flash: FlashOptions,
    /// Whether what its file or device holds may be overwritten, whatever it is.
    pub reset: bool,
}

impl TierSpec {
    /// A tier with this capacity, named after its kind.
    pub fn new(kind: TierKind, capacity: Bytes) -> Self {
        TierSpec { capacity: Some(Capacity::Bytes(capacity)), ..TierSpec::unsized_of(kind) }
    }

    /// A tier of unknown size, named after its kind.
    pub fn unsized_of(kind: TierKind) -> Self {
        TierSpec {
            name: kind.name().to_owned(),
            kind,
            capacity: None,
            place: None,
            speed: Speed::Usual,
            bandwidth_share: None,
            price: None,
            flash: FlashOptions::default(),
            reset: false,
        }
    }

    /// Under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        TierSpec { name: name.to_owned(), ..self }
    }

    /// With a named curve.
    #[must_use]
    pub fn with_curve(self, curve: &str) -> Self {
        TierSpec { speed: Speed::Curve(curve.to_owned()), ..self }
    }

    /// With another size of a device at the same price for each byte.
    #[must_use]
    pub fn with_bytes(self, bytes: u64) -> Self {
        let known = self.known_bytes();
        let price = self.price.map(|price| price.by_gb(known).unwrap_or(price));
        TierSpec { capacity: Some(Capacity::Bytes(Bytes(bytes))), price, ..self }
    }

    /// On a node.
    #[must_use]
    pub fn on_node(self, node: u32) -> Self {
        TierSpec { place: Some(TierLocation::Node(node)), ..self }
    }

    /// In a file or device.
    #[must_use]
    pub fn at_path(self, path: impl Into<PathBuf>) -> Self {
        TierSpec { place: Some(TierLocation::Path(path.into())), ..self }
    }

    /// An error of one of its keys.
    pub fn error(&self, key: &'static str, problem: impl Into<String>) -> TierError {
        TierError::new(&self.name, key, problem)
    }

    /// Its size in bytes, if it is known and no share of something.
    pub fn known_bytes(&self) -> Option<u64> {
        match self.capacity {
            Some(Capacity::Bytes(bytes)) => Some(bytes.0),
            _ => None,
        }
    }

    /// Its size in bytes.
    ///
    /// # Errors
    /// When there is none, or a percentage, which only a simulator can resolve.
    pub fn bytes(&self) -> Result<u64, TierError> {
        match self.capacity {
            Some(Capacity::Bytes(bytes)) => Ok(bytes.0),
            Some(Capacity::Percent(percent)) => Err(self.error(
                "capacity",
                format!(
                    "{percent}% of a working set is known to simulators alone: give bytes, such as \"2GiB\""
                ),
            )),
            None => Err(self.error("capacity", "is missing: give bytes, such as capacity = \"2GiB\"")),
        }
    }

    /// The node that it lies on.
    ///
    /// # Errors
    /// When none is given.
    pub fn node(&self) -> Result<u32, TierError> {
        match self.place {
            Some(TierLocation::Node(node)) => Ok(node),
            _ => Err(self.error(
                "node",
                "is missing, and a tier of kind numa has a node: node = 1, or --tier numa:1=2GiB",
            )),
        }
    }

    /// The file or device that it lies in.
    ///
    /// # Errors
    /// When none is given.
    pub fn path(&self) -> Result<&Path, TierError> {
        match &self.place {
            Some(TierLocation::Path(path)) => Ok(path),
            _ => {
                let example = if self.kind == TierKind::Dax { "/dev/dax0.0" } else { "/srv/tiermem.flash" };
                let kind = self.kind;
                let problem = format!(
                    "is missing, and a tier of kind {kind} has a path: path = \"{example}\", or --tier {kind}:{example}=8GiB"
                );
                Err(self.error("path", problem))
            }
        }
    }

    /// The device as one core sees it, with its share of the bandwidth.
    ///
    /// # Errors
    /// When there is no curve of that name, or its kind has no usual one.
    pub fn curve(&self) -> Result<Curve, TierError> {
        let named = |name: &str| Curve::named(name).map_err(|problem| self.error("curve", problem));
        let curve = match &self.speed {
            Speed::Curve(name) => named(name)?,
            Speed::Figures { read_latency, write_latency, bandwidth } => {
                Curve::custom(*read_latency, *write_latency, bandwidth.gb_per_s())
            }
            Speed::Usual => match self.kind.usual_curve() {
                Some(name) => named(name)?,
                None => {
                    let problem = format!(
                        "is missing, and nothing is assumed of kind {}: give read_latency, write_latency and bandwidth",
                        self.kind
                    );
                    return Err(self.error("curve", problem));
                }
            },
        };
        Ok(curve.with_bandwidth_share(self.bandwidth_share.unwrap_or(1.0)))
    }

    /// The extra latency of a short read over local memory, in nanoseconds.
    ///
    /// # Errors
    /// Those of [`Self::curve`].
    pub fn slower_ns(&self) -> Result<f64, TierError> {
        Ok(Surcharge::over_dram(self.curve()?.read, LOCAL_DRAM.read).latency_ns)
    }

    /// The price by the gigabyte: as given, or as assumed of its kind.
    ///
    /// # Errors
    /// When nothing is assumed of its kind, or a price for all of it is no price for a gigabyte since its size is unknown.
    pub fn price_by_gb(&self) -> Result<Price, TierError> {
        let Some(price) = self.price.clone().or_else(|| Price::usual(self.kind)) else {
            let problem = format!("is missing, and nothing is assumed of kind {}: give it", self.kind);
            return Err(self.error("price_per_gb", problem));
        };
        price.by_gb(self.known_bytes()).ok_or_else(|| {
            self.error(
                "price_each",
                "is for all of the tier, whose size is unknown: give capacity, or price_per_gb",
            )
        })
    }

    /// Whether an engine serves it: its own word for it, and the kinds that it serves.
    ///
    /// # Errors
    /// When its kind is none of them.
    pub fn served_by(&self, engine: &str, kinds: &[TierKind]) -> Result<(), TierError> {
        if kinds.contains(&self.kind) { Ok(()) } else { Err(self.not_served_by(engine, kinds)) }
    }

    /// The error that an engine, which serves these kinds, does not serve it.
    pub fn not_served_by(&self, engine: &str, kinds: &[TierKind]) -> TierError {
        let problem = format!("{engine} serves tiers of kind {}, and not {} yet", listed(kinds), self.kind);
        self.error("kind", problem)
    }

    /// The tier with `times` times its bytes, where they are known.
    #[must_use]
    pub fn grown(self, times: u64) -> Self {
        match self.known_bytes() {
            Some(bytes) => self.with_bytes(bytes.saturating_mul(times)),
            None => self,
        }
    }

    /// The tier of one of `parts` equal parts, with as much of the device's bandwidth.
    #[must_use]
    pub fn divided(self, parts: u64) -> Self {
        let bandwidth_share = Some(self.bandwidth_share.unwrap_or(1.0) / parts as f64);
        let bandwidth_share = if parts > 1 { bandwidth_share } else { self.bandwidth_share };
        let part = TierSpec { bandwidth_share, ..self };
        match part.known_bytes() {
            Some(bytes) => part.with_bytes(bytes / parts),
            None => part,
        }
    }

    /// Checks what cannot be wrong by its type alone.
    ///
    /// # Errors
    /// When something is of another kind, out of its range, or unknown by its name.
    pub fn check(&self) -> Result<(), TierError> {
        let kind = self.kind;
        match self.capacity {
            Some(Capacity::Bytes(Bytes(0))) => {
                return Err(self.error("capacity", "its capacity is zero: give bytes, such as \"2GiB\""));
            }
            Some(Capacity::Percent(percent)) if !(percent > 0.0 && percent.is_finite()) => {
                return Err(self.error("capacity", format!("{percent}% is not above 0")));
            }
            _ => {}
        }
        match self.place {
            Some(TierLocation::Node(_)) if kind != TierKind::Numa => {
                let problem =
                    format!("a tier of kind numa, and no other, has a node: leave it out of {kind}");
                return Err(self.error("node", problem));
            }
            Some(TierLocation::Path(_)) if !matches!(kind, TierKind::Dax | TierKind::Flash) => {
                let problem = format!("is for tiers of kind dax and flash, not {kind}: leave it out");
                return Err(self.error("path", problem));
            }
            _ => {}
        }
        match &self.speed {
            Speed::Figures { bandwidth: Bandwidth(0), .. } => {
                let problem =
                    "is zero, which nothing can be read with: give bytes a second, such as \"20GB/s\"";
                return Err(self.error("bandwidth", problem));
            }
            Speed::Curve(_) => drop(self.curve()?),
            _ => {}
        }
        if let Some(share) = self.bandwidth_share.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
            return Err(self.error("bandwidth_share", format!("{share} must be above 0 and at most 1")));
        }
        if let Some(price) = &self.price {
            price.check(&self.name)?;
        }
        match self.flash.first_given() {
            Some(key) if kind != TierKind::Flash => {
                Err(self.error(key, format!("is for tiers of kind flash, not {kind}: leave it out")))
            }
            _ => Ok(()),
        }
    }
}

impl FlashOptions {
    /// The first of the keys that are given.
    fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("segment", self.segment.is_some()),
            ("admission", self.admission.is_some()),
            ("durability", self.durability.is_some()),
            ("reserve", self.reserve.is_some()),
            ("endurance", self.endurance.is_some()),
            ("io", self.io.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(key, _)| key)
    }
}
