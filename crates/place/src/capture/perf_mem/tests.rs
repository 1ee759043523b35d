//! Texts of perf whose samples are known, and an obvious twin that counts one sample after the other.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tiermem_base::Op;
use tiermem_trace::recording::{Level, Mode, Recording, RegionKind};

use super::line::{Line, Parser};
use super::{ImportOptions, import, import_chunks, import_from};
use crate::capture::CaptureError;

/// The fields of [`super::PERF_SCRIPT`].
const SCRIPT: &str = "\
         swapper     0/0         0.000000: PERF_RECORD_MMAP -1/0: [0xffffffff81000000(0x120bb08) @ 0xffffffff81000000]: x [kernel.kallsyms]_text
             app  1855/1856   4346.744799: PERF_RECORD_MMAP2 1855/1855: [0x562b28000000(0x4000) @ 0 fe:00 247493 0]: r-xp /usr/bin/an app
             app  1855/1856   4346.744799: PERF_RECORD_MMAP2 1855/1855: [0x7f0000000000(0x8000) @ 0x7f0000000000 00:00 0 0]: rw-p //anon
             app  1855/1856   4346.744817: cpu/mem-loads,ldlat=30/P:     7f0000000010         68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A              30     562b28000123
             app  1855/1856   4346.744818: cpu/mem-loads,ldlat=30/P:     7f0000000fff         68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A              50     562b28000123
             app  1855/1856   4347.744900:        cpu/mem-stores/P:     7f0000001008        268100144 |OP STORE|LVL L1 hit|SNP None|TLB N/A|LCK N/A|BLK  N/A               0     562b28000200
             app  1855/1856   4347.744901:        cpu/mem-stores/P: ffff888001000000       1a68101042 |OP LOAD|LVL Local RAM or RAM hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A             400 ffffffff81000200
             app  1855/1856   4347.744902:             page-faults:     7f0000001008       1e05080021 |OP N/A|LVL N/A or N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A               0     562b28000200
";

fn text(text: &str, options: &ImportOptions) -> Result<Recording, CaptureError> {
    import_from([(PathBuf::from("a.txt"), text.as_bytes())], options)
}

/// Region, slice, offset, what, weight, latency.
type Have = (String, u32, u64, Op, Level, Mode, f32, f32);

fn have(recording: &Recording) -> Vec<Have> {
    let samples = recording.samples.iter().map(|it| {
        let region = recording.head.regions[it.region as usize].name.clone();
        (region, it.slice, it.offset, it.op, it.level, it.mode, it.weight, it.latency_cycles)
    });
    samples.collect()
}

