//! Statistics of the engine. All counters only grow, except those of current contents.

use crate::tiers::pages_bytes;
use serde::Serialize;
use tiermem_base::TierSpec;

use super::contents::Contents;
use super::tier_stats::TierStats;

/// All figures of one shard.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EngineStats {
    /// Tiers, fastest first.
    pub tiers: Vec<TierStats>,
    /// Look-ups.
    pub gets: u64,
    /// Look-ups that found their key.
    pub hits: u64,
    /// Values written.
    pub sets: u64,
    /// Items removed because their time was over.
    pub expired: u64,
    /// Items evicted to make room, over all tiers.
    pub evicted: u64,
    /// Moves given up because their item changed on the way.
    pub moves_aborted: u64,
    /// Writes refused for lack of room.
    pub refused: u64,
    /// Items dropped because a part of their tier was lost.
    pub lost: u64,
    /// Bytes that tiers have less than they were given, as their files cannot hold them.
    pub missing_bytes: u64,
    /// Keys held now.
    pub keys: u64,
    /// Keys with an expiry held now.
    pub keys_with_expiry: u64,
    /// Bytes of index, nodes, slot tables and expiry lists.
    pub metadata_bytes: u64,
    /// Bytes of places pinned by replies under way.
    pub pinned_bytes: u64,
    /// The flash tier's own figures, if there is one.
    pub flash: Option<super::FlashFigures>,
    /// Tenants, where there are any.
    pub tenants: Vec<super::TenantStats>,
    /// How memory is divided among them, where it is while the engine runs.
    pub division: Option<super::DivisionStats>,
}

impl EngineStats {
    /// Adds another shard's figures. All shards have the same tiers; figures that hold none yet take the other's.
    pub fn add(&mut self, other: &EngineStats) {
        let EngineStats {
            tiers,
            gets,
            hits,
            sets,
            expired,
            evicted,
            moves_aborted,
            refused,
            lost,
            missing_bytes,
            keys,
            keys_with_expiry,
            metadata_bytes,
            pinned_bytes,
            flash,
            tenants,
            division,
        } = other;
        if self.tiers.is_empty() {
            self.tiers.clone_from(tiers);
        } else {
            self.tiers.iter_mut().zip(tiers).for_each(|(sum, tier)| sum.add(tier));
        }
        super::TenantStats::add_all(&mut self.tenants, tenants);
        match (&mut self.division, division) {
            (Some(sum), Some(division)) => sum.add(division),
            (None, Some(division)) => self.division = Some(division.clone()),
            (_, None) => {}
        }
        self.gets += gets;
        self.hits += hits;
        self.sets += sets;
        self.expired += expired;
        self.evicted += evicted;
        self.moves_aborted += moves_aborted;
        self.refused += refused;
        self.lost += lost;
        self.missing_bytes += missing_bytes;
        self.keys += keys;
        self.keys_with_expiry += keys_with_expiry;
        self.metadata_bytes += metadata_bytes;
        self.pinned_bytes += pinned_bytes;
        match (&mut self.flash, flash) {
            (Some(sum), Some(flash)) => sum.add(flash),
            (None, Some(flash)) => self.flash = Some(flash.clone()),
            (_, None) => {}
        }
    }
}

impl Contents {
    /// All figures; `specs` are the tiers as they were configured.
    pub fn stats(&self, specs: &[TierSpec]) -> EngineStats {
        let sunk = |at| self.shard.log().map_or(0, |log| log.sunk(at));
        let tier = |(at, spec): (usize, &TierSpec)| {
            let level = self.shard.ladder().residents().level(at).counters();
            TierStats {
                name: spec.name.clone(),
                kind: spec.kind.name().to_owned(),
                capacity_bytes: spec.known_bytes().unwrap_or(0) - pages_bytes(spec)
                    + self.shard.ladder().config().levels[at].capacity_bytes,
                used_bytes: self.shard.ladder().charged_bytes(at),
                item_bytes: self.shard.memory().item_bytes(at),
                items: level.items,
                hits: level.hits,
                promotions: level.promotions,
                demotions: level.demotions + sunk(at),
                evictions: level.evictions - sunk(at),
                charged_ns: self.items.tiers.charged_ns(at) as u64,
            }
        };
        let mut tiers: Vec<_> = specs.iter().enumerate().map(tier).collect();
        let flash = self.items.flash.as_ref();
        tiers.extend(flash.and_then(|flash| self.flash.tier_stats(flash, &self.shard)));
        let counters = self.shard.ladder().transit().counters();
        EngineStats {
            gets: self.counters.gets,
            hits: self.counters.hits,
            sets: self.counters.sets,
            expired: counters.expired + self.counters.expired,
            evicted: tiers.iter().map(|tier| tier.evictions).sum(),
            moves_aborted: counters.moves_aborted,
            refused: self.counters.refused,
            lost: self.losses.items,
            missing_bytes: self.losses.missing_bytes(),
            keys: self.keys.sum(),
            keys_with_expiry: self.shard.ladder().residents().nodes().items_with_expiry(),
            metadata_bytes: self.shard.ladder().metadata_bytes(),
            pinned_bytes: self.pins.bytes(),
            flash: flash.and_then(|flash| self.flash.figures(flash, &self.shard)),
            tenants: self.tenants.stats(self.shard.ladder().residents()),
            division: self.tenants.division_stats(),
            tiers,
        }
    }
}
