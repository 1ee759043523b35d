//! How keys are told apart by their tenants, and the figures of what each asks for and has.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use tiermem_model::advisor::{Aim, Declared, Division, Plan, Tally};
use tiermem_policy::ladder::TenantLevel;

use super::{By, Engine, Owner, TenantAdvice};

/// The tenants that an engine begins with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tenancy {
    /// How keys are told apart.
    pub by: By,
    /// What is known beforehand.
    pub declared: Vec<Declared>,
    /// How memory is divided while the engine runs, if it is.
    pub plan: Plan,
    /// Whether it is, and what can be changed about it.
    pub division: Division,
    /// Who owns what keys begin with, where that tells them apart.
    pub owners: Vec<Owner>,
}

impl Tenancy {
    /// Whether items are told apart by their tenants.
    pub fn tells_apart(&self) -> bool {
        self.by != By::Nobody || self.division.aim != Aim::Off
    }
}

/// A tenant's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TenantStats {
    /// Its database's number, or its prefix; of those who have none `(others)`.
    pub name: String,
    /// Look-ups.
    pub gets: u64,
    /// Look-ups that found their key.
    pub hits: u64,
    /// Values written.
    pub sets: u64,
    /// What it has in each tier of memory.
    pub tiers: Vec<TenantTierStats>,
    /// What is advised for it, where memory is divided while the engine runs.
    pub advice: Option<Arc<TenantAdvice>>,
}

/// What a tenant has in a tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TenantTierStats {
    /// Items held now.
    pub items: u64,
    /// Bytes of their places.
    pub bytes: u64,
    /// Its share of the tier; where none was declared, an equal part of what is left.
    pub share_bytes: u64,
    /// Its K; 0: the tier's own.
    pub k: u8,
    /// Live items thrown out of the system from here.
    pub evictions: u64,
    /// Of these, those that went for another tenant although this one was not above its part.
    pub trespasses: u64,
}

impl TenantTierStats {
    fn of(level: TenantLevel) -> Self {
        let TenantLevel { items, bytes, share_bytes, k, counters } = level;
        let (evictions, trespasses) = (counters.evictions, counters.trespasses);
        TenantTierStats { items, bytes, share_bytes, k, evictions, trespasses }
    }

    fn add(&mut self, other: &TenantTierStats) {
        let TenantTierStats { items, bytes, share_bytes, k, evictions, trespasses } = other;
        self.items += items;
        self.bytes += bytes;
        self.share_bytes += share_bytes;
        self.k = self.k.max(*k);
        self.evictions += evictions;
        self.trespasses += trespasses;
    }
}

impl TenantStats {
    /// Adds the same tenant's figures in another shard.
    fn add(&mut self, other: &TenantStats) {
        let TenantStats { name: _, gets, hits, sets, tiers, advice } = other;
        self.advice = match (&self.advice, advice) {
            (Some(own), Some(other)) => Some(Arc::new(own.and(other))),
            (own, other) => own.clone().or_else(|| other.clone()),
        };
        self.gets += gets;
        self.hits += hits;
        self.sets += sets;
        self.tiers.iter_mut().zip(tiers).for_each(|(sum, tier)| sum.add(tier));
    }

    /// Adds another shard's tenants.
    pub(super) fn add_all(sum: &mut Vec<TenantStats>, others: &[TenantStats]) {
        let places: HashMap<&str, usize> = sum.iter().map(|one| one.name.as_str()).zip(0..).collect();
        let found: Vec<Option<usize>> =
            others.iter().map(|other| places.get(&*other.name).copied()).collect();
        for (other, place) in others.iter().zip(found) {
            match place {
                Some(place) => sum[place].add(other),
                None => sum.push(other.clone()),
            }
        }
    }
}

impl Engine {
    /// Figures of the tenants that were declared, have asked or have something.
    pub(super) fn tenant_stats(&self) -> Vec<TenantStats> {
        let stats = |(number, (name, tally)): (u16, (&[u8], Tally))| {
            let tiers = (0..self.shard.ladder().residents().levels())
                .map(|tier| TenantTierStats::of(self.shard.ladder().residents().tenant_level(number, tier)));
            let stats = TenantStats {
                name: String::from_utf8_lossy(name).into_owned(),
                gets: tally.lookups,
                hits: tally.hits,
                sets: tally.writes,
                tiers: tiers.collect(),
                advice: self.advised.get(usize::from(number)).cloned().flatten(),
            };
            let is_there = stats.gets + stats.sets > 0 || stats.tiers.iter().any(|tier| tier.items > 0);
            (is_there || self.divider.tenants().has_declared_share(number)).then_some(stats)
        };
        (0..).zip(self.divider.tenants().tallies()).filter_map(stats).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Condition, EngineConfig, Expiry};
    use tiermem_base::{Bytes, TierKind, TierSpec};
    use tiermem_policy::ladder::TENANTS_MAX;

    fn engine(by: By, declared: &[(&str, f64)]) -> Engine {
        let dram = TierSpec::new(TierKind::Dram, Bytes(8 << 20));
        let declared = declared
            .iter()
            .map(|&(name, share)| Declared { name: name.to_owned(), share: Some(share), k: 0 })
            .collect();
        let tenancy = Tenancy { by, declared, ..Tenancy::default() };
        Engine::new(EngineConfig { spin: false, tenancy, ..EngineConfig::new(vec![dram]) }).unwrap()
    }

