//! What the writers write, the readers read back.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::path::Path;

use proptest::prelude::*;
use tiermem_base::{Access, Op};
use tiermem_trace::writer::{self, WriteOptions};
use tiermem_trace::{Fields, Format, ReadOptions, TraceError, open, open_with};

fn write(path: &Path, records: &[Access]) -> Result<(), TraceError> {
    let mut writer =
        writer::create(path, &WriteOptions { source: "a test".to_owned(), ..WriteOptions::default() })?;
    for batch in records.chunks(7) {
        writer.write(batch)?;
    }
    writer.finish()
}

fn read(path: &Path) -> Vec<Access> {
    open(path.to_str().unwrap()).unwrap().map(|access| access.unwrap()).collect()
}

fn record() -> impl Strategy<Value = Access> {
    let numbers =
        (any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u16>(), 0usize..8);
    numbers.prop_map(|(time_ns, key, size, tenant, ttl_s, key_size, op)| Access {
        time_ns,
        key,
        size,
        tenant,
        ttl_s,
        key_size,
        op: Op::ALL[op],
    })
}

/// Names of files in all formats that keep all fields.
fn lossless() -> Vec<&'static str> {
    let mut names = vec!["a.csv", "a.csv.gz", "a.csv.zst"];
    if cfg!(feature = "parquet") {
        names.push("a.parquet");
    }
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_fields_survive(mut records in prop::collection::vec(record(), 1..80)) {
        // Times count from the first record, which csv readers see to.
        records[0].time_ns = 0;
        let dir = tempfile::tempdir().unwrap();
        for name in lossless() {
            let path = dir.path().join(name);
            write(&path, &records).unwrap();
            prop_assert_eq!(&read(&path), &records, "{}", name);
            // Nothing is left beside the file.
            prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn oracle_general_keeps_seconds_keys_and_sizes(records in prop::collection::vec(record(), 1..80)) {
        let dir = tempfile::tempdir().unwrap();
        let mut records = records;
        for record in &mut records {
            record.time_ns %= 1 << 60;
            record.key %= 16;
        }
        records[0].time_ns = 0;
        let wanted: Vec<Access> = records
            .iter()
            .map(|it| Access::get(it.time_ns / 1_000_000_000 * 1_000_000_000, it.key, it.size))
            .collect();
        for name in ["a.oracleGeneral", "a.oracleGeneral.bin.zst"] {
            let path = dir.path().join(name);
            write(&path, &records).unwrap();
            prop_assert_eq!(&read(&path), &wanted);
        }
        // The next accesses against the obvious way.
        let bytes = std::fs::read(dir.path().join("a.oracleGeneral")).unwrap();
        for (at, bytes) in bytes.chunks(24).enumerate() {
            let next = i64::from_le_bytes(bytes[16..].try_into().unwrap());
            let later = (at + 1..records.len()).find(|later| records[*later].key == records[at].key);
            prop_assert_eq!(next, later.map_or(-1, |later| later as i64 + 1));
        }
    }
}

#[test]
fn oracle_general_is_what_libcachesim_distributes() {
    let name = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/cloudPhysicsIO-20k.oracleGeneral.bin.zst");
    let records = read(Path::new(name));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.oracleGeneral");
    write(&path, &records).unwrap();
    let ours = std::fs::read(&path).unwrap();
    let theirs = zstd::decode_all(std::fs::File::open(name).unwrap()).unwrap();
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.chunks(24).zip(theirs.chunks(24)) {
        // Times count from the first record; a next access behind the slice is none.
        assert_eq!(ours[4..16], theirs[4..16]);
        let next = i64::from_le_bytes(theirs[16..].try_into().unwrap());
        let next = if next > 20_000 { -1 } else { next };
        assert_eq!(i64::from_le_bytes(ours[16..].try_into().unwrap()), next);
    }
}

#[test]
fn a_file_appears_when_it_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.csv", "a.oracleGeneral"] {
        let path = dir.path().join(name);
        let mut unfinished = writer::create(&path, &WriteOptions::default()).unwrap();
        unfinished.write(&[Access::get(0, 1, 1)]).unwrap();
        assert!(!path.exists());
        drop(unfinished);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left of it");
    }
}

#[test]
fn what_cannot_be_written_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let error = write(Path::new("/nonexistent/a.csv"), &[]).unwrap_err().to_string();
    assert!(error.starts_with("cannot write /nonexistent/a.csv"), "{error}");
    let late = Access::get(u64::MAX, 1, 1);
    let error = write(&dir.path().join("a.oracleGeneral"), &[late]).unwrap_err().to_string();
    assert!(error.contains("no room for times"), "{error}");
    let options = WriteOptions { format: Some("msr".parse().unwrap()), ..WriteOptions::default() };
    let error = writer::create(&dir.path().join("a"), &options).err().unwrap().to_string();
    assert!(
        error.contains("can only be read; those to write are") && error.contains("oracle-general"),
        "{error}"
    );
    assert!(writer::can_write(Format::CSV) && writer::names().contains("csv"));
}

