//! Divider of a ladder's memory among tenants: one machine without bytes and clocks, which the store and a simulator drive.
//!
//! *Events* go in: a tenant comes, a key is looked up, written, removed, tiers change their size, an answer is there. The quotas
//! of tenants come out as [`Setting`]s, to be applied in their order before the next event ([`Divider::take_settings`]). At the
//! end of each window there is a *question* ([`Divider::take_question`]), which can be answered on any thread
//! ([`super::Question::answer`]) and comes back as an event. Shares change at once, and memory with the requests that need it, so
//! no request waits for a division.
//!
//! The decisions, the same for both drivers:
//!
//! - A look-up does not make a tenant, or one client could make thousands of them: a tenant comes with the first key that it
//!   writes. Until then its keys belong to [`super::OTHERS`].
//! - A window ends with the look-up that fills it, which counts in it whole: as a hit if it found its key in any tier, because
//!   that is what its application waited for. For the curves, which are of memory alone, a look-up that was answered below memory
//!   is a miss.
//! - Only a look-up that found nothing in any tier begins the time that a miss costs: an item that was found below memory is not
//!   fetched and set again, and the next write of that key, however late, is no answer to it.
//! - A write counts when it is requested, before there is room: whether there is depends on the division, and demand must not.
//! - Removed and expired keys are told by the driver that meets them; evicted ones are not: their curves are to say what more
//!   memory would have kept. A key that expires below memory unseen is as unknown as it is without a tier below.
//! - Memory is shared equally, and by what was declared, until the first division; from then on by the last answer, whatever
//!   becomes of the tiers' sizes, because only the ratios of shares count.

use tiermem_policy::Id;
use tiermem_policy::choose_k::Overheads;
use tiermem_policy::ladder::{Ladder, Setting};

use super::tenants::{Declared, Tenants};
use super::tiers::{held_bytes, rooms};
use super::{Advisor, Answer, Division, Plan, Question};
use crate::partition::TenantTerms;

/// How a divider begins.
#[derive(Clone, Debug, Default)]
pub struct DividerConfig {
    /// How it works, as far as `division` does not say it.
    pub plan: Plan,
    /// The configuration of its decisions.
    pub division: Division,
    /// Tenants that are there from the start; the first has the keys that belong to no tenant. Without names tenants are not told
    /// apart.
    pub names: Vec<String>,
    /// Terms of some tenants, which are there from the start as well.
    pub declared: Vec<Declared>,
    /// How much longer a look-up takes in each tier than in DRAM.
    pub slower_ns: Vec<f64>,
    /// Shards that share the keys: each sees its part of the look-ups, and keeps its part of what was promised.
    pub shards: u64,
    /// Seed of samples.
    pub seed: u64,
}

/// Where a look-up found its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In memory.
    Memory(Id),
    /// On a tier below memory.
    Below,
    /// Nowhere.
    Nowhere,
}

/// Divides memory; see the [module](self).
#[derive(Debug)]
pub struct Divider {
    plan: Plan,
    division: Division,
    slower_ns: Vec<f64>,
    shards: u64,
    seed: u64,
    tenants: Tenants,
    /// Watches requests, where something is decided.
    advisor: Option<Box<Advisor>>,
    question: Option<Question>,
    settings: Vec<Setting>,
    /// The number of tenants that shared the undeclared rest last; 0: it is to be shared anew.
    rest_for: usize,
    metadata_bytes: u64,
}

impl Divider {
    /// A new divider of this ladder; its first settings wait.
    pub fn new(config: DividerConfig, ladder: &Ladder) -> Self {
        let DividerConfig { plan, division, names, declared, slower_ns, shards, seed } = config;
        let mut tenants = Tenants::default();
        names.iter().for_each(|name| _ = tenants.number(name.as_bytes()));
        tenants.declare(&declared);
        let mut divider = Divider {
            plan,
            division,
            slower_ns,
            shards: shards.max(1),
            seed,
            tenants,
            advisor: None,
            question: None,
            settings: Vec::new(),
            rest_for: 0,
            metadata_bytes: 0,
        };
        divider.promise();
        divider.begin(ladder);
        divider.share_out(ladder);
        divider
    }

    /// A tenant writes: its number, from now on if it is a new one; then there are settings.
    #[inline]
    pub fn enter(&mut self, name: &[u8], ladder: &Ladder) -> u16 {
        match self.tenants.number_of(name) {
            Some(number) => number,
            None => self.welcome(name, ladder),
        }
    }

    #[cold]
    fn welcome(&mut self, name: &[u8], ladder: &Ladder) -> u16 {
        let before = self.tenants.count();
        let number = self.tenants.number(name);
        if self.tenants.count() > before {
            self.share_rest(ladder);
            self.weigh();
        }
        number
    }

