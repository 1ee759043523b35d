//! Populating of memory ahead of need: a thread touches pages that will soon be written,
//! so that the shard's own thread does not wait for the kernel to find and clear them.
//!
//! The thread starts with the first pages that are asked for. It runs at idle priority: on a busy machine it comes
//! too late, and then the shard takes the memory by writing, as without it. Neither ever waits for the other: when
//! the tiers are dropped the thread ends by itself, and the pages that it is populating stay mapped until then.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use tiermem_policy::ladder::PAGE_BYTES;
use tiermem_sys::affinity;
use tiermem_sys::populate::Populate;

/// Pages of one tier to touch.
#[derive(Debug)]
struct Wish {
    memory: Populate,
    pages: Range<u32>,
    /// Pages that the tier has given back, counted; `discards_before` when the wish was made. It is void once the two differ:
    /// what it names may have been given back since.
    discards: Arc<AtomicU64>,
    discards_before: u64,
}

/// A shard's thread, and the count of discards of each tier.
#[derive(Debug)]
pub(super) struct Populator {
    discards: Vec<Arc<AtomicU64>>,
    thread: Option<Sender<Wish>>,
}

impl Populator {
    /// For `tiers` tiers. The thread starts with the first pages.
    pub fn new(tiers: usize) -> Self {
        Populator { discards: (0..tiers).map(|_| Arc::default()).collect(), thread: None }
    }

    /// Asks the thread to populate these pages, eventually.
    pub fn ask(&mut self, tier: usize, memory: Populate, pages: Range<u32>) {
        if self.thread.is_none() {
            let (thread, wishes) = channel();
            let named = Builder::new().name("populate".to_owned());
            self.thread = named.spawn(move || work(&wishes)).is_ok().then_some(thread);
        }
        // Where there is no thread, memory is taken by writing.
        let Some(thread) = &self.thread else { return };
        let discards = Arc::clone(&self.discards[tier]);
        let discards_before = discards.load(Ordering::Relaxed);
        let _ = thread.send(Wish { memory, pages, discards, discards_before });
    }

    /// A page of this tier is about to be given back: requests for it are void. The thread may be
    /// touching that very page all the same; then its memory is held although it is not counted.
    pub fn note_discard(&self, tier: usize) {
        if self.thread.is_some() {
            self.discards[tier].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Populator {
    fn drop(&mut self) {
        for tier in 0..self.discards.len() {
            self.note_discard(tier);
        }
    }
}

fn work(wishes: &Receiver<Wish>) {
    affinity::step_back();
    for Wish { memory, pages, discards, discards_before } in wishes {
        for page in pages {
            if discards.load(Ordering::Relaxed) != discards_before {
                break;
            }
            memory.range(page as usize * PAGE_BYTES as usize, PAGE_BYTES as usize);
        }
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;
    use crate::tiers::Tiers;
    use std::time::{Duration, Instant};
    use tiermem_base::{Bytes, TierKind, TierSpec};
    use tiermem_policy::ladder::{Loc, UNIT_BYTES};
    use tiermem_sys::mapping::Mapping;
    use tiermem_sys::memory::resident_bytes_of;

    const TIER_PAGES: u32 = 256;
    const TIER_BYTES: u64 = TIER_PAGES as u64 * PAGE_BYTES;

    fn spec(kind: TierKind) -> TierSpec {
        TierSpec::new(kind, Bytes(TIER_BYTES))
    }

    fn in_memory() -> Tiers {
        Tiers::new(&[TierKind::Dram, TierKind::Emulated].map(spec), 0, false).unwrap()
    }

    fn resident(tiers: &Tiers, tier: u8, pages: &Range<u32>) -> u64 {
        let len = pages.len() * PAGE_BYTES as usize;
        let start = Loc { tier, unit: pages.start * (PAGE_BYTES / UNIT_BYTES) as u32 };
        resident_bytes_of(tiers.bytes(start, 0, len)).unwrap()
    }

    #[test]
    fn what_is_asked_for_is_in_memory_before_long() {
        let mut tiers = in_memory();
        for tier in 0..2 {
            assert!(resident(&tiers, tier, &(0..TIER_PAGES)) <= 2 << 20, "the first page, be it a huge one");
            for pages in [40..100, 200..TIER_PAGES] {
                tiers.populate(tier, pages.clone());
                let begun = Instant::now();
                while resident(&tiers, tier, &pages) < pages.len() as u64 * PAGE_BYTES {
                    assert!(begun.elapsed() < Duration::from_secs(60), "the thread has not come");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let bytes = tiers.bytes(Loc { tier, unit: 0 }, 0, TIER_BYTES as usize);
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn what_was_given_back_meanwhile_is_left_alone() {
        let pages = TIER_PAGES as usize * PAGE_BYTES as usize;
        let mapping = Mapping::anonymous(pages).unwrap();
        let populator = Populator::new(1);
        let (sender, wishes) = channel();
        let discards = Arc::clone(&populator.discards[0]);
        let wish = |discards_before| Wish {
            memory: mapping.populate().unwrap(),
            pages: 0..TIER_PAGES,
            discards: Arc::clone(&discards),
            discards_before,
        };
        sender.send(wish(0)).unwrap();
        discards.fetch_add(1, Ordering::Relaxed);
        drop(sender);
        std::thread::spawn(move || work(&wishes)).join().unwrap();
        assert_eq!(resident_bytes_of(mapping.bytes()), Some(0));
        let (sender, wishes) = channel();
        sender.send(wish(1)).unwrap();
        drop(sender);
        std::thread::spawn(move || work(&wishes)).join().unwrap();
        assert_eq!(resident_bytes_of(mapping.bytes()), Some(pages as u64));
    }

    #[test]
    fn a_discard_voids_what_was_asked_for_in_its_tier() {
        let mut tiers = in_memory();
        tiers.discard(0, 1);
        let counts = |tiers: &Tiers| {
            let each = tiers.populator.discards.iter();
            each.map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>()
        };
        assert_eq!(counts(&tiers), [0, 0], "nobody is there to be told");
        tiers.populate(1, 0..1);
        tiers.discard(0, 1);
        assert_eq!(counts(&tiers), [1, 0]);
    }

    #[test]
    fn tiers_may_go_while_much_is_asked_for() {
        for round in 0..40u8 {
            let mut tiers = in_memory();
            for first in (0..TIER_PAGES).step_by(8) {
                tiers.populate(first as u8 / 8 % 2, first..first + 8);
            }
            // Amid it all what is written stays.
            for unit in (0..4096 * 64).step_by(4096) {
                tiers.bytes_mut(Loc { tier: 0, unit }, 1)[0] = round;
            }
            for unit in (0..4096 * 64).step_by(4096) {
                assert_eq!(tiers.bytes(Loc { tier: 0, unit }, 0, 1), [round]);
            }
        }
    }

    #[test]
    fn a_file_has_its_memory() {
        let path = std::env::temp_dir().join(format!("tiermem-populate-tier-{}", std::process::id()));
        let mapped = TierSpec { reset: true, ..spec(TierKind::Dax).at_path(&path) };
        let mut tiers = Tiers::new(&[spec(TierKind::Dram), mapped], 0, false).unwrap();
        tiers.populate(1, 0..10);
        assert!(tiers.populator.thread.is_none());
        tiers.populate(0, 0..10);
        assert!(tiers.populator.thread.is_some());
        std::fs::remove_file(path).unwrap();
    }
}
