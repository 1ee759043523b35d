//! Queue of transactions that wait for their frames to become known, in order, on their way to the writer.

use tiermem_base::Access;
use tiermem_trace::writer::Writer;
use tiermem_trace::{OptionalColumn, OptionalColumns, TraceError};

use super::frames::{Frames, Mapping};

/// Transactions that are gathered before they are written.
const HELD: usize = 32 << 10;

/// Transactions in their order.
///
/// Lackey's line about an access may be read before the access has happened, and then its page
/// has no frame yet. So a transaction is kept until more has been read behind it, and its page
/// has been looked up again. One with a frame that is unknown even then is left out and counted.
#[derive(Debug, Default)]
pub(super) struct Queue {
    records: Vec<Access>,
    mappings: Vec<Mapping>,
    /// How many of them stood here when frames were last looked for.
    settled: usize,
    resolved: Vec<Access>,
    /// Transactions left out.
    pub left_out: u64,
    /// Transactions written that fill lines.
    pub loads: u64,
    /// Transactions written that write lines back.
    pub stores: u64,
}

impl Queue {
    pub fn push(&mut self, record: Access, mapping: Mapping) {
        self.records.push(record);
        self.mappings.push(mapping);
    }

    /// Takes in that more has been read behind all that is here, and that frames have been looked for since.
    pub fn settle(&mut self) {
        self.settled = self.records.len();
    }

    /// Writes what is settled, if there is enough of it or if it is the last.
    pub fn write(&mut self, frames: &Frames, last: bool, writer: &mut dyn Writer) -> Result<(), TraceError> {
        if self.settled < HELD && !last {
            return Ok(());
        }
        self.resolved.clear();
        let mut resolved_frames = Vec::new();
        let mappings = self.mappings.drain(..self.settled);
        for (record, mapping) in self.records.drain(..self.settled).zip(mappings) {
            match frames.frame(mapping) {
                Some(frame) => {
                    let is_store = record.op.is_write();
                    self.loads += u64::from(!is_store);
                    self.stores += u64::from(is_store);
                    self.resolved.push(record);
                    resolved_frames.push(frame.get());
                }
                None => self.left_out += 1,
            }
        }
        self.settled = 0;
        writer.write_with(&self.resolved, &OptionalColumns::of(OptionalColumn::Frame, resolved_frames))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::physical::frames::{PageLookup, PageTable};
    use std::collections::BTreeMap;
    use std::num::NonZeroU64;
    use tiermem_base::Op;

    /// Keeps what it is given.
    #[derive(Default)]
    struct Kept(Vec<(u64, u64)>);

    impl Writer for Kept {
        fn write(&mut self, _: &[Access]) -> Result<(), TraceError> {
            unreachable!("every transaction has its frame")
        }

        fn write_with(&mut self, records: &[Access], columns: &OptionalColumns) -> Result<(), TraceError> {
            let frames = columns.get(OptionalColumn::Frame).unwrap();
            assert_eq!(records.len(), frames.len());
            self.0.extend(records.iter().map(|record| record.key).zip(frames.iter().copied()));
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<(), TraceError> {
            Ok(())
        }
    }

    #[derive(Default)]
    struct Table(BTreeMap<u64, u64>);

    impl PageTable for Table {
        fn page(&mut self, page: u64) -> PageLookup {
            self.0
                .get(&page)
                .and_then(|frame| NonZeroU64::new(*frame))
                .map_or(PageLookup::Absent, PageLookup::Frame)
        }

        fn pages(&mut self, _: u64, _: &mut [PageLookup]) {}
    }

    #[test]
    fn transactions_wait_for_their_frames_and_keep_their_order() {
        let (mut queue, mut frames, mut table) = (Queue::default(), Frames::default(), Table::default());
        let mut writer = Kept::default();
        table.0.insert(1, 11);
        let push = |queue: &mut Queue, frames: &mut Frames, page: u64, op, table: &mut Table| {
            queue.push(Access::new(0, op, page * 4096, 64), frames.mapping(page, table));
        };
        push(&mut queue, &mut frames, 2, Op::Load, &mut table);
        push(&mut queue, &mut frames, 1, Op::Store, &mut table);
        push(&mut queue, &mut frames, 3, Op::Load, &mut table);
        // Nothing has been read behind them yet.
        queue.write(&frames, true, &mut writer).unwrap();
        assert_eq!(writer.0, []);
        table.0.insert(2, 12);
        frames.retry(&mut table);
        queue.settle();
        push(&mut queue, &mut frames, 1, Op::Load, &mut table);
        // Too few to be worth a call, unless they are the last.
        queue.write(&frames, false, &mut writer).unwrap();
        assert_eq!(writer.0, []);
        queue.write(&frames, true, &mut writer).unwrap();
        assert_eq!(writer.0, [(2 * 4096, 12), (4096, 11)]);
        assert_eq!((queue.left_out, queue.loads, queue.stores), (1, 1, 1));
        queue.settle();
        queue.write(&frames, true, &mut writer).unwrap();
        assert_eq!(writer.0.len(), 3);
    }
}