    /// A look-up of a tenant's key at a time, if there is a clock. `true`: it was the last of a window, and there is a question.
    #[inline]
    pub fn looked_up(
        &mut self,
        tenant: u16,
        hash: u64,
        outcome: Outcome,
        now_ns: Option<u64>,
        ladder: &Ladder,
    ) -> bool {
        self.tenants.note_look_up(tenant, outcome != Outcome::Nowhere);
        let Some(advisor) = &mut self.advisor else { return false };
        let is_last = advisor.note_lookup();
        if advisor.follows_misses(hash) {
            if outcome == Outcome::Nowhere
                && let Some(now_ns) = now_ns
            {
                advisor.missed(tenant, hash, now_ns);
            }
            if advisor.follows(hash) {
                let found = match outcome {
                    Outcome::Memory(id) => Some(capped(ladder.residents().place_bytes(id))),
                    Outcome::Below | Outcome::Nowhere => None,
                };
                advisor.looked_up(tenant, hash, found);
            }
        }
        if is_last {
            self.end_window(ladder);
        }
        is_last
    }

    /// A write of an item of `bytes` to a tenant's key, whatever becomes of it.
    #[inline]
    pub fn wrote(&mut self, tenant: u16, hash: u64, bytes: u64, now_ns: Option<u64>, ladder: &Ladder) {
        self.tenants.note_write(tenant);
        if let Some(advisor) = &mut self.advisor
            && advisor.follows_misses(hash)
        {
            if let Some(now_ns) = now_ns {
                advisor.set_back(tenant, hash, now_ns);
            }
            if advisor.follows(hash) {
                // As look-ups see it: what its place takes.
                advisor.wrote(tenant, hash, capped(ladder.residents().classes().place_bytes(bytes)));
            }
        }
    }

    /// A key is gone, and not for want of room.
    #[inline]
    pub fn removed(&mut self, tenant: u16, hash: u64) {
        if let Some(advisor) = self.advisor.as_mut().filter(|advisor| advisor.follows(hash)) {
            advisor.removed(tenant, hash);
        }
    }

    /// All keys are gone.
    pub fn forget(&mut self) {
        if let Some(advisor) = &mut self.advisor {
            advisor.forget();
        }
    }

    /// Tiers have changed their size.
    pub fn resized(&mut self, ladder: &Ladder) {
        // The last division counts on: tiers that change their size do not change the ratios of shares.
        if !self.is_divided() {
            self.share_out(ladder);
        }
    }

    #[cold]
    fn end_window(&mut self, ladder: &Ladder) {
        if let Some(advisor) = &mut self.advisor {
            let standings = self.tenants.standings(|tenant| held_bytes(ladder, tenant));
            self.question = Some(advisor.end_window(&standings, &rooms(ladder, &self.slower_ns)));
        }
        self.weigh();
    }

    /// The question at the end of a window, if one has ended. The caller brings its answer ([`Self::answered`]).
    pub fn take_question(&mut self) -> Option<Question> {
        self.question.take()
    }

    /// A question was answered. Whether the answer counts: what another advisor was asked, or this one windows ago, says
    /// nothing of now. If it does there are settings.
    pub fn answered(&mut self, answer: &Answer, ladder: &Ladder) -> bool {
        let Some(advisor) = self.advisor.as_mut().filter(|it| it.windows() == answer.window) else {
            return false;
        };
        assert_is_of(answer, self.tenants.count(), ladder.residents().levels());
        advisor.note(answer);
        if answer.is_applied() {
            self.rest_for = 0;
            self.share_with_newcomers(ladder);
            self.settings.push(Setting::Anew);
        }
        for part in &answer.parts {
            let tenant = part.tenant;
            for (tier, (&share_bytes, &k)) in part.bytes.iter().zip(&part.ks).enumerate() {
                self.settings.push(match answer.is_applied() {
                    true => Setting::Share { tenant, tier, share_bytes, k },
                    false => Setting::K { tenant, tier, k },
                });
            }
        }
        // What was declared goes before what was found best, also for those in no part.
        self.set_declared_ks(ladder);
        true
    }

    /// Changes what is decided; what was declared holds again where memory is no longer divided. It was checked
    /// ([`Division::check`]).
    pub fn divide_by(&mut self, division: Division, ladder: &Ladder) {
        let before = std::mem::replace(&mut self.division, division);
        let count = self.tenants.count();
        self.promise();
        if (before.aim, before.window) != (self.division.aim, self.division.window) {
            self.begin(ladder);
            self.settings.push(Setting::Anew);
            self.share_out(ladder);
        } else if self.tenants.count() > count {
            self.share_rest(ladder);
        }
        self.weigh();
    }

