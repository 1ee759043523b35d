//! Keys and values from CSV and Parquet.
#![cfg(feature = "pairs")]
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use tiermem_trace::TraceError;
use tiermem_trace::pairs::{Pair, Pairs};

fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    (directory, path)
}

fn pair(number: u64, key: &str, field: Option<&str>, value: &str, ttl_s: Option<u64>) -> Pair {
    let (key, value) = (key.into(), value.into());
    Pair { number, key, field: field.map(Into::into), value, ttl_s }
}

/// The rows, errors as they are printed without the directory.
fn read(path: &Path) -> Vec<Result<Pair, String>> {
    let name = format!("{}", path.display());
    Pairs::open(path, None)
        .unwrap()
        .map(|row| row.map_err(|error| error.to_string().replace(&name, "f")))
        .collect()
}

#[test]
fn csv_is_read_by_its_header() {
    let (_directory, path) = file(
        "f.csv",
        b"\xef\xbb\xbfTTL_S,key,other,value\n10,a,x,1\n,\"b,\"\"c\"\"\",x,\"two\nlines\"\n0,d,x,\n5,e\nx,f,x,1\n,\xff,x,\xfe\n",
    );
    let rows = read(&path);
    assert_eq!(rows[0], Ok(pair(2, "a", None, "1", Some(10))));
    assert_eq!(rows[1], Ok(pair(3, "b,\"c\"", None, "two\nlines", None)));
    assert_eq!(rows[2], Ok(pair(5, "d", None, "", None)));
    assert_eq!(rows[3], Err("f, line 6: 2 fields where the format has 4".into()));
    assert_eq!(rows[4], Err("f, line 7: the field `ttl_s` is not a number: \"x\"".into()));
    let bytes = rows[5].clone().unwrap();
    assert_eq!((bytes.key, bytes.value), (vec![0xff], vec![0xfe]));
    assert_eq!(rows.len(), 6);
}

#[test]
fn compressed_csv_and_fields_of_hashes_are_read() {
    let text = b"key,field,value\r\nh,a,1\nh,,2\r\n";
    let (_directory, path) = file("f.csv.zst", &zstd::encode_all(&text[..], 1).unwrap());
    assert_eq!(read(&path), [Ok(pair(1, "h", Some("a"), "1", None)), Ok(pair(3, "h", None, "2", None))]);
}

#[test]
fn what_has_no_key_or_value_is_refused() {
    for (text, wanted) in [
        ("key,val\na,1\n", "there is no column `value`; the columns are key, val"),
        ("value\n1\n", "there is no column `key`"),
        ("key,value,key\n", "there are two columns `key`"),
        ("", "the trace is empty"),
    ] {
        let (_directory, path) = file("f", text.as_bytes());
        let Err(error) = Pairs::open(&path, None) else { panic!("{text} is taken") };
        assert!(error.to_string().contains(wanted), "{error}");
    }
    assert!(matches!(Pairs::open(Path::new("/nonexistent"), None), Err(TraceError::Open { .. })));
    let (_directory, path) = file("f", b"PAR1 and then nothing");
    assert!(matches!(Pairs::open(&path, None), Err(TraceError::Form { .. })));
}

#[test]
fn parquet_is_read_by_its_columns() {
    let schema = "message m { OPTIONAL INT64 ttl_s; REQUIRED BINARY value; OPTIONAL BINARY field (UTF8); \
                  REQUIRED INT64 number; OPTIONAL BINARY key (UTF8); }";
    let (_directory, path) = file("f.parquet", b"");
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(fs::File::create(&path).unwrap(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let texts = |texts: &[&str]| texts.iter().map(|text| ByteArray::from(*text)).collect::<Vec<_>>();
    let mut at = 0;
    while let Some(mut column) = group.next_column().unwrap() {
        match at {
            0 => column.typed::<Int64Type>().write_batch(&[7, 0], Some(&[1, 1, 0]), None),
            1 => column.typed::<ByteArrayType>().write_batch(&texts(&["1", "2", "3"]), None, None),
            2 => column.typed::<ByteArrayType>().write_batch(&texts(&["x"]), Some(&[0, 1, 0]), None),
            3 => column.typed::<Int64Type>().write_batch(&[1, 2, 3], None, None),
            _ => column.typed::<ByteArrayType>().write_batch(&texts(&["a", "b"]), Some(&[1, 1, 0]), None),
        }
        .unwrap();
        column.close().unwrap();
        at += 1;
    }
    group.close().unwrap();
    writer.close().unwrap();
    assert_eq!(Pairs::open(&path, None).unwrap().rows_in_file(), Some(3));
    assert_eq!(
        read(&path),
        [
            Ok(pair(1, "a", None, "1", Some(7))),
            Ok(pair(2, "b", Some("x"), "2", None)),
            Err("f, record 3: this is not a value: \"`key` = null\"".into()),
        ]
    );
}
