//! libCacheSim's oracleGeneral form: packed little-endian records of 24 bytes.
//!
//! | offset | type | field |
//! | --- | --- | --- |
//! | 0 | u32 | time of the request in seconds |
//! | 4 | u64 | object |
//! | 12 | u32 | size in bytes |
//! | 16 | i64 | number of the next request for the object, -1 or `2^63 - 1` for none |
//!
//! The next access is checked but not used: what needs the future works it out itself. Any other bits are a
//! valid record, so this check is also what notices that a file is something else.

use tiermem_base::Access;

use crate::BadRecord;
use crate::reader::core::clock::{Clock, SECOND_NS};
use crate::reader::core::fixed::FixedFormat;
use crate::reader::core::info::{FormatInfo, Open, open_fixed};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "oracle-general",
    about: "libCacheSim oracleGeneral: packed binary records of 24 bytes",
    file_names: &["oraclegeneral"],
    open: Open::Binary {
        looks,
        open: |path, source| open_fixed::<_, RECORD_BYTES>(path, source, OracleGeneral::default()),
    },
};

/// Bytes of one record.
pub(crate) const RECORD_BYTES: usize = 24;

/// The size and the high half of the next access leave zero bytes in nearly every record.
fn looks(start: &[u8]) -> bool {
    let mut records = start.chunks_exact(RECORD_BYTES).take(64);
    records.len() > 0 && records.all(|record| record[12..16].contains(&0))
}

#[derive(Default)]
struct OracleGeneral {
    clock: Clock,
}

impl FixedFormat<RECORD_BYTES> for OracleGeneral {
    #[inline]
    fn record(&mut self, record: &[u8; RECORD_BYTES]) -> Result<Option<Access>, BadRecord> {
        let [time_s, key_low, key_high, size, next_low, next_high] =
            [0, 4, 8, 12, 16, 20].map(|at| u32::from_le_bytes([0, 1, 2, 3].map(|byte| record[at + byte])));
        let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let next = join(next_low, next_high).cast_signed();
        if next < -1 {
            return Err(BadRecord::OutOfRange { field: "next_access", text: next.to_string() });
        }
        let time_ns = self.clock.since_start(u64::from(time_s) * SECOND_NS);
        Ok(Some(Access::get(time_ns, join(key_low, key_high), size)))
    }

    fn steps_back(&self) -> u64 {
        self.clock.steps_back
    }
}
