//! Garbage collection of segments: a victim is read whole, and its items are appended to another segment or dropped, a piece at a
//! time.

use super::append::Appender;
use super::{Act, From, Items, Lying, Memory, Why};
use crate::index::Found;
use crate::log::{LOG_PAGE_BYTES, Log, Stream, Walk};
use tiermem_base::Rng;

/// Index entries looked at in one piece of work, where a segment could not be read.
const SWEEP: usize = 512;
/// Behind the last position of the index.
const END: u64 = u64::MAX;

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its own bytes are not all on the device yet.
    Waiting,
    Reading,
    /// A piece of the walk is under way, or waits for its turn.
    Walking {
        is_at_work: bool,
    },
    /// Entries that the walk did not find leave the index, from this position of it on.
    Sweeping {
        from: u64,
        is_at_work: bool,
    },
}

/// The segment that is being emptied.
#[derive(Debug)]
struct Victim {
    walk: Walk,
    stage: Stage,
    /// Hashes of entries that were swept up and have not left yet.
    lost: Vec<u64>,
}

impl Victim {
    fn new(walk: Walk) -> Self {
        Victim { walk, stage: Stage::Waiting, lost: Vec::new() }
    }

    /// Whether a piece of the walk is under way.
    fn is_at_work(&self) -> bool {
        matches!(self.stage, Stage::Walking { is_at_work: true } | Stage::Sweeping { is_at_work: true, .. })
    }
}

/// An emptied segment that is not free: what survived of it is not safe yet.
#[derive(Clone, Copy, Debug)]
struct Emptied {
    segment: u32,
    /// The number of the last item appended when it was emptied.
    appended: u64,
    /// All that survived was announced.
    is_announced: bool,
}

/// The segment that is being emptied, and emptied ones that are not free yet.
#[derive(Debug, Default)]
pub(super) struct Emptying {
    victim: Option<Victim>,
    emptied: Vec<Emptied>,
}

impl Emptying {
    /// Begins a piece of the work of emptying segments, if there is any.
    pub(super) fn begin_piece(&mut self, appender: &mut Appender, is_choked: bool, rng: &mut Rng) {
        if self.victim.is_none() {
            let log = appender.log_mut();
            let Some(segment) = log.victim(rng) else { return };
            let (sequence, live) = (log.sequence(segment), log.live_in(segment));
            if live == 0 && !appender.fillings().has(segment) {
                return appender.log_mut().emptied(segment);
            }
            self.victim = Some(Victim::new(Walk::new(segment, sequence)));
        }
        let Some(mut victim) = self.victim.take() else { return };
        match victim.stage {
            Stage::Waiting if appender.fillings().has(victim.walk.segment) => {}
            Stage::Waiting => {
                victim.stage = Stage::Reading;
                appender.push(Act::Read { segment: victim.walk.segment });
            }
            Stage::Reading => {}
            Stage::Walking { .. } => {
                victim.walk.begin(is_choked);
                victim.stage = Stage::Walking { is_at_work: true };
            }
            Stage::Sweeping { from, .. } => victim.stage = Stage::Sweeping { from, is_at_work: true },
        }
        self.victim = Some(victim);
    }

    /// The bytes of the victim are there; with `false` they could not be read.
    pub(super) fn note_arrival(&mut self, segment: u32, is_readable: bool) {
        let reading =
            self.victim.as_mut().filter(|it| it.stage == Stage::Reading && it.walk.segment == segment);
        debug_assert!(reading.is_some(), "what arrives was asked for");
        if let Some(victim) = reading {
            victim.stage = match is_readable {
                true => Stage::Walking { is_at_work: false },
                false => Stage::Sweeping { from: 0, is_at_work: false },
            };
        }
    }

    /// Whether a piece of the work is under way.
    #[inline]
    pub(super) fn is_at_work(&self) -> bool {
        self.victim.as_ref().is_some_and(Victim::is_at_work)
    }

