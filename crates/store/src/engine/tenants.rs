//! Tenants of keys, and the figures of each tenant's demand and share.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use tiermem_model::advisor::{
    Aim, Answer, Declared, Divider, Division, OTHERS, Outcome, Plan, Question, Tally,
};
use tiermem_policy::choose_k::Overheads;
use tiermem_policy::ladder::{Residents, TenantLevel};
use tiermem_policy::shard::{Change, Shard};

use super::owners::{Whose, prefix};
use super::{By, DivisionStats, Owner, TenantAdvice};

/// The tenants that an engine begins with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tenancy {
    /// How tenants of keys are determined.
    pub by: By,
    /// Tenants declared beforehand.
    pub declared: Vec<Declared>,
    /// How memory is divided while the engine runs, if it is.
    pub plan: Plan,
    /// Whether it is, and what can be changed about it.
    pub division: Division,
    /// Owners of key prefixes, where tenants are assigned by owner.
    pub owners: Vec<Owner>,
}

impl Tenancy {
    /// Whether items have tenants.
    pub fn tells_apart(&self) -> bool {
        self.by != By::Nobody || self.division.aim != Aim::Off
    }
}

/// A tenant's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TenantStats {
    /// Its database's number, or its prefix; `(others)` for keys without a tenant.
    pub name: String,
    /// Look-ups.
    pub gets: u64,
    /// Look-ups that found their key.
    pub hits: u64,
    /// Values written.
    pub sets: u64,
    /// Its figures in each tier of memory.
    pub tiers: Vec<TenantTierStats>,
    /// Advice for it, where memory is divided while the engine runs.
    pub advice: Option<Arc<TenantAdvice>>,
}

/// Figures of a tenant in a tier.
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
    /// Live items evicted out of the system from here.
    pub evictions: u64,
    /// Those of the evictions that made room for another tenant although this tenant was not above its share.
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

/// Tenant accounts: the tenant of each key, each tenant's demand, and its share.
/// A [`Divider`] is given the requests, and the shard applies its shares.
#[derive(Debug)]
pub struct TenantAccounts {
    whose: Whose,
    /// What tenants are to have.
    divider: Divider,
    /// By tenant.
    advised: Vec<Option<Arc<TenantAdvice>>>,
    /// The K to choose from, where there are tenants.
    k_candidates: Option<Vec<u8>>,
    /// Unix time in microseconds, in which the cost of misses is measured.
    now_us: u64,
}

impl TenantAccounts {
    pub(super) fn new(tenancy: &Tenancy, divider: Divider) -> Self {
        TenantAccounts {
            whose: Whose::new(tenancy.by),
            divider,
            advised: Vec::new(),
            k_candidates: tenancy.tells_apart().then(|| tenancy.plan.ks.clone()),
            now_us: 0,
        }
    }

    /// Whether owners of what keys begin with are the tenants.
    #[inline]
    pub fn have_owners(&self) -> bool {
        self.whose.by() == By::User
    }

    /// The K to choose from, where there are tenants.
    pub fn k_candidates(&self) -> Option<&[u8]> {
        self.k_candidates.as_deref()
    }

    /// The current division of memory.
    pub fn division(&self) -> Division {
        self.divider.division().clone()
    }

    /// Tells the Unix time in microseconds.
    #[inline]
    pub(super) fn set_clock_us(&mut self, unix_us: u64) {
        self.now_us = unix_us;
    }

    /// Bytes that curves, samples and names take.
    #[inline]
    pub(super) fn metadata_bytes(&self) -> u64 {
        self.divider.metadata_bytes()
    }

    /// The tenant of a key, if it is known.
    #[inline(always)]
    pub(super) fn of(&self, db: u8, key: &[u8]) -> u16 {
        // Mostly tenants are not told apart, and nothing but this is asked for a key.
        match self.whose.by() {
            By::Nobody => OTHERS,
            _ => self.whose.of(self.divider.tenants(), db, key),
        }
    }

    /// The tenant of a client that has chosen a database and logged in: who is charged for what only its replies hold. `None`: the
    /// tenant of what they hold.
    pub fn of_client(&self, db: u8, user: &str) -> Option<u16> {
        match self.whose.by() {
            By::Database => Some(u16::from(db)),
            By::User => self.divider.tenants().number_of(user.as_bytes()),
            By::Nobody | By::Prefix(_) => None,
        }
    }

    /// The tenant that an item of this key will belong to; makes a new tenant if necessary.
    #[inline(always)]
    pub(super) fn enter(&mut self, db: u8, key: &[u8], shard: &mut Shard) -> u16 {
        match self.whose.by() {
            By::Prefix(separator) => self.enter_prefix(separator, key, shard),
            _ => self.of(db, key),
        }
    }

    fn enter_prefix(&mut self, separator: u8, key: &[u8], shard: &mut Shard) -> u16 {
        let Some(name) = prefix(separator, key) else { return OTHERS };
        match self.divider.tenants().number_of(name) {
            Some(tenant) => tenant,
            None => {
                let tenant = self.divider.enter(name, shard.ladder());
                self.apply_settings(shard);
                tenant
            }
        }
    }

