//! Tiers of one shard: reading, writing and copying at the places
//! that the ladder names, and the delays owed for emulated tiers.

mod device;
mod lost;
mod persist_order;
mod persistent_region;
mod populate;
mod region;
mod region_format;

use std::cell::Cell;
use std::ops::Range;
use std::time::Instant;

use tiermem_base::{Bytes, TierSpec};
use tiermem_policy::ladder::{Loc, PAGE_BYTES};
use tiermem_sys::prefetch::prefetch;
use tiermem_tier::device::Memory;

use device::{Device, DeviceError};
pub use lost::Losing;
pub use persistent_region::{SEAL, SEAL_AT, TAIL_BYTES};
use populate::Populator;
pub use region::Unmended;
pub use region_format::pages_bytes;

/// Debts up to here are carried on: a clock read costs some 25 ns, so smaller ones cannot be spun off precisely.
const SPIN_ABOVE_NS: f64 = 1000.0;

const CACHE_LINE_BYTES: usize = 64;

/// What counts of a wait: a little more than was owed is credit for the next debt. More than that is no wait of ours: the system ran
/// something else meanwhile, and on a busy machine as much as thousands of requests owe would be forgiven.
fn counted_wait_ns(owed: f64, waited: f64) -> f64 {
    waited.min(owed + SPIN_ABOVE_NS)
}

/// A tier that could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("tier {name:?} of {}: {source}", Bytes(*capacity_bytes))]
pub struct TierError {
    name: String,
    capacity_bytes: u64,
    source: DeviceError,
}

#[derive(Debug)]
struct Tier {
    device: Device,
    /// Nanoseconds charged since the start. In a cell, because a read charges too.
    charged_ns: Cell<f64>,
}

/// Time of reading the clock, in nanoseconds: the least of several trials, since
/// a trial during which another program ran would shorten every later wait.
fn clock_ns() -> f64 {
    const READINGS: u32 = 100;
    let trial = |_| {
        let start = Instant::now();
        (0..READINGS).for_each(|_| {
            std::hint::black_box(Instant::now());
        });
        start.elapsed().as_nanos() as f64 / f64::from(READINGS)
    };
    (0..10).map(trial).fold(f64::INFINITY, f64::min)
}

/// All tiers of a shard.
#[derive(Debug)]
pub struct Tiers {
    tiers: Vec<Tier>,
    populator: Populator,
    /// A bit for each persistent tier.
    keeping: u8,
    debt_ns: Cell<f64>,
    waited_ns: Cell<f64>,
    /// Time of reading the clock, in nanoseconds: each wait begins with a reading that is not counted.
    clock_ns: f64,
    /// Whether debts are spun off; a simulation of time only counts them.
    spin: bool,
}

impl Tiers {
    /// Sets the tiers up, fastest first. `layout` is everything beside the capacity that
    /// decides where items lie in a persistent tier: a tier of another layout is not
    /// restored. With `spin` the process really waits for the charges of emulated tiers.
    ///
    /// # Errors
    /// When a tier's kind is not memory, or the machine does not have the memory.
    pub fn new(specs: &[TierSpec], layout: u64, spin: bool) -> Result<Self, TierError> {
        let tiers = specs.iter().map(|spec| {
            let error = |source| TierError {
                name: spec.name.clone(),
                capacity_bytes: spec.known_bytes().unwrap_or(0),
                source,
            };
            let device = device::open(spec, layout).map_err(error)?;
            if let Some(memory) = device.populate() {
                // The first page of a mapping takes a lock on the whole address space. The thread that populates must not be
                // the one that holds it, for it may be kept from running.
                memory.range(0, 1);
            }
            Ok(Tier { device, charged_ns: Cell::new(0.0) })
        });
        let tiers = tiers.collect::<Result<Vec<_>, _>>()?;
        let keeping = |(at, tier): (usize, &Tier)| u8::from(matches!(tier.device, Device::Region(_))) << at;
        Ok(Tiers {
            keeping: tiers.iter().enumerate().map(keeping).sum(),
            populator: Populator::new(tiers.len()),
            tiers,
            debt_ns: Cell::new(0.0),
            waited_ns: Cell::new(0.0),
            clock_ns: clock_ns(),
            spin,
        })
    }

