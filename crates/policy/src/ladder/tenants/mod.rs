//! Tenants: every tenant is a sampling domain of its own in every tier (Wang 2024, sections 4.1.3 and 5.1.5).
//!
//! A tenant and a tier have a list of member items, so that drawing K keys of one tenant costs the same with one tenant or with
//! thousands: nothing is filtered by tenant. It takes ten bytes an item (its tenant, its position in the tenant's list, the list
//! itself) instead of the eight bytes of links that sampling saves.
//!
//! Each tenant has a *share* of each tier. Shares are relative to the memory that items have, whatever it comes to. When a slot
//! is wanted the fullest tenant gives, that is the one with most bytes relative to its share; so no tenant at or below its part
//! of all bytes loses an item to another. Memory that some leave unused, others may use meanwhile.
//!
//! Pages belong to classes and not to tenants. Where the fullest tenant has nothing of the class that is wanted, the next ones
//! above their part are asked, then the tenant that wants the slot; only if none of them has an item of the class is a page taken
//! from another class. Live items on it move to slots that the fullest tenant gives up for them. The little that is left (a page
//! with some tenant's only items of their class) is evicted all the same, and is counted ([`TenantCounters::trespasses`]).

mod entry;
mod fullest;
mod members;
mod quotas;
mod reuse;

use super::Class;
use super::tier_order::{AgeQuantile, Draw, First};
use crate::Id;
use crate::column::Column;
use crate::deferred_free::DeferredFree;
use entry::Entry;
use fullest::Fullest;
use members::Members;
pub use quotas::Setting;
use reuse::{Coldest, Reuse};
use tiermem_base::Rng;

/// Tenants that a ladder tells apart.
pub const TENANTS_MAX: usize = 4096;
/// Tenants asked for an item of a class, fullest first.
const GIVERS: usize = 4;
/// Items drawn in search of a page to empty.
const DONORS: usize = 32;
/// A tenant that is above its part by no more bytes than this may trespass rather than be refused.
const TRESPASS_BYTES: u64 = 2 * super::PAGE_BYTES;
/// Draws for the K items of a sample, times K: not all that is drawn may go, or has the class that is wanted.
const DRAWS: u32 = 8;

/// The holding of a tenant in one tier.
#[derive(Clone, Debug)]
struct Holding {
    members: Members,
    /// Of their places.
    bytes: u64,
    share_bytes: u64,
    /// Whether the share was set, and is not the default.
    is_declared: bool,
    /// 0: the tier's.
    k: u8,
    /// The age at the tier's insertion point, among this tenant's items.
    insertion: AgeQuantile,
    reuse: Reuse,
    coldest: Coldest,
    counters: TenantCounters,
}

const _: () =
    assert!(size_of::<Holding>() == 104, "with its place and its nodes 120 bytes, as docs/tenants.md says");

/// Counters of a tenant's items in one tier. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantCounters {
    /// Items that were thrown out of the system from here.
    pub evictions: u64,
    /// Of these, the items evicted for another tenant although this one was not above its part.
    pub trespasses: u64,
}

/// A tenant in one tier, as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLevel {
    /// Its items; those on their way to another tier not counted.
    pub items: u64,
    /// The bytes of their places.
    pub bytes: u64,
    /// Its share.
    pub share_bytes: u64,
    /// Its K.
    pub k: u8,
    /// Its counters.
    pub counters: TenantCounters,
}

/// The holdings of all tenants in one tier.
#[derive(Clone, Debug, Default)]
struct Holdings {
    /// By tenant; a place for each that has had something or a share.
    of: Vec<Option<Box<Holding>>>,
    fullest: Fullest,
    bytes: u64,
    /// Of the tenants that have something.
    share_bytes: u64,
    insertion_point: f64,
    /// The share of a tenant whose share was not set.
    share_default: u64,
    /// Bytes of all this.
    held_bytes: u64,
}