#[test]
fn fields_that_are_asked_for_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = Access { tenant: 3, ttl_s: 9, key_size: 2, ..Access::new(0, Op::Set, 7, 11) };
    for name in lossless() {
        let path = dir.path().join(name);
        write(&path, &[wanted]).unwrap();
        let with = |fields| {
            let options = ReadOptions { fields, ..ReadOptions::default() };
            open_with(path.to_str().unwrap(), &options).unwrap().next().unwrap().unwrap()
        };
        assert_eq!(with(Fields::KEY).key, 7, "{name}");
        let some = with(Fields::SIZE | Fields::OP);
        assert_eq!((some.key, some.size, some.op), (7, 11, Op::Set), "{name}");
        assert_eq!(with(Fields::ALL), wanted, "{name}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_keeps_row_groups_apart_and_knows_its_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let spec = "zipf:alpha=0.9,objects=100k,requests=1200k,size=64-1024";
    let mut trace = open(spec).unwrap();
    let mut writer = writer::create(&path, &WriteOptions::default()).unwrap();
    let mut batch = Vec::new();
    while trace.next_batch(&mut batch, 5000).unwrap() > 0 {
        // The operation changes with the row group, so that some have but one.
        batch.iter_mut().filter(|record| record.time_ns > 700_000_000).for_each(|record| record.op = Op::Set);
        writer.write(&batch).unwrap();
        batch.clear();
    }
    writer.finish().unwrap();
    let read = open(path.to_str().unwrap()).unwrap();
    assert_eq!(read.len_hint(), Some(1_200_000));
    let mut count = 0;
    for (wanted, record) in open(spec).unwrap().zip(read) {
        let (mut wanted, record) = (wanted.unwrap(), record.unwrap());
        if wanted.time_ns > 700_000_000 {
            wanted.op = Op::Set;
        }
        assert_eq!(record, wanted);
        count += 1;
    }
    assert_eq!(count, 1_200_000);
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_that_is_broken_or_of_others_is_an_error_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    write(&path, &[Access::get(0, 1, 2), Access::get(5, 3, 4)]).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let error = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        open(path.to_str().unwrap())
            .and_then(|trace| trace.collect::<Result<Vec<_>, _>>())
            .unwrap_err()
            .to_string()
    };
    assert!(error(&whole[..whole.len() / 2]).contains("a.parquet"));
    assert!(error(b"PAR1").contains("a.parquet"));
    // Another name for the column of keys.
    let renamed: Vec<u8> = {
        let mut bytes = whole.clone();
        for at in 0..bytes.len() - 3 {
            if &bytes[at..at + 3] == b"key" && bytes.get(at + 3) != Some(&b'_') {
                bytes[at + 2] = b'z';
            }
        }
        bytes
    };
    assert!(
        error(&renamed).contains("there is no column `key`; the columns are time_ns, op, kez"),
        "{}",
        error(&renamed)
    );
}

#[cfg(feature = "parquet")]
mod frames {
    use super::*;
    use tiermem_trace::Addresses;

    fn physical() -> ReadOptions {
        ReadOptions { addresses: Addresses::Physical, ..ReadOptions::default() }
    }

    fn keys(path: &Path, options: &ReadOptions) -> Vec<u64> {
        open_with(path.to_str().unwrap(), options).unwrap().map(|access| access.unwrap().key).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn a_record_has_both_of_its_addresses(records in prop::collection::vec((record(), 0u64..1 << 40), 1..80)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.parquet");
            let (records, frames): (Vec<_>, Vec<_>) = records.into_iter().unzip();
            let mut writer = writer::create(&path, &WriteOptions { frames: true, ..WriteOptions::default() }).unwrap();
            for (records, frames) in records.chunks(7).zip(frames.chunks(7)) {
                writer.write_framed(records, frames).unwrap();
            }
            writer.finish().unwrap();
            prop_assert_eq!(&read(&path), &records);
            let wanted: Vec<u64> = records.iter().zip(&frames).map(|(it, frame)| frame * 4096 + it.key % 4096).collect();
            prop_assert_eq!(&keys(&path, &physical()), &wanted);
            // The frame belongs to the key, whatever else is read.
            prop_assert_eq!(keys(&path, &ReadOptions { fields: Fields::KEY, ..physical() }), wanted);
        }
    }

    #[test]
    fn a_trace_without_frames_has_no_physical_addresses() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.csv", "a.parquet"] {
            let path = dir.path().join(name);
            write(&path, &[Access::new(0, Op::Load, 64, 64)]).unwrap();
            let error = open_with(path.to_str().unwrap(), &physical()).unwrap_err().to_string();
            assert!(error.contains("no physical addresses") && error.contains(name), "{error}");
        }
        let error = open_with("zipf:requests=5", &physical()).unwrap_err().to_string();
        assert!(error.contains("no physical addresses"), "{error}");
    }

    #[test]
    fn a_frame_that_is_no_frame_is_an_error_and_not_another_address() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let mut writer =
            writer::create(&path, &WriteOptions { frames: true, ..WriteOptions::default() }).unwrap();
        writer.write_framed(&[Access::new(0, Op::Load, 64, 64)], &[u64::MAX]).unwrap();
        writer.finish().unwrap();
        let error = open_with(path.to_str().unwrap(), &physical()).unwrap().next().unwrap().unwrap_err();
        assert!(error.to_string().contains("frame"), "{error}");
    }

    #[test]
    fn records_and_frames_come_together_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let framed = WriteOptions { frames: true, ..WriteOptions::default() };
        let record = [Access::new(0, Op::Load, 64, 64)];
        let mut writer = writer::create(&dir.path().join("a.parquet"), &framed).unwrap();
        assert!(writer.write(&record).is_err() && writer.write_framed(&record, &[]).is_err());
        for name in ["a.parquet", "a.csv", "a.oracleGeneral"] {
            let path = dir.path().join(name);
            assert!(
                writer::create(&path, &WriteOptions::default()).unwrap().write_framed(&record, &[1]).is_err()
            );
            assert!(name == "a.parquet" || writer::create(&path, &framed).is_err());
        }
    }
}
