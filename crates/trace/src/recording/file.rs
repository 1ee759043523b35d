//! File form of a recording: the trace form's columns and seven more, with the head as JSON in the file's metadata.
//!
//! | column | type | what |
//! | --- | --- | --- |
//! | `time_ns` | UINT_64 | start of the slice |
//! | `op` | STRING, dictionary | load, store, unknown (load in older files) |
//! | `key` | UINT_64 | the address in the recorded run: the region's start and the offset; in the highest 16 bits the process |
//! | `size` | UINT_32 | bytes that the sample stands for |
//! | `tenant` | UINT_32 | index of the region |
//! | `weight` | FLOAT | accesses, in the source's unit |
//! | `latency_cycles` | FLOAT | mean latency, 0 if unknown |
//! | `source`, `level`, `mode`, `node` | UINT_8 | codes as in [`super::Sample`] |
//! | `resident` | UINT_32 | bytes of the sample that were in memory; older files lack it: all of them |

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use tiermem_base::Op;

use super::{Head, Level, Mode, Recording, Sample, journal};
use crate::TraceError;
use crate::writer::output::{Output, write_error};

/// First bytes of a Parquet file.
const PARQUET: &[u8] = b"PAR1";
/// Metadata: the [`Head`].
const HEAD: &str = "tiermem.recording";
/// How the reason begins for which a Parquet file that is a trace is no recording.
pub const NO_REGIONS: &str = "this is not a recording: it has no regions";
/// Rows of a row group.
const GROUP_ROWS: usize = 256 << 10;

const SCHEMA: &str = "message tiermem_recording {
    REQUIRED INT64 time_ns (INTEGER(64,false));
    REQUIRED BYTE_ARRAY op (STRING);
    REQUIRED INT64 key (INTEGER(64,false));
    REQUIRED INT32 size (INTEGER(32,false));
    REQUIRED INT32 tenant (INTEGER(32,false));
    REQUIRED FLOAT weight;
    REQUIRED FLOAT latency_cycles;
    REQUIRED INT32 source (INTEGER(8,false));
    REQUIRED INT32 level (INTEGER(8,false));
    REQUIRED INT32 mode (INTEGER(8,false));
    REQUIRED INT32 node (INTEGER(8,false));
    REQUIRED INT32 resident (INTEGER(32,false));
}";
/// Columns, in the order of the schema.
const COLUMNS: [&str; 12] = [
    "time_ns",
    "op",
    "key",
    "size",
    "tenant",
    "weight",
    "latency_cycles",
    "source",
    "level",
    "mode",
    "node",
    RESIDENT,
];
/// The column that older files lack.
const RESIDENT: &str = "resident";

/// Writes a recording; the file appears when it is complete.
///
/// # Errors
/// If the file cannot be written, or a sample names a slice or a region that is not in the head.
pub fn write(path: &Path, recording: &Recording) -> Result<(), TraceError> {
    write_columns(path, recording, SCHEMA)
}

