//! Persistence of the log: announcements of items and checkpoints, which a restart reads, and the acts that wait until either is
//! safe.

use std::collections::VecDeque;

use super::Keys;
use super::append::Appender;
use super::checkpoint::{Around, Checkpoints};
use super::persist_command::{Duty, Parts, Recorded, Settling};
use super::segment_gc::Emptying;
use crate::log::Stream;

/// Checkpoints, and duties that were not handed out.
#[derive(Debug)]
pub(super) struct Restarts {
    checkpoints: Checkpoints,
    duties: VecDeque<Duty>,
}

impl Restarts {
    /// A restart would begin with the last of these.
    pub(super) fn new(checkpoints: Checkpoints) -> Self {
        Restarts { checkpoints, duties: VecDeque::new() }
    }

    /// Checkpoints: how far they are.
    pub(super) fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// The next duty of the device's driver.
    pub(super) fn next_duty(
        &mut self,
        appender: &mut Appender,
        emptying: &mut Emptying,
        keys: &Keys,
    ) -> Option<Duty> {
        if self.duties.is_empty() {
            let waits = self.checkpoints.makes_room();
            let next = appender.fillings_mut().next_announcement(keys, waits);
            if next.is_some() {
                return next;
            }
            if appender.fillings_mut().end_round() {
                self.note_announced(appender, emptying);
            }
        }
        self.duties.pop_front()
    }

    /// A round of announcing is over: emptied segments and filled ones that need no more announcing get their duties.
    fn note_announced(&mut self, appender: &mut Appender, emptying: &mut Emptying) {
        let first = appender.fillings().first_unannounced(Some(Stream::Kept)).unwrap_or(u64::MAX);
        while let Some(segment) = emptying.next_announced(first) {
            self.duties.push_back(Duty::Settle(Settling::Emptied { segment }));
        }
        while let Some(segment) = appender.fillings_mut().take_finished() {
            self.duties.push_back(Duty::Release { segment });
        }
    }

    /// Everything written before the driver was asked for this is safe.
    pub(super) fn settled(&mut self, what: Settling, appender: &mut Appender, emptying: &mut Emptying) {
        match what {
            Settling::Emptied { segment } => emptying.free(segment, appender.log_mut()),
            Settling::Parts => self.duties.extend(self.checkpoints.parts_settled(appender.log_mut())),
            Settling::Name => self.checkpoints.name_settled(appender.log_mut()),
        }
    }

    /// Finds a place for a record of the journal.
    pub(super) fn note_record(&mut self) -> Recorded {
        self.checkpoints.note_record()
    }

    /// Does a piece of a checkpoint, or begins one if it `may_begin`. Returns whether that has taken space of the log.
    pub(super) fn step_checkpoint<P: Parts>(
        &mut self,
        may_begin: bool,
        appender: &mut Appender,
        keys: &Keys,
        parts: &mut P,
    ) -> bool {
        let used = appender.log().segments_used();
        let (appended, first_unannounced) =
            (appender.fillings().appended(), appender.fillings().first_unannounced(None));
        let log = appender.log_mut();
        let mut around = Around { log, keys, duties: &mut self.duties, appended, first_unannounced };
        if self.checkpoints.step(may_begin, &mut around, parts) {
            // So that it need not wait for segments to fill.
            appender.flush_all();
            return true;
        }
        appender.log().segments_used() != used
    }

    /// A part of the checkpoint is on the device; with `false` it could not be written.
    pub(super) fn part_written(&mut self, is_written: bool) {
        self.checkpoints.part_written(is_written);
    }

    /// The superblock that names the checkpoint is written; with `false` it could not be.
    pub(super) fn note_named(&mut self, is_written: bool) {
        self.checkpoints.note_named(is_written);
        self.duties.push_back(Duty::Settle(Settling::Name));
    }
}

#[cfg(test)]
mod tests {
    use super::super::From;
    use super::super::journal::Journal;
    use super::*;
    use crate::log::{Admission, Filled, Log, LogConfig, LogPlace, RESERVE};

    const RECORDS: u64 = 8;

    /// The rows of a checkpoint.
    #[derive(Debug, Default)]
    struct Rows {
        begun: u32,
        segments: Vec<u32>,
        items: Vec<u64>,
    }

    impl Parts for Rows {
        fn begin(&mut self, _: bool) {
            self.begun += 1;
        }

        fn add_segment(&mut self, filled: Filled) {
            self.segments.push(filled.segment);
        }

        fn add_item(&mut self, hash: u64, _: LogPlace) {
            self.items.push(hash);
        }
    }

    struct World {
        keys: Keys,
        appender: Appender,
        emptying: Emptying,
        restarts: Restarts,
        rows: Rows,
    }

