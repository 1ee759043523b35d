//! Division of a ladder among the tenants of a trace, by the same [`Divider`] that a store drives.

use std::collections::{BTreeMap, HashMap};

use tiermem_model::advisor::{Declared, Divider, DividerConfig, Division, OTHERS, Plan};
use tiermem_policy::shard::Shard;

/// How tenants share a ladder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sharing {
    /// How memory is divided while the trace runs, as far as `division` does not say it.
    pub plan: Plan,
    /// The aim of the division; equal parts stay where there is none.
    pub division: Division,
    /// Tenants that are there from the start; the first has the keys of tenants that have not written yet. The others come with
    /// what they write. A tenant's name is its number in the trace.
    pub names: Vec<String>,
    /// Terms of some tenants.
    pub declared: Vec<Declared>,
    /// How much longer a look-up takes in each tier than in DRAM.
    pub slower_ns: Vec<f64>,
    /// What it takes a tenant of the trace to bring back what it has missed. Where nothing is said of one it takes no time, and
    /// nothing is learned from it.
    pub reload_ns: BTreeMap<u32, u64>,
}

/// The divider of a ladder whose configuration tells tenants apart.
#[derive(Debug)]
pub(super) struct Dividing {
    pub divider: Divider,
    /// The tenants that have come, by their number in the trace; only looked up.
    numbers: HashMap<u32, u16>,
    reload_ns: BTreeMap<u32, u64>,
}

impl Dividing {
    pub fn new(sharing: Sharing, shard: &Shard, seed: u64) -> Self {
        let Sharing { plan, division, names, declared, slower_ns, reload_ns } = sharing;
        let shards = u64::from(shard.ladder().config().growth);
        let config = DividerConfig { plan, division, names, declared, slower_ns, shards, seed };
        Dividing { divider: Divider::new(config, shard.ladder()), numbers: HashMap::new(), reload_ns }
    }

    /// The number of a tenant of the trace, as far as it has come.
    pub fn of(&mut self, tenant: u32) -> u16 {
        if let Some(&number) = self.numbers.get(&tenant) {
            return number;
        }
        let Some(number) = self.divider.tenants().number_of(tenant.to_string().as_bytes()) else {
            return OTHERS;
        };
        self.numbers.insert(tenant, number);
        number
    }

    /// A tenant of the trace writes: its number, and whether it is a new one.
    pub fn enter(&mut self, tenant: u32, shard: &Shard) -> (u16, bool) {
        if let Some(&number) = self.numbers.get(&tenant) {
            return (number, false);
        }
        let number = self.divider.enter(tenant.to_string().as_bytes(), shard.ladder());
        self.numbers.insert(tenant, number);
        (number, true)
    }

    /// The time that a tenant of the trace needs to bring back an item that it has missed, if that is known.
    pub fn reload_ns(&self, tenant: u32) -> Option<u64> {
        self.reload_ns.get(&tenant).copied()
    }
}
