//! Requests of the block traces that the tests share.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::path::Path;

use tiermem_base::Access;

/// A trace's reads and writes, laid into a volume of `volume_bytes`. The engine cuts requests at multiples of `cut_bytes` and plans each
/// part by itself, so none of these crosses one.
pub fn cut_trace(name: &str, volume_bytes: u64, cut_bytes: u64) -> Vec<Access> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/trace/testdata").join(name);
    let trace = tiermem_trace::open(path.to_str().unwrap()).unwrap();
    let mut records = Vec::new();
    for record in trace.map(Result::unwrap).filter(|record| record.size > 0) {
        let (mut at, mut left) = (record.key % volume_bytes, u64::from(record.size));
        while left > 0 {
            let bytes = left.min(cut_bytes - at % cut_bytes);
            records.push(Access { key: at, size: bytes as u32, tenant: 0, ..record });
            (at, left) = ((at + bytes) % volume_bytes, left - bytes);
        }
    }
    records
}