#[test]
fn the_text_of_perf_script_becomes_regions_slices_and_counts() {
    let recording = text(SCRIPT, &ImportOptions::default()).unwrap();
    let row = |name: &str, slice, offset, op, level, mode, weight, latency| {
        (name.to_owned(), slice, offset, op, level, mode, weight, latency)
    };
    let wanted = [
        row("anon 1", 0, 0, Op::Load, Level::Cache, Mode::User, 2.0, 40.0),
        row("anon 1", 1, 0x1000, Op::Store, Level::Cache, Mode::User, 1.0, 0.0),
        row("region 1", 1, 0, Op::Load, Level::Local, Mode::Kernel, 1.0, 400.0),
    ];
    assert_eq!(have(&recording), wanted);
    let regions = &recording.head.regions;
    let names: Vec<_> =
        regions.iter().map(|it| (it.name.as_str(), it.kind, it.bytes, it.first_slice)).collect();
    let wanted = [
        ("an app text", RegionKind::File, 0x4000, 0),
        ("anon 1", RegionKind::Anonymous, 0x8000, 0),
        ("region 1", RegionKind::Special, 4096, 1),
    ];
    assert_eq!(names, wanted);
    assert_eq!(recording.head.slices.len(), 2);
    assert_eq!(recording.head.notes, ["1 samples were neither loads nor stores and are left out"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    tiermem_trace::recording::write(file.path(), &recording).unwrap();
    assert_eq!(tiermem_trace::recording::read(file.path()).unwrap(), recording);
}

#[test]
fn every_form_of_a_sample_is_read() {
    let forms = [
        // The fields that perf prints by itself, with and without a period; with and without the bits.
        "app  1234 [000]    12.345678:          1 cpu/mem-loads,ldlat=30/P:     7f1234567000         68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A              30     55d1aabbccdd main+0x10 (/usr/bin/app)",
        "app 1234 [000] 12.345678: cpu/mem-loads,ldlat=30/P: 7f1234567000 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK N/A 30 55d1aabbccdd main (/usr/bin/app)",
        // Names with blanks and digits, bars in symbols, other latencies.
        "Web Content 7 1234/99 12.345678: cpu/mem-loads/u: 7f1234567000 68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No 30 55d1aabbccdd operator|(A, B)+0x1 (/a|b)",
        "app 1234/1234 12.345678000: mem-loads:ppu: 7f1234567000 data+0x3 (/lib/x y) 68100142 |OP LOAD|LVL L1 hit|SNP None 30 7 2 55d1aabbccdd",
        // Cut by perf, which keeps 100 characters.
        "app 1234/1234 12.345678: ev/mem-loads/: 7f1234567000 68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|B              30 55d1aabbccdd",
        // Without an event's name.
        "app 1234/1234 12.345678: 7f1234567000 68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A 30 55d1aabbccdd\r",
    ];
    for form in forms {
        let Ok(Line::Sample(sample)) = Parser::new().line(form.as_bytes()) else { panic!("{form}") };
        let have =
            (sample.pid, sample.time_ns, sample.address, sample.op, sample.level, sample.mode, sample.weight);
        let wanted = (
            Some(1234),
            Some(12_345_678_000),
            0x7f12_3456_7000,
            Some(Op::Load),
            Level::Cache,
            Mode::User,
            30,
        );
        assert_eq!(have, wanted, "{form}");
    }
    let untimed = [
        // The first line that perf prints has this slip, the others have not.
        " 1234  1234 0x000055d1aabbccdd 0x0167f1234567000    30 0x68100142 /usr/bin/app:main",
        "1234 1234 0x55d1aabbccdd 0x7f1234567000 30 0x68100142 /usr/bin/app:main",
        "1234,1235,0x55d1aabbccdd,0x7f1234567000,30,0x68100142,[x],y:main",
        " 1234  1234 0x000055d1aabbccdd 0x00007f1234567000 0x0000000123456000 4K    30 0x68100142 ???:???",
        "app 1234/1234 cpu/mem-loads,ldlat=30/P: 7f1234567000 68100142 |OP LOAD|LVL L1 hit|SNP None|BLK  N/A 30 55d1aabbccdd",
        "1234 page-faults: 7f1234567000 68100142 |OP LOAD|LVL L1 hit|SNP None|BLK  N/A 30 55d1aabbccdd",
    ];
    for form in untimed {
        let Ok(Line::Sample(sample)) = Parser::new().line(form.as_bytes()) else { panic!("{form}") };
        let have =
            (sample.pid, sample.time_ns, sample.address, sample.op, sample.level, sample.mode, sample.weight);
        assert_eq!(
            have,
            (Some(1234), None, 0x7f12_3456_7000, Some(Op::Load), Level::Cache, Mode::User, 30),
            "{form}"
        );
    }
}

#[test]
fn what_is_no_sample_is_a_note_or_an_error() {
    for note in [
        "",
        "   ",
        "# PID, TID, IP, ADDR, LOCAL WEIGHT, DSRC, SYMBOL",
        "app 1 1.5: PERF_RECORD_COMM exec: app:1/1",
        "\t    55d1aabbccdd main+0x10 (/usr/bin/app)",
    ] {
        assert_eq!(Parser::new().line(note.as_bytes()), Ok(Line::Note), "{note}");
    }
    for (line, reason) in [
        ("hello", "no sample"),
        ("app 1/1 1.5: cycles: 55d1aabbccdd main+0x1 (/a)", "no sample"),
        ("app 1/1 1.5: ev: 68100142 |OP LOAD|LVL L1 hit|SNP None|BLK  N/A 30", "no address"),
        ("app 1/1 1.5: ev: |OP LOAD|LVL L1 hit", "no address"),
        ("7f00 68100142 |OP LOAD|LVL L1 hit", "no event"),
        ("app 1/1 1.5: ev: 7f00 zz |OP LOAD|LVL L1 hit", "no number"),
        ("1 1 0x55 0x7f00", "cut short"),
        ("1 1 0x55 0x7f00 30", "no data source"),
        ("1 1 0x55", "no address"),
        ("app 1/1 1.5: PERF_RECORD_MMAP2 1/1: [0x5000(0x1000) @ 0 fe:00 1 0", "no complete mapping"),
        (
            "app 1/1 1.5: PERF_RECORD_MMAP2 1/1: [0xffffffffffffffff(0x10) @ 0 fe:00 1 0]: r-xp /a",
            "no complete",
        ),
    ] {
        let error = Parser::new().line(line.as_bytes()).unwrap_err();
        assert!(error.contains(reason), "{line}: {error}");
    }
}

#[test]
fn lines_cut_anywhere_are_read_or_refused() {
    for line in SCRIPT.lines().chain(["1234 1234 0x55d1aabbccdd 0x7f1234567000 30 0x68100142 /a:main"]) {
        for length in 0..line.len() {
            let _ = Parser::new().line(&line.as_bytes()[..length]);
            let _ = Parser::new().line(&line.as_bytes()[length..]);
        }
    }
}

#[test]
fn files_without_times_are_a_slice_each() {
    let dump = |address: &str| {
        format!(
            "# PID, TID, IP, ADDR, LOCAL WEIGHT, DSRC, SYMBOL\n    7     7 0x0000000000000055 0x016{address}     9 0x68100142 a:b\n"
        )
    };
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = ["7f0000001000", "7f0000002000"]
        .iter()
        .enumerate()
        .map(|(number, address)| {
            let path = dir.path().join(format!("{number}.txt"));
            std::fs::write(&path, dump(address)).unwrap();
            path
        })
        .collect();
    let recording = import(&paths, &ImportOptions { slice_ns: 5, ..ImportOptions::default() }).unwrap();
    let have: Vec<_> = have(&recording).into_iter().map(|it| (it.0, it.1, it.2)).collect();
    assert_eq!(have, [("region 1".to_owned(), 0, 0), ("region 1".to_owned(), 1, 0x1000)]);
    assert_eq!(recording.head.slices.iter().map(|it| it.start_ns).collect::<Vec<_>>(), [0, 5]);
    let missing = import(&[dir.path().join("2.txt")], &ImportOptions::default()).unwrap_err();
    assert!(missing.to_string().contains("2.txt"), "{missing}");
}

#[test]
fn addresses_far_from_each_other_are_regions_of_their_own_and_saved_maps_name_them() {
    let line = |address: u64, pid: u32| format!("{pid} {pid} 0x55 {address:#x} 9 0x68100142 a:b\n");
    let far = 0x7f00_0000_0000;
    let near = far + (64 << 20);
    let all = [line(far, 1), line(near, 1), line(near + (65 << 20), 1), line(0x1000, 2)].concat();
    let regions = |recording: &Recording| -> Vec<_> {
        recording.head.regions.iter().map(|it| (it.name.clone(), it.start, it.bytes)).collect()
    };
    let recording = text(&all, &ImportOptions::default()).unwrap();
    let wanted = [
        ("region 1".to_owned(), 0x1000, 4096),
        ("region 2".to_owned(), far, (64 << 20) + 4096),
        ("region 3".to_owned(), near + (65 << 20), 4096),
    ];
    assert_eq!(regions(&recording), wanted);
    assert!(recording.head.notes[0].contains("2 processes were sampled"), "{:?}", recording.head.notes);
    let one = text(&all, &ImportOptions { pid: Some(2), ..ImportOptions::default() }).unwrap();
    assert_eq!(regions(&one), [("region 1".to_owned(), 0x1000, 4096)]);
    let none = text(&all, &ImportOptions { pid: Some(3), ..ImportOptions::default() }).unwrap_err();
    assert!(none.to_string().contains("no samples of memory accesses of process 3 in a.txt"), "{none}");

    let maps = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(maps.path(), "7effff000000-7f0008000000 r--p 00000000 08:01 7 /m/model.gguf\n").unwrap();
    let options = ImportOptions {
        maps: Some(maps.path().to_owned()),
        granule_bytes: 3 << 20,
        ..ImportOptions::default()
    };
    let recording = text(&all, &options).unwrap();
    let have: Vec<_> = have(&recording).into_iter().map(|it| (it.0, it.2)).collect();
    let granule = |address: u64| (address - 0x7eff_ff00_0000) / (3 << 20) * (3 << 20);
    let model = "model.gguf".to_owned();
    let wanted = [
        (model.clone(), granule(far)),
        (model, granule(near)),
        ("region 1".to_owned(), 0),
        ("region 2".to_owned(), 0),
    ];
    assert_eq!(have, wanted);
}

#[test]
fn lines_that_are_not_understood_are_named_or_left_out() {
    let garbage = format!("{SCRIPT}what is this\n{SCRIPT}\n\u{1}\n");
    let options = |skip_bad| ImportOptions { skip_bad, threads: 2, ..ImportOptions::default() };
    let at = |skip_bad| {
        let input = [Ok((PathBuf::from("x/a.txt"), Cursor::new(garbage.as_bytes())))];
        import_chunks(input.into_iter(), &options(skip_bad), 300)
    };
    let lines = SCRIPT.lines().count();
    let error = at(0).unwrap_err().to_string();
    assert!(error.starts_with(&format!("x/a.txt, line {}: this is no sample", lines + 1)), "{error}");
    assert!(
        error.contains("`perf script -F comm,pid,tid,time,event,addr,data_src,weight,ip --show-mmap-events`"),
        "{error}"
    );
    let error = at(1).unwrap_err().to_string();
    assert!(error.contains(&format!("line {}", 2 * lines + 3)), "{error}");
    assert!(at(2).unwrap().head.notes[0].starts_with("2 lines could not be understood"));
    let binary = text("PERFILE2\0\0", &options(9)).unwrap_err().to_string();
    assert!(binary.contains("perf's own file"), "{binary}");
    let mixed = format!("{SCRIPT}1 1 0x55 0x7f00 9 0x68100142 a:b\n");
    let error = text(&mixed, &options(0)).unwrap_err().to_string();
    assert!(error.contains("has no time"), "{error}");
    assert!(text("", &options(0)).unwrap_err().to_string().contains("no samples"));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for granule_bytes in [0, 32, 100, 5000, 2 << 30, u64::MAX] {
        let options = ImportOptions { granule_bytes, ..ImportOptions::default() };
        assert!(text(SCRIPT, &options).unwrap_err().to_string().contains("a granule of"), "{granule_bytes}");
    }
    let options = ImportOptions { slice_ns: 0, ..ImportOptions::default() };
    assert!(text(SCRIPT, &options).is_err());
    let options = ImportOptions { maps: Some(Path::new("/no/such").to_owned()), ..ImportOptions::default() };
    assert!(text(SCRIPT, &options).unwrap_err().to_string().contains("/no/such"));
}

/// A sample before it is text.
#[derive(Clone, Copy, Debug)]
struct Made {
    time_us: u64,
    address: u64,
    kind: usize,
    weight: u64,
    is_kernel: bool,
    form: u8,
}

/// Bits, their text, and what they mean.
const KINDS: [(u64, &str, Op, Level); 4] = [
    (0x6810_0142, "LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A", Op::Load, Level::Cache),
    (0x1a_6810_1042, "LOAD|LVL Local RAM or RAM hit|SNP None|BLK  N/A", Op::Load, Level::Local),
    (0x10_8042, "LOAD|LVL Remote Cache (1 hop) hit|SNP None", Op::Load, Level::Remote),
    (0x2_6810_0184, "STORE|LVL L1 miss|SNP None|TLB N/A|LCK N/A", Op::Store, Level::Unknown),
];

fn made() -> impl Strategy<Value = Made> {
    let address = prop_oneof![
        0x1000_u64..0x9000,
        0x7f00_0000_0000_u64..0x7f00_0001_0000,
        0xffff_8880_0000_0000..0xffff_8880_0000_9000_u64
    ];
    (0_u64..50_000, address, 0_usize..KINDS.len(), 0_u64..500, any::<bool>(), 0_u8..4).prop_map(
        |(time_us, address, kind, weight, is_kernel, form)| Made {
            time_us,
            address,
            kind,
            weight,
            is_kernel,
            form,
        },
    )
}

fn write_line(out: &mut String, it: &Made, is_timed: bool) {
    let (bits, decoded, ..) = KINDS[it.kind];
    let Made { address, weight, .. } = it;
    let ip: u64 = if it.is_kernel { 0xffff_ffff_8100_0000 } else { 0x55d1_0000_0000 };
    let time = format!("{:5}.{:06}", 7 + it.time_us / 1_000_000, it.time_us % 1_000_000);
    // Without the bits, a small number could be the data source of a sample that has no address.
    let form = if it.form == 2 && is_timed && address >> 46 == 0 { 0 } else { it.form };
    let done = match (is_timed, form) {
        (true, 0) => writeln!(
            out,
            "{:>16} {:7}/{:<7} {time}: cpu/mem/P: {address:16x} {bits:16x} |OP {decoded}  {weight:16} {ip:16x}",
            "a b", 5, 6
        ),
        (true, 1) => writeln!(
            out,
            "{:>16} {:7} [000] {time}: {:10} cpu/mem/P: {address:16x} {bits:16x} |OP {decoded}  {weight:16} {ip:16x} f+0x1 (/b c)",
            "app", 5, 1
        ),
        (true, 2) => writeln!(out, "app 5/5 {time}: ev: {address:x} |OP {decoded} {weight} {ip:x}\n"),
        (true, _) => writeln!(out, "app 5/5 {time}: {address:x} {bits:x} |OP {decoded} {weight} {ip:x}\r"),
        (false, 0) => writeln!(out, "{:5} {:5} {ip:#018x} 0x016{address:x} {weight:5} {bits:#08x} a:b", 5, 5),
        (false, 1) => writeln!(out, "5,5,{ip:#x},{address:#x},{weight},{bits:#x},a:b"),
        (false, 2) => writeln!(out, "5 5 {ip:#x} {address:#x} {weight} {bits:#x} a:b\n# note"),
        (false, _) => writeln!(out, "5 5 {ip:#x} {address:#x} {address:#x} 4K {weight} {bits:#x} a:b"),
    };
    done.unwrap();
}

proptest! {
    #[test]
    fn it_counts_what_the_obvious_twin_counts(
        files in prop::collection::vec(prop::collection::vec(made(), 1..40), 1..4),
        is_timed in any::<bool>(),
        threads in 1_usize..4,
        chunk_bytes in 1_usize..2000,
        granule_bytes in prop_oneof![Just(64_u64), Just(2048), Just(4096), Just(12288), Just(1 << 20)],
    ) {
        const SLICE_NS: u64 = 10_000_000;
        let first = files[0][0].time_us;
        // Slices are counted from the first sample, and there may be earlier ones.
        let slice = |file: usize, it: &Made| match is_timed {
            true => (it.time_us as i64 - first as i64).div_euclid(10_000),
            false => file as i64,
        };
        type Key = (i64, u64, Op, Level, Mode);
        let mut wanted: BTreeMap<Key, (f32, u64, u64)> = BTreeMap::new();
        let mut inputs = Vec::new();
        let least = files.iter().enumerate().flat_map(|(file, of)| of.iter().map(move |it| slice(file, it))).min().unwrap();
        for (file, of) in files.iter().enumerate() {
            let mut text = String::new();
            for it in of {
                write_line(&mut text, it, is_timed);
                let (_, _, op, level) = KINDS[it.kind];
                let mode = if it.is_kernel { Mode::Kernel } else { Mode::User };
                // Regions begin at a multiple of the granule or of a page, whichever is smaller.
                let entry = wanted.entry((slice(file, it) - least, it.address, op, level, mode)).or_default();
                *entry = (entry.0 + 1.0, entry.1 + u64::from(it.weight > 0), entry.2 + it.weight);
            }
            inputs.push(Ok((PathBuf::from(file.to_string()), Cursor::new(text.into_bytes()))));
        }
        let options = ImportOptions { slice_ns: SLICE_NS, granule_bytes, threads, ..ImportOptions::default() };
        let recording = import_chunks(inputs.into_iter(), &options, chunk_bytes).unwrap();
        type Folded = BTreeMap<(i64, usize, u64, Op, Level, Mode), (f32, u64, u64)>;
        let mut folded = Folded::new();
        for ((slice, address, op, level, mode), counts) in wanted {
            let regions = &recording.head.regions;
            let region = regions.iter().position(|it| (it.start..it.start + it.bytes).contains(&address)).unwrap();
            let offset = (address - regions[region].start) / granule_bytes * granule_bytes;
            let entry = folded.entry((slice, region, offset, op, level, mode)).or_default();
            *entry = (entry.0 + counts.0, entry.1 + counts.1, entry.2 + counts.2);
        }
        let have: BTreeMap<_, _> = recording.samples.iter().map(|it| {
            let key = (i64::from(it.slice), it.region as usize, it.offset, it.op, it.level, it.mode);
            (key, (it.weight, it.latency_cycles))
        }).collect();
        prop_assert_eq!(have.len(), recording.samples.len());
        let mean = |(count, timed, cycles): (f32, u64, u64)| {
            (count, if timed == 0 { 0.0 } else { (cycles as f64 / timed as f64) as f32 })
        };
        prop_assert_eq!(have, folded.into_iter().map(|(key, it)| (key, mean(it))).collect());
    }

    #[test]
    fn noise_is_an_error_and_no_panic(noise in prop::collection::vec(any::<u8>(), 0..300), threads in 1_usize..3) {
        let mut input = SCRIPT.as_bytes().to_vec();
        let at = noise.len() * 7 % input.len();
        input.splice(at..at, noise);
        let options = ImportOptions { skip_bad: u64::MAX, threads, ..ImportOptions::default() };
        let _ = import_chunks([Ok((PathBuf::new(), Cursor::new(input)))].into_iter(), &options, 100);
    }
}
