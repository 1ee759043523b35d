//! A ladder divided among the tenants of a trace while it runs, as the store divides its own: the same advisor is asked, at
//! the same counts of look-ups.

use tiermem_base::hash::sample_hash;
use tiermem_base::{Access, Op};
use tiermem_model::advisor::{Advisor, Plan, Room, Standing};
use tiermem_model::partition::Terms;
use tiermem_policy::ladder::TENANTS_MAX;

use super::TieredCache;

/// What a tenant has asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    lookups: u64,
    hits: u64,
    writes: u64,
}

/// Who divides a ladder whose configuration tells tenants apart.
#[derive(Debug)]
pub struct Dividing {
    /// None: all tenants have equal shares.
    advisor: Option<Advisor>,
    rooms: Vec<Room>,
    tallies: Vec<Tally>,
}

impl Dividing {
    /// Divides by this plan tiers of these sizes; equally where there is none.
    pub fn new(plan: Option<Plan>, rooms: Vec<Room>, seed: u64) -> Self {
        let advisor = plan.map(|plan| Advisor::new(plan, &rooms, seed));
        Dividing { advisor, rooms, tallies: Vec::new() }
    }

    /// Takes note of an access that the ladder has seen: `found` says whether it found its key, `bytes` are those of the item. Where
    /// that ends a window, memory is divided.
    pub fn note(&mut self, cache: &mut TieredCache, access: &Access, found: bool, bytes: u32) {
        let tenant = (access.tenant % TENANTS_MAX as u32) as u16;
        let at = usize::from(tenant);
        if at >= self.tallies.len() {
            self.tallies.resize(at + 1, Tally::default());
            cache.share_out(&[], self.tallies.len());
        }
        let hash = sample_hash(access.key);
        let tally = &mut self.tallies[at];
        let is_lookup = matches!(access.op, Op::Get | Op::Read | Op::Load | Op::Scan);
        tally.lookups += u64::from(is_lookup);
        tally.hits += u64::from(is_lookup && found);
        let writes = access.op != Op::Del && (!is_lookup || !found);
        tally.writes += u64::from(writes);
        let Some(advisor) = &mut self.advisor else { return };
        if advisor.follows(hash) {
            if is_lookup {
                advisor.looked_up(tenant, hash, found.then_some(bytes));
            }
            if writes {
                advisor.wrote(tenant, hash, bytes);
            }
            if access.op == Op::Del {
                advisor.removed(tenant, hash);
            }
        }
        if is_lookup && advisor.note_lookup() {
            self.end_window(cache);
        }
    }

    fn end_window(&mut self, cache: &mut TieredCache) {
        let Some(advisor) = &mut self.advisor else { return };
        let metadata_bytes = cache.metadata_bytes();
        let rooms: Vec<Room> = self
            .rooms
            .iter()
            .enumerate()
            .map(|(tier, room)| Room {
                capacity_bytes: room.capacity_bytes.saturating_sub(if tier == 0 {
                    metadata_bytes
                } else {
                    0
                }),
                ..*room
            })
            .collect();
        let standing = |(tally, tenant): (&Tally, u16)| Standing {
            tenant,
            lookups: tally.lookups,
            hits: tally.hits,
            writes: tally.writes,
            held_bytes: (0..rooms.len()).map(|tier| cache.tenant_level(tenant, tier).bytes).sum(),
            terms: Terms::default(),
            miss_ns: None,
        };
        let standings: Vec<Standing> = self.tallies.iter().zip(0..).map(standing).collect();
        let answer = advisor.end_window(&standings, &rooms).answer();
        advisor.note(&answer);
        for part in &answer.parts {
            for (tier, (&bytes, &k)) in part.bytes.iter().zip(&part.ks).enumerate() {
                cache.set_part(part.tenant, tier, answer.is_applied().then_some(bytes), k);
            }
        }
    }
}
