//! Whose a key is, and what each tenant asks for and has.
//!
//! Databases and prefixes say it of every key by itself, so that nothing has to be kept for an item that comes back from flash or
//! from a snapshot. Numbers are given on first use and are a shard's own; names are the same everywhere.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use tiermem_model::advisor::{Plan, Standing, tiers};
use tiermem_model::partition::{TenantTerms, Terms};
use tiermem_policy::ladder::{Part, TENANTS_MAX, TenantLevel};

use super::owners::{Owner, Owners};
use super::{Aim, DATABASES, Division, Engine, TenantAdvice};

/// Bytes of a key in which its prefix must end.
pub const PREFIX_BYTES_MAX: usize = 64;
/// Whose the keys without a prefix are, and those of tenants beyond the most.
const OTHERS: u16 = 0;

/// How keys are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Not at all.
    #[default]
    Nobody,
    /// By the number of their database.
    Database,
    /// By what stands before the first of this byte in the key, within its first 64.
    Prefix(u8),
    /// By who owns what the key begins with.
    User,
}

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

/// A tenant of whom something is known beforehand.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Its database's number, or its prefix.
    pub name: String,
    /// Its part of every tier, from 0 to 1; [`None`]: an equal part of what is left.
    pub share: Option<f64>,
    /// Its K; 0: the tiers' own.
    pub k: u8,
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

fn prefix(separator: u8, key: &[u8]) -> Option<&[u8]> {
    let head = &key[..key.len().min(PREFIX_BYTES_MAX)];
    head.iter().position(|&byte| byte == separator).map(|end| &key[..end])
}

/// What a tenant has asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    gets: u64,
    hits: u64,
    sets: u64,
}

/// The tenants of an engine.
#[derive(Debug)]
pub(super) struct Tenants {
    by: By,
    /// By number.
    names: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, u16>,
    asked: Vec<Asked>,
    /// Of the declared ones that have a share.
    parts: Vec<Part>,
    /// By number: the K that was declared.
    ks: HashMap<u16, u8>,
    /// By number: terms, and what a miss costs where that is declared.
    promised: HashMap<u16, (Terms, Option<f64>)>,
    owners: Owners,
}

impl Tenants {
    pub fn new(tenancy: &Tenancy) -> Self {
        let (names, asked, parts) = (Vec::new(), Vec::new(), Vec::new());
        let (numbers, promised, ks) = (HashMap::new(), HashMap::new(), HashMap::new());
        let owners = Owners::default();
        let mut tenants = Tenants { by: tenancy.by, names, numbers, asked, parts, ks, promised, owners };
        match tenancy.by {
            By::Nobody if !tenancy.tells_apart() => {}
            By::Nobody => {
                tenants.number(b"(all)");
            }
            By::Database => {
                (0..DATABASES).for_each(|db| _ = tenants.number(db.to_string().as_bytes()));
            }
            By::Prefix(_) | By::User => {
                tenants.number(b"(others)");
            }
        }
        for &Declared { ref name, share, k } in &tenancy.declared {
            let tenant = tenants.number(name.as_bytes());
            if let Some(share) = share {
                tenants.parts.push(Part { tenant, share, k });
            }
            if k > 0 {
                tenants.ks.insert(tenant, k);
            }
        }
        tenants.set_owners(&tenancy.owners);
        tenants
    }

