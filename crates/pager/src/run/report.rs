//! Report on a run: what it needed, what it was given, what it took.

use std::time::Duration;

use tiermem_sys::child::Usage;

use super::ended::Ended;
use super::how::How;
use super::memory_pool::PoolBytes;
use crate::cost;
use crate::steer::Steered;

/// Slices of a report at most: a run that lasts longer has longer ones.
pub const SLICES_MAX: usize = 1000;

const PAGE_BYTES: u64 = 4096;

/// The report.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// By what it was paged.
    pub how: How,
    /// The peak of anonymous, shared and mapped memory in DRAM and on flash: what the program needs in all.
    pub required_bytes: u64,
    /// The peak of what its group was charged, with the file cache.
    pub charged_peak_bytes: u64,
    /// The limit of DRAM.
    pub dram_bytes: u64,
    /// Of that limit what is local memory of a pool, and the most that both of its nodes held; `None`: there is no pool.
    pub pool: Option<(u64, PoolBytes)>,
    /// The limit of flash; `None`: all of the machine's swap.
    pub flash_bytes: Option<u64>,
    /// The most that lay on flash.
    pub flash_peak_bytes: u64,
    /// The most that other programs of the machine had in the swap of this run; `None` where no swap was turned on for it.
    pub foreign_bytes: Option<u64>,
    /// From its start to its end.
    pub real: Duration,
    /// Resources used by it and by all descendants that it waited for; `None` if it was not started here.
    pub usage: Option<Usage>,
    /// Processor time of this process meanwhile.
    pub pager_cpu: Duration,
    /// Faults of the group that waited for a disk, and those that did not; also of processes that nobody waited for.
    pub major_faults: u64,
    /// See [`Self::major_faults`].
    pub minor_faults: u64,
    /// The peak of shared memory.
    pub shared_bytes: u64,
    /// Bytes read from swap and written to it.
    pub read_bytes: u64,
    /// See [`Self::read_bytes`].
    pub written_bytes: u64,
    /// Whether these two are the whole machine's, because the kernel does not count them for a group.
    pub is_of_machine: bool,
    /// How long faults took that waited for a disk, as far as that was measured.
    pub fault_times: Option<MeasuredTimes>,
    /// What steering has done, where the program was steered.
    pub steered: Option<Steered>,
    /// Equal parts of the time.
    pub slices: Vec<Slice>,
    /// How the program has ended.
    pub ended: Ended,
}

/// A part of a run's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slice {
    /// Its end, since the program's start.
    pub at: Duration,
    /// Charged at its end.
    pub charged_bytes: u64,
    /// On flash at its end.
    pub flash_bytes: u64,
    /// Faults in it that did not wait for a disk.
    pub minor_faults: u64,
    /// Faults in it that did.
    pub major_faults: u64,
    /// Read from swap in it.
    pub read_bytes: u64,
    /// Written to swap in it.
    pub written_bytes: u64,
}

/// Times of major faults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredTimes {
    /// Half of the faults took at most that, in microseconds.
    pub p50_us: f64,
    /// 99 of 100 took at most that.
    pub p99_us: f64,
    /// Faults that were measured.
    pub count: u64,
}

/// The use of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierUse {
    /// Its name.
    pub name: &'static str,
    /// What it may hold; `None`: as much as there is.
    pub capacity_bytes: Option<u64>,
    /// The most that it held.
    pub peak_bytes: u64,
    /// Read from it by paging.
    pub read_bytes: u64,
    /// Written to it by paging.
    pub written_bytes: u64,
}

impl Report {
    /// Processor time of the program, if it was started here.
    pub fn user(&self) -> Option<Duration> {
        self.usage.map(|usage| usage.user)
    }

    /// Processor time of the kernel for it, if it was started here.
    pub fn system(&self) -> Option<Duration> {
        self.usage.map(|usage| usage.system)
    }

    /// The overcommit ratio (equation 4.1): what it needs over the DRAM that it was given; at least 1.
    pub fn overcommit(&self) -> f64 {
        (self.required_bytes as f64 / self.dram_bytes.max(1) as f64).max(1.0)
    }

    /// The part of the cost of memory that is saved (equation 4.2), with the flash that was used. DRAM that it did not need counts as
    /// not given.
    pub fn tcm_saved(&self) -> Option<f64> {
        let dram_bytes = self.dram_bytes.min(self.required_bytes);
        cost::saved(self.required_bytes, dram_bytes, self.flash_peak_bytes)
    }

    /// All memory.
    pub fn dram(&self) -> TierUse {
        TierUse {
            name: "dram",
            capacity_bytes: Some(self.dram_bytes),
            peak_bytes: self.charged_peak_bytes,
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    /// Flash.
    pub fn flash(&self) -> TierUse {
        TierUse {
            name: "flash",
            capacity_bytes: self.flash_bytes,
            peak_bytes: self.flash_peak_bytes,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
        }
    }

    /// The tiers, fastest first. Of a pool the memory of both nodes is told apart.
    pub fn tiers(&self) -> Vec<TierUse> {
        let Some((local_bytes, peaks)) = self.pool else { return vec![self.dram(), self.flash()] };
        let (up, down) =
            self.steered.as_ref().map_or((0, 0), |it| (it.counts.moved_up, it.counts.moved_down));
        let local = TierUse { capacity_bytes: Some(local_bytes), peak_bytes: peaks.local, ..self.dram() };
        let remote = TierUse {
            name: "numa",
            capacity_bytes: Some(self.dram_bytes.saturating_sub(local_bytes)),
            peak_bytes: peaks.remote,
            read_bytes: up * PAGE_BYTES,
            written_bytes: down * PAGE_BYTES,
        };
        vec![local, remote, self.flash()]
    }
}
