//! Transactions that wait for their frames to become known, in order, and their way to the writer.

use tiermem_base::Access;
use tiermem_trace::TraceError;
use tiermem_trace::writer::Writer;

use super::frames::{Frames, Mapping};

/// Transactions that are gathered before they are written.
const HELD: usize = 32 << 10;

/// Transactions in their order.
///
/// What Lackey says of an access may be read before the access has happened, and then its page has no frame yet. So a
/// transaction is kept until more has been read behind it, and its page has been looked at again. One whose frame is
/// unknown even then is left out and counted.
#[derive(Debug, Default)]
pub(super) struct Queue {
    records: Vec<Access>,
    mappings: Vec<Mapping>,
    /// How many of them stood here when frames were last looked for.
    settled: usize,
    resolved: Vec<Access>,
    frames: Vec<u64>,
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
        self.frames.clear();
        let mappings = self.mappings.drain(..self.settled);
        for (record, mapping) in self.records.drain(..self.settled).zip(mappings) {
            match frames.frame(mapping) {
                Some(frame) => {
                    let is_store = record.op.is_write();
                    self.loads += u64::from(!is_store);
                    self.stores += u64::from(is_store);
                    self.resolved.push(record);
                    self.frames.push(frame.get());
                }
                None => self.left_out += 1,
            }
        }
        self.settled = 0;
        writer.write_framed(&self.resolved, &self.frames)
    }
}
