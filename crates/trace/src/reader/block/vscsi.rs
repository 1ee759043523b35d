//! SCSI requests of VMware virtual disks as CloudPhysics recorded them: packed little-endian records.
//!
//! | version 1, 32 bytes | version 2, 40 bytes |
//! | --- | --- |
//! | u32 serial number | u16 command |
//! | u32 bytes | u16 version |
//! | u32 scatter-gather entries | u32 serial number |
//! | u16 command | u32 bytes |
//! | u16 version | u32 scatter-gather entries |
//! | u64 block | u64 block |
//! | u64 time in us | u64 time in us |
//! | | u64 response time in us |
//!
//! The high byte of the version is 1 or 2. Commands that neither read nor write are no accesses. Waldspurger, Park,
//! Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST 2015.

use std::io::BufRead;
use std::path::Path;

use tiermem_base::{Access, Op};

use super::SECTOR_BYTES;
use crate::BadRecord;
use crate::reader::core::clock::{Clock, MICROSECOND_NS};
use crate::reader::core::fixed::FixedFormat;
use crate::reader::core::info::{FormatInfo, Open, Opened, open_fixed};
use crate::reader::core::source::Source;

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "vscsi",
    about: "CloudPhysics vscsi: packed binary records of 32 (version 1) or 40 bytes (version 2)",
    file_names: &[".vscsi", ".vscsitrace"],
    open: Open::Binary { looks: |start| is_version(start, 1) || is_version(start, 2), open },
};

const BYTES_1: usize = 32;
const BYTES_2: usize = 40;

#[derive(Default)]
struct Vscsi {
    clock: Clock,
}

/// Whether the first records of a file are all of this version.
fn is_version(start: &[u8], version: u8) -> bool {
    const RECORDS: usize = 16;
    let (bytes, at) = if version == 1 { (BYTES_1, 15) } else { (BYTES_2, 3) };
    let mut records = start.chunks_exact(bytes).take(RECORDS);
    records.len() > 0 && records.all(|record| record[at] == version)
}

fn open(path: &Path, mut source: Source) -> Opened {
    // A failed look is told as such by the first read.
    let second = source.fill_buf().is_ok_and(|start| is_version(start, 2) && !is_version(start, 1));
    match second {
        true => open_fixed::<_, BYTES_2>(path, source, Vscsi::default()),
        false => open_fixed::<_, BYTES_1>(path, source, Vscsi::default()),
    }
}

impl Vscsi {
    fn access(&mut self, fields: &Fields, version: u8) -> Result<Option<Access>, BadRecord> {
        if fields.version >> 8 != u16::from(version) {
            return Err(BadRecord::OutOfRange { field: "version", text: fields.version.to_string() });
        }
        // Six-, ten-, sixteen- and twelve-byte commands of SBC-3, section 5.
        let op = match fields.command {
            0x08 | 0x28 | 0x88 | 0xa8 => Op::Read,
            0x0a | 0x2a | 0x8a | 0xaa => Op::Write,
            _ => return Ok(None),
        };
        let scaled = |value: u64, scale, field| {
            let range = || BadRecord::OutOfRange { field, text: value.to_string() };
            value.checked_mul(scale).ok_or_else(range)
        };
        let key = scaled(fields.block, SECTOR_BYTES, "block")?;
        let at_ns = scaled(fields.time_us, MICROSECOND_NS, "time")?;
        Ok(Some(Access::new(self.clock.since_start(at_ns), op, key, fields.bytes)))
    }
}

struct Fields {
    bytes: u32,
    command: u16,
    version: u16,
    block: u64,
    time_us: u64,
}

fn half(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

fn word(record: &[u8], at: usize) -> u32 {
    u32::from(half(record, at)) | u32::from(half(record, at + 2)) << 16
}

fn long(record: &[u8], at: usize) -> u64 {
    u64::from(word(record, at)) | u64::from(word(record, at + 4)) << 32
}

impl FixedFormat<BYTES_1> for Vscsi {
    fn record(&mut self, record: &[u8; BYTES_1]) -> Result<Option<Access>, BadRecord> {
        let fields = Fields {
            bytes: word(record, 4),
            command: half(record, 12),
            version: half(record, 14),
            block: long(record, 16),
            time_us: long(record, 24),
        };
        self.access(&fields, 1)
    }

    fn steps_back(&self) -> u64 {
        self.clock.steps_back
    }
}

impl FixedFormat<BYTES_2> for Vscsi {
    fn record(&mut self, record: &[u8; BYTES_2]) -> Result<Option<Access>, BadRecord> {
        let fields = Fields {
            bytes: word(record, 8),
            command: half(record, 0),
            version: half(record, 2),
            block: long(record, 16),
            time_us: long(record, 24),
        };
        self.access(&fields, 2)
    }

    fn steps_back(&self) -> u64 {
        self.clock.steps_back
    }
}