    /// `len` bytes at `offset` behind a place, uncharged: for reading what was charged as part of a range.
    #[inline]
    pub fn bytes(&self, loc: Loc, offset: usize, len: usize) -> &[u8] {
        let start = loc.byte_offset() as usize + offset;
        &self.tiers[usize::from(loc.tier)].device.bytes()[start..start + len]
    }

    /// Asks for the first `len` bytes at a place before they are needed; uncharged, for it is no access.
    #[inline]
    pub fn prefetch(&self, loc: Loc, len: usize) {
        let start = loc.byte_offset() as usize;
        let bytes = self.tiers[usize::from(loc.tier)].device.bytes();
        for line in bytes[start..].iter().take(len).step_by(CACHE_LINE_BYTES) {
            prefetch(line);
        }
    }

    /// `len` bytes at a place, to write; uncharged.
    #[inline]
    pub fn bytes_mut(&mut self, loc: Loc, len: usize) -> &mut [u8] {
        let start = loc.byte_offset() as usize;
        &mut self.tiers[usize::from(loc.tier)].device.bytes_mut()[start..start + len]
    }

    /// `from_len` bytes at one place to read and `to_len` at another to write; uncharged. The places must not overlap.
    pub fn bytes_from_to(
        &mut self,
        from: Loc,
        from_len: usize,
        to: Loc,
        to_len: usize,
    ) -> (&[u8], &mut [u8]) {
        let (source, target) = (from.byte_offset() as usize, to.byte_offset() as usize);
        let (source_tier, target_tier) = (usize::from(from.tier), usize::from(to.tier));
        if source_tier == target_tier {
            let bytes = self.tiers[source_tier].device.bytes_mut();
            let (low, high) = bytes.split_at_mut(source.max(target));
            return if source < target {
                (&low[source..source + from_len], &mut high[..to_len])
            } else {
                (&high[..from_len], &mut low[target..target + to_len])
            };
        }
        let (low, high) = self.tiers.split_at_mut(source_tier.max(target_tier));
        let (from, to) = if source_tier < target_tier {
            (&low[source_tier].device, &mut high[0].device)
        } else {
            (&high[0].device, &mut low[target_tier].device)
        };
        (&from.bytes()[source..source + from_len], &mut to.bytes_mut()[target..target + to_len])
    }

    /// Charges the reading of a contiguous range of `len` bytes.
    #[inline]
    pub fn charge_read(&self, tier: u8, len: usize) {
        let tier = &self.tiers[usize::from(tier)];
        self.charge(tier, tier.device.touch_read(len as u64));
    }

    /// Charges the writing of a contiguous range of `len` bytes.
    #[inline]
    pub fn charge_write(&self, tier: u8, len: usize) {
        let tier = &self.tiers[usize::from(tier)];
        self.charge(tier, tier.device.touch_write(len as u64));
    }

    #[inline]
    fn charge(&self, tier: &Tier, ns: f64) {
        if ns > 0.0 {
            tier.charged_ns.set(tier.charged_ns.get() + ns);
            self.debt_ns.set(self.debt_ns.get() + ns);
        }
    }

    /// Copies `len` bytes from one place to another and charges both ranges.
    pub fn copy(&mut self, from: Loc, to: Loc, len: usize) {
        self.charge_read(from.tier, len);
        self.charge_write(to.tier, len);
        let (source, target) = self.bytes_from_to(from, len, to, len);
        target.copy_from_slice(source);
    }

    /// Whether a tier has `bytes` behind an offset.
    pub fn has_bytes(&self, tier: u8, offset: u64, bytes: u64) -> bool {
        let tier = self.tiers.get(usize::from(tier));
        tier.is_some_and(|tier| offset + bytes <= tier.device.bytes().len() as u64)
    }

    /// Whether a tier has these pages.
    pub fn has_pages(&self, tier: u8, first: u32, count: u32) -> bool {
        self.has_bytes(tier, u64::from(first) * PAGE_BYTES, u64::from(count) * PAGE_BYTES)
    }

    /// Gives a page's memory back to the system.
    pub fn discard(&mut self, tier: u8, page: u32) {
        let start = u64::from(page) * PAGE_BYTES;
        self.populator.note_discard(usize::from(tier));
        self.tiers[usize::from(tier)].device.discard(start as usize, PAGE_BYTES as usize);
    }

