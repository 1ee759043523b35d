//! Events of the log's device: writes and reads that have ended, and records that it writes for a restart.

use super::Items;
use super::contents::Contents;
use super::log::LogParts;
use super::open_segments::Withdrawn;
use super::persist_command::{Duty, Parts, Recorded, Settling};
use crate::index::Found;
use crate::log::LogPlace;

/// The side of a shard that is turned to the log's device. Where there is no log, nothing comes of anything.
#[derive(Debug)]
pub struct Device<'a> {
    contents: &'a mut Contents,
}

impl<'a> Device<'a> {
    /// The device's face of these contents.
    pub(super) fn new(contents: &'a mut Contents) -> Self {
        Device { contents }
    }
}

impl Device<'_> {
    /// The device has so many more segments behind the others, which are free.
    pub fn grow(&mut self, segments: u32) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.parts().appender.log_mut().grow(segments);
        }
        self.contents.charge_log();
        self.contents.report_outlet();
    }

    /// Everything before byte `end` of a segment that is being filled is safe on the device: the bytes of it that were
    /// [written](super::Act::Write), in order.
    pub fn note_safe(&mut self, segment: u32, end: u32) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.parts().appender.fillings_mut().note_safe(segment, end);
        }
    }

    /// All that is safe was told: duties follow that announce it, and end what waits for that.
    pub fn announce(&mut self) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.parts().appender.fillings_mut().begin_round();
        }
    }

    /// The next duty of the device's driver. `None`: nothing more follows from what was told.
    pub fn next_duty(&mut self) -> Option<Duty> {
        let (work, memory) = self.contents.log_mut()?;
        let LogParts { appender, emptying, restarts } = work.parts();
        restarts.next_duty(appender, emptying, memory.keys())
    }

    /// Everything written before a [`Duty::Settle`] is safe.
    pub fn settled(&mut self, what: Settling) {
        if let Some((work, _)) = self.contents.log_mut() {
            let LogParts { appender, emptying, restarts } = work.parts();
            restarts.settled(what, appender, emptying);
        }
        self.contents.report_outlet();
    }

    /// A record is about to be written in the journal: where.
    pub fn note_record(&mut self) -> Recorded {
        self.contents.log_mut().map_or(Recorded::Behind, |(work, _)| work.parts().restarts.note_record())
    }

    /// An item has left the log: has it not be announced. `None`: it has been already.
    pub fn withdraw(&mut self, hash: u64, place: LogPlace) -> Option<Withdrawn> {
        let (work, _) = self.contents.log_mut()?;
        let (segment, _) = work.filling_of(place);
        work.parts().appender.fillings_mut().withdraw(segment, hash, place)
    }

    /// Does a piece of the checkpoint that is due or under way, of which `parts` hear first. Duties follow, and acts.
    pub fn step_checkpoint<P: Parts>(&mut self, parts: &mut P) {
        let Some((work, memory)) = self.contents.log_mut() else { return };
        let may_begin = !work.is_given_up();
        let LogParts { appender, restarts, .. } = work.parts();
        if restarts.step_checkpoint(may_begin, appender, memory.keys(), parts) {
            self.contents.report_outlet();
        }
    }

    /// A part of the checkpoint is on the device; with `false` it could not be written.
    pub fn part_written(&mut self, is_written: bool) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.parts().restarts.part_written(is_written);
        }
    }

    /// The superblock that names the checkpoint is written; with `false` it could not be. Duties follow.
    pub fn named(&mut self, is_written: bool) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.parts().restarts.note_named(is_written);
        }
    }

    /// The bytes of the segment that is being emptied are there; with `false` they could not be read.
    pub fn arrived(&mut self, segment: u32, is_readable: bool) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.parts().emptying.note_arrival(segment, is_readable);
        }
    }

    /// The device was given up: nothing comes into the log any more, and no request waits for it.
    pub fn give_up(&mut self) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.give_up();
        }
        self.contents.report_outlet();
    }

    /// Has everything written that can be, however little it is; with `seal` to the end. Acts follow.
    pub fn write_out(&mut self, seal: bool) {
        if let Some((work, _)) = self.contents.log_mut() {
            let LogParts { appender, .. } = work.parts();
            if seal { appender.seal_all() } else { appender.flush_all() }
        }
    }

    /// An item of the log could not be read, and was forgotten. Returns whether memory has it; that copy is the only one now.
    pub fn note_lost<I: Items>(&self, hash: u64, items: &mut I) -> bool {
        self.contents.memory().note_changed(hash, items)
    }

    /// Forgets everything that the log has. Acts follow that seal the open segments.
    pub fn clear(&mut self) {
        let Some((work, memory)) = self.contents.log_mut() else { return };
        work.parts().appender.log_mut().kill_all();
        let keys = memory.keys_mut();
        let mut hashes = Vec::with_capacity(keys.items_below() as usize);
        keys.entries(0, usize::MAX, |hash, found| {
            if let Found::Log(_) = found {
                hashes.push(hash);
            }
        });
        hashes.into_iter().for_each(|hash| _ = keys.remove_below(hash));
        self.contents.charge_log();
    }
}