impl Holdings {
    fn at(&mut self, tenant: u16) -> &mut Holding {
        let at = usize::from(tenant);
        if self.of.len() <= at {
            let before = self.of.capacity();
            self.of.resize_with(at + 1, || None);
            self.held_bytes += ((self.of.capacity() - before) * size_of::<Option<Box<Holding>>>()) as u64;
        }
        let (point, share_bytes, held_bytes) =
            (self.insertion_point, self.share_default, &mut self.held_bytes);
        self.of[at].get_or_insert_with(|| {
            *held_bytes += size_of::<Holding>() as u64;
            Box::new(Holding {
                members: Members::default(),
                bytes: 0,
                share_bytes,
                is_declared: false,
                k: 0,
                insertion: AgeQuantile::new(point),
                reuse: Reuse::default(),
                coldest: Coldest::default(),
                counters: TenantCounters::default(),
            })
        })
    }

    fn get(&self, tenant: usize) -> Option<&Holding> {
        self.of.get(tenant)?.as_deref()
    }

    /// A holding's bytes have changed.
    fn weigh(&mut self, tenant: u16, before: u64, after: u64) {
        let share_bytes = self.at(tenant).share_bytes;
        self.bytes = self.bytes + after - before;
        match (before, after) {
            (0, 1..) => self.share_bytes += share_bytes,
            (1.., 0) => self.share_bytes -= share_bytes,
            _ => {}
        }
        let fullness = after as f64 / share_bytes.max(1) as f64;
        self.fullest.set(usize::from(tenant), (after > 0).then_some(fullness as f32));
    }

    /// Whether a tenant has its part of all bytes, or lacks less than a page.
    fn has_part(&self, tenant: usize) -> bool {
        self.get(tenant).is_some_and(|holding| {
            u128::from(holding.bytes + super::PAGE_BYTES) * u128::from(self.share_bytes)
                > u128::from(holding.share_bytes) * u128::from(self.bytes)
        })
    }

    fn set_share(&mut self, tenant: u16, share_bytes: u64) {
        let holding = self.at(tenant);
        let bytes = holding.bytes;
        let before = std::mem::replace(&mut holding.share_bytes, share_bytes);
        if bytes > 0 {
            self.share_bytes = self.share_bytes + share_bytes - before;
        }
        self.weigh(tenant, bytes, bytes);
    }

    /// Whether a tenant has more than its part of all bytes, should `wants` get something as well.
    fn is_above(&self, tenant: usize, wants: Option<u16>) -> bool {
        let coming = wants.map_or(0, |tenant| match self.get(usize::from(tenant)) {
            Some(holding) if holding.bytes > 0 => 0,
            Some(holding) => holding.share_bytes,
            None => self.share_default,
        });
        self.get(tenant).is_some_and(|holding| {
            u128::from(holding.bytes) * u128::from(self.share_bytes + coming)
                > u128::from(holding.share_bytes) * u128::from(self.bytes)
        })
    }
}

/// The tenants of a ladder.
#[derive(Clone, Debug)]
pub struct Tenants {
    entries: Column<Entry>,
    levels: Vec<Holdings>,
    /// Halves of a window of reuse times that have begun.
    half: u32,
}

impl Tenants {
    pub(super) fn new(config: &super::LadderConfig) -> Self {
        let level = |level: &super::LevelConfig| Holdings {
            insertion_point: level.insertion_point,
            share_default: 1,
            ..Holdings::default()
        };
        let levels = config.levels.iter().map(level).collect();
        Tenants { entries: Column::default(), levels, half: 0 }
    }

    /// Reuse times noted from now on belong to this half of a window.
    pub(super) fn roll(&mut self, half: u32) {
        self.half = half;
    }

    /// The tenant of an item.
    #[inline]
    pub fn owner(&self, id: Id) -> u16 {
        self.entries.cell(id).owner
    }

    /// A tenant's item was used again after `reuse`.
    #[inline]
    pub(super) fn note_reuse(&mut self, tenant: u16, tier: usize, reuse: u64) {
        if let Some(Some(holding)) = self.levels[tier].of.get_mut(usize::from(tenant)) {
            holding.reuse.note(reuse, self.half);
        }
    }

