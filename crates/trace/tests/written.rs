//! Round trips: what the writers write, the readers read back.

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
    use tiermem_trace::{Addresses, OptionalColumn, OptionalColumns, OptionalSet};

    fn framed(frames: &[u64]) -> OptionalColumns {
        OptionalColumns::of(OptionalColumn::Frame, frames.to_vec())
    }

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
            let mut writer = writer::create(&path, &WriteOptions { optional: OptionalSet::of(OptionalColumn::Frame), ..WriteOptions::default() }).unwrap();
            for (records, frames) in records.chunks(7).zip(frames.chunks(7)) {
                writer.write_with(records, &framed(frames)).unwrap();
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
        let mut writer = writer::create(
            &path,
            &WriteOptions { optional: OptionalSet::of(OptionalColumn::Frame), ..WriteOptions::default() },
        )
        .unwrap();
        writer.write_with(&[Access::new(0, Op::Load, 64, 64)], &framed(&[u64::MAX])).unwrap();
        writer.finish().unwrap();
        let error = open_with(path.to_str().unwrap(), &physical()).unwrap().next().unwrap().unwrap_err();
        assert!(error.to_string().contains("frame"), "{error}");
    }

    #[test]
    fn records_and_frames_come_together_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let with_frames =
            WriteOptions { optional: OptionalSet::of(OptionalColumn::Frame), ..WriteOptions::default() };
        let record = [Access::new(0, Op::Load, 64, 64)];
        let mut writer = writer::create(&dir.path().join("a.parquet"), &with_frames).unwrap();
        assert!(writer.write(&record).is_err() && writer.write_with(&record, &framed(&[])).is_err());
        for name in ["a.parquet", "a.csv", "a.oracleGeneral"] {
            let path = dir.path().join(name);
            assert!(
                writer::create(&path, &WriteOptions::default())
                    .unwrap()
                    .write_with(&record, &framed(&[1]))
                    .is_err()
            );
            assert!(name == "a.parquet" || writer::create(&path, &with_frames).is_err());
        }
    }
}

#[cfg(feature = "parquet")]
mod optional_columns {
    use super::*;
    use std::sync::Arc;
    use tiermem_trace::{OptionalColumn, OptionalColumns, OptionalSet};

    fn all() -> ReadOptions {
        ReadOptions { optional: OptionalSet::ALL, ..ReadOptions::default() }
    }

    fn set(bits: usize) -> OptionalSet {
        OptionalColumn::ALL
            .into_iter()
            .enumerate()
            .filter(|(at, _)| bits >> at & 1 == 1)
            .map(|(_, it)| it)
            .collect()
    }

    /// The columns of this set, their values cut to what they can hold.
    fn columns(set: OptionalSet, values: &[u64]) -> OptionalColumns {
        let mut columns = OptionalColumns::with(set);
        for column in set.columns() {
            let fitting = values.iter().map(|value| value.rotate_left(column as u32) & column.max());
            columns.get_mut(column).unwrap().extend(fitting);
        }
        columns
    }

    fn write_with(path: &Path, records: &[Access], columns: &OptionalColumns) {
        let options = WriteOptions { optional: columns.set(), ..WriteOptions::default() };
        let mut writer = writer::create(path, &options).unwrap();
        writer.write_with(records, columns).unwrap();
        writer.finish().unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn columns_come_back_in_batches_and_one_by_one(
            records in prop::collection::vec((record(), any::<u64>()), 1..3000), bits in 0..16_usize, batch in 1..700_usize,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.parquet");
            let (records, values): (Vec<_>, Vec<_>) = records.into_iter().unzip();
            let columns = columns(set(bits), &values);
            write_with(&path, &records, &columns);
            let open = |options: &ReadOptions| open_with(path.to_str().unwrap(), options).unwrap();
            // A reader that asks for none gets none.
            prop_assert!(open(&ReadOptions::default()).optional().is_empty());
            prop_assert_eq!(&read(&path), &records);

            let mut trace = open(&all());
            prop_assert_eq!(trace.optional(), columns.set());
            let (mut found, mut found_columns) = (Vec::new(), OptionalColumns::with(trace.optional()));
            // The first few by the iterator, which reads ahead.
            for (at, record) in records.iter().enumerate().take(batch % 5) {
                prop_assert_eq!(trace.next().unwrap().unwrap(), *record);
                prop_assert_eq!(trace.optional_row(), columns.row(at));
                found.push(*record);
                found_columns.push(&columns.row(at));
            }
            while trace.next_batch_with(&mut found, &mut found_columns, batch).unwrap() > 0 {}
            prop_assert_eq!(&found, &records);
            prop_assert_eq!(&found_columns, &columns);

            let mut trace = open(&ReadOptions { fields: Fields::KEY, ..all() });
            let mut at = 0;
            while let Some(access) = trace.next() {
                prop_assert_eq!(access.unwrap().key, records[at].key);
                prop_assert_eq!(trace.optional_row(), columns.row(at));
                at += 1;
            }
            prop_assert_eq!(at, records.len());
            // One that is asked for and not there stays away.
            let one = ReadOptions { optional: OptionalSet::of(OptionalColumn::Pc), ..ReadOptions::default() };
            prop_assert_eq!(open(&one).optional().contains(OptionalColumn::Pc), columns.get(OptionalColumn::Pc).is_some());
        }
    }