    /// Goes on with the piece at hand until there is something to be done; `None`: it is over. `will_give_back`: segments that a
    /// checkpoint has borrowed come back before long.
    pub(super) fn go_on<I: Items>(
        &mut self,
        appender: &mut Appender,
        will_give_back: bool,
        memory: &mut Memory,
        items: &mut I,
    ) -> Option<Act> {
        let mut victim = self.victim.take_if(|victim| victim.is_at_work())?;
        if let Stage::Sweeping { from, .. } = victim.stage {
            return self.sweep(victim, from, appender, memory, items);
        }
        // Where no segment becomes free before this one does, survivors that find no space would wait for ever.
        let is_stuck = self.emptied.is_empty() && !will_give_back;
        let used_bytes = appender.log().used_in(victim.walk.segment);
        while let Some(at) = victim.walk.next_place(used_bytes) {
            match deal_with(&mut victim.walk, at, is_stuck, appender, memory, items) {
                Dealt::With(None) => {}
                Dealt::With(act) => {
                    self.victim = Some(victim);
                    return act;
                }
                Dealt::NoSpace => break,
            }
        }
        if victim.walk.is_over(used_bytes) {
            if appender.log().live_in(victim.walk.segment) == 0 {
                return Some(self.note_emptied(victim.walk.segment, appender));
            }
            // Damaged, or promised and never written.
            victim.stage = Stage::Sweeping { from: 0, is_at_work: false };
            self.victim = Some(victim);
            return None;
        }
        victim.stage = Stage::Walking { is_at_work: false };
        self.victim = Some(victim);
        None
    }

    /// Takes entries that name a place in the segment out of the index, a piece at a time: their items could not be read.
    fn sweep<I: Items>(
        &mut self,
        mut victim: Victim,
        from: u64,
        appender: &mut Appender,
        memory: &mut Memory,
        items: &mut I,
    ) -> Option<Act> {
        let segment = victim.walk.segment;
        let mut next = Some(from);
        if victim.lost.is_empty() {
            next = memory.keys().entries(from, SWEEP, |hash, found| {
                if let Found::Log(place) = found
                    && appender.log().segment_of(place.page()) == segment
                {
                    victim.lost.push(hash);
                }
            });
            // Entries that were found leave first, one by one; they are not found again.
            victim.stage = match next {
                Some(from) => Stage::Sweeping { from, is_at_work: false },
                None => Stage::Sweeping { from: END, is_at_work: false },
            };
        }
        let Stage::Sweeping { from: behind, .. } = victim.stage else { return None };
        while let Some(hash) = victim.lost.pop() {
            let Some(place) = appender.forget(memory.keys_mut(), hash) else { continue };
            let has_copy = memory.note_changed(hash, items);
            victim.stage = Stage::Sweeping { from: behind, is_at_work: !victim.lost.is_empty() };
            self.victim = Some(victim);
            return Some(Act::Gone { hash, place, at: 0, why: Why::Lost, has_copy });
        }
        victim.stage = Stage::Sweeping { from: behind, is_at_work: false };
        if next.is_none() || from == END {
            return Some(self.note_emptied(segment, appender));
        }
        self.victim = Some(victim);
        None
    }

    /// A segment is emptied; the act that gives it free.
    fn note_emptied(&mut self, segment: u32, appender: &mut Appender) -> Act {
        // Survivors must be safe before the segment that they came from is overwritten.
        appender.flush(Stream::Kept);
        let appended = appender.fillings().appended();
        self.emptied.push(Emptied { segment, appended, is_announced: false });
        Act::Free { segment }
    }

    /// The next emptied segment of which all that survived is announced, where the first survivor that is not has number `first`. It is
    /// [free](Self::free) once the announcements are safe.
    pub(super) fn next_announced(&mut self, first: u64) -> Option<u32> {
        let emptied = self.emptied.iter_mut().find(|it| !it.is_announced && first > it.appended)?;
        emptied.is_announced = true;
        Some(emptied.segment)
    }

    /// The announcements for an emptied segment are safe: it can be filled again.
    pub(super) fn free(&mut self, segment: u32, log: &mut Log) {
        let at = self.emptied.iter().position(|it| it.is_announced && it.segment == segment);
        debug_assert!(at.is_some(), "a segment is freed once, after what survived was announced");
        if let Some(at) = at {
            assert_eq!(log.live_in(segment), 0, "nothing is needed of a segment that is freed");
            self.emptied.remove(at);
            log.emptied(segment);
        }
    }
}

