//! A backing store and a cache device of sectors, and the driver that carries out plans on them.
#![allow(dead_code)] // Each test uses a part of it.

use std::collections::HashMap;
use std::ops::Range;

use tiermem_base::Rng;
use tiermem_policy::evict::{Evict, Lru, lru::Bump};
use tiermem_policy::extents::*;

pub const SECTOR: u64 = 512;
pub const KIB: u64 = 1 << 10;

/// What a sector holds: the number of the write that it is of; 0: never written.
pub type Stamp = u32;

/// What went where, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    pub core_read: u64,
    pub core_written: u64,
    pub cache_read: u64,
    pub cache_written: u64,
}

pub struct World<O> {
    pub cache: Extents<O>,
    pub core: HashMap<(Volume, u64), Stamp>,
    device: Vec<Stamp>,
    /// What clients have been told is there.
    truth: HashMap<(Volume, u64), Stamp>,
    pub volumes: Volumes,
    writes: Stamp,
    /// Whether reads wait for what is dirty, as they do not live.
    pub reads_wait: bool,
    /// The last request's plan.
    pub plan: Plan,
}

pub fn lru(shares: u16) -> Lru {
    Lru::new(std::iter::repeat_n(1.0, Extents::<Lru>::domains(shares)), Bump::Always)
}

pub fn sectors(range: Range<u64>) -> Range<u64> {
    range.start / SECTOR..range.end / SECTOR
}

impl World<Lru> {
    pub fn new(sizes: &[u64], capacity_bytes: u64, config: Config) -> Self {
        let geometry = Geometry::new(sizes, None, capacity_bytes).unwrap();
        World::with(Extents::new(geometry, config, lru(config.shares), Rng::seeded(1)))
    }
}

impl<O> World<O> {
    /// The same devices under another cache, as after a restart.
    pub fn under<P>(self, cache: Extents<P>) -> World<P> {
        let World { core, device, truth, volumes, writes, reads_wait, plan, .. } = self;
        World { cache, core, device, truth, volumes, writes, reads_wait, plan }
    }
}

impl<O: Evict> World<O> {
    pub fn with(cache: Extents<O>) -> Self {
        let device = vec![Stamp::MAX; (cache.geometry().capacity_bytes() / SECTOR) as usize];
        let (core, truth) = (HashMap::new(), HashMap::new());
        World {
            cache,
            core,
            device,
            truth,
            volumes: Volumes::default(),
            writes: 0,
            reads_wait: true,
            plan: Plan::default(),
        }
    }

    fn write_back(&mut self, parts: &[Part], volumes: &[Volume]) {
        for (part, &volume) in parts.iter().zip(volumes) {
            self.volumes.core_written += part.bytes;
            for behind in 0..part.bytes / SECTOR {
                let stamp = self.device[(part.at / SECTOR + behind) as usize];
                assert_ne!(stamp, Stamp::MAX, "what was never filled is written back");
                self.core.insert((volume, part.offset / SECTOR + behind), stamp);
            }
        }
        self.cache.units_mut().cleaned(parts);
    }

    /// Writes everything back.
    pub fn flush(&mut self, volume: Volume, end: u64) {
        let mut dirty = Vec::new();
        self.cache.visit(volume, 0..end, |part, is_dirty| dirty.extend(is_dirty.then_some(part)));
        let volumes = vec![volume; dirty.len()];
        self.write_back(&dirty, &volumes);
    }

    /// Plans and carries out one request, and checks what a read returns. Returns whether it was a hit.
    pub fn request(&mut self, mut request: Request) -> bool {
        let mut plan = std::mem::take(&mut self.plan);
        loop {
            match self.cache.plan(&request, &mut plan) {
                Verdict::Ready => break,
                Verdict::Clean => assert!(!plan.clean.is_empty()),
                Verdict::Busy | Verdict::Full => panic!("no other plan is in flight, and there is no store"),
            }
            if request.write.is_none() && !self.reads_wait {
                plan.settle_for_less(&mut request);
                continue;
            }
            self.write_back(&plan.clean, &plan.clean_volumes);
            plan.again = true;
        }
        self.carry_out(&request, &plan);
        self.cache.finish(&mut plan);
        let hit = plan.hit;
        self.plan = plan;
        hit
    }

    fn carry_out(&mut self, request: &Request, plan: &Plan) {
        let volume = request.volume;
        let wanted = sectors(request.offset..request.offset + request.bytes);
        let mut buffer: HashMap<u64, Stamp> = HashMap::new();
        for part in &plan.cached {
            self.volumes.cache_read += part.bytes;
            for behind in 0..part.bytes / SECTOR {
                let stamp = self.device[(part.at / SECTOR + behind) as usize];
                assert_ne!(stamp, Stamp::MAX, "what was never filled is read");
                assert!(buffer.insert(part.offset / SECTOR + behind, stamp).is_none(), "read twice");
            }
        }
        for range in &plan.fetch {
            self.volumes.core_read += range.end - range.start;
            for sector in sectors(range.clone()) {
                let stamp = self.core.get(&(volume, sector)).copied().unwrap_or(0);
                assert!(buffer.insert(sector, stamp).is_none(), "read twice");
            }
        }
        if request.write.is_some() {
            self.writes += 1;
            for sector in wanted.clone() {
                buffer.insert(sector, self.writes);
                self.truth.insert((volume, sector), self.writes);
            }
        }
        for part in &plan.fill {
            self.volumes.cache_written += part.bytes;
            for behind in 0..part.bytes / SECTOR {
                let stamp = buffer.get(&(part.offset / SECTOR + behind));
                let stamp = *stamp.expect("what is stored is at hand");
                self.device[(part.at / SECTOR + behind) as usize] = stamp;
            }
        }
        for range in &plan.through {
            assert!(range.start >= request.offset && range.end <= request.offset + request.bytes);
            self.volumes.core_written += range.end - range.start;
            for sector in sectors(range.clone()) {
                self.core.insert((volume, sector), self.writes);
            }
        }
        if request.write.is_none() {
            for sector in wanted {
                let expected = self.truth.get(&(volume, sector)).copied().unwrap_or(0);
                assert_eq!(buffer.get(&sector), Some(&expected), "sector {sector} of {volume:?}");
            }
        }
    }

    /// After everything was written back the backing store has it all.
    pub fn assert_core_is_complete(&self) {
        for (key, stamp) in &self.truth {
            assert_eq!(self.core.get(key), Some(stamp), "{key:?}");
        }
    }
}