    #[test]
    fn a_column_that_is_not_there_is_not_in_the_file() {
        use parquet::file::reader::{FileReader, SerializedFileReader};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let names = |path: &Path| -> Vec<String> {
            let file = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
            file.metadata()
                .file_metadata()
                .schema_descr()
                .columns()
                .iter()
                .map(|it| it.name().to_owned())
                .collect()
        };
        let record = [Access::new(1, Op::Load, 64, 64)];
        write(&path, &record).unwrap();
        let fields = ["time_ns", "op", "key", "size", "tenant", "key_size", "ttl_s"];
        assert_eq!(names(&path), fields);
        let path = dir.path().join("b.parquet");
        write_with(&path, &record, &columns(OptionalSet::of(OptionalColumn::Level), &[2]));
        assert_eq!(names(&path), [&fields[..], &["level"]].concat());
    }

    #[test]
    fn records_and_columns_fit_each_other_and_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let record = [Access::new(0, Op::Load, 64, 64)];
        let node = |values: Vec<u64>| OptionalColumns::of(OptionalColumn::Node, values);
        let options = WriteOptions { optional: node(vec![]).set(), ..WriteOptions::default() };
        for wrong in [
            OptionalColumns::default(),
            node(vec![]),
            node(vec![1, 2]),
            node(vec![256]),
            OptionalColumns::of(OptionalColumn::Level, vec![1]),
        ] {
            let mut writer = writer::create(&dir.path().join("a.parquet"), &options).unwrap();
            let error = writer.write_with(&record, &wrong).unwrap_err().to_string();
            assert!(error.contains("node") && error.contains("a.parquet"), "{error}");
        }
        for name in ["a.csv", "a.oracleGeneral"] {
            let error = writer::create(&dir.path().join(name), &options).err().unwrap().to_string();
            assert!(error.contains("no room for the columns node; parquet has"), "{error}");
        }
    }

    /// A file of another tool's: `key`, and a column of this type with these values.
    fn foreign(
        path: &Path,
        column: &str,
        wide: Option<&[i64]>,
        narrow: Option<&[i32]>,
        levels: Option<&[i16]>,
    ) {
        use parquet::data_type::{Int32Type, Int64Type};
        use parquet::file::writer::SerializedFileWriter;
        let schema = format!("message other {{ REQUIRED INT64 key; {column}; }}");
        let schema = Arc::new(parquet::schema::parser::parse_message_type(&schema).unwrap());
        let out = std::fs::File::create(path).unwrap();
        let mut file = SerializedFileWriter::new(out, schema, Arc::default()).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut keys = group.next_column().unwrap().unwrap();
        keys.typed::<Int64Type>().write_batch(&[1, 2], None, None).unwrap();
        keys.close().unwrap();
        let mut values = group.next_column().unwrap().unwrap();
        if let Some(wide) = wide {
            values.typed::<Int64Type>().write_batch(wide, levels, None).unwrap();
        }
        if let Some(narrow) = narrow {
            values.typed::<Int32Type>().write_batch(narrow, levels, None).unwrap();
        }
        values.close().unwrap();
        group.close().unwrap();
        file.close().unwrap();
    }

    #[test]
    fn a_column_of_another_type_is_read_where_it_fits_and_told_where_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.parquet");
        let rows = || -> Result<Vec<Option<u64>>, String> {
            let mut trace = open_with(path.to_str().unwrap(), &all()).map_err(|error| error.to_string())?;
            let mut rows = Vec::new();
            while let Some(access) = trace.next() {
                access.map_err(|error| error.to_string())?;
                rows.push(trace.optional_row().get(OptionalColumn::Node));
            }
            Ok(rows)
        };
        foreign(&path, "REQUIRED INT64 node", Some(&[3, 255]), None, None);
        assert_eq!(rows().unwrap(), [Some(3), Some(255)]);
        foreign(&path, "OPTIONAL INT32 node", None, Some(&[3, 4]), Some(&[1, 1]));
        assert_eq!(rows().unwrap(), [Some(3), Some(4)], "no value is null, though one could be");
        for (column, wide, narrow, levels, what) in [
            ("OPTIONAL INT32 node", None, Some(&[3_i32][..]), Some(&[1_i16, 0][..]), "nulls"),
            ("REQUIRED INT64 node", Some(&[3_i64, 256][..]), None, None, "cannot be 256"),
            ("REQUIRED INT32 node", None, Some(&[-1, 0][..]), None, "cannot be"),
        ] {
            foreign(&path, column, wide, narrow, levels);
            let error = rows().unwrap_err();
            assert!(
                error.contains(what) && error.contains("`node`") && error.contains("other.parquet"),
                "{error}"
            );
        }
        foreign_double(&path);
        let error = rows().unwrap_err();
        assert!(error.contains("`node` holds DOUBLE, not integers"), "{error}");
        // A reader that does not ask for it reads the file all the same.
        assert_eq!(read(&path).len(), 2);
    }

    fn foreign_double(path: &Path) {
        use parquet::data_type::{DoubleType, Int64Type};
        use parquet::file::writer::SerializedFileWriter;
        let schema = "message other { REQUIRED INT64 key; REQUIRED DOUBLE node; }";
        let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
        let out = std::fs::File::create(path).unwrap();
        let mut file = SerializedFileWriter::new(out, schema, Arc::default()).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut keys = group.next_column().unwrap().unwrap();
        keys.typed::<Int64Type>().write_batch(&[1, 2], None, None).unwrap();
        keys.close().unwrap();
        let mut values = group.next_column().unwrap().unwrap();
        values.typed::<DoubleType>().write_batch(&[1.0, 2.0], None, None).unwrap();
        values.close().unwrap();
        group.close().unwrap();
        file.close().unwrap();
    }

    /// A recording has a node and a level of each sample, in columns of the same names.
    #[test]
    fn a_recordings_nodes_and_levels_are_read_as_a_traces() {
        use tiermem_trace::recording::{self, Head, Level, Recording, Region, Sample, Slice};
        let head = Head {
            slices: vec![Slice::default()],
            regions: vec![Region { start: 4096, bytes: 8192, ..Region::default() }],
            ..Head::default()
        };
        let sample = |offset, level, node| Sample {
            offset,
            bytes: 64,
            resident: 64,
            op: Op::Load,
            level,
            mode: recording::Mode::User,
            node,
            ..Sample::default()
        };
        let samples = vec![sample(0, Level::Remote, 1), sample(64, Level::Unknown, recording::NODE_UNKNOWN)];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        recording::write(&path, &Recording { head, samples }).unwrap();
        let mut trace = open_with(path.to_str().unwrap(), &all()).unwrap();
        let (mut records, mut found) = (Vec::new(), OptionalColumns::with(trace.optional()));
        trace.next_batch_with(&mut records, &mut found, 10).unwrap();
        assert_eq!(records.iter().map(|it| it.key).collect::<Vec<_>>(), [4096, 4160]);
        assert_eq!(found.get(OptionalColumn::Node), Some(&[1, 255][..]));
        assert_eq!(found.get(OptionalColumn::Level), Some(&[3, 0][..]));
        assert_eq!(found.set().columns().count(), 2);
    }
}