    /// Whether this is sooner than `factor` in 1/256 of the mean of a tenant's items in a tier.
    #[inline]
    pub(super) fn is_below_mean(&self, tenant: u16, tier: usize, reuse: u64, factor: u32) -> bool {
        let holding = self.levels[tier].get(usize::from(tenant));
        holding.is_none_or(|holding| holding.reuse.is_below_mean(reuse, factor, self.half))
    }

    pub(super) fn grow_to(&mut self, id: Id) {
        self.entries.grow_to(id);
    }

    /// Sets the tenant of an item that is in no tier yet.
    pub(super) fn set_owner(&mut self, id: Id, tenant: u16) {
        self.entries.at(id).owner = tenant.min(TENANTS_MAX as u16 - 1);
    }

    pub(super) fn insert(&mut self, id: Id, tier: usize, bytes: u64) {
        let entry = self.entries.at(id);
        let tenant = entry.owner;
        let level = &mut self.levels[tier];
        let holding = level.at(tenant);
        let list_bytes = holding.members.bytes();
        entry.set_position(holding.members.push(id));
        let (before, grown) = (holding.bytes, holding.members.bytes() - list_bytes);
        holding.bytes += bytes;
        level.held_bytes += grown;
        level.weigh(tenant, before, before + bytes);
    }

    pub(super) fn remove(&mut self, id: Id, tier: usize, bytes: u64) {
        let entry = self.entries.get(id);
        let (tenant, position) = (entry.owner, entry.position());
        let level = &mut self.levels[tier];
        let holding = level.at(tenant);
        let list_bytes = holding.members.bytes();
        if let Some(moved) = holding.members.swap_remove(position) {
            self.entries.at(moved).set_position(position);
        }
        let (before, shrunk) = (holding.bytes, list_bytes - holding.members.bytes());
        holding.bytes -= bytes;
        level.held_bytes -= shrunk;
        level.weigh(tenant, before, before - bytes);
    }

    /// A tenant has bytes in a tier that are no item's: its clients hold them.
    pub(super) fn charge(&mut self, tenant: u16, tier: usize, bytes: u64) {
        let holding = self.levels[tier].at(tenant.min(TENANTS_MAX as u16 - 1));
        let before = holding.bytes;
        holding.bytes += bytes;
        self.levels[tier].weigh(tenant, before, before + bytes);
    }

    /// It has them no more.
    pub(super) fn discharge(&mut self, tenant: u16, tier: usize, bytes: u64) {
        let holding = self.levels[tier].at(tenant.min(TENANTS_MAX as u16 - 1));
        let before = holding.bytes;
        holding.bytes -= bytes;
        self.levels[tier].weigh(tenant, before, before - bytes);
    }

    /// Counts an eviction.
    pub(super) fn note_evicted(&mut self, id: Id, tier: usize, wants: Option<u16>) {
        let tenant = self.owner(id);
        let trespass = self.is_protected(tenant, tier, wants);
        let counters = &mut self.levels[tier].at(tenant).counters;
        counters.evictions += 1;
        counters.trespasses += u64::from(trespass);
    }

    /// Whether a tenant loses nothing in a tier now: it is not above its part and does not want the room itself; and if the room
    /// is for no particular tenant, some tenant is above its part.
    pub(super) fn is_protected(&self, tenant: u16, tier: usize, wants: Option<u16>) -> bool {
        let level = &self.levels[tier];
        let is_above = |tenant| level.is_above(tenant, wants);
        let mut fullest = [0];
        wants != Some(tenant)
            && !is_above(usize::from(tenant))
            && (wants.is_some() || level.fullest.first(&mut fullest) == 0 || is_above(fullest[0]))
    }

