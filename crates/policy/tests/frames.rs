//! Frames, case by case: the situations of a pager, a pool and a host's cache.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;

use tiermem_base::{Op, Rng};
use tiermem_policy::Id;
use tiermem_policy::column::CHUNK_ITEMS;
use tiermem_policy::evict::any_policy::WithPolicy;
use tiermem_policy::evict::clock::Clock;
use tiermem_policy::evict::lru::{Bump, Lru};
use tiermem_policy::evict::{self, Departure, Domain, Evict, Named, Origin};
use tiermem_policy::flat::{self, Capacity, Request};
use tiermem_policy::frames::{
    Act, Config, ConfigError, End, FRAME_BYTES_MAX, Fault, Frame, Frames, Outcome, Pin, References, Ticket,
    TierConfig, Touch, Wish, domains,
};
use tiermem_policy::prefetch::Insertion;

type Plain = Frames<Lru>;

fn plain(config: Config, frames: u32) -> Plain {
    let policy = Lru::new(vec![1.0; domains(&config)], Bump::Always);
    let mut machine = Frames::new(config, policy).unwrap();
    machine.grow_to(frames);
    machine
}

fn two_tiers(dram: u32, flash: u32) -> Config {
    Config::of(&[TierConfig::memory(dram), TierConfig::storage(flash)])
}

