//! What the log's device tells a shard: writings and readings that have ended, segments that it uses itself.

use super::Items;
use super::contents::Contents;
use crate::index::Found;
use crate::log::Stream;

/// The side of a shard that is turned to the log's device. Where there is no log, nothing comes of anything.
#[derive(Debug)]
pub struct Device<'a> {
    pub(super) contents: &'a mut Contents,
}

impl Device<'_> {
    /// All bytes of a sealed segment are safe, and the driver keeps them no longer.
    pub fn written(&mut self, segment: u32) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.end_filling(segment);
        }
    }

    /// The bytes of the segment that is being emptied are there; with `false` they could not be read.
    pub fn arrived(&mut self, segment: u32, is_readable: bool) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.note_arrival(segment, is_readable);
        }
    }

    /// What survived of an emptied segment is safe.
    pub fn freed(&mut self, segment: u32) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.end_emptying(segment);
        }
    }

    /// The device was given up: nothing comes in any more, and nobody waits for it.
    pub fn give_up(&mut self) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.give_up();
        }
        self.contents.report_outlet();
    }

    /// Lends the driver a free segment for its own use, such as a checkpoint.
    pub fn lend_segment(&mut self) -> Option<u32> {
        let segment = self.contents.log_mut()?.0.lend_segment();
        self.contents.report_outlet();
        segment
    }

    /// The driver gives a segment back that was lent to it.
    pub fn give_back_segment(&mut self, segment: u32) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.give_back_segment(segment);
        }
        self.contents.report_outlet();
    }

    /// Whether the driver gives segments back before long, so that survivors may wait for them.
    pub fn promise_segments(&mut self, will_give_back: bool) {
        if let Some((work, _)) = self.contents.log_mut() {
            work.expect_segments(will_give_back);
        }
    }

    /// Has everything written that can be, however little it is; with `seal` to the end. Acts follow.
    pub fn write_out(&mut self, seal: bool) {
        if let Some((work, _)) = self.contents.log_mut() {
            match seal {
                true => work.seal_all(),
                false => [Stream::Fresh, Stream::Kept].into_iter().for_each(|stream| work.flush(stream)),
            }
        }
    }

    /// What the log promised could not be read, and was forgotten: whether memory has it, whose copy is the only one now.
    pub fn note_lost<I: Items>(&self, hash: u64, items: &mut I) -> bool {
        self.contents.memory.note_changed(hash, items)
    }

    /// Forgets everything that the log has. Acts follow that seal what is being filled.
    pub fn clear(&mut self) {
        let Some((work, memory)) = self.contents.log_mut() else { return };
        work.log.kill_all();
        let mut hashes = Vec::with_capacity(memory.items_below() as usize);
        memory.entries(0, usize::MAX, |hash, found| {
            if let Found::Log(_) = found {
                hashes.push(hash);
            }
        });
        hashes.into_iter().for_each(|hash| _ = memory.remove_below(hash));
        self.contents.charge_log();
    }
}
