//! Tenants by name and number: their requests and their terms.

use std::collections::{BTreeMap, HashMap};

use tiermem_policy::ladder::TENANTS_MAX;

use super::Standing;
use crate::partition::{TenantTerms, Terms};

/// The tenant of keys that belong to no other, and of keys of tenants beyond the largest number.
pub const OTHERS: u16 = 0;

/// A tenant with terms known beforehand.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Its part of every tier, from 0 to 1; [`None`]: an equal part of what is left.
    pub share: Option<f64>,
    /// Its K; 0: the tiers' own.
    pub k: u8,
}

/// The requests of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Look-ups.
    pub lookups: u64,
    /// Of these, the look-ups that found their key, in whatever tier it lay.
    pub hits: u64,
    /// Values written, whatever became of them.
    pub writes: u64,
}

/// Declared terms of a tenant. Few tenants have any; the others come with their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Said {
    /// Its part of every tier, where that was declared.
    share: Option<f64>,
    /// Its K; 0 where none was declared.
    k: u8,
    terms: Terms,
    /// The cost of a miss, where it was declared.
    miss_ns: Option<f64>,
}

/// The tenants that there are. Numbers are given in the order in which names come; a tenant that has come stays.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    /// By number.
    names: Vec<Box<[u8]>>,
    /// By number.
    tallies: Vec<Tally>,
    /// Only looked up.
    numbers: HashMap<Box<[u8]>, u16>,
    said: BTreeMap<u16, Said>,
}

impl Tenants {
    /// The number of a name that has come.
    #[inline]
    pub fn number_of(&self, name: &[u8]) -> Option<u16> {
        self.numbers.get(name).copied()
    }

    /// The number of a name, a new one if there is room for it.
    pub(super) fn number(&mut self, name: &[u8]) -> u16 {
        if let Some(number) = self.number_of(name) {
            return number;
        }
        if self.names.len() >= TENANTS_MAX {
            return OTHERS;
        }
        let number = self.names.len() as u16;
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        self.tallies.push(Tally::default());
        number
    }

    pub(super) fn declare(&mut self, declared: &[Declared]) {
        for &Declared { ref name, share, k } in declared {
            let number = self.number(name.as_bytes());
            let said = self.said.entry(number).or_default();
            (said.share, said.k) = (share, k);
        }
    }

    /// Replaces all promises: tenants that `terms` does not name have none.
    pub(super) fn promise(&mut self, terms: &[TenantTerms]) {
        self.said.values_mut().for_each(|said| (said.terms, said.miss_ns) = (Terms::default(), None));
        for one in terms {
            let number = self.number(one.name.as_bytes());
            let said = self.said.entry(number).or_default();
            (said.terms, said.miss_ns) = (one.terms, one.miss.map(|miss| miss.0 as f64));
        }
    }

    #[inline]
    pub(super) fn note_look_up(&mut self, tenant: u16, found: bool) {
        if let Some(tally) = self.tallies.get_mut(usize::from(tenant)) {
            tally.lookups += 1;
            tally.hits += u64::from(found);
        }
    }

    #[inline]
    pub(super) fn note_write(&mut self, tenant: u16) {
        if let Some(tally) = self.tallies.get_mut(usize::from(tenant)) {
            tally.writes += 1;
        }
    }

    /// All tenants that have requested something, hold something by `held_bytes`, or were promised something.
    pub(super) fn standings(&self, held_bytes: impl Fn(u16) -> Vec<u64>) -> Vec<Standing> {
        let standing = |(&Tally { lookups, hits, writes }, tenant): (&Tally, u16)| {
            let Said { terms, miss_ns, .. } = self.said.get(&tenant).copied().unwrap_or_default();
            Standing { tenant, lookups, hits, writes, held_bytes: held_bytes(tenant), terms, miss_ns }
        };
        let is_there = |standing: &Standing| {
            let held_bytes: u64 = standing.held_bytes.iter().sum();
            standing.lookups + standing.writes + held_bytes + standing.terms.least_bytes > 0
        };
        self.tallies.iter().zip(0..).map(standing).filter(is_there).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Their names and what they have asked for, by number.
    pub fn tallies(&self) -> impl Iterator<Item = (&[u8], Tally)> {
        self.names.iter().map(|name| &**name).zip(self.tallies.iter().copied())
    }

    /// The parts that were declared, by number.
    pub(super) fn shares(&self) -> impl Iterator<Item = (u16, f64)> {
        self.said.iter().filter_map(|(&number, said)| Some((number, said.share?)))
    }

    /// Whether a tenant's part was declared.
    pub fn has_declared_share(&self, tenant: u16) -> bool {
        self.said.get(&tenant).is_some_and(|said| said.share.is_some())
    }

    /// The K that were declared, by number.
    pub(super) fn ks(&self) -> impl Iterator<Item = (u16, u8)> {
        self.said.iter().filter(|(_, said)| said.k > 0).map(|(&number, said)| (number, said.k))
    }

    /// A tenant's K; 0 where none was declared.
    pub(super) fn k(&self, tenant: u16) -> u8 {
        self.said.get(&tenant).map_or(0, |said| said.k)
    }

    /// Bytes of names and counters.
    pub fn metadata_bytes(&self) -> u64 {
        // Each name stands twice: by number, and with its number.
        let names: usize = self.names.iter().map(|name| 2 * name.len()).sum();
        let entry = 2 * size_of::<Box<[u8]>>() + size_of::<(u16, Tally)>();
        (names + self.names.capacity() * entry) as u64
    }
}