    /// The tenants that are to give in a tier, in order: those above their part, the fullest first, then the tenant that wants
    /// the slot. That one comes earlier if it is among the fullest.
    fn givers(&self, tier: usize, wants: Option<u16>, givers: &mut [usize; GIVERS + 1]) -> usize {
        let level = &self.levels[tier];
        let found = level.fullest.first(&mut givers[..GIVERS]);
        let mut count = (0..found).take_while(|&at| level.is_above(givers[at], wants)).count();
        if let Some(tenant) = wants.map(usize::from) {
            if !givers[..count].contains(&tenant) {
                givers[count] = tenant;
                count += 1;
            }
        } else if count == 0 && found > 0 {
            // No particular tenant wants it, and all have just their part.
            count = 1;
        }
        count
    }

    /// The first of [`Self::givers`].
    fn first_giver(&self, tier: usize, wants: Option<u16>) -> Option<usize> {
        let level = &self.levels[tier];
        let fullest = level.fullest.top();
        let above = fullest.filter(|&tenant| level.is_above(tenant, wants));
        above.or(wants.map(usize::from)).or(fullest)
    }

    pub(super) fn bytes(&self) -> u64 {
        let level = |level: &Holdings| level.held_bytes + level.fullest.bytes();
        self.entries.bytes() + self.levels.iter().map(level).sum::<u64>()
    }

    /// Forgets all items; shares, K and counters stay. Their memory is freed a little at a time.
    pub(super) fn clear_into(&mut self, deferred_free: &mut DeferredFree) {
        self.entries.clear_into(deferred_free);
        for level in &mut self.levels {
            level.fullest = Fullest::default();
            (level.bytes, level.share_bytes) = (0, 0);
            for holding in level.of.iter_mut().flatten() {
                level.held_bytes -= holding.members.bytes();
                holding.members.clear_into(deferred_free);
                holding.bytes = 0;
            }
        }
    }

    /// A tenant in a tier.
    pub fn level(&self, tenant: u16, tier: usize) -> TenantLevel {
        let Some(level) = self.levels.get(tier) else { return TenantLevel::default() };
        let Some(holding) = level.get(usize::from(tenant)) else {
            return TenantLevel { share_bytes: level.share_default, ..TenantLevel::default() };
        };
        TenantLevel {
            items: holding.members.len() as u64,
            bytes: holding.bytes,
            share_bytes: holding.share_bytes,
            k: holding.k,
            counters: holding.counters,
        }
    }

    /// Whether a tenant may take items of others where all else fails: it is hardly above its part in any tier. A tenant that
    /// floods is.
    pub(super) fn may_trespass(&self, tenant: u16) -> bool {
        self.levels.iter().all(|level| {
            let (bytes, share) =
                level.get(usize::from(tenant)).map_or((0, 0), |it| (it.bytes, it.share_bytes));
            let part = u128::from(share) * u128::from(level.bytes) / u128::from(level.share_bytes.max(1));
            u128::from(bytes) <= part + u128::from(TRESPASS_BYTES)
        })
    }

    /// Items of a tier drawn from the tenants that are to give.
    pub(super) fn donors(
        &self,
        tier: usize,
        wants: Option<u16>,
        may_go: impl Fn(Id) -> bool,
        rng: &mut Rng,
    ) -> Vec<Id> {
        let mut givers = [0; GIVERS + 1];
        let count = self.givers(tier, wants, &mut givers);
        let mut donors = Vec::with_capacity(DONORS);
        for holding in givers[..count].iter().filter_map(|&giver| self.levels[tier].get(giver)) {
            let len = holding.members.len() as u64;
            for _ in 0..if len == 0 { 0 } else { DONORS - donors.len() } {
                let id = holding.members.get(rng.below(len) as usize);
                if may_go(id) {
                    donors.push(id);
                }
            }
        }
        donors
    }

