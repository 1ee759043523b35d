//! The memory of a run: DRAM, flash, and memory of another node between them, as they are asked for.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::tier::{Capacity, TierLocation};
use tiermem_base::{Bytes, TierKind, TierSpec};
use tiermem_pager::cost;
use tiermem_pager::machine::{Flash, Limits, POOL_PART_BYTES_MIN};
use tiermem_pager::run::MemoryPool;
use tiermem_pager::steer::Nodes;
use tiermem_sys::affinity;
use tiermem_sys::numa::{self, Topology};

use super::required::Required;
use crate::failure::Failure;
use crate::numa_nodes::fast_and_slow;
use crate::pool::Pool;

const PAGE_BYTES: Bytes = Bytes(4096);

/// The flash of a run, as `[PATH=]SIZE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashSize {
    place: Option<PathBuf>,
    bytes: u64,
}

impl FlashSize {
    /// The flash that it means.
    pub fn limited(self) -> Flash {
        Flash::Limited { bytes: self.bytes, place: self.place }
    }
}

impl FromStr for FlashSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A path may have equals signs; sizes have none.
        let (place, size) = match text.rsplit_once('=') {
            Some(("", _)) => return Err("there is no path before the equals sign".to_owned()),
            Some((place, size)) => (Some(place.into()), size),
            None => (None, text),
        };
        let bytes: Bytes = size.parse().map_err(|error| format!("{error}; write 8GiB, or /var/tmp=8GiB"))?;
        Ok(FlashSize { place, bytes: bytes.0 })
    }
}

fn overcommit(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (1.0..=1000.0).contains(ratio));
    ratio.ok_or_else(|| format!("{text:?} is not a ratio from 1 to 1000, such as 2"))
}

/// The memory that a program is given.
#[derive(Debug, Args)]
pub struct MemoryArgs {
    /// DRAM for the program: all that it is charged, with its file cache.
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["place", "cold", "cpus", "bandwidth"])]
    dram: Option<Bytes>,
    /// Flash for what does not fit: how much, and in which folder or file, or on which swap device [default: swap that is on; without a
    /// path a file in /var/lib/tiermem if none is on].
    #[arg(long, value_name = "[PATH=]SIZE")]
    pub flash: Option<FlashSize>,
    /// The same as --dram and --flash, as other commands have it: dram=2GiB, flash:/var/tmp=8GiB; between them numa=SIZE with --pool tiers.
    #[arg(long, value_name = "KIND=SIZE", conflicts_with_all = ["dram", "flash", "place"])]
    tier: Vec<TierSpec>,
    /// Have local DRAM and memory of another node under the program, as a hybrid pool: LOCAL:REMOTE, such as 50:50, divides DRAM; tiers takes
    /// --tier dram=SIZE and numa=SIZE or numa:NODE=SIZE as they are given.
    #[arg(long, value_name = "PARTS")]
    pub pool: Option<Pool>,
    /// DRAM by the overcommit ratio: --required over R.
    #[arg(long, value_name = "R", value_parser = overcommit, requires = "required", conflicts_with_all = ["dram", "tier", "place"])]
    overcommit: Option<f64>,
    /// Memory that the program needs: as required_bytes of a report at R = 1 tells it, or the most that it had in memory (RSS) in a recording
    /// of `tiermem record`.
    #[arg(long, value_name = "SIZE|REC", requires = "overcommit")]
    required: Option<Required>,
}

impl MemoryArgs {
    /// Whether the program is to have less DRAM.
    pub fn is_asked(&self) -> bool {
        self.dram.is_some() || self.overcommit.is_some() || !self.tier.is_empty()
    }

    /// The limits, and the pool if there is one.
    pub fn limits(&self) -> Result<(Limits, Option<MemoryPool>), Failure> {
        let Tiers { dram_bytes, remote, flash } = self.tiers()?;
        let remote_bytes = remote.map_or(0, |remote| remote.bytes);
        let limits = Limits {
            dram_bytes: dram_bytes.saturating_add(remote_bytes),
            flash: flash.map_or(Flash::AlreadyOn, FlashSize::limited),
        };
        let pool = remote.map(|remote| pool(dram_bytes, remote)).transpose()?;
        Ok((limits, pool))
    }