    /// Makes another thread populate pages that will be written soon.
    /// Does nothing where the device has all its memory from the start.
    pub fn populate(&mut self, tier: u8, pages: Range<u32>) {
        if let Some(memory) = self.tiers[usize::from(tier)].device.populate() {
            self.populator.ask(usize::from(tier), memory, pages);
        }
    }

    /// Waits off the debt when it is large enough to be waited off precisely.
    #[inline]
    pub fn settle(&self) {
        if self.spin && self.debt_ns.get() > SPIN_ABOVE_NS {
            self.spin_off();
        }
    }

    #[cold]
    fn spin_off(&self) {
        let owed = self.debt_ns.get();
        let start = Instant::now();
        loop {
            let waited = start.elapsed().as_nanos() as f64 + self.clock_ns;
            if waited >= owed {
                self.debt_ns.set(owed - counted_wait_ns(owed, waited));
                self.waited_ns.set(self.waited_ns.get() + counted_wait_ns(owed, waited));
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Nanoseconds charged in a tier since the start.
    pub fn charged_ns(&self, tier: usize) -> f64 {
        self.tiers[tier].charged_ns.get()
    }

    /// Nanoseconds waited off since the start.
    pub fn waited_ns(&self) -> f64 {
        self.waited_ns.get()
    }

    /// Nanoseconds charged in all tiers since the start: the difference over a request is that request's own.
    pub fn charged_total_ns(&self) -> f64 {
        self.tiers.iter().map(|tier| tier.charged_ns.get()).sum()
    }
}

#[cfg(test)]
mod tests {
    use tiermem_base::TierKind;

    use super::*;

    fn tiers(spin: bool) -> Tiers {
        let specs = [TierKind::Dram, TierKind::Emulated].map(|kind| TierSpec::new(kind, Bytes(1 << 20)));
        Tiers::new(&specs, 0, spin).unwrap()
    }

    #[test]
    fn what_is_no_memory_or_has_no_place_is_refused() {
        for (tier, part) in [
            (
                "flash:/srv/x=1MiB",
                "memory serves tiers of kind dram, numa, dax and emulated, and not flash yet",
            ),
            ("numa=1MiB", "a tier of kind numa has a node"),
            ("dax=1MiB", "a tier of kind dax has a path"),
            ("dram=10%", "give bytes"),
        ] {
            let error = Tiers::new(&[tier.parse().unwrap()], 0, false).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn copies_go_up_down_and_within_and_only_the_slow_tier_charges() {
        let mut tiers = tiers(false);
        let at = |tier, unit| Loc { tier, unit };
        tiers.bytes_mut(at(0, 4), 100).fill(9);
        tiers.copy(at(0, 4), at(0, 100), 100);
        assert_eq!(tiers.charged_total_ns(), 0.0);
        tiers.copy(at(0, 100), at(1, 8), 100);
        tiers.copy(at(1, 8), at(1, 40), 100);
        tiers.copy(at(1, 40), at(0, 200), 100);
        assert_eq!(tiers.bytes(at(0, 200), 0, 100), [9; 100]);
        let charged = tiers.charged_ns(1);
        assert!((4.0 * 140.0..4.0 * 160.0).contains(&charged), "{charged}");
        assert_eq!(tiers.charged_total_ns(), charged);
    }

    #[test]
    fn time_that_the_system_took_forgives_no_debts() {
        assert_eq!(counted_wait_ns(1200.0, 1230.0), 1230.0);
        assert_eq!(counted_wait_ns(1200.0, 4e6), 1200.0 + SPIN_ABOVE_NS);
    }

    #[test]
    fn debts_are_waited_off_in_full() {
        let tiers = tiers(true);
        let start = Instant::now();
        for _ in 0..1000 {
            tiers.charge_read(1, 64);
            tiers.settle();
        }
        // Only a lower bound: the machine may be busy, but the wait can never be shorter than the charge.
        let waited = start.elapsed().as_nanos() as f64;
        assert!(waited + SPIN_ABOVE_NS + 0.1 * tiers.charged_ns(1) >= tiers.charged_ns(1));
    }
}