    fn set(engine: &mut Engine, db: u8, key: &str) {
        engine.set(db, key.as_bytes(), &[7; 500], Condition::Always, Expiry::Never).unwrap();
    }

    #[test]
    fn prefixes_are_tenants_and_a_flood_of_one_leaves_the_other_alone() {
        let mut engine = engine(By::Prefix(b':'), &[("web", 0.5)]);
        (0..4000).for_each(|key| set(&mut engine, 0, &format!("web:{key}")));
        (0..40_000).for_each(|key| set(&mut engine, 0, &format!("crawler:{key}")));
        set(&mut engine, 0, "alone");
        let found = (0..4000).filter(|key| engine.get(0, format!("web:{key}").as_bytes()).is_some()).count();
        assert_eq!(found, 4000);
        let stats = engine.stats().tenants;
        let of = |name: &str| stats.iter().find(|one| one.name == name).unwrap().clone();
        assert_eq!((of("web").gets, of("web").hits, of("web").sets), (4000, 4000, 4000));
        assert_eq!((of("crawler").sets, of("(others)").sets), (40_000, 1));
        assert_eq!(of("web").tiers[0].items, 4000);
        assert!(of("crawler").tiers[0].evictions > 20_000);
        assert_eq!(of("web").tiers[0].evictions, 0);
    }

    #[test]
    fn who_fills_an_empty_store_gives_up_what_is_others() {
        let mut engine = engine(By::Prefix(b':'), &[("web", 0.5)]);
        (0..40_000).for_each(|key| set(&mut engine, 0, &format!("web:{key}")));
        (0..40_000).for_each(|key| set(&mut engine, 0, &format!("new:{key}")));
        let stats = engine.stats().tenants;
        let bytes = |name: &str| stats.iter().find(|one| one.name == name).unwrap().tiers[0].bytes as f64;
        // Of the half that nobody has declared the new one has a part as if the others' were there as well.
        let part = bytes("new") / (bytes("web") + bytes("new"));
        assert!((0.3..0.36).contains(&part), "{part}");
    }

    #[test]
    fn asking_makes_nobody_a_tenant() {
        let mut engine = engine(By::Prefix(b':'), &[]);
        (0..5000).for_each(|key| assert!(engine.get(0, format!("t{key}:k").as_bytes()).is_none()));
        set(&mut engine, 0, "late:1");
        assert!(engine.stats().tenants.iter().any(|one| one.name == "late"));
    }

    #[test]
    fn owners_are_tenants_and_items_go_over_when_they_are_set() {
        let owner = |prefix: &str, name: &str| Owner { prefix: prefix.to_owned(), name: name.to_owned() };
        let mut engine = engine(By::User, &[("web", 0.5)]);
        engine.set_owners(&[owner("w:", "web"), owner("c:", "crawler")]);
        (0..4000).for_each(|key| set(&mut engine, 0, &format!("w:{key}")));
        (0..40_000).for_each(|key| set(&mut engine, 0, &format!("c:{key}")));
        set(&mut engine, 0, "alone");
        let of = |engine: &Engine, name: &str| {
            engine.stats().tenants.into_iter().find(|one| one.name == name).unwrap_or_default()
        };
        assert_eq!((of(&engine, "web").sets, of(&engine, "web").tiers[0].items), (4000, 4000));
        assert_eq!((of(&engine, "crawler").sets, of(&engine, "(others)").sets), (40_000, 1));
        engine.set_owners(&[owner("w:1", "heir"), owner("w:", "web")]);
        set(&mut engine, 0, "w:1");
        assert_eq!((of(&engine, "heir").sets, of(&engine, "heir").tiers[0].items), (1, 1));
        assert_eq!(of(&engine, "web").tiers[0].items, 3999);
        set(&mut engine, 0, "c:late");
        assert_eq!(of(&engine, "(others)").sets, 2);
    }

    #[test]
    fn databases_are_tenants() {
        let mut engine = engine(By::Database, &[("3", 0.6)]);
        (0..5000).for_each(|key| set(&mut engine, 3, &format!("k{key}")));
        (0..40_000).for_each(|key| set(&mut engine, 4, &format!("k{key}")));
        let stats = engine.stats().tenants;
        assert_eq!(stats.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["3", "4"]);
        assert_eq!(stats[0].tiers[0].items, 5000);
    }

    #[test]
    fn more_tenants_than_can_be_told_apart_are_others() {
        let mut engine = engine(By::Prefix(b':'), &[]);
        (0..TENANTS_MAX + 100).for_each(|tenant| set(&mut engine, 0, &format!("t{tenant}:k")));
        let stats = engine.stats().tenants;
        assert_eq!(stats.len(), TENANTS_MAX);
        assert_eq!(stats[0].sets, 101, "the first is the others'");
    }

    #[test]
    fn nobody_is_told_apart_unless_asked_for() {
        let mut engine = engine(By::Nobody, &[]);
        set(&mut engine, 0, "web:1");
        assert_eq!(engine.stats().tenants, []);
    }
}
