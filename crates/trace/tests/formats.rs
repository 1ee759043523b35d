//! Each format on a slice of a real trace: detected or given, the first record and the counts that other tools (awk, wc) found.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::HashSet;
use std::path::Path;

use proptest::prelude::*;
use tiermem_base::{Access, Op};
use tiermem_trace::{Format, ReadOptions, Trace, TraceError, open, open_with, reader};

const SLICES: [&str; 16] = [
    "adaptsize_request-500.trace.xz",
    "address_gcc-500.trace.gz",
    "arc_P3-300.lis.zst",
    "cloudPhysicsIO-20k.oracleGeneral.bin.zst",
    "cloudPhysicsIO-300.vscsi.zst",
    "cloudphysics_w106-500.trace.xz",
    "lackey-true.txt.gz",
    "lirs_multi1-500.trace.gz",
    "memcached-watch.log",
    "msr-cambridge1-200.csv.gz",
    "msr-slice-rw20-300.trace.zst",
    "redis-monitor.log",
    "scarab-recs-500.trace.xz",
    "systor-lun3-derived-500.mqsim.txt.xz",
    "systor17-200.csv.gz",
    "tencent_block-300.bz2",
];

fn testdata(name: &str) -> String {
    format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> Vec<Access> {
    open(&testdata(name)).unwrap().map(|access| access.unwrap()).collect()
}

/// Records, bytes, and records that write.
fn counts(trace: &[Access]) -> (usize, u64, usize) {
    let bytes = trace.iter().map(|access| u64::from(access.size)).sum();
    (trace.len(), bytes, trace.iter().filter(|access| access.op.is_write()).count())
}

fn with_tenant(tenant: u32, access: Access) -> Access {
    Access { tenant, ..access }
}

#[test]
fn msr_cambridge() {
    let trace = read("msr-cambridge1-200.csv.gz");
    assert_eq!(counts(&trace), (200, 1_377_792, 199));
    assert_eq!(trace[0], Access::new(0, Op::Write, 9_056_014_336, 2048));
    assert_eq!(trace[1], Access::new(21_500, Op::Write, 11_855_351_808, 512));
}

#[test]
fn slices_of_msr_cambridge() {
    let trace = read("msr-slice-rw20-300.trace.zst");
    assert_eq!(counts(&trace), (300, 2_250_752, 290));
    assert_eq!(trace[0], Access::new(0, Op::Write, 200_626_176, 4096));
    assert_eq!(trace[1], Access::new(223_412_000, Op::Write, 3_159_347_200, 36_864));
}

#[test]
fn systor() {
    let trace = read("systor17-200.csv.gz");
    assert_eq!(counts(&trace), (200, 9_257_472, 20));
    assert_eq!(trace[0], Access::new(0, Op::Read, 899_056_122_368, 131_072));
    // Sorted by completion, so that the second was issued before the first: it counts as the start.
    assert_eq!(trace[1], Access::new(0, Op::Read, 4_256_049_987_072, 122_880));
}

#[test]
fn tencent() {
    let trace = read("tencent_block-300.bz2");
    assert_eq!(counts(&trace), (300, 11_595_264, 167));
    assert_eq!(trace[0], with_tenant(1058, Access::new(0, Op::Write, 4_247_200 * 512, 65_536)));
    assert_eq!(trace.iter().map(|access| access.tenant).collect::<HashSet<_>>().len(), 68);
}

#[test]
fn mqsim() {
    let trace = read("systor-lun3-derived-500.mqsim.txt.xz");
    assert_eq!(counts(&trace), (500, 14_001_664, 126));
    assert_eq!(trace[1], Access::new(10, Op::Write, 32 * 512, 32 * 512));
}

#[test]
fn arc_has_a_record_per_block() {
    let trace = read("arc_P3-300.lis.zst");
    assert_eq!(counts(&trace), (6329, 6329, 0));
    assert_eq!(trace[0], Access::new(0, Op::Read, 230_027, 1));
    assert_eq!((trace[7].key, trace[8].key), (230_034, 1_842_745));
}

#[test]
fn lirs() {
    let trace = read("lirs_multi1-500.trace.gz");
    assert_eq!(counts(&trace), (500, 500, 0));
    assert_eq!(trace[..4].iter().map(|access| access.key).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn vscsi() {
    let trace = read("cloudPhysicsIO-300.vscsi.zst");
    let wanted = read("cloudPhysicsIO-20k.oracleGeneral.bin.zst");
    // The same trace in two forms, of which one counts sectors and whole seconds and cuts sizes to 4 KiB.
    assert_eq!(trace.len(), 300);
    for (vscsi, oracle) in trace.iter().zip(&wanted) {
        assert_eq!(vscsi.key, oracle.key * 512);
        assert!(vscsi.time_ns.abs_diff(oracle.time_ns) <= 1_000_000_000);
    }
    assert_eq!(trace[0].op, Op::Write);
}

#[test]
fn bare_numbers() {
    let trace = read("cloudphysics_w106-500.trace.xz");
    assert_eq!(counts(&trace), (500, 500, 0));
    assert_eq!((trace[0].key, trace[1].key), (0xdceca, 0xdadff));
    let trace = read("scarab-recs-500.trace.xz");
    assert_eq!(counts(&trace), (500, 500, 0));
    assert_eq!((trace[0].key, trace[1].key), (0x7986_94a0_9014_fb50, 0x9fd8_9d50_247f_ce4c));
}

#[test]
fn adaptsize() {
    let trace = read("adaptsize_request-500.trace.xz");
    assert_eq!(counts(&trace), (500, 1_720_451, 0));
    assert_eq!(trace[1], Access::get(1_000_000_000, 1, 7454));
}

#[test]
fn spec_addresses() {
    let trace = read("address_gcc-500.trace.gz");
    assert_eq!(counts(&trace), (500, 500, 153));
    assert_eq!(trace[0], Access::new(1, Op::Store, 0x1fff_ff50, 1));
    assert_eq!(trace[499].time_ns, 890);
}

#[test]
fn lackey() {
    let mut trace = open(&testdata("lackey-true.txt.gz")).unwrap();
    let records: Vec<Access> = trace.by_ref().map(|access| access.unwrap()).collect();
    assert_eq!(records[0], with_tenant(1, Access::new(0, Op::Load, 0x0401_ab70, 3)));
    assert_eq!(records[2], Access::new(0, Op::Store, 0x1f_ff00_0758, 8));
    assert_eq!((records.len(), trace.notes().not_accesses), (397, 17));
}

#[test]
fn perf_page_faults() {
    let trace = read("perf-ls-faults.txt.gz");
    assert_eq!(trace.len(), 99);
    assert_eq!(trace[0], with_tenant(9940, Access::new(0, Op::Load, 0x5563_876b_35c0, 4096)));
    assert_eq!(trace[1].time_ns, 38_000);
}

#[test]
fn redis_monitor() {
    let mut trace = open(&testdata("redis-monitor.log")).unwrap();
    let records: Vec<Access> = trace.by_ref().map(|access| access.unwrap()).collect();
    let key = |name: &str| tiermem_base::hash::trace_key(name.as_bytes());
    let first = Access { ttl_s: 60, key_size: 6, ..Access::new(0, Op::Set, key("user:1"), 13) };
    assert_eq!(records[0], first);
    // MSET and MGET of three keys each, DEL of two.
    let ops = |op| records.iter().filter(|record| record.op == op).count();
    assert_eq!((ops(Op::Set), ops(Op::Get), ops(Op::Del)), (12, 11, 3));
    assert_eq!(records.iter().filter(|record| record.tenant == 2).count(), 14);
    // OK, COMMAND, SELECT, EVAL, PING, INFO, SCAN, MULTI, EXEC, ECHO.
    assert_eq!(trace.notes().not_accesses, 10);
}

#[test]
fn memcached_watch() {
    let trace = read("memcached-watch.log");
    let key = |name: &str| tiermem_base::hash::trace_key(name.as_bytes());
    assert_eq!(trace[0], Access { key_size: 3, ..Access::get(0, key("foo"), 0) });
    let set = trace.iter().find(|record| record.op == Op::Set).unwrap();
    assert_eq!((set.key, set.size, set.ttl_s), (key("foo"), 5, 60));
    assert!(trace.iter().any(|record| record.op == Op::Set && record.key == key("a%20b")));
}

#[test]
fn told_and_guessed_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for name in SLICES {
        let guessed = read(name);
        let formats: Vec<Format> =
            Format::all().filter(|format| is_read_as(name, *format, &guessed)).collect();
        assert!(!formats.is_empty(), "{name}");
        // Text formats and those with magic bytes are told by their content alone.
        if !name.contains("scarab") && !name.contains("cloudphysics_") {
            let path = dir.path().join("nameless");
            std::fs::copy(testdata(name), &path).unwrap();
            let nameless: Vec<Access> = open(path.to_str().unwrap()).unwrap().map(Result::unwrap).collect();
            assert!(nameless == guessed, "{name}");
        }
    }
}

fn is_read_as(name: &str, format: Format, wanted: &[Access]) -> bool {
    let options = ReadOptions { format: Some(format), ..ReadOptions::default() };
    open_with(&testdata(name), &options).is_ok_and(|trace| trace.flatten().eq(wanted.iter().copied()))
}

#[test]
fn batches_of_any_size_are_the_same_records() {
    for name in SLICES {
        let wanted = read(name);
        for max in [1, 7, 1000] {
            let mut trace = open(&testdata(name)).unwrap();
            let mut records = Vec::new();
            loop {
                let count = trace.next_batch(&mut records, max).unwrap();
                assert!(count <= max);
                if count == 0 {
                    break;
                }
            }
            assert!(records == wanted, "{name} in batches of {max}");
        }
    }
}

/// All that a format makes of some bytes: every broken record passed over.
fn drain(mut trace: Trace) -> (usize, u64) {
    let mut records = Vec::new();
    // A line may stand for billions of records.
    while records.len() < 100_000 && matches!(trace.next_batch(&mut records, 4096), Ok(1..)) {}
    (records.len(), trace.skipped())
}

fn read_all_formats(bytes: &[u8]) {
    let options = ReadOptions { skip_bad: u64::MAX, ..ReadOptions::default() };
    for format in Format::all() {
        let trace = reader::read_bytes(Path::new("t"), bytes.to_vec(), &options, format);
        if let Ok(trace) = trace {
            drain(trace);
        }
    }
}

#[test]
fn slices_of_one_format_read_as_another_do_not_panic() {
    for name in SLICES {
        read_all_formats(&std::fs::read(testdata(name)).unwrap());
    }
}

#[test]
fn mixed_files_name_the_first_strange_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mixed.csv");
    let mut text = "128166385295514663,hm,0,Write,9056014336,2048,2833\n".repeat(40);
    text.push_str("419,W,8792731648,16384,1577808144360767\n");
    std::fs::write(&path, text).unwrap();
    let items: Vec<_> = open(path.to_str().unwrap()).unwrap().collect();
    let error = items.last().unwrap().as_ref().unwrap_err().to_string();
    assert!(error.ends_with("mixed.csv, line 41: 5 fields where the format has 7"), "{error}");
    assert_eq!(items.len(), 41);
}

#[test]
fn formats_have_names_of_their_own() {
    let names: Vec<&str> = Format::all().map(Format::name).collect();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    assert!(Format::all().all(|format| format.name().parse() == Ok(format) && !format.about().is_empty()));
    assert!("nonsense".parse::<Format>().unwrap_err().contains("msr"));
}

#[test]
fn published_samples_without_a_slice_here() {
    let dir = tempfile::tempdir().unwrap();
    let read = |text: &str| -> Result<Vec<Access>, TraceError> {
        let path = dir.path().join("sample");
        std::fs::write(&path, text).unwrap();
        open(path.to_str().unwrap())?.collect()
    };
    let key = |name: &str| tiermem_base::hash::trace_key(name.as_bytes());
    // github.com/alibaba/block-traces, README.
    let records =
        read("419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n").unwrap();
    assert_eq!(records[0], with_tenant(419, Access::new(0, Op::Write, 8_792_731_648, 16_384)));
    assert_eq!(records[1], with_tenant(725, Access::new(46_000, Op::Read, 59_110_326_272, 360_448)));
    // github.com/twitter/cache-trace, samples.
    let records =
        read("0,q:q:1:8WTfjZU14ee,17,213,4,get,0\n3,yDqF:3q:1AJrrJ1nnCJKKrnGx1A,27,27,5,set,86400\n")
            .unwrap();
    let get = Access { tenant: 4, key_size: 17, ..Access::get(0, key("q:q:1:8WTfjZU14ee"), 213) };
    assert_eq!(records[0], get);
    assert_eq!((records[1].op, records[1].ttl_s, records[1].time_ns), (Op::Set, 86_400, 3_000_000_000));
    // MQSim_CXL and MQSim share their columns.
    let records = read("102 0 64 8 0\n305 0 1024 8 1\n").unwrap();
    assert_eq!(records[1], Access::new(203, Op::Load, 1024, 8));
    // CacheLib.
    let records = read("key,op,size,op_count,key_size\n1668757755,SET,82,2,40\n").unwrap();
    assert_eq!(records, [Access { key_size: 40, ..Access::new(0, Op::Set, 1_668_757_755, 82) }; 2]);
}

/// A slice of a trace, uncompressed, with a few bytes changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12);
    (prop::sample::select(SLICES.to_vec()), edits, 1usize..3000).prop_map(|(name, edits, length)| {
        let packed = std::fs::read(testdata(name)).unwrap();
        let mut bytes = match name.rsplit('.').next().unwrap() {
            "zst" => zstd::decode_all(&packed[..]).unwrap(),
            _ => packed,
        };
        bytes.truncate(length);
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_any_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        read_all_formats(&bytes);
    }

    #[test]
    fn no_text_makes_any_reader_panic(text in "[0-9a-zA-Z,. \t\n\"\\[\\]=:*#-]{0,400}") {
        read_all_formats(text.as_bytes());
    }

    #[test]
    fn nearly_good_files_do_not_make_any_reader_panic(bytes in mutated()) {
        read_all_formats(&bytes);
    }
}

#[test]
fn every_line_is_a_record_a_note_or_an_error() {
    // Formats of one record per line at most: nothing is lost, nothing is made up.
    let text = "1,2,3,4\n\n#x\n5,6,7,-1\nnonsense\n\u{fffd}\n9,9,9,9";
    let options = ReadOptions { skip_bad: u64::MAX, ..ReadOptions::default() };
    for name in ["twitter-text", "msr", "alibaba", "lirs", "adaptsize", "spec", "mqsim", "txt"] {
        let bytes = text.as_bytes().to_vec();
        let mut trace = reader::read_bytes(Path::new("t"), bytes, &options, name.parse().unwrap()).unwrap();
        let records = trace.by_ref().count() as u64;
        assert_eq!(records + trace.skipped() + trace.notes().not_accesses, 7, "{name}");
    }
}