    /// The item that should go next in a tier, of a class or of any: of the tenant that is to give, K drawn.
    pub(super) fn victim(
        &mut self,
        tier: usize,
        class: Option<Class>,
        draw: &mut Draw<'_>,
        wants: Option<u16>,
        rng: &mut Rng,
    ) -> Option<Id> {
        // Nearly always the first one has something to give.
        let first = self.first_giver(tier, wants);
        if let Some(victim) = first.and_then(|tenant| self.sample(tenant, tier, class, draw, rng)) {
            return Some(victim);
        }
        let mut givers = [0; GIVERS + 1];
        let count = self.givers(tier, wants, &mut givers);
        debug_assert_eq!(givers[..count].first().copied(), first, "who was asked already");
        let mut others = givers[..count].iter().skip(1);
        others.find_map(|&tenant| self.sample(tenant, tier, class, draw, rng))
    }

    /// The first of K items drawn from a tenant's in a tier, of a class or of any.
    pub(super) fn sample(
        &mut self,
        tenant: usize,
        tier: usize,
        class: Option<Class>,
        draw: &mut Draw<'_>,
        rng: &mut Rng,
    ) -> Option<Id> {
        let Tenants { entries, levels, .. } = self;
        let holding = levels[tier].of.get_mut(tenant)?.as_mut()?;
        let k = if holding.k == 0 { draw.k } else { holding.k };
        let len = holding.members.len() as u64;
        if len == 0 {
            return None;
        }
        // Of two sets that share the items that fit, draws from the smaller meet them more often.
        let from_class = class.filter(|&class| u64::from(draw.slots.by_class().class_use(class).items) < len);
        let mut first = First::default();
        let mut found = 0;
        for _ in 0..DRAWS * u32::from(k) {
            let drawn = match from_class {
                Some(class) => draw.slots.by_class().draw(class, draw.slots.pages(), rng),
                None => Some(holding.members.get(rng.below(len) as usize)),
            };
            let Some((id, place)) = drawn.and_then(|id| Some((id, draw.may_go(id)?))) else { continue };
            let fits = match from_class {
                Some(_) => usize::from(entries.cell(id).owner) == tenant,
                None => class.is_none_or(|class| draw.slots.pages().class_at(place.unit()) == class),
            };
            if !fits {
                continue;
            }
            let age = place.age(draw.recency);
            holding.insertion.note(age);
            draw.note_age(age);
            first.meet(id, draw.key(id, place, holding.insertion.age()));
            found += 1;
            if found == k {
                break;
            }
        }
        first.id()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LadderConfig, PAGE_BYTES};
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use tiermem_base::Rng;

    const TENANTS: u16 = 5;
    const TIERS: usize = 2;

    /// Holdings and shares of all tenants in a tier, as sums over all items.
    #[derive(Clone, Debug)]
    struct Known {
        items: BTreeMap<Id, (u16, u64)>,
        shares: BTreeMap<u16, u64>,
        share_default: u64,
    }

    impl Known {
        fn bytes(&self, tenant: u16) -> u64 {
            self.items.values().filter(|&&(owner, _)| owner == tenant).map(|(_, bytes)| bytes).sum()
        }

        fn share(&self, tenant: u16) -> u64 {
            self.shares.get(&tenant).copied().unwrap_or(self.share_default)
        }

        /// The tenants that have something, and the one that is to get something.
        fn here(&self, wants: Option<u16>) -> BTreeSet<u16> {
            self.items.values().map(|&(owner, _)| owner).chain(wants).collect()
        }

        /// Whether a tenant has more than its part of all bytes.
        fn is_above(&self, tenant: u16, wants: Option<u16>) -> bool {
            let (all, shares): (u64, u64) = self
                .here(wants)
                .into_iter()
                .fold((0, 0), |(bytes, share), it| (bytes + self.bytes(it), share + self.share(it)));
            self.bytes(tenant) * shares > self.share(tenant) * all
        }

        fn fullest(&self) -> Option<u16> {
            let fullness = |tenant: u16| self.bytes(tenant) as f64 / self.share(tenant) as f64;
            // Of equals the lowest number: the last of them that is met from above.
            self.here(None).into_iter().rev().max_by(|&a, &b| fullness(a).total_cmp(&fullness(b)))
        }
    }