/// Deals with the item that stands at byte `from`, or next behind it.
fn deal_with<I: Items>(
    walk: &mut Walk,
    from: u32,
    is_stuck: bool,
    appender: &mut Appender,
    memory: &mut Memory,
    items: &mut I,
) -> Dealt {
    let segment = walk.segment;
    let Some(lying) = items.lying_at(segment, walk.sequence, from) else {
        walk.skip();
        return Dealt::With(None);
    };
    let Lying { at, hash, bytes, is_latest, is_over } = lying;
    debug_assert!(at >= from && at / LOG_PAGE_BYTES == from / LOG_PAGE_BYTES, "the walk goes page by page");
    let pages = appender.log().config().segment_bytes / LOG_PAGE_BYTES;
    let page = segment * pages + at / LOG_PAGE_BYTES;
    let place = memory.keys().place_below(hash).filter(|place| is_latest && place.page() == page);
    let Some(place) = place else {
        walk.pass(at + bytes);
        return Dealt::With(None);
    };
    let heat = match is_over {
        true => None,
        false => appender.log_mut().keeps(place, bytes, walk.kept_bytes, is_stuck),
    };
    let act = match heat {
        Some(heat) => {
            let from = From::Segment { segment, at };
            let item = (hash, bytes, heat);
            let Some(act) = appender.append(memory.keys_mut(), Stream::Kept, item, from) else {
                return Dealt::NoSpace;
            };
            walk.kept_bytes += bytes;
            act
        }
        None => {
            appender.forget(memory.keys_mut(), hash);
            // Where memory has the item too, that copy is the only one now.
            let has_copy = memory.note_changed(hash, items);
            let why = if is_over { Why::Expired } else { Why::Evicted };
            Act::Gone { hash, place, at, why, has_copy }
        }
    };
    walk.pass(at + bytes);
    Dealt::With(Some(act))
}

enum Dealt {
    /// It is dealt with, by this act if it takes one.
    With(Option<Act>),
    /// It is to survive, and there is no space for it now.
    NoSpace,
}

#[cfg(test)]
mod tests {
    use super::super::Sizes;
    use super::*;
    use crate::Id;
    use crate::ladder::{LadderConfig, Loc};
    use crate::log::{Admission, LogConfig, RESERVE};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use tiermem_base::Rng;

    const SEGMENT_BYTES: u32 = 128 << 10;
    const ITEM_BYTES: u32 = 9000;

    /// The items in segments: the hash by segment and first byte.
    #[derive(Debug, Default)]
    struct Stands(BTreeMap<(u32, u32), u64>);

    impl Items for Stands {
        type Key<'a> = ();

        fn has_key(&self, _: Id, _: Loc, (): ()) -> bool {
            false
        }

        fn hash(&self, _: Id, _: Loc) -> Option<u64> {
            Some(0)
        }

        fn bytes(&self, _: Id, _: Loc) -> Sizes {
            Sizes { here: 0, below: 0 }
        }

        fn is_unchanged(&self, _: Id, _: Loc) -> bool {
            false
        }

        fn note_changed(&mut self, _: Id, _: Loc) {}

        fn lying_at(&self, segment: u32, _: u32, at: u32) -> Option<Lying> {
            let page_end = (at / LOG_PAGE_BYTES + 1) * LOG_PAGE_BYTES;
            let (&(_, at), &hash) = self.0.range((segment, at)..(segment, page_end)).next()?;
            Some(Lying { at, hash, bytes: ITEM_BYTES, is_latest: true, is_over: false })
        }

        fn bring_near(&self, _: Id, _: Loc) {}
    }

    struct World {
        memory: Memory,
        appender: Appender,
        emptying: Emptying,
        stands: Stands,
        rng: Rng,
    }

    impl World {
        fn new() -> Self {
            let config = LogConfig {
                segments: 16,
                segment_bytes: SEGMENT_BYTES,
                admission: Admission::All,
                reserve: RESERVE,
                journal_records: 1 << 20,
            };
            World {
                memory: Memory::new(LadderConfig::with_capacities(&[1 << 20]), 0),
                appender: Appender::new(Log::new(config)),
                emptying: Emptying::default(),
                stands: Stands::default(),
                rng: Rng::seeded(1),
            }
        }

        fn note(&mut self, act: Act) {
            if let Act::Append { to, hash, .. } = act {
                self.stands.0.insert((to.segment, to.offset), hash);
            }
        }

        /// Everything that was written is on the device, and no longer in memory.
        fn write_all(&mut self) -> Vec<Act> {
            let mut others = Vec::new();
            while let Some(act) = self.appender.next_act() {
                match act {
                    Act::Write { segment, end, .. } => self.appender.fillings_mut().note_safe(segment, end),
                    Act::Seal { .. } => {}
                    act => others.push(act),
                }
            }
            let fillings = self.appender.fillings_mut();
            fillings.begin_round();
            while fillings.next_announcement(self.memory.keys(), false).is_some() {}
            fillings.end_round();
            while fillings.take_finished().is_some() {}
            others
        }

