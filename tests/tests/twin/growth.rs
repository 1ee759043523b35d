//! A flash tier that grows amid a trace: what it then has room for is the same in both.

use super::{
    ADMISSIONS, Counts, FlashTier, Live, TieredCache, counts_of_simulator, ladders, simulation, slice,
};
use tiermem_base::{Access, Op};
use tiermem_policy::ladder::LadderConfig;
use tiermem_sim::cache::grow_tail;

const SEGMENT_BYTES: u32 = 128 << 10;
const MORE_SEGMENTS: u32 = 75;

/// Values of all sizes up to some tens of KiB, and some of all operations.
pub(super) fn large_twitter_trace() -> Vec<Access> {
    let mut trace = slice("twitter_cluster52-20k.csv.zst");
    for (at, access) in trace.iter_mut().enumerate() {
        access.op = [Op::Get, Op::Get, Op::Get, Op::Get, Op::Set, Op::Get, Op::Get, Op::Del][at % 8];
        access.size = access.size * 28 + at as u32 % 700;
    }
    trace
}

fn counts(ladder: &LadderConfig, flash: FlashTier, halves: [&[Access]; 2], grows: bool) -> [Counts; 2] {
    let trace = halves.concat();
    let mut live = Live::new(ladder, Some(flash), &trace, None);
    let mut cache = TieredCache::new(simulation(ladder, Some(flash), None));
    for (half, accesses) in halves.into_iter().enumerate() {
        if half == 1 && grows {
            let more = u64::from(MORE_SEGMENTS) * u64::from(SEGMENT_BYTES);
            live.engine.flash().grow(flash.region_bytes + more + 1).unwrap();
            grow_tail(&mut cache, MORE_SEGMENTS);
        }
        accesses.iter().for_each(|access| live.access(access, None));
        accesses.iter().for_each(|access| _ = cache.access(access));
    }
    let mut counts = [live.counts(), counts_of_simulator(&cache, Vec::new())];
    // The live one's is that of its configuration.
    counts.iter_mut().flat_map(|it| &mut it.flash).for_each(|flash| flash.capacity_bytes = 0);
    counts
}

#[test]
fn more_flash_has_room_for_the_same_in_both() {
    let trace = large_twitter_trace();
    let halves: [&[Access]; 2] = trace.split_at(trace.len() / 2).into();
    for admission in ADMISSIONS {
        let flash = FlashTier { region_bytes: 24 << 20, segment_bytes: SEGMENT_BYTES, admission };
        for (what, ladder) in ladders(1 << 20, 4 << 20).into_iter().take(1) {
            let [live, simulated] = counts(&ladder, flash, halves, true);
            assert_eq!(live, simulated, "{what}, {admission:?}");
            let [stays, _] = counts(&ladder, flash, halves, false);
            let evictions = [&live, &stays].map(|counts| counts.flash.as_ref().unwrap().evictions);
            assert!(evictions[0] < evictions[1], "{what}, {admission:?}: {evictions:?}");
        }
    }
}