    proptest! {
        /// Over any sequence of entries, departures and changes of shares, holdings and parts of tenants are sums over all items,
        /// and no tenant loses its own part to another.
        #[test]
        fn parts_of_tenants_are_sums_over_all_items(
            ops in prop::collection::vec((0u8..12, 0..TENANTS, 0..TIERS, 1u64..40, any::<prop::sample::Index>()), 1..60),
        ) {
            let config = LadderConfig { tenants: true, ..LadderConfig::with_capacities(&[1 << 20; TIERS]) };
            let mut tenants = Tenants::new(&config);
            tenants.grow_to(Id(127));
            let known = Known { items: BTreeMap::new(), shares: BTreeMap::new(), share_default: 1 };
            let mut tiers = vec![known; TIERS];
            let mut rng = Rng::seeded(1);
            for (number, (what, tenant, tier, amount, pick)) in ops.into_iter().enumerate() {
                let (id, bytes, known) = (Id(number as u32), amount * PAGE_BYTES / 8, &mut tiers[tier]);
                match what {
                    0..6 => {
                        tenants.set_owner(id, tenant);
                        tenants.insert(id, tier, bytes);
                        known.items.insert(id, (tenant, bytes));
                        prop_assert_eq!(tenants.owner(id), tenant);
                    }
                    6..9 if !known.items.is_empty() => {
                        let (&id, &(_, bytes)) = known.items.iter().nth(pick.index(known.items.len())).unwrap();
                        tenants.remove(id, tier, bytes);
                        known.items.remove(&id);
                    }
                    9 => {
                        // Tenants that were never here get it; those that are here keep the share that there was.
                        let share_bytes = amount;
                        tenants.apply(Setting::Undeclared { tier, share_bytes });
                        known.share_default = share_bytes;
                    }
                    10 => {
                        tenants.apply(Setting::Share { tenant, tier, share_bytes: amount, k: 7 });
                        known.shares.insert(tenant, amount);
                    }
                    11 if amount < 5 => {
                        tenants.apply(Setting::Anew);
                        tiers.iter_mut().for_each(|known| known.shares.clear());
                    }
                    _ => {}
                }
                for (tier, known) in tiers.iter().enumerate() {
                    for tenant in 0..TENANTS {
                        let level = tenants.level(tenant, tier);
                        let items = known.items.values().filter(|&&(owner, _)| owner == tenant).count() as u64;
                        prop_assert_eq!((level.items, level.bytes), (items, known.bytes(tenant)));
                        prop_assert_eq!((level.share_bytes, level.k), (known.share(tenant), if known.shares.contains_key(&tenant) { 7 } else { 0 }));
                        for wants in (0..TENANTS).map(Some).chain([None]) {
                            let nobody_is_above = || known.fullest().is_some_and(|fullest| !known.is_above(fullest, None));
                            let gives = wants == Some(tenant)
                                || known.is_above(tenant, wants)
                                || wants.is_none() && nobody_is_above();
                            prop_assert_eq!(tenants.is_protected(tenant, tier, wants), !gives);
                        }
                    }
                    for wants in (0..TENANTS).map(Some).chain([None]) {
                        for id in tenants.donors(tier, wants, |_| true, &mut rng) {
                            let owner = known.items[&id].0;
                            prop_assert!(known.is_above(owner, wants) || wants.unwrap_or(owner) == owner);
                        }
                    }
                }
                for tenant in 0..TENANTS {
                    let has_little = |known: &Known| {
                        let here = known.here(None);
                        let (all, shares): (u64, u64) = (here.iter().map(|&it| known.bytes(it)).sum(), here.iter().map(|&it| known.share(it)).sum());
                        known.bytes(tenant) <= known.share(tenant) * all / shares.max(1) + TRESPASS_BYTES
                    };
                    prop_assert_eq!(tenants.may_trespass(tenant), tiers.iter().all(has_little));
                }
            }
        }
    }
}
