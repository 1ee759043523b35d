//! Sharded cache: several shards of a store over one trace. Each has the keys that belong there, and memory moves between them.

use std::collections::VecDeque;

use tiermem_base::Access;
use tiermem_base::key_to_shard::shard_of;
use tiermem_policy::shard_memory::{Member, Shown, Ticks, Word, shares_of};

use super::tiered::{TieredCache, TieredConfig};

/// The shards, and what they have told each other.
#[derive(Debug)]
pub struct ShardedCache {
    caches: Vec<TieredCache>,
    members: Vec<Member>,
    shown: Vec<Shown>,
    /// Messages under way: the shard that receives each, and its content.
    told: VecDeque<(usize, Word)>,
    ticks: Ticks,
}

impl ShardedCache {
    /// `shards` empty shards, each as it is configured: with an equal part of every tier.
    ///
    /// # Panics
    /// When there are none.
    pub fn new(config: &TieredConfig, shards: usize) -> Self {
        assert!(shards > 0, "somebody has the keys");
        let mut one = config.clone();
        one.ladder.growth = shards as u32;
        ShardedCache {
            caches: (0..shards).map(|_| TieredCache::new(one.clone())).collect(),
            members: (0..shards).map(Member::new).collect(),
            shown: vec![Shown::default(); shards],
            told: VecDeque::new(),
            ticks: Ticks::default(),
        }
    }

    /// The shards.
    pub fn shards(&self) -> &[TieredCache] {
        &self.caches
    }

    /// The shard of a key.
    #[inline]
    fn of(&mut self, key: u64) -> &mut TieredCache {
        let shard =
            if self.caches.len() == 1 { 0 } else { shard_of(&Access::key_name(key), self.caches.len()) };
        &mut self.caches[shard]
    }

    /// An access, like [`TieredCache::access`], at the shard that has its key; before it, the work that is due at its time.
    #[inline]
    pub fn access(&mut self, access: &Access) -> bool {
        if self.caches.len() > 1 {
            while let Some(now_ns) = self.ticks.next_due(access.time_ns) {
                self.tick(now_ns);
            }
        }
        self.of(access.key).access(access)
    }

    /// Preloads an item, like [`TieredCache::preload`].
    pub fn preload(&mut self, access: &Access) {
        self.of(access.key).preload(access);
    }

    /// Every shard does what is due, one after the other, and shows what it has by then. What they tell each other is heard behind
    /// that.
    fn tick(&mut self, now_ns: u64) {
        for (number, (cache, member)) in self.caches.iter_mut().zip(&mut self.members).enumerate() {
            let shown = |tier| shares_of(tier, &self.shown);
            member.tick(now_ns, cache, shown, |to, word| self.told.push_back((to, word)));
            self.shown[number] = member.show(cache.shard());
        }
        while let Some((to, word)) = self.told.pop_front() {
            let told = &mut self.told;
            self.members[to].hear(word, &mut self.caches[to], |to, word| told.push_back((to, word)));
        }
    }

    /// The most moves and departures that a request or a step of any shard had to wait for since the last call.
    pub fn take_acts_max(&mut self) -> usize {
        self.caches.iter_mut().map(|cache| cache.figures_mut().take_acts_max()).max().unwrap_or(0)
    }
}
