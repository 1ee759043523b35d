//! What the cases in virtual time have in common: the set-up that they vary, and the requests.

use std::ops::Range;

use tiermem_base::{Access, Op};
use tiermem_policy::evict::Named;
use tiermem_policy::extents::cleaner::CleanerRules;
use tiermem_policy::extents::{Fill, Sizing};

use crate::block_trace::cut_trace;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;
pub const VOLUMES: u32 = 3;
pub const VOLUME_BYTES: u64 = 64 << 20;
/// Most bytes of a log and its table on the device beside that.
pub const METADATA_BYTES: u64 = 1 << 20;
pub const BLOCK_BYTES: [u64; 4] = [32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB];

/// A cache, its devices and stores, and how it is asked.
#[derive(Clone, Debug)]
pub struct Case {
    pub cache_bytes: u64,
    pub fill: Fill,
    pub sizing: Sizing,
    pub rules: CleanerRules,
    /// Between two requests.
    pub every_ns: u64,
    /// Requests under way at a time, at most.
    pub depth: usize,
    pub cache_ns: u64,
    pub core_ns: u64,
    /// What volume 2 may have, in a share of its own.
    pub quota_bytes: Option<u64>,
    pub outages: Vec<(u32, Range<u64>)>,
    /// DRAM for copies.
    pub memory_bytes: u64,
    pub policy: Named,
    /// The cache is persistent: its log is as small as possible, and this is the time
    /// of writing a page of its table, without which no space of the log is freed.
    pub log_page_ns: Option<u64>,
    /// After how many writes to a volume it is flushed.
    pub flush_every: Option<u64>,
}

pub fn case() -> Case {
    Case {
        cache_bytes: 24 * MIB,
        fill: Fill::Units,
        sizing: Sizing::Request,
        rules: CleanerRules { age_ns: 2 * S, ..CleanerRules::default() },
        every_ns: 4 * MS,
        depth: 1,
        cache_ns: 80_000,
        core_ns: MS,
        quota_bytes: None,
        outages: Vec::new(),
        memory_bytes: 0,
        policy: Named::Lru,
        log_page_ns: None,
        flush_every: None,
    }
}

/// A trace's reads and writes, none of them across a cut, of three volumes by turns, and one read more.
pub fn records(name: &str, case: &Case) -> Vec<Access> {
    // A sixteenth of the cache, or 1 MiB.
    let cut_bytes = MIB.min(1 << (case.cache_bytes / 16).ilog2());
    let mut records = cut_trace(name, VOLUME_BYTES, cut_bytes);
    for (number, record) in (0..).zip(&mut records) {
        // The first requests name the volumes in their order; then one is asked more than the others.
        record.tenant = [0, 1, 2, 1][(number % 4) as usize];
        record.time_ns = number * case.every_ns;
    }
    records.push(Access { key: 0, size: 4096, tenant: 0, op: Op::Read, ..records[records.len() - 1] });
    records
}