    fn tiers(&self) -> Result<Tiers, Failure> {
        let specs = match self.tier.is_empty() {
            false => self.tier.clone(),
            true => vec![TierSpec::new(TierKind::Dram, Bytes(self.dram_bytes()?))],
        };
        let specs = match self.pool {
            Some(pool) => pool.divide(specs, PAGE_BYTES, 0)?,
            None => specs,
        };
        let mut tiers = tiers(&specs, self.pool.is_some())?;
        tiers.flash = tiers.flash.or_else(|| self.flash.clone());
        Ok(tiers)
    }

    fn dram_bytes(&self) -> Result<u64, Failure> {
        let by_ratio = self.overcommit.zip(self.required.as_ref());
        let by_ratio = by_ratio.map(|(ratio, required)| Ok(cost::dram_bytes(required.bytes()?, ratio)));
        let dram_bytes = self.dram.map(|bytes| bytes.0).or(by_ratio.transpose()?);
        dram_bytes.ok_or_else(|| Failure::usage(anyhow!("how much DRAM? --dram 2GiB")))
    }
}

/// What a program is given, fastest first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tiers {
    dram_bytes: u64,
    remote: Option<Remote>,
    flash: Option<FlashSize>,
}

/// Memory of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Remote {
    /// `None`: the nearest other one.
    node: Option<u32>,
    bytes: u64,
}

/// Tiers that were given as such.
fn tiers(specs: &[TierSpec], is_pool: bool) -> Result<Tiers, Failure> {
    let bytes = |spec: &TierSpec| match spec.capacity {
        Some(Capacity::Bytes(Bytes(bytes))) => Ok(bytes),
        _ => Err(Failure::usage(spec.error("capacity", "is bytes here, such as 2GiB"))),
    };
    let (mut rest, mut tiers) = (specs, Tiers { dram_bytes: 0, remote: None, flash: None });
    let takes = |kind, rest: &mut &[TierSpec]| {
        let (first, others) = rest.split_first().filter(|(first, _)| first.kind == kind)?;
        *rest = others;
        Some(first.clone())
    };
    if let Some(dram) = takes(TierKind::Dram, &mut rest) {
        tiers.dram_bytes = bytes(&dram)?;
    }
    if let Some(numa) = takes(TierKind::Numa, &mut rest) {
        let node = match numa.place {
            Some(TierLocation::Node(node)) => Some(node),
            _ => None,
        };
        tiers.remote = Some(Remote { node, bytes: bytes(&numa)? });
    }
    if let Some(flash) = takes(TierKind::Flash, &mut rest) {
        let place = match &flash.place {
            Some(TierLocation::Path(path)) => Some(path.clone()),
            _ => None,
        };
        tiers.flash = Some(FlashSize { place, bytes: bytes(&flash)? });
    }
    match tiers {
        _ if !rest.is_empty() => Err(Failure::usage(anyhow!(
            "the tiers of a program are dram=SIZE, with --pool tiers numa=SIZE or numa:NODE=SIZE, then flash=SIZE or flash:PATH=SIZE"
        ))),
        Tiers { remote: Some(_), .. } if !is_pool => Err(Failure::usage(anyhow!(
            "memory of another node takes --pool tiers: with it the program has a hybrid pool, as docs/pager.md explains"
        ))),
        Tiers { remote: None, .. } if is_pool => Err(Failure::usage(anyhow!(
            "a pool has memory of two nodes: --pool 50:50, or --pool tiers with --tier dram=1GiB and --tier numa=1GiB"
        ))),
        Tiers { dram_bytes: 0, .. } => Err(Failure::usage(anyhow!(
            "a program needs DRAM: give dram=SIZE, or --pool LOCAL:REMOTE with some local memory"
        ))),
        tiers => Ok(tiers),
    }
}

