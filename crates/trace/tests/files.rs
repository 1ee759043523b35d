//! Traces as files: the real slices in `testdata`, compression, guessed formats, broken files.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use tiermem_base::Access;
use tiermem_trace::{ReadOptions, Trace, TraceError, open, open_with};

const TWITTER: &str = "twitter_cluster52-20k.csv.zst";
const CLOUD_PHYSICS: &str = "cloudPhysicsIO-20k.oracleGeneral.bin.zst";

fn testdata(name: &str) -> String {
    format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn plain(name: &str) -> Vec<u8> {
    zstd::decode_all(fs::File::open(testdata(name)).unwrap()).unwrap()
}

fn write(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> String {
    let path: PathBuf = dir.path().join(name);
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn read(trace: Trace) -> Vec<Access> {
    trace.map(|access| access.unwrap()).collect()
}

#[test]
fn the_twitter_slice_holds_what_its_readme_says() {
    let trace = read(open(&testdata(TWITTER)).unwrap());
    assert_eq!(trace.len(), 20_000);
    assert_eq!(trace.iter().map(|access| access.key).collect::<HashSet<_>>().len(), 6116);
    assert_eq!(trace.iter().map(|access| u64::from(access.size)).sum::<u64>(), 4_166_150);
    assert_eq!(trace[0], Access::get(0, 13_053_225_291_711_363_978, 737));
}

#[test]
fn the_cloud_physics_slice_holds_what_its_readme_says() {
    let trace = read(open(&testdata(CLOUD_PHYSICS)).unwrap());
    assert_eq!(trace.len(), 20_000);
    assert_eq!(trace.iter().map(|access| access.key).collect::<HashSet<_>>().len(), 13_778);
    assert_eq!(trace.iter().map(|access| u64::from(access.size)).sum::<u64>(), 860_103_168);
    assert_eq!(trace[0], Access::get(0, 42_932_745, 512));
    assert_eq!(trace[19_999].time_ns, 1_799_000_000_000);
}

#[test]
fn compression_and_name_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for (name, format) in [(TWITTER, "twitter-text"), (CLOUD_PHYSICS, "oracle-general")] {
        let wanted = read(open(&testdata(name)).unwrap());
        // Found out from the content alone, plain and compressed, and said explicitly.
        let bytes = plain(name);
        assert_eq!(read(open(&write(&dir, "nameless", &bytes)).unwrap()), wanted);
        let packed = fs::read(testdata(name)).unwrap();
        assert_eq!(read(open(&write(&dir, "packed", &packed)).unwrap()), wanted);
        let options = ReadOptions { format: Some(format.parse().unwrap()), ..ReadOptions::default() };
        assert_eq!(read(open_with(&write(&dir, "said.csv", &bytes), &options).unwrap()), wanted);
    }
}

#[test]
fn lengths_are_told_where_they_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let binary = write(&dir, "a.oracleGeneral.bin", &plain(CLOUD_PHYSICS));
    assert_eq!(open(&binary).unwrap().len_hint(), Some(20_000));
    let mut text = open(&testdata(TWITTER)).unwrap();
    assert_eq!(text.len_hint(), None);
    assert!(text.by_ref().all(|access| access.is_ok()));
    assert_eq!(text.share_read(), Some(1.0));
}

#[test]
fn broken_records_are_passed_over_only_as_often_as_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir, "t.csv", b"# header\n0,1,1,1\nbroken\n0,2,1,1\n\n0,3,1,1\n");
    let with = |skip_bad| open_with(&path, &ReadOptions { skip_bad, ..ReadOptions::default() }).unwrap();

    let items: Vec<_> = with(0).collect();
    assert_eq!(items.len(), 2, "the first broken line ends the trace");
    let error = items[1].as_ref().unwrap_err().to_string();
    assert!(error.ends_with("t.csv, line 3: 1 fields where the format has 4"), "{error}");

    let items: Vec<_> = with(1).collect();
    assert!(items.len() == 3 && items[2].as_ref().unwrap_err().to_string().contains("line 5"));

    let mut trace = with(2);
    assert_eq!(trace.by_ref().filter_map(Result::ok).map(|access| access.key).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(trace.skipped(), 2);
}

#[test]
fn files_that_are_no_traces_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(open(&write(&dir, "empty.csv", b"")), Err(TraceError::Empty { .. })));
    let nothing = zstd::encode_all(&b""[..], 1).unwrap();
    assert!(matches!(open(&write(&dir, "nothing.csv.zst", &nothing)), Err(TraceError::Empty { .. })));
    assert!(matches!(open(&write(&dir, "noise", &[0xff; 100])), Err(TraceError::UnknownFormat { .. })));
    assert!(matches!(open("/nonexistent/trace"), Err(TraceError::Open { .. })));
    assert!(matches!(open(dir.path().to_str().unwrap()), Err(TraceError::Open { .. })));
    assert!(matches!(open("zipf:alpha=9"), Err(TraceError::Spec(_))));
}

#[test]
fn a_compressed_file_cut_short_is_an_error_after_what_it_still_holds() {
    let dir = tempfile::tempdir().unwrap();
    let packed = fs::read(testdata(TWITTER)).unwrap();
    let path = write(&dir, "cut.csv.zst", &packed[..packed.len() / 2]);
    // Leave to pass over broken records does not cover this: there is nothing to go on with.
    let items: Vec<_> =
        open_with(&path, &ReadOptions { skip_bad: 9, ..ReadOptions::default() }).unwrap().collect();
    assert!(matches!(items.last(), Some(Err(TraceError::Read { .. }))), "{:?}", items.last());
    assert!(items[..items.len() - 1].iter().all(Result::is_ok));

    let noise = [&packed[..4], &[0xff; 64]].concat();
    assert!(open(&write(&dir, "noise.csv.zst", &noise)).is_err());
}

#[test]
fn a_line_without_end_costs_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    // 64 MiB of one line; the reader keeps none of it.
    let packed = zstd::encode_all(&vec![b'7'; 64 << 20][..], 1).unwrap();
    let options = ReadOptions { format: Some("twitter-text".parse().unwrap()), ..ReadOptions::default() };
    let mut trace = open_with(&write(&dir, "line.csv.zst", &packed), &options).unwrap();
    assert!(trace.next().unwrap().unwrap_err().to_string().contains("longer than 1024 bytes"));
    assert!(trace.next().is_none());
}