/// Writes as many columns as the schema has.
fn write_columns(path: &Path, recording: &Recording, schema: &str) -> Result<(), TraceError> {
    let failed = |error: ParquetError| write_error(path)(std::io::Error::other(error));
    let head = serde_json::to_string(&recording.head)
        .map_err(|error| write_error(path)(std::io::Error::other(error)))?;
    let level = ZstdLevel::try_new(3).map_err(failed)?;
    let properties = WriterProperties::builder()
        .set_created_by(format!("tiermem {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![KeyValue::new(HEAD.to_owned(), head)]))
        .set_compression(Compression::ZSTD(level))
        .build();
    let schema = Arc::new(parse_message_type(schema).map_err(failed)?);
    let output = Output::create_plain(path)?;
    let mut file = SerializedFileWriter::new(output, schema, Arc::new(properties)).map_err(failed)?;
    for samples in recording.samples.chunks(GROUP_ROWS) {
        write_group(&mut file, &recording.head, samples).map_err(failed)?;
    }
    file.into_inner().map_err(failed)?.finish_durably()
}

fn write_group(
    file: &mut SerializedFileWriter<Output>,
    head: &Head,
    samples: &[Sample],
) -> Result<(), ParquetError> {
    let known = |sample: &Sample| {
        (sample.slice as usize) < head.slices.len() && (sample.region as usize) < head.regions.len()
    };
    if !samples.iter().all(known) {
        return Err(ParquetError::General("a sample names no slice or region of the head".to_owned()));
    }
    let mut group = file.next_row_group()?;
    for name in COLUMNS {
        let Some(mut column) = group.next_column()? else { break };
        let wide = |value: fn(&Sample, &Head) -> u64| -> Vec<i64> {
            samples.iter().map(|sample| value(sample, head).cast_signed()).collect()
        };
        let narrow = |value: fn(&Sample) -> u32| -> Vec<i32> {
            samples.iter().map(|sample| value(sample).cast_signed()).collect()
        };
        match (column.untyped(), name) {
            (ColumnWriter::Int64ColumnWriter(writer), "time_ns") => {
                let values = wide(|sample, head| head.slices[sample.slice as usize].start_ns);
                writer.write_batch(&values, None, None)?;
            }
            (ColumnWriter::Int64ColumnWriter(writer), _) => {
                let address = |sample: &Sample, head: &Head| {
                    head.regions[sample.region as usize].first_key().wrapping_add(sample.offset)
                };
                writer.write_batch(&wide(address), None, None)?;
            }
            (ColumnWriter::ByteArrayColumnWriter(writer), _) => {
                let values: Vec<ByteArray> =
                    samples.iter().map(|sample| ByteArray::from(sample.op.name())).collect();
                writer.write_batch(&values, None, None)?;
            }
            (ColumnWriter::FloatColumnWriter(writer), "weight") => {
                let values: Vec<f32> = samples.iter().map(|sample| sample.weight).collect();
                writer.write_batch(&values, None, None)?;
            }
            (ColumnWriter::FloatColumnWriter(writer), _) => {
                let values: Vec<f32> = samples.iter().map(|sample| sample.latency_cycles).collect();
                writer.write_batch(&values, None, None)?;
            }
            (ColumnWriter::Int32ColumnWriter(writer), name) => {
                let values = narrow(match name {
                    "size" => |sample| sample.bytes,
                    "tenant" => |sample| sample.region,
                    "source" => |sample| u32::from(sample.source),
                    "level" => |sample| sample.level as u32,
                    "mode" => |sample| sample.mode as u32,
                    RESIDENT => |sample| sample.resident,
                    _ => |sample| u32::from(sample.node),
                });
                writer.write_batch(&values, None, None)?;
            }
            _ => return Err(ParquetError::General(format!("the column {name} has another type"))),
        }
        column.close()?;
    }
    group.close()?;
    Ok(())
}

/// Whether a file begins like a recording, or like a trace of the same form.
pub fn looks_like_one(path: &Path) -> bool {
    let mut start = [0; journal::MAGIC.len()];
    let is_read = File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok();
    is_read && (start == journal::MAGIC || start.starts_with(PARQUET))
}

/// Reads a recording, complete or a journal of one whose recorder has ended before.
///
/// # Errors
/// If there is no such file, if it is damaged or cut short, if it is no recording (a trace without regions, say), or
/// one of a later version.
pub fn read(path: &Path) -> Result<Recording, TraceError> {
    if journal::is_one(path) {
        return journal::read(path);
    }
    let form = |reason: String| TraceError::Form { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    let cut = |error: ParquetError| form(format!("this recording is incomplete ({error}); record it again"));
    let reader = SerializedFileReader::new(file).map_err(cut)?;
    let head = read_head(&reader).map_err(form)?;
    let mut samples = Vec::new();
    for group in 0..reader.metadata().num_row_groups() {
        read_group(&reader, group, &head, &mut samples).map_err(|reason| {
            form(format!("row group {group}: {reason}; the recording is damaged, record it again"))
        })?;
    }
    Ok(Recording { head, samples })
}

fn read_head(reader: &SerializedFileReader<File>) -> Result<Head, String> {
    let metadata = reader.metadata().file_metadata().key_value_metadata();
    let text = metadata
        .and_then(|pairs| pairs.iter().find(|pair| pair.key == HEAD))
        .and_then(|pair| pair.value.as_deref());
    let text = text.ok_or_else(|| format!("{NO_REGIONS} (tiermem record makes one)"))?;
    /// The version alone, which every version has.
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u32,
    }
    let broken = |error: serde_json::Error| format!("the recording's head cannot be read: {error}");
    let Versioned { version } = serde_json::from_str(text).map_err(broken)?;
    if version != Head::VERSION {
        let known = Head::VERSION;
        return Err(format!("this is a recording of version {version}; this program reads version {known}"));
    }
    let head: Head = serde_json::from_str(text).map_err(broken)?;
    let ordered = head.slices.windows(2).all(|pair| pair[0].start_ns < pair[1].start_ns);
    if !ordered {
        return Err("the recording's slices are not in the order of time".to_owned());
    }
    Ok(head)
}

/// The columns of one row group, as far as they have come.
#[derive(Default)]
struct Columns {
    wide: [Vec<i64>; 2],
    narrow: [Vec<i32>; 7],
    floats: [Vec<f32>; 2],
    ops: Vec<ByteArray>,
}

fn read_group(
    reader: &SerializedFileReader<File>,
    group: usize,
    head: &Head,
    samples: &mut Vec<Sample>,
) -> Result<(), String> {
    let text = |error: ParquetError| error.to_string();
    let group = reader.get_row_group(group).map_err(text)?;
    let rows = usize::try_from(group.metadata().num_rows()).map_err(|_| "its number of rows".to_owned())?;
    let schema = group.metadata().schema_descr();
    let place = |name: &str| (0..schema.num_columns()).find(|at| schema.column(*at).name() == name);
    let mut columns = Columns::default();
    let (mut wide, mut narrow, mut floats) =
        (columns.wide.iter_mut(), columns.narrow.iter_mut(), columns.floats.iter_mut());
    for name in COLUMNS {
        let at = match place(name) {
            None if name == RESIDENT => break,
            at => at.ok_or_else(|| format!("there is no column {name}"))?,
        };
        if schema.column(at).max_def_level() > 0 || schema.column(at).max_rep_level() > 0 {
            return Err(format!("the column {name} may be null or repeat"));
        }
        let read = match group.get_column_reader(at).map_err(text)? {
            ColumnReader::Int64ColumnReader(mut reader) => {
                wide.next().map(|values| reader.read_records(rows, None, None, values))
            }
            ColumnReader::Int32ColumnReader(mut reader) => {
                narrow.next().map(|values| reader.read_records(rows, None, None, values))
            }
            ColumnReader::FloatColumnReader(mut reader) => {
                floats.next().map(|values| reader.read_records(rows, None, None, values))
            }
            ColumnReader::ByteArrayColumnReader(mut reader) if name == "op" => {
                Some(reader.read_records(rows, None, None, &mut columns.ops))
            }
            _ => None,
        };
        let (records, ..) =
            read.ok_or_else(|| format!("the column {name} has another type"))?.map_err(text)?;
        if records != rows {
            return Err(format!("the column {name} ends early"));
        }
    }
    if place(RESIDENT).is_none() {
        columns.narrow[6] = columns.narrow[0].clone();
    }
    let whole = columns.wide.iter().all(|values| values.len() == rows)
        && columns.narrow.iter().all(|values| values.len() == rows)
        && columns.floats.iter().all(|values| values.len() == rows)
        && columns.ops.len() == rows;
    if !whole {
        return Err("a column has another type".to_owned());
    }
    samples.reserve(rows);
    for row in 0..rows {
        samples.push(columns.sample(row, head).ok_or_else(|| format!("row {row} makes no sense"))?);
    }
    Ok(())
}

impl Columns {
    /// A sample; `None` if it names something that the head does not have.
    fn sample(&self, row: usize, head: &Head) -> Option<Sample> {
        let [times, keys] = &self.wide;
        let [sizes, tenants, sources, levels, modes, nodes, residents] = &self.narrow;
        let [weights, latencies] = &self.floats;
        let time_ns = times[row].cast_unsigned();
        let slice = head.slices.binary_search_by_key(&time_ns, |slice| slice.start_ns).ok()?;
        let region = tenants[row].cast_unsigned();
        let described = head.regions.get(region as usize)?;
        let source = u8::try_from(sources[row]).ok()?;
        let told = head.sources.get(usize::from(source))?;
        let op = match Op::ALL.into_iter().find(|op| op.name().as_bytes() == self.ops[row].data())? {
            // So older files had it where the source cannot tell.
            Op::Load if !told.tells_stores => Op::Unknown,
            op => op,
        };
        let offset = keys[row].cast_unsigned().wrapping_sub(described.first_key());
        let is_number = weights[row].is_finite() && weights[row] >= 0.0 && latencies[row].is_finite();
        let (bytes, resident) = (sizes[row].cast_unsigned(), residents[row].cast_unsigned());
        (is_number && offset < described.bytes && resident <= bytes).then_some(())?;
        Some(Sample {
            slice: u32::try_from(slice).ok()?,
            region,
            offset,
            bytes,
            resident,
            weight: weights[row],
            latency_cycles: latencies[row],
            source,
            op,
            level: *Level::ALL.get(usize::try_from(levels[row]).ok()?)?,
            mode: *Mode::ALL.get(usize::try_from(modes[row]).ok()?)?,
            node: u8::try_from(nodes[row]).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Region, Slice, Source};

    fn recording() -> Recording {
        let head = Head {
            version: Head::VERSION,
            granule_bytes: 4096,
            slices: vec![Slice { start_ns: 0, end_ns: 10 }, Slice { start_ns: 10, end_ns: 25 }],
            sources: vec![Source { name: "refs".to_owned(), ..Source::default() }],
            regions: vec![Region { start: 0x7000, bytes: 1 << 20, ..Region::default() }],
            ..Head::default()
        };
        let sample = |slice, offset, weight| Sample {
            slice,
            region: 0,
            offset,
            bytes: 4096,
            resident: 4096,
            weight,
            latency_cycles: 2.0,
            source: 0,
            op: Op::Store,
            level: Level::Remote,
            mode: Mode::Kernel,
            node: 1,
        };
        Recording { head, samples: vec![sample(0, 0, 1.5), sample(1, 8192, 3.0), sample(1, 0xff000, 0.0)] }
    }

    #[test]
    fn what_is_written_is_read_and_other_tools_read_it_as_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rec.parquet");
        write(&path, &recording()).unwrap();
        assert_eq!(read(&path).unwrap(), recording());
        let accesses: Vec<_> =
            crate::open(path.to_str().unwrap()).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!((accesses[1].time_ns, accesses[1].key, accesses[1].op), (10, 0x7000 + 8192, Op::Store));
    }

    #[test]
    fn older_files_do_not_say_what_was_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rec.parquet");
        let mut recording = recording();
        recording.samples[1].resident = 1024;
        write(&path, &recording).unwrap();
        assert_eq!(read(&path).unwrap(), recording);
        let older = SCHEMA.replace("    REQUIRED INT32 resident (INTEGER(32,false));\n", "");
        assert_ne!(older, SCHEMA);
        write_columns(&path, &recording, &older).unwrap();
        recording.samples[1].resident = 4096;
        assert_eq!(read(&path).unwrap(), recording);
    }

    #[test]
    fn a_load_of_a_source_that_cannot_tell_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rec.parquet");
        let mut older = recording();
        older.samples[0].op = Op::Load;
        write(&path, &older).unwrap();
        let read_ops =
            |path: &Path| -> Vec<Op> { read(path).unwrap().samples.iter().map(|it| it.op).collect() };
        assert_eq!(read_ops(&path), [Op::Unknown, Op::Store, Op::Store]);
        older.head.sources[0].tells_stores = true;
        write(&path, &older).unwrap();
        assert_eq!(read_ops(&path), [Op::Load, Op::Store, Op::Store]);
    }

    #[test]
    fn a_file_cut_short_anywhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rec.parquet");
        write(&path, &recording()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in (0..whole.len()).step_by(7) {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("record it again") || error.contains("no recording"), "{length}: {error}");
        }
    }

    #[test]
    fn samples_outside_of_the_head_are_neither_written_nor_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rec.parquet");
        for wrong in [
            |it: &mut Recording| it.samples[0].region = 1,
            |it: &mut Recording| it.samples[0].slice = 2,
            |it: &mut Recording| it.samples[0].offset = 1 << 20,
            |it: &mut Recording| it.samples[0].source = 1,
            |it: &mut Recording| it.samples[0].weight = f32::NAN,
            |it: &mut Recording| it.samples[0].resident = 4097,
            |it: &mut Recording| it.head.version = 2,
        ] {
            let mut broken = recording();
            wrong(&mut broken);
            assert!(write(&path, &broken).is_err() || read(&path).is_err());
        }
    }
}