/// A pool on this machine.
fn pool(local_bytes: u64, remote: Remote) -> Result<MemoryPool, Failure> {
    if local_bytes.min(remote.bytes) < POOL_PART_BYTES_MIN {
        let least = Bytes(POOL_PART_BYTES_MIN);
        return Err(Failure::usage(anyhow!(
            "each node of a pool gives at least {least}; give more DRAM, or other parts"
        )));
    }
    // The node on whose processors this process may run; a machine may have processors on a node without memory.
    let topology = Topology::read();
    let own =
        affinity::thread_cores().unwrap_or_default().first().and_then(|core| topology.node_of_cpu(*core));
    let own = own.filter(|node| topology.with_memory().contains(node));
    let Some([local, other]) = fast_and_slow(own, remote.node)? else {
        return Err(Failure::failed(anyhow!(
            "a pool takes two nodes with memory, and this machine has one; `tiermem sim frames --pool` simulates it"
        )));
    };
    for (node, asked) in [(local, local_bytes), (other, remote.bytes)] {
        let has = numa::nodes().into_iter().find(|it| it.number == node).map_or(0, |it| it.bytes);
        if has < asked {
            return Err(Failure::failed(anyhow!(
                "node {node} has {} of memory, and {} are asked of it; give less DRAM, or other parts",
                Bytes(has),
                Bytes(asked)
            )));
        }
    }
    Ok(MemoryPool { local_bytes, nodes: Nodes { local, remote: other } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str], is_pool: bool) -> Result<Tiers, Failure> {
        let specs: Vec<TierSpec> = texts.iter().map(|text| text.parse().unwrap()).collect();
        tiers(&specs, is_pool)
    }

    #[test]
    fn flash_has_a_size_and_perhaps_a_place() {
        let flash = |text: &str| text.parse::<FlashSize>();
        assert_eq!(flash("8GiB"), Ok(FlashSize { place: None, bytes: 8 << 30 }));
        assert_eq!(flash("/a=b=8GiB"), Ok(FlashSize { place: Some("/a=b".into()), bytes: 8 << 30 }));
        assert!(flash("=8GiB").unwrap_err().contains("no path"));
        assert!(flash("/var/tmp").unwrap_err().contains("/var/tmp=8GiB"));
    }

    #[test]
    fn tiers_are_dram_memory_of_another_node_and_flash() {
        let flash = Some(FlashSize { place: Some("/x".into()), bytes: 2 << 30 });
        let plain = of(&["dram=1GiB", "flash:/x=2GiB"], false).unwrap();
        assert_eq!(plain, Tiers { dram_bytes: 1 << 30, remote: None, flash: flash.clone() });
        let pool = of(&["dram=1GiB", "numa:3=1MiB", "flash:/x=2GiB"], true).unwrap();
        assert_eq!(pool.remote, Some(Remote { node: Some(3), bytes: 1 << 20 }));
        assert_eq!(of(&["dram=1GiB", "numa=1MiB"], true).unwrap().flash, None);
        for wrong in [
            &["flash=1GiB"][..],
            &["dram=1GiB", "dram=1GiB"],
            &["dram=50%"],
            &["numa=1GiB", "flash=1GiB"],
            &["dram=1GiB", "flash=1GiB", "numa=1GiB"],
            &["dram=1GiB", "flash=1GiB"],
        ] {
            assert!(of(wrong, true).is_err(), "{wrong:?}");
        }
        assert!(of(&["dram=1GiB", "numa=1GiB"], false).is_err());
    }

    #[test]
    fn both_nodes_of_a_pool_have_memory_that_there_is() {
        let remote = |bytes| Remote { node: None, bytes };
        assert!(pool(1 << 20, remote(1 << 30)).is_err() && pool(1 << 30, remote(1 << 20)).is_err());
        assert!(pool(1 << 60, remote(1 << 30)).is_err(), "no machine has so much");
    }
}
