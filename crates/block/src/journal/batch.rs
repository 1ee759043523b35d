//! Batch of records, the unit of writing to the log. Each carries the checksum of
//! the previous one, so a chain of batches contains no leftovers of older ones.

use super::bytes::{crc, put, u32_at, u64_at};
use super::layout::Layout;
use super::record::RECORD_BYTES_MAX;

/// Batches begin at multiples of this and are padded to it with zeros.
pub const ALIGN_BYTES: usize = 4096;
/// The header in front of the records.
pub const HEADER_BYTES: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"TMBB");

/// The header before a batch's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One more than that of the batch before.
    pub sequence: u64,
    /// The LSN of the first record; of the next one, where there is none.
    pub first_lsn: u64,
    /// SEAL: all data of records up to here are durable, and so are the records.
    pub sealed: u64,
    /// Drawn by each start of a process.
    pub session: u64,
    /// Records in it.
    pub records: u32,
    /// Their bytes.
    pub body_bytes: u32,
    /// Their checksum.
    pub body_sum: u32,
    /// The checksum of the header before.
    pub previous_sum: u32,
}

impl Header {
    /// The LSN of the last record, or the one before the first.
    pub fn last_lsn(&self) -> u64 {
        (self.first_lsn + u64::from(self.records)).saturating_sub(1)
    }

    /// Bytes of the batch.
    pub fn batch_bytes(&self) -> u64 {
        (HEADER_BYTES as u64 + u64::from(self.body_bytes)).next_multiple_of(ALIGN_BYTES as u64)
    }

    /// Writes it, and returns its checksum, by which the next batch knows it.
    pub fn write(&self, uuid: &[u8; 16], batch: &mut [u8]) -> u32 {
        put(batch, 4, &MAGIC.to_le_bytes());
        put(batch, 8, &self.sequence.to_le_bytes());
        put(batch, 16, &self.first_lsn.to_le_bytes());
        put(batch, 24, &self.sealed.to_le_bytes());
        put(batch, 32, &self.session.to_le_bytes());
        put(batch, 40, &self.records.to_le_bytes());
        put(batch, 44, &self.body_bytes.to_le_bytes());
        put(batch, 48, &self.body_sum.to_le_bytes());
        put(batch, 52, &self.previous_sum.to_le_bytes());
        put(batch, 56, &[0; 8]);
        let sum = crc(uuid, &[&batch[4..HEADER_BYTES]]);
        put(batch, 0, &sum.to_le_bytes());
        sum
    }

    /// Reads a header of this cache, and its checksum. `bytes` are at least [`HEADER_BYTES`].
    pub fn read(uuid: &[u8; 16], bytes: &[u8]) -> Option<(Self, u32)> {
        let sum = u32_at(bytes, 0);
        if u32_at(bytes, 4) != MAGIC || sum != crc(uuid, &[&bytes[4..HEADER_BYTES]]) {
            return None;
        }
        let header = Header {
            sequence: u64_at(bytes, 8),
            first_lsn: u64_at(bytes, 16),
            sealed: u64_at(bytes, 24),
            session: u64_at(bytes, 32),
            records: u32_at(bytes, 40),
            body_bytes: u32_at(bytes, 44),
            body_sum: u32_at(bytes, 48),
            previous_sum: u32_at(bytes, 52),
        };
        // Sums of these must not overflow, even in a batch forged to fit the checksum.
        let numbers = [header.sequence, header.first_lsn, header.sealed];
        numbers.iter().all(|number| *number < 1 << 62).then_some((header, sum))
    }
}

/// Checksum of a batch's records.
pub fn body_sum(uuid: &[u8; 16], body: &[u8]) -> u32 {
    crc(uuid, &[body])
}

/// Bytes of records in a batch at most: so that many fit into the log, and a record always fits.
pub fn body_bytes_max(layout: &Layout) -> usize {
    let share = (layout.log_bytes / 16).min(256 << 10) as usize - HEADER_BYTES;
    debug_assert!(share >= RECORD_BYTES_MAX, "the least log has room for each record");
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_written_and_not_when_a_bit_differs() {
        let header = Header {
            sequence: 3,
            first_lsn: 10,
            sealed: 9,
            session: 77,
            records: 2,
            body_bytes: 4040,
            body_sum: 5,
            previous_sum: 6,
        };
        let mut bytes = [0; HEADER_BYTES];
        let sum = header.write(&[1; 16], &mut bytes);
        assert_eq!(Header::read(&[1; 16], &bytes), Some((header, sum)));
        assert_eq!(Header::read(&[2; 16], &bytes), None);
        assert_eq!((header.batch_bytes(), header.last_lsn()), (8192, 11));
        for bit in 0..HEADER_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::read(&[1; 16], &bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