        fn begin_piece(&mut self) {
            self.emptying.begin_piece(&mut self.appender, false, &mut self.rng);
        }

        /// Items by the segments in which the index says that they lie.
        fn live(&self) -> BTreeMap<u64, u32> {
            let segment = |hash| Some(self.appender.filling_of(self.memory.keys().place_below(hash)?).0);
            let hashes: BTreeSet<u64> = self.stands.0.values().copied().collect();
            hashes.into_iter().filter_map(|hash| Some((hash, segment(hash)?))).collect()
        }
    }

    proptest! {
        /// Every live item of the segment survives elsewhere or is dropped, once, and no other is concerned. The segment is free
        /// again when all survivors are announced, and not before. Items that cannot be read are lost.
        #[test]
        fn what_lives_in_an_emptied_segment_survives_elsewhere_or_goes(
            dead in prop::collection::vec(any::<bool>(), 200), hot in prop::collection::vec(any::<bool>(), 200), is_readable in any::<bool>(),
        ) {
            let mut world = World::new();
            let mut key = 0;
            while world.emptying.victim.is_none() {
                key += 1;
                let (hash, heat) = ((key as u64) << 40, u32::from(hot[key]));
                let from = From::Segment { segment: 0, at: 0 };
                let item = (hash, ITEM_BYTES, heat);
                let act = world.appender.append(world.memory.keys_mut(), Stream::Fresh, item, from);
                world.note(act.expect("a segment is emptied before there is no space"));
                if dead[key] {
                    world.appender.forget(world.memory.keys_mut(), hash);
                }
                world.write_all();
                world.begin_piece();
            }
            let before = world.live();
            let read = world.write_all();
            let &[Act::Read { segment }] = &read[..] else { panic!("{read:?}") };
            world.emptying.note_arrival(segment, is_readable);
            let (mut survivors, mut gone) = (BTreeSet::new(), BTreeSet::new());
            let mut is_free = false;
            for _ in 0..1000 {
                if is_free {
                    break;
                }
                world.begin_piece();
                while let Some(act) = {
                    let World { emptying, appender, memory, stands, .. } = &mut world;
                    emptying.go_on(appender, false, memory, stands)
                } {
                    match act {
                        Act::Append { from, hash, to, .. } => {
                            let From::Segment { segment: whence, at } = from else { panic!("{from:?}") };
                            prop_assert_eq!(world.stands.0.get(&(whence, at)), Some(&hash));
                            prop_assert!(whence == segment && to.segment != segment && survivors.insert(hash));
                        }
                        Act::Gone { hash, why, .. } => {
                            prop_assert_eq!(why, if is_readable { Why::Evicted } else { Why::Lost });
                            prop_assert!(gone.insert(hash));
                        }
                        Act::Free { segment: freed } => {
                            prop_assert_eq!(freed, segment);
                            is_free = true;
                        }
                        act => prop_assert!(false, "{:?}", act),
                    }
                    world.note(act);
                }
            }
            prop_assert!(is_free && !world.emptying.is_at_work());
            let there: BTreeSet<u64> = before.iter().filter(|&(_, &at)| at == segment).map(|(&hash, _)| hash).collect();
            prop_assert!(survivors.is_disjoint(&gone) && (is_readable || survivors.is_empty()));
            prop_assert_eq!(survivors.union(&gone).copied().collect::<BTreeSet<_>>(), there);
            let after = world.live();
            prop_assert!(after.values().all(|&at| at != segment));
            prop_assert!(before.iter().all(|(hash, at)| *at == segment || after.get(hash) == Some(at)));
            prop_assert!(after.keys().all(|hash| before.contains_key(hash)) && gone.iter().all(|hash| !after.contains_key(hash)));
            // A survivor that is not announced keeps the segment from being filled again.
            let first = world.appender.fillings().first_unannounced(Some(Stream::Kept));
            prop_assert_eq!(first.is_some(), !survivors.is_empty());
            prop_assert!(first.is_none_or(|first| world.emptying.next_announced(first).is_none()));
            let used = world.appender.log().segments_used();
            prop_assert_eq!(world.emptying.next_announced(u64::MAX), Some(segment));
            prop_assert_eq!(world.emptying.next_announced(u64::MAX), None, "it is told once");
            prop_assert_eq!(world.appender.log().segments_used(), used);
            world.emptying.free(segment, world.appender.log_mut());
            prop_assert_eq!(world.appender.log().segments_used(), used - 1);
        }
    }
}