    /// Says what choosing a victim costs here; what was watched so far is forgotten.
    pub fn set_draw_costs(&mut self, overheads: &Overheads, ladder: &Ladder) {
        self.plan.overheads = overheads.clone();
        self.begin(ladder);
    }

    /// Tenants are promised this shard's part of what they were.
    fn promise(&mut self) {
        let own: Vec<TenantTerms> = self.division.effective().map(|one| one.part(self.shards)).collect();
        self.tenants.promise(&own);
    }

    /// Begins to watch, if anything is to be decided.
    fn begin(&mut self, ladder: &Ladder) {
        self.question = None;
        self.advisor = self.division.apply(&self.plan).map(|plan| {
            let window = (plan.window / self.shards).max(1);
            Box::new(Advisor::new(Plan { window, ..plan }, &rooms(ladder, &self.slower_ns), self.seed))
        });
        self.weigh();
    }

    /// All tenants have what was declared, of the tiers as large as they are now.
    fn share_out(&mut self, ladder: &Ladder) {
        self.rest_for = 0;
        self.share_rest(ladder);
        for tier in 0..ladder.residents().levels() {
            for (tenant, share) in self.tenants.shares() {
                let share_bytes = (ladder.config().levels[tier].capacity_bytes as f64 * share) as u64;
                self.settings.push(Setting::Share { tenant, tier, share_bytes, k: self.tenants.k(tenant) });
            }
        }
        self.set_declared_ks(ladder);
    }

    /// Tenants without declared terms share the rest equally: as if there were as many of them as the next power of two, so that
    /// not every new tenant changes all shares. Once memory was divided, only newcomers are concerned.
    fn share_rest(&mut self, ladder: &Ladder) {
        if self.is_divided() {
            return self.share_with_newcomers(ladder);
        }
        let (declared, sum) =
            self.tenants.shares().fold((0, 0.0), |(count, sum), (_, share)| (count + 1, sum + share));
        let among = (self.tenants.count() - declared).max(1).next_power_of_two();
        if self.rest_for == among {
            return;
        }
        self.rest_for = among;
        let rest = (1.0 - sum).max(0.0);
        for tier in 0..ladder.residents().levels() {
            let share_bytes =
                (ladder.config().levels[tier].capacity_bytes as f64 * rest / among as f64) as u64;
            self.settings.push(Setting::Undeclared { tier, share_bytes });
        }
    }

    /// A newcomer to a ladder that was divided gets an equal part, as if there were one tenant more.
    fn share_with_newcomers(&mut self, ladder: &Ladder) {
        let among = self.tenants.count() as u64 + 1;
        for tier in 0..ladder.residents().levels() {
            self.settings.push(Setting::Newcomers {
                tier,
                share_bytes: ladder.config().levels[tier].capacity_bytes / among,
            });
        }
    }

    fn set_declared_ks(&mut self, ladder: &Ladder) {
        for tier in 0..ladder.residents().levels() {
            let settings = self.tenants.ks().map(|(tenant, k)| Setting::K { tenant, tier, k });
            self.settings.extend(settings);
        }
    }

    /// Takes the settings to be applied now, in this order.
    pub fn take_settings(&mut self) -> std::vec::Drain<'_, Setting> {
        self.settings.drain(..)
    }

    /// Whether memory is divided as an answer said, and not by what was declared.
    fn is_divided(&self) -> bool {
        self.advisor.as_ref().is_some_and(|advisor| advisor.history().divided_after.is_some())
    }

    fn weigh(&mut self) {
        let watched = self.advisor.as_ref().map_or(0, |advisor| advisor.metadata_bytes());
        self.metadata_bytes = self.tenants.metadata_bytes() + watched;
    }

    /// Bytes that the first tier is charged with for tenants and curves: as they were when a tenant came or a window ended.
    #[inline]
    pub fn metadata_bytes(&self) -> u64 {
        self.metadata_bytes
    }

    /// The tenants that there are.
    #[inline]
    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// The advisor that watches requests, where something is decided.
    pub fn advisor(&self) -> Option<&Advisor> {
        self.advisor.as_deref()
    }

    /// The present configuration of the division.
    pub fn division(&self) -> &Division {
        &self.division
    }
}

/// An answer gives each of `tenants` tenants one part at most, with `tiers` tiers.
fn assert_is_of(answer: &Answer, tenants: usize, tiers: usize) {
    let mut seen = vec![false; tenants];
    for part in &answer.parts {
        assert_eq!((part.bytes.len(), part.ks.len()), (tiers, tiers), "a part is of every tier");
        let seen = seen.get_mut(usize::from(part.tenant)).expect("whoever has a part has come");
        assert!(!std::mem::replace(seen, true), "a tenant has one part");
    }
}

fn capped(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
