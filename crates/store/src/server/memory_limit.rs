//! Size of the memory tiers: what `maxmemory` says, or less where the process may not have so much any more.
//!
//! The control group's limit may be lowered while the store runs. So one shard reads it again each second, for all of them
//! ([`KnownLimit`]), and the tiers shrink to what it leaves them ([`Allowance`]) before the kernel ends a process that is above it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tiermem_base::Bytes;
use tiermem_policy::shard_memory::{Allowance, LimitChange, Resize};
use tiermem_sys::memory::{LimitSource, MemoryLimit};

use crate::engine::{Engine, Eviction};
use crate::settings::Maxmemory;

/// Ticks, of 100 ms each, between two looks at the limit.
const LOOK_TICKS: u64 = 10;
/// Time of one tick in which items leave tiers that have shrunk; requests wait meanwhile.
const SETTLE: Duration = Duration::from_millis(2);

/// The limit of the process as it was read last, which all shards know.
#[derive(Clone, Debug)]
pub(super) struct KnownLimit(Arc<AtomicU64>);

impl Default for KnownLimit {
    fn default() -> Self {
        KnownLimit(Arc::new(AtomicU64::new(u64::MAX)))
    }
}

impl KnownLimit {
    /// The limit; `None`: there is none, or none was read yet.
    fn bytes(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|bytes| *bytes < u64::MAX)
    }

    /// The machine's memory is no limit: it does not change.
    fn set(&self, limit: Option<&MemoryLimit>) {
        let bytes =
            limit.filter(|limit| limit.source != LimitSource::Machine).map_or(u64::MAX, |limit| limit.bytes);
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// The sizes of one shard's memory tiers.
#[derive(Debug)]
pub(super) struct MemorySize {
    resize: Resize,
    beside_tiers_bytes: u64,
    known: KnownLimit,
    /// The limit that the tiers have; `None`: there is none.
    limit_bytes: Option<u64>,
    ticks: u64,
    is_settled: bool,
    /// One shard reads the limit, and tells of a changed one.
    is_reader: bool,
}

impl MemorySize {
    pub(super) fn new(
        maxmemory: Maxmemory,
        engine: &Engine,
        beside_tiers_bytes: u64,
        (known, is_reader): (KnownLimit, bool),
    ) -> Self {
        MemorySize {
            resize: Resize::new(maxmemory.most_bytes, engine.memory().resizable()),
            beside_tiers_bytes,
            known,
            limit_bytes: None,
            ticks: 0,
            is_settled: true,
            is_reader,
        }
    }

    /// Every tick: brings the tiers to the size that they may have.
    pub(super) fn tick(
        &mut self,
        maxmemory: Maxmemory,
        engine: &mut Engine,
        limit: impl FnOnce() -> Option<MemoryLimit>,
    ) {
        if self.is_reader && self.ticks.is_multiple_of(LOOK_TICKS) {
            self.known.set(limit().as_ref());
        }
        self.ticks += 1;
        let allowance = Allowance {
            most_bytes: maxmemory.most_bytes,
            wanted_bytes: maxmemory.bytes,
            beside_bytes: self.beside_tiers_bytes,
        };
        let limit_bytes = self.known.bytes();
        if self.is_reader {
            tell(allowance, self.limit_bytes, limit_bytes, engine);
        }
        self.limit_bytes = limit_bytes;
        let before = self.resize.bytes();
        self.resize.set(allowance.tier_bytes(limit_bytes), &mut engine.memory_mut());
        self.is_settled &= self.resize.bytes() >= before;
        if !self.is_settled {
            let start = Instant::now();
            Resize::settle(&mut engine.memory_mut(), || start.elapsed() < SETTLE);
            self.is_settled = engine.memory().are_within_capacity();
        }
    }
}

/// Says what a changed limit does.
fn tell(allowance: Allowance, before_bytes: Option<u64>, now_bytes: Option<u64>, engine: &Engine) {
    let to = Bytes(allowance.tier_bytes(now_bytes));
    match allowance.change(before_bytes, now_bytes) {
        LimitChange::None => {}
        LimitChange::Grows => {
            tracing::info!(tiers = %to, "the memory limit was raised: the memory tiers grow")
        }
        LimitChange::TooLow => {
            tracing::warn!(tiers = %to, "the memory limit leaves less than the tiers can shrink to: the kernel may end the process");
        }
        LimitChange::Shrinks if engine.memory().eviction() == Eviction::Forbidden => {
            tracing::warn!(tiers = %to, "the memory limit was lowered, and maxmemory-policy forbids to evict what is above it");
        }
        LimitChange::Shrinks => {
            tracing::warn!(tiers = %to, "the memory limit was lowered: the memory tiers shrink");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Condition, EngineConfig, Expiry};
    use tiermem_base::{TierKind, TierSpec};

    const MIB: u64 = 1 << 20;

    fn limit(bytes: u64) -> Option<MemoryLimit> {
        Some(MemoryLimit { bytes, source: LimitSource::Cgroup("limit".into()) })
    }

    #[test]
    fn tiers_follow_maxmemory_and_the_limit_and_what_is_above_leaves() {
        let tiers = vec![
            TierSpec::new(TierKind::Dram, Bytes(16 * MIB)),
            TierSpec::new(TierKind::Dram, Bytes(32 * MIB)),
        ];
        let mut engine = Engine::new(EngineConfig { spin: false, ..EngineConfig::new(tiers) }).unwrap();
        for key in 0..60_000u32 {
            engine.set(0, &key.to_le_bytes(), &[1; 1000], Condition::Always, Expiry::Never).unwrap();
        }
        let maxmemory = |bytes| Maxmemory { bytes: bytes * MIB, most_bytes: 48 * MIB, has_dax: false };
        let mut size = MemorySize::new(maxmemory(48), &engine, 10 * MIB, (KnownLimit::default(), true));
        let mut settled = |engine: &mut Engine, maxmemory: Maxmemory, limit_mib: u64| {
            for _ in 0..100_000 {
                size.tick(maxmemory, engine, || limit(limit_mib * MIB));
                let stats = engine.stats();
                if size.ticks.is_multiple_of(LOOK_TICKS)
                    && stats.tiers.iter().all(|it| it.used_bytes <= it.capacity_bytes)
                {
                    return stats.tiers.iter().map(|it| it.capacity_bytes / MIB).collect::<Vec<_>>();
                }
            }
            panic!("the tiers never came to their size");
        };
        assert_eq!(settled(&mut engine, maxmemory(48), 1000), [16, 32]);
        assert_eq!(settled(&mut engine, maxmemory(24), 1000), [8, 16]);
        // The limit leaves them less, then as much as they may have.
        assert_eq!(settled(&mut engine, maxmemory(24), 10 + 12), [4, 8]);
        assert_eq!(settled(&mut engine, maxmemory(24), 10 + 48), [8, 16]);
        assert_eq!(settled(&mut engine, maxmemory(48), 10 + 36), [12, 24]);
        // Less than they can shrink to.
        assert_eq!(settled(&mut engine, maxmemory(48), 3), [2, 4]);
        assert_eq!(settled(&mut engine, maxmemory(48), 1000), [16, 32]);
        assert!(engine.stats().keys > 1000, "what fitted is there still");
    }

    #[test]
    fn one_shard_reads_the_limit_for_all() {
        let engine = || {
            let tiers = vec![TierSpec::new(TierKind::Dram, Bytes(16 * MIB))];
            Engine::new(EngineConfig { spin: false, ..EngineConfig::new(tiers) }).unwrap()
        };
        let maxmemory = Maxmemory { bytes: 32 * MIB, most_bytes: 32 * MIB, has_dax: false };
        let (mut first, mut second, known) = (engine(), engine(), KnownLimit::default());
        let size = |engine: &Engine, reads| MemorySize::new(maxmemory, engine, MIB, (known.clone(), reads));
        let (mut reads, mut knows) = (size(&first, true), size(&second, false));
        let mut looks = 0;
        for tick in 0..200 {
            reads.tick(maxmemory, &mut first, || {
                looks += 1;
                limit(if tick < 100 { 17 * MIB } else { 9 * MIB })
            });
            knows.tick(maxmemory, &mut second, || unreachable!("another shard does"));
            let part = if tick < 100 { 8 } else { 4 };
            assert_eq!([&first, &second].map(|it| it.memory().capacity_bytes(0)), [part * MIB; 2], "{tick}");
        }
        assert_eq!(looks, 20, "once a second");
    }
}
