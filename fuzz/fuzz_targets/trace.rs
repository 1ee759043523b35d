//! Every trace reader must take any bytes without a panic, and read the same records in batches of any size. The first
//! byte of an input chooses the format, the second the batch.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tiermem_trace::{Format, ReadOptions, reader};

/// A line may stand for billions of records; this many are enough to find what is wrong.
const RECORDS_MAX: usize = 10_000;

fn read(bytes: &[u8], format: Format, batch: usize) -> Vec<tiermem_base::Access> {
    let options = ReadOptions { skip_bad: u64::MAX, ..ReadOptions::default() };
    let Ok(mut trace) = reader::read_bytes(Path::new("input"), bytes.to_vec(), &options, format) else {
        return Vec::new();
    };
    let mut records = Vec::new();
    while records.len() < RECORDS_MAX && matches!(trace.next_batch(&mut records, batch), Ok(1..)) {}
    records.truncate(RECORDS_MAX);
    records
}

fuzz_target!(|input: &[u8]| {
    let [format, batch, bytes @ ..] = input else { return };
    let Some(format) = Format::all().cycle().nth(usize::from(*format)) else { return };
    assert_eq!(read(bytes, format, usize::from(*batch) + 1), read(bytes, format, 4096));
});