/// Does what a fault's answers say until the frame is in place; the acts on the way.
fn bring<E: Evict>(frames: &mut Frames<E>, frame: u32, write: bool, now: u64, rng: &mut Rng) -> Vec<Act> {
    let mut acts = Vec::new();
    for _ in 0..16 {
        match frames.fault(Frame(frame), write, now, rng, &mut acts) {
            Fault::Here => return acts,
            Fault::After(ticket) => {
                frames.done(ticket, Outcome::Done, now, &mut acts).unwrap();
                if frames.view(Frame(frame)).tier == Some(0) {
                    return acts;
                }
            }
            Fault::Room(ticket) => {
                frames.done(ticket, Outcome::Done, now, &mut acts).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("frame {frame} never comes");
}

fn rng() -> Rng {
    Rng::seeded(3)
}

/// The one victim of a full first tier, whose move is under way.
fn begin_eviction(frames: &mut Plain, frame: u32) -> (Ticket, Vec<Act>) {
    let mut acts = Vec::new();
    match frames.fault(Frame(frame), false, 99, &mut rng(), &mut acts) {
        Fault::Room(ticket) => (ticket, acts),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_frame_that_was_fetched_and_not_written_is_dropped_and_not_written() {
    let mut frames = plain(two_tiers(1, 10), 3);
    let mut rng = rng();
    bring(&mut frames, 0, true, 1, &mut rng);
    let acts = bring(&mut frames, 1, true, 2, &mut rng);
    assert!(
        matches!(acts[0], Act::Demote { frame: Frame(0), from: 0, to: 1, has_copy: false, .. }),
        "{acts:?}"
    );
    bring(&mut frames, 0, false, 3, &mut rng);
    assert_eq!((frames.view(Frame(0)).copy, frames.space().copies(1)), (Some(1), 1));
    let acts = bring(&mut frames, 1, false, 4, &mut rng);
    assert!(matches!(acts[0], Act::Drop { frame: Frame(0), from: 0, to: Some(1), .. }), "{acts:?}");
    // Written while its clean copy exists: the copy is given up, and the next demotion is a write.
    bring(&mut frames, 0, false, 5, &mut rng);
    let mut acts = Vec::new();
    assert_eq!(frames.wrote(Frame(0), 6, &mut acts), Touch::Used);
    assert_eq!(acts, [Act::Free { frame: Frame(0), tier: 1 }]);
    let acts = bring(&mut frames, 1, false, 7, &mut rng);
    assert!(matches!(acts[0], Act::Demote { frame: Frame(0), .. }), "{acts:?}");
    frames.audit();
}

#[test]
fn where_writes_are_not_told_nothing_is_dropped_unseen() {
    let mut frames = plain(Config { writes_told: false, ..two_tiers(1, 10) }, 3);
    let mut rng = rng();
    for (now, frame) in (1..).zip([0, 1, 0]) {
        bring(&mut frames, frame, false, now, &mut rng);
    }
    let (ticket, acts) = begin_eviction(&mut frames, 1);
    assert!(matches!(acts[0], Act::Demote { frame: Frame(0), has_copy: true, .. }), "{acts:?}");
    frames.found_zero(ticket);
    let settled = frames.done(ticket, Outcome::Done, 9, &mut Vec::new()).unwrap();
    assert_eq!((settled.end, frames.view(Frame(0)).tier), (End::Zero, None));
    assert_eq!(frames.space().used(1), 1, "frame 1 alone");
    frames.audit();
}

#[test]
fn a_frame_that_is_touched_on_its_way_out_stays_and_is_hot() {
    let mut frames = plain(two_tiers(3, 10), 9);
    let mut rng = rng();
    (0..3).for_each(|frame| drop(bring(&mut frames, frame, true, 1, &mut rng)));
    let (ticket, _) = begin_eviction(&mut frames, 3);
    let mut acts = Vec::new();
    assert_eq!(frames.fault(Frame(0), false, 2, &mut rng, &mut acts), Fault::After(ticket));
    assert_eq!(acts, [Act::Recall { ticket }], "it is called back");
    let settled = frames.done(ticket, Outcome::Touched, 3, &mut acts).unwrap();
    assert_eq!((settled.end, settled.awaited, frames.view(Frame(0)).tier), (End::Stayed, true, Some(0)));
    let (ticket, acts) = begin_eviction(&mut frames, 3);
    assert!(matches!(acts[0], Act::Demote { frame: Frame(1), .. }), "the next coldest goes: {acts:?}");
    frames.done(ticket, Outcome::Done, 4, &mut Vec::new());
    // What is refused (a page that a child shares) is not asked for again at once.
    bring(&mut frames, 3, false, 5, &mut rng);
    let (ticket, acts) = begin_eviction(&mut frames, 4);
    assert!(matches!(acts[0], Act::Demote { frame: Frame(2), .. }), "{acts:?}");
    frames.done(ticket, Outcome::Refused, 6, &mut Vec::new());
    let (_, acts) = begin_eviction(&mut frames, 4);
    assert!(matches!(acts[0], Act::Demote { frame: Frame(0), .. }), "{acts:?}");
    frames.audit();
}

/// LRU, which also notes which frames it was told to be missing.
struct NotesMisses {
    lru: Lru,
    missed: Rc<RefCell<Vec<u64>>>,
}

impl Evict for NotesMisses {
    fn miss(&mut self, _: Domain, key: u64) {
        self.missed.borrow_mut().push(key);
    }
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        self.lru.insert(id, domain, origin);
    }
    fn hit(&mut self, id: Id, touch: evict::Touch, domain: impl FnOnce() -> Domain) {
        self.lru.hit(id, touch, domain);
    }
    fn remove(&mut self, id: Id, domain: Domain, departure: Departure) {
        self.lru.remove(id, domain, departure);
    }
    fn victim(&mut self, domain: Domain, now: u64, rng: &mut Rng, may_go: impl Fn(Id) -> bool) -> Option<Id> {
        self.lru.victim(domain, now, rng, may_go)
    }
    fn clear(&mut self) {
        self.lru.clear();
    }
    fn len(&self, domain: Domain) -> u32 {
        self.lru.len(domain)
    }
    fn metadata_bytes(&self) -> u64 {
        self.lru.metadata_bytes()
    }
}

/// A fault is asked for again whenever something was waited for; an order that counts (a ghost list that adapts to what it misses) would
/// take each asking for another miss.
#[test]
fn the_order_hears_once_of_a_fault_however_often_it_is_asked_for() {
    let config = two_tiers(1, 10);
    let missed = Rc::default();
    let lru = Lru::new(vec![1.0; domains(&config)], Bump::Always);
    let mut frames = Frames::new(config, NotesMisses { lru, missed: Rc::clone(&missed) }).unwrap();
    frames.grow_to(3);
    let (mut rng, mut acts) = (rng(), Vec::new());
    bring(&mut frames, 0, true, 1, &mut rng);
    let Fault::Room(ticket) = frames.fault(Frame(1), false, 2, &mut rng, &mut acts) else { panic!() };
    for _ in 0..3 {
        frames.fault(Frame(1), false, 2, &mut rng, &mut acts);
    }
    frames.done(ticket, Outcome::Done, 3, &mut acts).unwrap();
    bring(&mut frames, 1, false, 4, &mut rng);
    assert_eq!(*missed.borrow(), [0, 1]);
    // What has gone and is needed again is missed again.
    bring(&mut frames, 0, false, 5, &mut rng);
    assert_eq!(*missed.borrow(), [0, 1, 0]);
    frames.audit();
}

/// CLOCK spares once what was used: it tells a frame that came back hot from one that did not.
#[test]
fn who_stays_because_it_was_touched_is_hot_and_who_was_refused_is_not() {
    for middle in [None, Some(TierConfig::memory(10))] {
        // What was used on its way and is refused for another reason is hot as well.
        for (outcome, is_used, victim) in
            [(Outcome::Touched, false, 2), (Outcome::Refused, false, 0), (Outcome::Refused, true, 2)]
        {
            let tiers: Vec<_> =
                [TierConfig::memory(2)].into_iter().chain(middle).chain([TierConfig::storage(10)]).collect();
            let config = Config::of(&tiers);
            let policy = Clock::new(domains(&config), 1);
            let mut frames = Frames::new(config, policy).unwrap();
            frames.grow_to(9);
            let (mut rng, mut acts) = (rng(), Vec::new());
            (0..2).for_each(|frame| drop(bring(&mut frames, frame, true, 1, &mut rng)));
            let Fault::Room(ticket) = frames.fault(Frame(2), false, 2, &mut rng, &mut acts) else { panic!() };
            if is_used {
                assert_eq!(frames.touch(Frame(0), 2), Touch::Moving);
            }
            frames.done(ticket, outcome, 2, &mut acts);
            // 1 goes for 2; then it is between 0, which came back, and 2.
            bring(&mut frames, 2, true, 3, &mut rng);
            acts.clear();
            frames.fault(Frame(3), false, 4, &mut rng, &mut acts);
            assert!(
                matches!(acts[0], Act::Demote { frame, .. } if frame.0 == victim),
                "{outcome:?}: {acts:?}"
            );
        }
    }
}

/// Frames 0 to 3 below, and `above` others in a first tier of four.
fn with_four_below(config: Config, above: u32) -> Plain {
    let mut frames = plain(config, 8);
    let mut rng = rng();
    (0..8).for_each(|frame| drop(bring(&mut frames, frame, true, 1, &mut rng)));
    (4 + above..8).for_each(|frame| assert!(frames.discard(Frame(frame), &mut Vec::new())));
    frames
}

#[test]
fn prefetches_leave_a_quarter_of_the_moves_to_faults() {
    let mut frames = with_four_below(Config { moves_max: 4, ..two_tiers(4, 10) }, 0);
    let (mut rng, mut acts) = (rng(), Vec::new());
    let wishes: Vec<Wish> =
        (0..4).map(|frame| frames.prefetch(Frame(frame), Insertion::Mru, 2, &mut rng, &mut acts)).collect();
    assert!(matches!(wishes[..], [Wish::Sent(_), Wish::Sent(_), Wish::Sent(_), Wish::No]), "{wishes:?}");
    assert!(matches!(frames.fault(Frame(3), false, 3, &mut rng, &mut acts), Fault::After(_)));
    frames.audit();
}

#[test]
fn a_prefetched_frame_goes_next_where_the_prefetcher_wants_it_at_the_cold_end() {
    for (insertion, victim) in [(Insertion::Lru, 0), (Insertion::Mru, 4)] {
        let mut frames = with_four_below(two_tiers(4, 10), 3);
        let (mut rng, mut acts) = (rng(), Vec::new());
        let wish = frames.prefetch(Frame(0), insertion, 2, &mut rng, &mut acts);
        let Wish::Sent(ticket) = wish else { panic!("{wish:?}") };
        frames.done(ticket, Outcome::Done, 3, &mut acts).unwrap();
        let (_, acts) = begin_eviction(&mut frames, 1);
        let (Act::Drop { frame, .. } | Act::Demote { frame, .. }) = acts[0] else { panic!("{acts:?}") };
        assert_eq!(frame, Frame(victim), "{insertion:?}");
        frames.audit();
    }
}

#[test]
fn a_frame_discarded_on_its_way_may_come_again_while_both_its_places_are_taken() {
    let mut frames = plain(two_tiers(2, 10), 9);
    let mut rng = rng();
    (0..2).for_each(|frame| drop(bring(&mut frames, frame, true, 1, &mut rng)));
    let (ticket, _) = begin_eviction(&mut frames, 2);
    let mut acts = Vec::new();
    assert!(frames.discard(Frame(0), &mut acts));
    assert_eq!(acts, [Act::Recall { ticket }]);
    assert_eq!((frames.space().used(0), frames.space().used(1)), (2, 1), "somebody may still be copying");
    // It comes again, and makes room by another, for its own old place is not free yet.
    assert!(
        matches!(frames.fault(Frame(0), false, 2, &mut rng, &mut acts), Fault::Room(other) if other != ticket)
    );
    let settled = frames.done(ticket, Outcome::Done, 3, &mut acts).unwrap();
    assert_eq!((settled.end, frames.space().used(0), frames.space().leaving(0)), (End::Void, 1, 1));
    assert!(matches!(frames.fault(Frame(0), false, 4, &mut rng, &mut acts), Fault::After(_)));
    frames.audit();
}

#[test]
fn pinned_frames_stay_and_with_all_pinned_a_fault_is_told_so() {
    let mut frames = plain(Config { pinned_max: 2, ..two_tiers(2, 10) }, 9);
    let mut rng = rng();
    (0..2).for_each(|frame| drop(bring(&mut frames, frame, true, 1, &mut rng)));
    assert_eq!(frames.pin(Frame(7)), Pin::Away);
    assert_eq!(frames.pin(Frame(0)), Pin::Pinned);
    let (ticket, acts) = begin_eviction(&mut frames, 2);
    assert!(matches!(acts[0], Act::Demote { frame: Frame(1), .. }), "{acts:?}");
    // Pinned in mid-move: it stays though its bytes have arrived below.
    assert_eq!(frames.pin(Frame(1)), Pin::Pinned);
    assert_eq!(frames.done(ticket, Outcome::Done, 2, &mut Vec::new()).unwrap().end, End::Stayed);
    let mut acts = Vec::new();
    assert_eq!(frames.fault(Frame(2), false, 3, &mut rng, &mut acts), Fault::Full);
    assert_eq!((acts.len(), frames.pinned()), (0, 2));
    assert!(!frames.discard(Frame(0), &mut acts), "somebody uses its bytes");
    assert!(frames.unpin(Frame(0)) && !frames.unpin(Frame(0)));
    assert_eq!(bring(&mut frames, 2, false, 4, &mut rng).len(), 2);
    frames.audit();
}

#[test]
fn of_the_copies_in_a_full_tier_the_oldest_is_given_up() {
    let mut frames = plain(two_tiers(3, 4), 5);
    let mut rng = rng();
    // Five written frames, of which 0 and 1 go down and are read again: the second tier holds 2, 3, and copies of 0 and 1.
    for (now, frame) in (1..).zip([0, 1, 2, 3, 4, 0, 1]) {
        bring(&mut frames, frame, now <= 5, now, &mut rng);
    }
    let copies = |frames: &Plain| [0, 1].map(|frame| frames.view(Frame(frame)).copy);
    assert_eq!((copies(&frames), frames.space().used(1)), ([Some(1), Some(1)], 2));
    bring(&mut frames, 2, false, 8, &mut rng);
    assert_eq!(copies(&frames), [None, Some(1)], "4 went down, to the place of the older copy");
    frames.audit();
}

#[test]
fn a_fault_waits_for_a_frame_that_is_written_back_and_does_not_write_it_again() {
    let mut frames = plain(two_tiers(1, 10), 2);
    let (mut rng, mut acts) = (rng(), Vec::new());
    bring(&mut frames, 0, true, 1, &mut rng);
    let written_back = frames.write_back(Frame(0), &mut acts).unwrap();
    acts.clear();
    let fault = frames.fault(Frame(1), false, 2, &mut rng, &mut acts);
    assert_eq!((fault, acts.len()), (Fault::Room(written_back), 0));
    frames.done(written_back, Outcome::Done, 2, &mut acts).unwrap();
    let acts = bring(&mut frames, 1, false, 3, &mut rng);
    assert!(matches!(acts[0], Act::Drop { frame: Frame(0), from: 0, to: Some(1), .. }), "{acts:?}");
}

#[test]
fn what_is_written_while_it_is_written_back_has_no_copy() {
    for is_written in [false, true] {
        let mut frames = plain(two_tiers(2, 10), 2);
        bring(&mut frames, 0, true, 1, &mut rng());
        let mut acts = Vec::new();
        let ticket = frames.write_back(Frame(0), &mut acts).unwrap();
        assert_eq!(frames.write_back(Frame(0), &mut acts), None, "one at a time");
        if is_written {
            frames.wrote(Frame(0), 2, &mut acts);
        }
        frames.done(ticket, Outcome::Done, 3, &mut acts);
        let view = frames.view(Frame(0));
        assert_eq!(
            (view.copy.is_some(), view.is_dirty, frames.space().used(1)),
            (!is_written, is_written, 0)
        );
        frames.audit();
    }
}

/// Three owners, two of them with quotas.
fn shared(dram: u32) -> Plain {
    let mut frames = plain(Config { owners: 3, apart: true, ..two_tiers(dram, 100) }, 60);
    for frame in 0..60 {
        assert!(frames.assign(Frame(frame), (frame / 20) as u16));
    }
    frames
}

#[test]
fn an_owner_at_its_quota_gives_its_own_and_nobody_within_it_gives_for_another() {
    let mut frames = shared(10);
    let mut rng = rng();
    frames.set_quota(0, 0, Some(4)).unwrap();
    frames.set_quota(1, 0, Some(4)).unwrap();
    for frame in (0..4).chain(20..24) {
        bring(&mut frames, frame, true, 1, &mut rng);
    }
    // Two frames are free, and still owner 0 gives one of its own.
    bring(&mut frames, 4, true, 2, &mut rng);
    assert_eq!((0..3).map(|owner| frames.charged(owner, 0)).collect::<Vec<_>>(), [4, 4, 0]);
    // Owner 2 has no quota: it takes what is free, and then gives its own.
    for frame in 40..50 {
        bring(&mut frames, frame, true, 3, &mut rng);
    }
    assert_eq!((0..3).map(|owner| frames.charged(owner, 0)).collect::<Vec<_>>(), [4, 4, 2]);
    // A quota lowered under load: the step brings the owner down to it, a budget at a time, and no further.
    frames.set_quota(1, 0, Some(1)).unwrap();
    let mut acts = Vec::new();
    for left in [2, 1, 1] {
        frames.step(9, 2, &mut rng, &mut acts);
        for act in acts.drain(..) {
            let Act::Demote { ticket, frame, .. } = act else { panic!("{act:?}") };
            assert!((20..24).contains(&frame.0), "owner 1 gives");
            frames.done(ticket, Outcome::Done, 9, &mut Vec::new());
        }
        assert_eq!(frames.charged(1, 0), left);
    }
    frames.audit();
}

#[test]
fn quotas_need_orders_apart() {
    let mut frames = plain(two_tiers(2, 10), 4);
    assert_eq!(frames.set_quota(0, 0, Some(1)), Err(ConfigError::Together));
    let mut frames = shared(10);
    assert_eq!(frames.set_quota(3, 0, None), Err(ConfigError::Unknown { owner: 3, tier: 0 }));
    let mut acts = Vec::new();
    frames.set_quota(0, 0, Some(0)).unwrap();
    assert_eq!(frames.fault(Frame(0), false, 1, &mut rng(), &mut acts), Fault::Full, "nothing was promised");
}

#[test]
fn a_step_keeps_frames_free_and_looks_at_no_more_than_it_moves() {
    let dram = 50_000;
    let mut config = two_tiers(dram, 200_000);
    (config.tiers[0].low, config.tiers[0].high) = (100, 300);
    config.moves_max = 400;
    let mut frames = plain(config, 100_000);
    let mut rng = rng();
    for frame in 0..dram - 100 {
        assert!(frames.adopt(Frame(frame), 0, 0, &mut Vec::new()));
    }
    let mut acts = Vec::new();
    assert!(!frames.is_due());
    assert_eq!(frames.step(1, 1000, &mut rng, &mut acts), 0, "a hundred are free");
    assert!(frames.adopt(Frame(dram - 100), 0, 0, &mut Vec::new()) && frames.is_due());
    assert_eq!(frames.step(1, 7, &mut rng, &mut acts), 7);
    assert_eq!((frames.counters().looks, acts.len()), (7, 7), "seven of fifty thousand");
    assert_eq!(frames.step(1, 1000, &mut rng, &mut acts), 194, "up to the high watermark");
    assert_eq!(
        (frames.counters().looks, frames.is_due()),
        (201, false),
        "what is on its way out is not asked again"
    );
    for act in acts.drain(..) {
        let Act::Demote { ticket, .. } = act else { panic!("{act:?}") };
        frames.done(ticket, Outcome::Done, 2, &mut Vec::new());
    }
    assert_eq!((frames.space().free(0), frames.step(3, 1000, &mut rng, &mut acts)), (300, 0));
}

#[test]
fn a_granule_spares_all_its_frames() {
    let mut frames = plain(Config { references: References::Sampled, ..two_tiers(256, 1000) }, 1000);
    let mut rng = rng();
    (0..256).for_each(|frame| drop(bring(&mut frames, frame, true, 1, &mut rng)));
    frames.touch_granule(Frame(0), 4, 2);
    frames.touch(Frame(17), 2);
    // Sixteen of a granule are spared, then 17: the first to go is 16, the next 18.
    for expected in [16, 18] {
        let (ticket, acts) = begin_eviction(&mut frames, 300 + expected);
        assert!(matches!(acts[0], Act::Demote { frame, .. } if frame.0 == expected), "{acts:?}");
        frames.done(ticket, Outcome::Done, 3, &mut Vec::new());
        bring(&mut frames, 300 + expected, true, 3, &mut rng);
    }
    assert_eq!(frames.counters().looks, 19);
    frames.touch_granule(Frame(960), 6, 3);
    frames.touch_granule(Frame(4096), 9, 3);
}

#[test]
fn sixty_three_are_spared_for_one_that_goes_and_no_more() {
    let mut frames = plain(Config { references: References::Sampled, ..two_tiers(100, 1000) }, 200);
    let mut rng = rng();
    (0..100).for_each(|frame| drop(bring(&mut frames, frame, true, 1, &mut rng)));
    (0..100).for_each(|frame| _ = frames.touch(Frame(frame), 2));
    let (_, acts) = begin_eviction(&mut frames, 150);
    assert!(matches!(acts[0], Act::Demote { frame: Frame(63), .. }), "{acts:?}");
    assert_eq!(frames.counters().looks, 64);
}

#[test]
fn what_is_used_twice_in_the_second_tier_changes_places_with_what_is_cold() {
    let tiers = [TierConfig::memory(1), TierConfig::memory(2), TierConfig::storage(10)];
    let mut frames = plain(Config::of(&tiers), 4);
    let mut rng = rng();
    (0..2).for_each(|frame| drop(bring(&mut frames, frame, true, 1, &mut rng)));
    assert_eq!(frames.view(Frame(0)).tier, Some(1));
    let mut acts = Vec::new();
    for begun in [0, 1] {
        assert_eq!(frames.touch(Frame(0), 2), Touch::Used, "no fault");
        assert_eq!(frames.step(2, 4, &mut rng, &mut acts), begun);
    }
    let Some(Act::Demote { ticket, frame: Frame(1), .. }) = acts.pop() else { panic!("{acts:?}") };
    frames.done(ticket, Outcome::Done, 3, &mut acts);
    frames.touch(Frame(0), 4);
    assert_eq!(frames.step(4, 4, &mut rng, &mut acts), 1);
    let Some(Act::Fetch { ticket, frame: Frame(0), from: 1, to: 0, .. }) = acts.pop() else {
        panic!("{acts:?}")
    };
    frames.done(ticket, Outcome::Done, 5, &mut acts);
    assert_eq!((frames.view(Frame(0)).tier, frames.counters().promotions), (Some(0), 1));
    frames.audit();
}

#[test]
fn a_frame_costs_sixteen_bytes_at_most() {
    let bytes = |frames: u32| plain(two_tiers(1, 1), frames).metadata_bytes();
    let (few, many) = (bytes(CHUNK_ITEMS as u32), bytes(1 << 20));
    let each = (many - few) as f64 / f64::from((1 << 20) - CHUNK_ITEMS as u32);
    assert!(each <= FRAME_BYTES_MAX as f64, "{each}");
    assert!(each > 4.0, "all is counted: {each}");
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    let memory = TierConfig::memory(4);
    let flash = TierConfig::storage(4);
    let refused = |config: Config| config.check().unwrap_err().to_string();
    assert!(refused(Config::of(&[memory])).contains("1 tiers"));
    assert!(refused(Config::of(&[memory; 5])).contains("5 tiers"));
    assert!(refused(Config::of(&[flash, flash])).contains("tier 0"));
    assert!(refused(Config::of(&[memory, flash, memory])).contains("tier 2"));
    assert!(refused(Config::of(&[TierConfig::memory(0), flash])).contains("no frame"));
    assert!(refused(Config::of(&[TierConfig { low: 1, high: 4, ..memory }, flash])).contains("watermarks"));
    assert!(refused(Config::of(&[memory, TierConfig { high: 1, ..flash }])).contains("last"));
    assert!(refused(Config::of(&[TierConfig { keeps_copies: true, ..memory }, flash])).contains("copy"));
    assert!(refused(Config { owners: 0, ..two_tiers(1, 1) }).contains("owners"));
    assert!(refused(Config { owners: 65_537, ..two_tiers(1, 1) }).contains("owners"));
    assert_eq!(Config { owners: 65_536, ..two_tiers(1, 1) }.check(), Ok(()));
}

/// Keys that come back at irregular distances, some often.
fn keys() -> Vec<u32> {
    let mut rng = rng();
    (0..6000u64).map(|n| if n % 3 == 0 { rng.below(20) } else { n * n % 251 } as u32).collect()
}

struct Misses {
    dram: u32,
    told: References,
}

impl WithPolicy for Misses {
    type Output = u64;

    /// All data lies in the last tier at first, so that a frame's first use is a fetch.
    fn with<E: Evict + Send + Debug + 'static>(self, policy: E) -> u64 {
        let mut frames =
            Frames::new(Config { references: self.told, ..two_tiers(self.dram, 1000) }, policy).unwrap();
        frames.grow_to(256);
        (0..256).for_each(|frame| assert!(frames.adopt(Frame(frame), 1, 0, &mut Vec::new())));
        let mut rng = Rng::seeded(0);
        for (now, key) in (1..).zip(keys()) {
            if frames.touch(Frame(key), now) == Touch::Away {
                bring(&mut frames, key, false, now, &mut rng);
            }
        }
        frames.audit();
        frames.counters().fetches
    }
}

#[test]
fn every_order_misses_over_frames_as_it_does_in_a_flat_cache() {
    let requests: Vec<Request> =
        keys().into_iter().map(|key| Request { key, size: 1, op: Op::Get }).collect();
    for named in Named::ALL {
        for dram in [1, 7, 60, 250] {
            let mut cache = flat::cache(named, Capacity::Objects(u64::from(dram)), 0);
            cache.run(&requests, 256);
            let misses = named.build(1, u64::from(dram), Misses { dram, told: References::Told });
            assert_eq!(misses, cache.counts().misses, "{named} at {dram}");
            assert!(named.build(1, u64::from(dram), Misses { dram, told: References::Sampled }) > 0);
        }
    }
}