    /// The number of a name, a new one if there is room for it.
    fn number(&mut self, name: &[u8]) -> u16 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        if self.names.len() >= TENANTS_MAX {
            return OTHERS;
        }
        let number = self.names.len() as u16;
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        self.asked.push(Asked::default());
        number
    }

    fn set_owners(&mut self, owners: &[Owner]) {
        self.owners = Owners::new(
            owners.iter().map(|it| (it.prefix.as_bytes(), self.number(it.name.as_bytes()))).collect(),
        );
    }

    /// Whose a key is, as far as that is known: nobody becomes a tenant by asking.
    #[inline]
    pub fn of(&self, db: u8, key: &[u8]) -> u16 {
        match self.by {
            By::Nobody => OTHERS,
            By::Database => u16::from(db),
            By::User => self.owners.of(key).unwrap_or(OTHERS),
            By::Prefix(separator) => {
                prefix(separator, key).and_then(|name| self.numbers.get(name)).copied().unwrap_or(OTHERS)
            }
        }
    }

    /// Counts a look-up; whose it is.
    #[inline]
    pub fn note_get(&mut self, db: u8, key: &[u8], found: bool) -> u16 {
        let tenant = self.of(db, key);
        if let Some(asked) = self.asked.get_mut(usize::from(tenant)) {
            asked.gets += 1;
            asked.hits += u64::from(found);
        }
        tenant
    }

    /// A look-up that counted as a miss has found its key after all.
    pub fn note_found(&mut self, db: u8, key: &[u8]) {
        let tenant = self.of(db, key);
        if let Some(asked) = self.asked.get_mut(usize::from(tenant)) {
            asked.hits += 1;
        }
    }

    /// Every tenant with what it has asked for, and what it has by `held_bytes`.
    pub fn standings(&self, held_bytes: impl Fn(u16) -> Vec<u64>) -> Vec<Standing> {
        let standing = |(&Asked { gets, hits, sets }, tenant): (&Asked, u16)| {
            let (terms, miss_ns) = self.promised.get(&tenant).copied().unwrap_or_default();
            let held_bytes = held_bytes(tenant);
            Standing { tenant, lookups: gets, hits, writes: sets, held_bytes, terms, miss_ns }
        };
        let is_there = |standing: &Standing| {
            let held_bytes: u64 = standing.held_bytes.iter().sum();
            standing.lookups + standing.writes + held_bytes + standing.terms.least_bytes > 0
        };
        self.asked.iter().zip(0..).map(standing).filter(is_there).collect()
    }

    /// From now on tenants are promised this.
    pub fn promise(&mut self, terms: &[TenantTerms]) {
        self.promised.clear();
        for one in terms {
            let tenant = self.number(one.name.as_bytes());
            self.promised.insert(tenant, (one.terms, one.miss.map(|miss| miss.0 as f64)));
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Its K, where that was declared.
    pub fn declared_k(&self, tenant: u16) -> Option<u8> {
        self.ks.get(&tenant).copied()
    }

    /// Bytes of names and counters.
    pub fn bytes(&self) -> u64 {
        let names: usize = self.names.iter().map(|name| 2 * name.len()).sum();
        let entry = 2 * size_of::<Box<[u8]>>() + size_of::<(u16, Asked)>();
        (names + self.names.capacity() * entry) as u64
    }

    /// Counts a write, whatever becomes of it.
    #[inline]
    pub fn note_set(&mut self, tenant: u16) {
        if let Some(asked) = self.asked.get_mut(usize::from(tenant)) {
            asked.sets += 1;
        }
    }
}

impl Engine {
    /// Whose an item of this key will be; a new tenant's if need be.
    #[inline]
    pub(super) fn tenant_for(&mut self, db: u8, key: &[u8]) -> u16 {
        let By::Prefix(separator) = self.tenants.by else { return self.tenants.of(db, key) };
        let Some(name) = prefix(separator, key) else { return OTHERS };
        let before = self.tenants.names.len();
        let tenant = self.tenants.number(name);
        if self.tenants.names.len() > before {
            self.share_rest();
            self.charge_tenants();
        }
        tenant
    }

    /// Whether owners of what keys begin with are the tenants.
    #[inline]
    pub fn has_owners(&self) -> bool {
        self.tenants.by == By::User
    }

    /// Has the keys that begin so belong to other tenants from now on. Items that are there stay with whom they belong to until
    /// they are set again.
    pub fn set_owners(&mut self, owners: &[Owner]) {
        if self.has_owners() {
            self.tenants.set_owners(owners);
            self.share_rest();
        }
    }

    /// The tenants of whom nothing is declared share what is left.
    pub(super) fn share_rest(&mut self) {
        if self.advice.as_ref().is_some_and(|advice| advice.is_in_force()) {
            tiers::share_with_newcomers(&mut self.ladder, self.tenants.count());
            return;
        }
        let others = self.tenants.names.len() - self.tenants.parts.len();
        self.ladder.share_rest(&self.tenants.parts, others);
    }

    /// Gives all tenants their parts of the tiers as large as these are now.
    pub(super) fn share_out(&mut self) {
        if self.advice.as_ref().is_some_and(|advice| advice.is_in_force()) {
            // What counts is one share beside another: tiers that change their size change none of them.
            return;
        }
        let others = self.tenants.names.len() - self.tenants.parts.len();
        self.ladder.share_out(&self.tenants.parts, others);
        self.set_declared_ks();
    }

    /// Gives tenants the K that was declared for them.
    pub(super) fn set_declared_ks(&mut self) {
        for tier in 0..self.ladder.levels() {
            self.tenants.ks.iter().for_each(|(&tenant, &k)| self.ladder.set_k(tenant, tier, k));
        }
    }

    /// Figures of the tenants that were declared, have asked or have something.
    pub(super) fn tenant_stats(&self) -> Vec<TenantStats> {
        let tenants = self.tenants.names.iter().zip(&self.tenants.asked).zip(0u16..);
        let is_declared = |number| self.tenants.parts.iter().any(|part| part.tenant == number);
        let is_there = |stats: &TenantStats| {
            stats.gets + stats.sets > 0 || stats.tiers.iter().any(|tier| tier.items > 0)
        };
        let stats = tenants.map(|((name, asked), number)| {
            (
                number,
                TenantStats {
                    name: String::from_utf8_lossy(name).into_owned(),
                    gets: asked.gets,
                    hits: asked.hits,
                    sets: asked.sets,
                    tiers: (0..self.ladder.levels())
                        .map(|tier| TenantTierStats::of(self.ladder.tenant_level(number, tier)))
                        .collect(),
                    advice: self.advice.as_ref().and_then(|advice| advice.tenant(number)),
                },
            )
        });
        stats
            .filter(|(number, stats)| is_declared(*number) || is_there(stats))
            .map(|(_, stats)| stats)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Condition, EngineConfig, Expiry};
    use tiermem_base::{Bytes, TierKind, TierSpec};

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