    impl World {
        /// A log of three items, of which nothing is safe. A checkpoint is due with the next record.
        fn new() -> Self {
            let config = LogConfig {
                segments: 16,
                segment_bytes: 128 << 10,
                admission: Admission::All,
                reserve: RESERVE,
                journal_records: RECORDS,
            };
            let checkpoints = Checkpoints::new(Journal::new(RECORDS, RECORDS, false), Vec::new());
            let mut world = World {
                keys: Keys::default(),
                appender: Appender::new(Log::new(config)),
                emptying: Emptying::default(),
                restarts: Restarts::new(checkpoints),
                rows: Rows::default(),
            };
            for hash in [1u64 << 40, 2 << 40, 3 << 40] {
                let from = From::Segment { segment: 0, at: 0 };
                let World { appender, keys, .. } = &mut world;
                assert!(appender.append(keys, Stream::Fresh, (hash, 1000, 0), from).is_some());
            }
            world
        }

        fn duties(&mut self) -> Vec<Duty> {
            self.appender.fillings_mut().begin_round();
            let World { keys, appender, emptying, restarts, .. } = self;
            std::iter::from_fn(|| restarts.next_duty(appender, emptying, keys)).collect()
        }

        fn step(&mut self) -> bool {
            let World { keys, appender, restarts, rows, .. } = self;
            restarts.step_checkpoint(true, appender, keys, rows)
        }

        fn settled(&mut self, what: Settling) {
            self.restarts.settled(what, &mut self.appender, &mut self.emptying);
        }

        /// Everything that can be written is on the device.
        fn write_out(&mut self) {
            self.appender.flush_all();
            while let Some(act) = self.appender.next_act() {
                if let super::super::Act::Write { segment, end, .. } = act {
                    self.appender.fillings_mut().note_safe(segment, end);
                }
            }
        }
    }

    #[test]
    fn what_is_safe_is_announced_and_a_sealed_segment_released_behind_it() {
        let mut world = World::new();
        assert_eq!(world.duties(), [], "nothing is on the device");
        world.write_out();
        let announced = world.duties();
        let hashes: Vec<u64> = announced
            .iter()
            .map(|duty| match duty {
                Duty::Announce { hash, is_new: true, .. } => hash >> 40,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(hashes, [1, 2, 3]);
        assert_eq!(world.duties(), [], "each once, and more may come to its segment");
        world.appender.seal_all();
        world.write_out();
        assert_eq!(world.duties(), [Duty::Release { segment: 0 }]);
    }

    #[test]
    fn a_checkpoint_is_named_when_its_parts_are_safe_and_complete_when_its_name_is() {
        let mut world = World::new();
        assert_eq!(world.restarts.note_record(), Recorded::InOtherHalf);
        let used = world.appender.log().segments_used();
        assert!(world.step(), "all of it is handed out");
        assert_eq!((&world.rows.segments[..], world.rows.items.len()), (&[0][..], 3));
        let duties = world.duties();
        let &[Duty::WritePart { segment, next: None }] = &duties[..] else { panic!("{duties:?}") };
        assert_eq!(world.appender.log().segments_used(), used + 1, "it has borrowed one");
        world.restarts.part_written(true);
        world.step();
        assert_eq!(world.duties(), [], "an item that it names is not safe yet");
        world.write_out();
        assert_eq!(world.duties().len(), 3);
        world.step();
        assert_eq!(world.duties(), [Duty::Settle(Settling::Parts)]);
        world.settled(Settling::Parts);
        assert!(matches!(world.duties()[..], [Duty::Name { first, .. }] if first == segment));
        world.restarts.note_named(true);
        assert_eq!(world.duties(), [Duty::Settle(Settling::Name)]);
        assert_eq!(world.restarts.checkpoints().counters().completed, 0);
        world.settled(Settling::Name);
        assert_eq!(world.restarts.checkpoints().counters().completed, 1);
        assert_eq!(world.appender.log().segments_used(), used + 1, "until the next one is complete");
    }

    #[test]
    fn a_checkpoint_that_cannot_be_written_gives_back_what_it_has_borrowed() {
        let mut world = World::new();
        world.restarts.note_record();
        let used = world.appender.log().segments_used();
        world.step();
        world.write_out();
        world.duties();
        world.restarts.part_written(false);
        world.step();
        assert_eq!(world.duties(), [Duty::Settle(Settling::Parts)]);
        world.settled(Settling::Parts);
        assert_eq!(world.duties(), [], "nothing is named");
        assert_eq!(world.restarts.checkpoints().counters().failed, 1);
        assert_eq!(world.appender.log().segments_used(), used);
    }
}
