//! Size of the memory tiers: what `maxmemory` says, or less where the process may not have so much any more.
//!
//! The control group's limit may be lowered while the store runs. So it is read again each second, and the tiers shrink to what it
//! leaves them, before the kernel ends a process that is above it.

use std::time::{Duration, Instant};

use tiermem_base::Bytes;
use tiermem_policy::shard_memory::Resize;
use tiermem_sys::memory::{LimitSource, MemoryLimit};

use crate::engine::{Engine, Eviction};
use crate::settings::Maxmemory;

/// Ticks, of 100 ms each, between two looks at the limit.
const LOOK_TICKS: u64 = 10;
/// Time of one tick in which items leave tiers that have shrunk; requests wait meanwhile.
const SETTLE: Duration = Duration::from_millis(2);

/// The sizes of one shard's memory tiers.
#[derive(Debug)]
pub(super) struct MemorySize {
    resize: Resize,
    beside_tiers_bytes: u64,
    /// What the limit leaves the tiers; `None`: there is none.
    allowed_bytes: Option<u64>,
    ticks: u64,
    is_settled: bool,
    /// One shard tells of a changed limit.
    tells: bool,
}

impl MemorySize {
    pub(super) fn new(maxmemory: Maxmemory, engine: &Engine, beside_tiers_bytes: u64, tells: bool) -> Self {
        MemorySize {
            resize: Resize::new(maxmemory.most_bytes, engine.memory().resizable()),
            beside_tiers_bytes,
            allowed_bytes: None,
            ticks: 0,
            is_settled: true,
            tells,
        }
    }

    /// Every tick: brings the tiers to the size that they may have.
    pub(super) fn tick(
        &mut self,
        maxmemory: Maxmemory,
        engine: &mut Engine,
        limit: impl FnOnce() -> Option<MemoryLimit>,
    ) {
        if self.ticks.is_multiple_of(LOOK_TICKS) {
            let limit = limit().filter(|limit| limit.source != LimitSource::Machine);
            let allowed = limit.map(|limit| limit.bytes.saturating_sub(self.beside_tiers_bytes));
            if allowed != self.allowed_bytes {
                self.tell(allowed, maxmemory, engine);
                self.allowed_bytes = allowed;
            }
        }
        self.ticks += 1;
        let bytes = self.allowed_bytes.map_or(maxmemory.bytes, |allowed| allowed.min(maxmemory.bytes));
        let before = self.resize.bytes();
        self.resize.set(bytes, &mut engine.memory_mut());
        self.is_settled &= self.resize.bytes() >= before;
        if !self.is_settled {
            let start = Instant::now();
            Resize::settle(&mut engine.memory_mut(), || start.elapsed() < SETTLE);
            self.is_settled = engine.memory().are_within_capacity();
        }
    }

    fn tell(&self, allowed: Option<u64>, maxmemory: Maxmemory, engine: &Engine) {
        let (before, now) = (self.allowed_bytes.unwrap_or(u64::MAX), allowed.unwrap_or(u64::MAX));
        if !self.tells || before.min(now) >= maxmemory.bytes {
            return;
        }
        let least = Resize::least_bytes(maxmemory.most_bytes);
        let to = Bytes(now.clamp(least, maxmemory.bytes));
        if now > before {
            tracing::info!(tiers = %to, "the memory limit was raised: the memory tiers grow");
        } else if now < least {
            tracing::warn!(tiers = %to, "the memory limit leaves less than the tiers can shrink to: the kernel may end the process");
        } else if engine.memory().eviction() == Eviction::Forbidden {
            tracing::warn!(tiers = %to, "the memory limit was lowered, and maxmemory-policy forbids to evict what is above it");
        } else {
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
        let mut size = MemorySize::new(maxmemory(48), &engine, 10 * MIB, true);
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
}
