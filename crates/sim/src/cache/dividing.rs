//! A ladder divided among the tenants of a trace while it runs, as the store divides its own: the same advisor is told the same
//! at the same places, and its answers are carried out by the same code ([`tiermem_model::advisor::tiers`]).

use tiermem_model::advisor::{Advisor, Answer, Plan, Standing, tiers};
use tiermem_model::partition::Terms;
use tiermem_policy::ladder::Ladder;

/// How tenants share a ladder.
#[derive(Clone, Debug, PartialEq)]
pub struct Sharing {
    /// How memory is divided while the trace runs; equally, where there is no such plan.
    pub plan: Option<Plan>,
    /// How much longer a look-up takes in each tier than in DRAM.
    pub slower_ns: Vec<f64>,
    /// The parts of equal size that there are at first; more come with the tenants.
    pub tenants: usize,
}

/// What a tenant has asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    lookups: u64,
    hits: u64,
    writes: u64,
}

/// Who divides a ladder whose configuration tells tenants apart.
#[derive(Debug)]
pub(super) struct Dividing {
    advisor: Option<Advisor>,
    slower_ns: Vec<f64>,
    tallies: Vec<Tally>,
    answer: Option<Answer>,
}

impl Dividing {
    pub fn new(sharing: Sharing, ladder: &mut Ladder, seed: u64) -> Self {
        let Sharing { plan, slower_ns, tenants } = sharing;
        let mut dividing =
            Dividing { advisor: None, slower_ns, tallies: vec![Tally::default(); tenants], answer: None };
        let rooms = tiers::rooms(ladder, |tier| dividing.slower_ns(tier));
        dividing.advisor = plan.map(|plan| Advisor::new(plan, &rooms, seed));
        ladder.share_rest(&[], tenants);
        dividing
    }

    fn slower_ns(&self, tier: usize) -> f64 {
        self.slower_ns.get(tier).copied().unwrap_or(0.0)
    }

    /// A tenant that was not there before has a part of its own from now on.
    pub fn welcome(&mut self, tenant: u16, ladder: &mut Ladder) {
        let at = usize::from(tenant);
        if at < self.tallies.len() {
            return;
        }
        self.tallies.resize(at + 1, Tally::default());
        if self.advisor.as_ref().is_some_and(|advisor| advisor.history().divided_after.is_some()) {
            tiers::share_with_newcomers(ladder, self.tallies.len());
        } else {
            ladder.share_rest(&[], self.tallies.len());
        }
    }

    /// A look-up; `found` are the bytes of the place in memory where it found its item. `is_below`: it found it in the log.
    pub fn looked_up(&mut self, tenant: u16, hash: u64, found: Option<u64>, is_below: bool, ladder: &Ladder) {
        let tally = &mut self.tallies[usize::from(tenant)];
        tally.lookups += 1;
        tally.hits += u64::from(found.is_some());
        if let Some(advisor) = &mut self.advisor {
            let is_last = advisor.note_lookup();
            if advisor.follows(hash) {
                advisor.looked_up(tenant, hash, found.map(capped));
            }
            if is_last {
                self.end_window(ladder);
            }
        }
        self.tallies[usize::from(tenant)].hits += u64::from(is_below);
    }

    /// A write of an item whose place has so many bytes.
    pub fn wrote(&mut self, tenant: u16, hash: u64, place_bytes: u64) {
        self.tallies[usize::from(tenant)].writes += 1;
        if let Some(advisor) = self.advisor.as_mut().filter(|advisor| advisor.follows(hash)) {
            advisor.wrote(tenant, hash, capped(place_bytes));
        }
    }

    /// A key was removed.
    pub fn removed(&mut self, tenant: u16, hash: u64) {
        if let Some(advisor) = self.advisor.as_mut().filter(|advisor| advisor.follows(hash)) {
            advisor.removed(tenant, hash);
        }
    }

    fn end_window(&mut self, ladder: &Ladder) {
        let rooms = tiers::rooms(ladder, |tier| self.slower_ns(tier));
        let standing = |(tally, tenant): (&Tally, u16)| Standing {
            tenant,
            lookups: tally.lookups,
            hits: tally.hits,
            writes: tally.writes,
            held_bytes: tiers::held_bytes(ladder, tenant),
            terms: Terms::default(),
            miss_ns: None,
        };
        let standings: Vec<Standing> = self
            .tallies
            .iter()
            .zip(0..)
            .map(standing)
            .filter(|it| it.lookups + it.writes + it.held_bytes.iter().sum::<u64>() > 0)
            .collect();
        if let Some(advisor) = &mut self.advisor {
            self.answer = Some(advisor.end_window(&standings, &rooms).answer());
        }
    }

    /// Does what was found best at the end of a window, if one has ended.
    pub fn settle(&mut self, ladder: &mut Ladder) {
        if let (Some(answer), Some(advisor)) = (self.answer.take(), &mut self.advisor) {
            advisor.note(&answer);
            answer.carry_out(ladder, self.tallies.len(), |_| None);
        }
    }
}

fn capped(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
