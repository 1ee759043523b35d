//! The state that a restart would read, as a naive twin keeps it: the journal's two halves, and the checkpoint that is named.

use std::collections::{BTreeMap, BTreeSet};

use tiermem_policy::log::{Filled, LogPlace};
use tiermem_policy::shard::{Parts, Recorded, Shard};

/// One change: where the item of a hash (its first 40 bits) lies now.
type Record = (u64, Option<LogPlace>);

/// A checkpoint and where the journal goes on behind it.
#[derive(Clone, Debug, Default)]
struct Checkpoint {
    items: BTreeMap<u64, LogPlace>,
    segments: Vec<u32>,
    half: usize,
    skipped: usize,
    /// It will not be named: its segments are free.
    is_given_up: bool,
}

#[derive(Debug, Default)]
pub struct Restart {
    halves: [Vec<Option<Record>>; 2],
    half: usize,
    /// The one that the superblock names; `None`: it names none, and a restart finds nothing.
    named: Option<Checkpoint>,
    /// The one before it, until the superblock is durable.
    former: Option<Checkpoint>,
    under_way: Option<Checkpoint>,
}

impl Restart {
    /// An empty region.
    pub fn new() -> Self {
        Restart { named: Some(Checkpoint::default()), ..Restart::default() }
    }

    fn record(&mut self, record: Option<Record>, shard: &mut Shard) {
        match shard.device().note_record() {
            Recorded::Behind => {}
            Recorded::InOtherHalf => {
                self.half = 1 - self.half;
                self.halves[self.half].clear();
                self.begin(false);
            }
            Recorded::OverLost { is_first } => {
                assert!(!is_first || self.named.is_some(), "it is lost once");
                self.named = None;
                self.give_up_checkpoint();
                self.halves[self.half].clear();
            }
        }
        self.halves[self.half].push(record);
    }

    /// An item lies there now.
    pub fn add(&mut self, hash: u64, place: LogPlace, shard: &mut Shard) {
        self.record(Some((hash >> 24, Some(place))), shard);
    }

    /// An item is gone, perhaps before it was announced.
    pub fn remove(&mut self, hash: u64, place: LogPlace, shard: &mut Shard) {
        shard.device().withdraw(hash, place);
        self.record(Some((hash >> 24, None)), shard);
    }

    /// A segment begins.
    pub fn open(&mut self, shard: &mut Shard) {
        self.record(None, shard);
    }

    /// A part of the checkpoint goes to a segment.
    pub fn write_part(&mut self, segment: u32, next: Option<u32>) {
        let under_way = self.under_way.as_mut().expect("a part is of a checkpoint");
        assert!(under_way.segments.last().is_none_or(|last| *last == segment), "parts name each other");
        if under_way.segments.is_empty() {
            under_way.segments.push(segment);
        }
        under_way.segments.extend(next);
    }

    /// The checkpoint under way will not be named.
    pub fn give_up_checkpoint(&mut self) {
        self.under_way.iter_mut().for_each(|checkpoint| checkpoint.is_given_up = true);
    }

    /// The superblock names the checkpoint that was under way.
    pub fn name(&mut self, first: u32) {
        let under_way = self.under_way.take().expect("what is named was begun");
        assert!(!under_way.is_given_up && under_way.segments.first() == Some(&first));
        self.former = self.named.replace(under_way);
    }

    /// And is durable.
    pub fn note_named(&mut self) {
        self.former = None;
    }

    /// Segments that must not be written over now: those of checkpoints, and of items that a restart would look for.
    pub fn segments(&self, pages: u32) -> BTreeSet<u32> {
        let checkpoints = [&self.named, &self.former, &self.under_way].into_iter().flatten();
        let live = checkpoints.filter(|checkpoint| !checkpoint.is_given_up);
        let borrowed = live.flat_map(|checkpoint| checkpoint.segments.iter().copied());
        let found = self.replay().unwrap_or_default();
        borrowed.chain(found.into_values().map(|place| place.page() / pages)).collect()
    }

    /// What a restart would find; `None` where it finds nothing.
    pub fn replay(&self) -> Option<BTreeMap<u64, LogPlace>> {
        let Checkpoint { items, half, skipped, .. } = self.named.as_ref()?;
        let mut found = items.clone();
        let behind = (*half != self.half).then_some(&self.halves[self.half]);
        let records = self.halves[*half].iter().skip(*skipped).chain(behind.into_iter().flatten());
        for &(hash, place) in records.flatten() {
            match place {
                Some(place) => found.insert(hash, place),
                None => found.remove(&hash),
            };
        }
        Some(found)
    }
}

impl Parts for Restart {
    fn begin(&mut self, rewinds: bool) {
        if rewinds {
            self.halves[self.half].clear();
        }
        let (half, skipped) = (self.half, self.halves[self.half].len());
        self.under_way = Some(Checkpoint { half, skipped, ..Checkpoint::default() });
    }

    fn add_segment(&mut self, _: Filled) {}

    fn add_item(&mut self, hash: u64, place: LogPlace) {
        self.under_way.as_mut().expect("it has begun").items.insert(hash >> 24, place);
    }
}
