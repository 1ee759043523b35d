//! Moves memory between shards: the first shard decides ([`Divider`]), the giving shard empties its region a little at a
//! time, and the other takes only what was returned to the system. So all shards together never hold more than the tiers.

use std::time::Instant;

use tiermem_policy::shares::{Divider, Share};

use crate::engine::{Engine, Eviction};
use crate::shards::mailboxes::{Mailboxes, Message};

/// Ticks between two looks at who needs memory.
const TICKS: u64 = 10;

/// A shard's part in this.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Regions that this shard is emptying: tier, bytes, and who gets them.
    giving: Vec<(usize, u64, usize)>,
    /// The first shard's.
    divider: Divider,
    /// What each tier's departures were when they were last looked at.
    departures: Vec<u64>,
    /// The same for requests, and when.
    looked: Option<(u64, Instant)>,
    tail_ages_ms: Vec<Option<u64>>,
    ticks: u64,
}

impl Shares {
    /// How long ago the items that leave each tier were last used; `None`: none leaves.
    pub(super) fn tail_ages_ms(&self) -> &[Option<u64>] {
        &self.tail_ages_ms
    }

    /// Every tick: empties what is to be given, and now and then looks at who needs what.
    pub(super) fn tick(&mut self, engine: &mut Engine, mailboxes: &Mailboxes) {
        if !self.giving.is_empty() {
            engine.memory_mut().shrink();
            self.giving.retain(|&(tier, bytes, to)| {
                let there = engine.memory().is_within_capacity(tier);
                if there {
                    mailboxes.send(to, Message::Take { tier, bytes });
                }
                !there
            });
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS) {
            self.note_ages(engine);
            if mailboxes.placement.own == 0 {
                self.divide(engine, mailboxes);
            }
        }
    }

    /// Ages are kept in requests; those of different shards are compared in time.
    fn note_ages(&mut self, engine: &Engine) {
        let (requests, now) = (engine.requests(), Instant::now());
        let (before, then) = self.looked.replace((requests, now)).unwrap_or((requests, now));
        let ms_per_request = match requests - before {
            0 => None,
            made => Some(now.saturating_duration_since(then).as_secs_f64() * 1000.0 / made as f64),
        };
        self.departures.resize(engine.memory().count(), 0);
        let ages = self.departures.iter_mut().enumerate().map(|(tier, before)| {
            let (departures, age_requests) = engine.memory().departures(tier);
            let leaves = std::mem::replace(before, departures) != departures;
            ms_per_request.filter(|_| leaves).map(|ms| (age_requests as f64 * ms) as u64)
        });
        self.tail_ages_ms = ages.collect();
    }

    /// Has it decided for each tier whether memory moves.
    fn divide(&mut self, engine: &Engine, mailboxes: &Mailboxes) {
        if engine.memory().eviction() == Eviction::Forbidden {
            // Who gives memory away must be able to let items go.
            return;
        }
        let figures: Vec<_> = mailboxes.shard_stats.each().collect();
        for tier in 0..engine.memory().count() {
            let share = |figures: &crate::shards::shard_stats::Figures| {
                let capacity_bytes = figures.engine.tiers.get(tier)?.capacity_bytes;
                Some(Share { capacity_bytes, tail_age_ms: *figures.tail_ages_ms.get(tier)? })
            };
            // Before every shard has shown its figures nothing is known.
            let Some(shares) = figures.iter().map(share).collect::<Option<Vec<_>>>() else { continue };
            if let Some(transfer) = self.divider.look(tier, &shares) {
                let (bytes, to) = (transfer.bytes, transfer.to);
                mailboxes.send(transfer.from, Message::Give { tier, bytes, to });
            }
        }
    }

    /// Begins to give.
    pub(super) fn give(&mut self, engine: &mut Engine, tier: usize, bytes: u64, to: usize) {
        let left = engine.memory().capacity_bytes(tier).saturating_sub(bytes);
        engine.memory_mut().set_capacity(tier, left);
        self.giving.push((tier, bytes, to));
    }

    /// Takes what was given.
    pub(super) fn take(engine: &mut Engine, mailboxes: &Mailboxes, tier: usize, bytes: u64) {
        let capacity_bytes = engine.memory().capacity_bytes(tier);
        engine.memory_mut().set_capacity(tier, capacity_bytes + bytes);
        mailboxes.send(0, Message::Moved { tier });
    }

    /// Memory has arrived.
    pub(super) fn moved(&mut self, tier: usize) {
        self.divider.moved(tier);
    }
}