    /// Records a look-up, found or not; returns the key's tenant.
    #[inline]
    pub(super) fn looked_up(
        &mut self,
        (db, key, hash): (u8, &[u8], u64),
        outcome: Outcome,
        shard: &mut Shard,
    ) -> u16 {
        let tenant = self.of(db, key);
        if self.divider.looked_up(tenant, hash, outcome, Some(self.now_us * 1000), shard.ladder()) {
            self.apply_settings(shard);
        }
        tenant
    }

    /// Records a write of an item of `bytes`.
    #[inline]
    pub(super) fn wrote(&mut self, tenant: u16, hash: u64, bytes: u64, shard: &Shard) {
        self.divider.wrote(tenant, hash, bytes, Some(self.now_us * 1000), shard.ladder());
    }

    /// A key is gone, and not for want of room.
    #[inline]
    pub(super) fn removed(&mut self, db: u8, key: &[u8], hash: u64) {
        self.divider.removed(self.of(db, key), hash);
    }

    /// All keys are gone.
    pub(super) fn forget(&mut self) {
        self.divider.forget();
    }

    /// Tiers have other capacities now.
    pub(super) fn resized(&mut self, shard: &mut Shard) {
        self.divider.resized(shard.ladder());
        self.apply_settings(shard);
    }

    /// Has the shard do what the divider says, and charge tier 0 with what that keeps.
    #[cold]
    pub(super) fn apply_settings(&mut self, shard: &mut Shard) {
        self.divider.take_settings().for_each(|setting| shard.configure(Change::Tenant(setting)));
        shard.charge(self.divider.metadata_bytes());
    }

    /// Figures of the tenants that were declared, have asked or have something.
    pub(super) fn stats(&self, residents: &Residents) -> Vec<TenantStats> {
        let stats = |(number, (name, tally)): (u16, (&[u8], Tally))| {
            let tiers =
                (0..residents.levels()).map(|tier| TenantTierStats::of(residents.tenant_level(number, tier)));
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

    /// Figures of the division, where there is one.
    pub(super) fn division_stats(&self) -> Option<DivisionStats> {
        self.divider.advisor().map(DivisionStats::of)
    }
}

/// The tenants of an engine, to be changed while it runs.
#[derive(Debug)]
pub struct TenantsMut<'a> {
    pub(super) accounts: &'a mut TenantAccounts,
    pub(super) shard: &'a mut Shard,
}

impl TenantsMut<'_> {
    /// Assigns the keys with these prefixes to other tenants from now on. Items
    /// in memory stay with their present tenant until they are set again.
    pub fn set_owners(&mut self, owners: &[Owner]) {
        if self.accounts.have_owners() {
            let TenantAccounts { whose, divider, .. } = &mut *self.accounts;
            let mut numbered = |it: &Owner| divider.enter(it.name.as_bytes(), self.shard.ladder());
            whose.set_owners(owners.iter().map(|it| (it.prefix.as_bytes(), numbered(it))).collect());
            self.accounts.apply_settings(self.shard);
        }
    }

    /// Sets the cost of choosing a victim on this machine; earlier observations are dropped.
    pub fn set_draw_costs(&mut self, overheads: &Overheads) {
        self.accounts.divider.set_draw_costs(overheads, self.shard.ladder());
        self.accounts.apply_settings(self.shard);
    }

    /// Changes what divides memory; what was declared holds again where memory is no longer divided. It was checked ([`Division::check`]).
    pub fn divide_by(&mut self, division: Division) {
        self.accounts.divider.divide_by(division, self.shard.ladder());
        self.accounts.apply_settings(self.shard);
    }

    /// The question at a window's end, if one has ended. The caller delivers the answer ([`Self::take_answer`]).
    pub fn take_question(&mut self) -> Option<Question> {
        self.accounts.divider.take_question()
    }

    /// Does what an answer says.
    pub fn take_answer(&mut self, answer: Answer) {
        let TenantAccounts { divider, advised, .. } = &mut *self.accounts;
        if !divider.answered(&answer, self.shard.ladder()) {
            return;
        }
        if !answer.parts.is_empty() {
            *advised = vec![None; divider.tenants().count()];
        }
        for part in &answer.parts {
            advised[usize::from(part.tenant)] = Some(Arc::new(TenantAdvice::of(part)));
        }
        self.accounts.apply_settings(self.shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Condition, Engine, EngineConfig, Expiry};
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
        // Of the half that is not declared, the new tenant has a share as if the others were present too.
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
        engine.tenants_mut().set_owners(&[owner("w:", "web"), owner("c:", "crawler")]);
        (0..4000).for_each(|key| set(&mut engine, 0, &format!("w:{key}")));
        (0..40_000).for_each(|key| set(&mut engine, 0, &format!("c:{key}")));
        set(&mut engine, 0, "alone");
        let of = |engine: &Engine, name: &str| {
            engine.stats().tenants.into_iter().find(|one| one.name == name).unwrap_or_default()
        };
        assert_eq!((of(&engine, "web").sets, of(&engine, "web").tiers[0].items), (4000, 4000));
        assert_eq!((of(&engine, "crawler").sets, of(&engine, "(others)").sets), (40_000, 1));
        engine.tenants_mut().set_owners(&[owner("w:1", "heir"), owner("w:", "web")]);
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
