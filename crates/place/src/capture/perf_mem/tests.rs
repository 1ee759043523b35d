//! Tests with perf texts of known counts, and random texts against a slow twin.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tiermem_base::Op;
use tiermem_trace::recording::{Level, Mode, RegionKind};

use super::data_src::Answer;
use super::line::{Parsed, Seen};
use super::*;

/// Output of perf 6.1 for the same 25 samples, one of each answer (`testdata/README.md`).
const SCRIPT: &str = include_str!("../../../testdata/perf_script_6.1.txt");
const DUMP: &str = include_str!("../../../testdata/perf_mem_dump_6.1.txt");
const DUMP_COMMAS: &str = include_str!("../../../testdata/perf_mem_dump_6.1.csv");
const DUMP_PHYSICAL: &str = include_str!("../../../testdata/perf_mem_dump_phys_6.1.txt");
const REPORT: &str = include_str!("../../../testdata/perf_mem_report_6.1.txt");
const MAPPINGS: &str = include_str!("../../../testdata/perf_script_mmap_6.1.txt");

const ANSWERS: [Answer; 25] = [
    Answer::L1,
    Answer::FillBuffer,
    Answer::L2,
    Answer::L3,
    Answer::LocalRam,
    Answer::RemoteRam,
    Answer::RemoteRam,
    Answer::RemoteCache,
    Answer::OtherCache,
    Answer::RemoteCache,
    Answer::Miss,
    Answer::L1,
    Answer::Miss,
    Answer::Uncached,
    Answer::PersistentMemory,
    Answer::Cxl,
    Answer::Uncached,
    Answer::LocalRam,
    Answer::RemoteRam,
    Answer::RemoteRam,
    Answer::RemoteCache,
    Answer::Unknown,
    Answer::L1,
    Answer::L2,
    Answer::L1,
];
const WEIGHTS: [u64; 25] = [
    7, 30, 14, 60, 250, 410, 420, 300, 90, 390, 500, 0, 0, 900, 800, 700, 33, 240, 440, 480, 222, 0, 5, 9, 3,
];

fn options() -> ImportOptions {
    ImportOptions { threads: 2, ..ImportOptions::default() }
}

fn read(text: &str) -> Result<Recording, PerfMemError> {
    import_bytes(text.as_bytes(), &options())
}

fn samples(text: &str) -> Vec<Seen> {
    let head = form::look_at(text.as_bytes()).unwrap();
    let parsed = text.lines().map(|line| head.form.parse(line.as_bytes()).unwrap());
    parsed.filter_map(|it| if let Parsed::Sample(seen) = it { Some(seen) } else { None }).collect()
}

fn weight_of(recording: &Recording, level: Level) -> f32 {
    recording.samples.iter().filter(|it| it.level == level).map(|it| it.weight).sum()
}

#[test]
fn all_forms_say_the_same() {
    let script = samples(SCRIPT);
    assert_eq!(script.iter().map(|it| it.answer).collect::<Vec<_>>(), ANSWERS);
    assert_eq!(script.iter().map(|it| it.cycles).collect::<Vec<_>>(), WEIGHTS);
    assert_eq!(script[0].time_ns, Some(4_268_624_641_000));
    assert!(script.iter().enumerate().all(|(at, it)| (it.mode == Mode::Kernel) == (at == 2)));
    assert!(script.iter().enumerate().all(|(at, it)| (it.op == Op::Store) == (at == 11 || at == 12)));
    let addresses: Vec<u64> = (0..25)
        .map(|at| if at % 7 > 0 { 0x7f3a_0000_1000 + at * 64 } else { 0x55d0_0000_2000 + at * 8 })
        .collect();
    assert_eq!(script.iter().map(|it| it.address).collect::<Vec<_>>(), addresses);
    for dump in [DUMP, DUMP_COMMAS, DUMP_PHYSICAL, &DUMP_COMMAS.replace(',', "\t")] {
        let dump = samples(dump);
        let timeless: Vec<_> = script.iter().map(|it| Seen { time_ns: None, ..*it }).collect();
        assert_eq!(dump, timeless);
    }
}

#[test]
fn a_recording_has_their_counts() {
    let recording = read(SCRIPT).unwrap();
    let levels = Level::ALL.map(|level| weight_of(&recording, level));
    assert_eq!(levels, [5.0, 9.0, 2.0, 9.0]);
    assert_eq!(
        recording.head.slices,
        [tiermem_trace::recording::Slice { start_ns: 0, end_ns: 10_000_000_000 }]
    );
    let regions: Vec<_> =
        recording.head.regions.iter().map(|it| (it.name.as_str(), it.start, it.bytes)).collect();
    assert_eq!(regions, [("region 1", 0x55d0_0000_2000, 0x1000), ("region 2", 0x7f3a_0000_1000, 0x1000)]);
    let local: Vec<_> = recording.samples.iter().filter(|it| it.level == Level::Local).collect();
    assert_eq!((local.len(), local[0].latency_cycles), (1, 245.0));
    let note = recording.head.notes.iter().find(|note| note.contains("answered by")).unwrap();
    assert!(note.contains("LFB/MAB 1 (4.00%, cached)") && note.contains("L1 4 (16.00%, cached)"), "{note}");
    // It can be written and read again.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.parquet");
    tiermem_trace::recording::write(&path, &recording).unwrap();
    assert_eq!(tiermem_trace::recording::read(&path).unwrap(), recording);
}

#[test]
fn slices_are_times_or_files() {
    let by_time = ImportOptions { slice_ns: 5_000_000, ..options() };
    let recording = import_bytes(SCRIPT.as_bytes(), &by_time).unwrap();
    assert_eq!(recording.head.slices.len(), 3);
    let of = |slice| recording.samples.iter().filter(|it| it.slice == slice).map(|it| it.weight).sum::<f32>();
    // Until 4268.629641, until 4268.634641, and behind that.
    assert_eq!([of(0), of(1), of(2)], [13.0, 7.0, 5.0]);

    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "empty", "b"].map(|name| folder.path().join(name));
    for (path, text) in
        paths.iter().zip([DUMP, "# PID, TID, IP, ADDR, LOCAL WEIGHT, DSRC, SYMBOL\n", DUMP_COMMAS])
    {
        std::fs::write(path, text).unwrap();
    }
    let recording = import(&paths, &options()).unwrap();
    assert_eq!(recording.head.slices.len(), 3);
    assert_eq!(
        recording.samples.iter().map(|it| it.slice).collect::<std::collections::BTreeSet<_>>(),
        [0, 2].into()
    );
    let times: Vec<_> = recording.head.slices.iter().map(|it| it.start_ns).collect();
    assert_eq!(times, [0, 10_000_000_000, 20_000_000_000]);
}

#[test]
fn regions_are_what_was_mapped() {
    let recording = read(MAPPINGS).unwrap();
    let names: Vec<_> = recording.head.regions.iter().map(|it| it.name.as_str()).collect();
    for name in ["stack", "dash text", "libc.so.6 text", "libc.so.6 data"] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    assert_eq!(recording.head.executable.path, "/usr/bin/dash");
    let folder = tempfile::tempdir().unwrap();
    let maps = folder.path().join("maps");
    std::fs::write(&maps, "7f3a00000000-7f3a00100000 r--s 00000000 fe:00 9      /srv/my model.gguf\n")
        .unwrap();
    let recording =
        import_bytes(SCRIPT.as_bytes(), &ImportOptions { maps: Some(maps), ..options() }).unwrap();
    let names: Vec<_> = recording.head.regions.iter().map(|it| (it.name.as_str(), it.kind)).collect();
    assert_eq!(names, [("region 1", RegionKind::Anonymous), ("my model.gguf", RegionKind::File)]);
    assert!(recording.head.notes.iter().any(|it| it == "4 of 25 samples lie in no mapping that is known"));
}

/// Fields that are there or not, and versions of perf.
#[test]
fn lines_of_other_versions_and_fields() {
    let seen = |line: &str| match script::parse(line.as_bytes()).unwrap() {
        Parsed::Sample(seen) => seen,
        other => panic!("{line}: {other:?}"),
    };
    const WORDS: &str = "|OP LOAD|LVL L3 or L3 hit|SNP None|TLB L1 or L2 hit|LCK No";
    let all = Seen {
        pid: Some(12),
        time_ns: Some(1_000_002_000),
        address: 0x7f00,
        op: Op::Load,
        answer: Answer::L3,
        mode: Mode::User,
        cycles: 60,
    };
    for (line, wanted) in [
        // perf 5.x: no BLK; 4.8: no number before the words.
        (
            format!(
                "a 12/13 1.000002: cpu/mem-loads,ldlat=30/P: 7f00 668100842 {WORDS}        60  401136 main (/a|OP b)"
            ),
            all,
        ),
        (format!("a 12/13 1.000002: cpu/mem-loads,ldlat=30/P: 7f00 {WORDS}        60  401136 main"), all),
        // Names of commands may look like anything.
        (
            format!(
                "Web 7 8: [1] 12/13 [003] 1.000002: 250 cpu/mem-loads/P: 7f00 668100842 {WORDS}        60  401136 add"
            ),
            all,
        ),
        (format!("a|b 12/13 1.000002000: 250 mem-loads:u: 7f00 668100842 {WORDS}        60"), all),
        (
            format!(
                "a 12/13 1.000002: x/P: 7f00 668100842 {WORDS}|BLK  N/A        60     5     7 401136 main"
            ),
            all,
        ),
        (format!("a 12/13 1.000002: x/P: 7f00 668100842 {WORDS}|BLK  Data Addr        60     401136"), all),
        (
            format!("a 12/13 1.000002: x/P: 7f00 668100842 {WORDS}|BLK  N/A          401136 main"),
            Seen { cycles: 0, ..all },
        ),
        (
            format!("a 12/13 1.000002: x/P: 7f00 668100842 {WORDS}|BLK  N/A        7ff2ce095f02"),
            Seen { cycles: 0, ..all },
        ),
        (
            format!("a 12/13 1.000002: x/P: 7f00 668100842 {WORDS}"),
            Seen { cycles: 0, mode: Mode::Unknown, ..all },
        ),
        (
            format!("a 12/13 1.000002: x/Pk: 7f00 668100842 {WORDS}        60"),
            Seen { mode: Mode::Kernel, ..all },
        ),
        (format!("a 12/13 x/Pu: 7f00 668100842 {WORDS}        60"), Seen { time_ns: None, ..all }),
        (format!("a 12/13 250 x/Pu: 7f00 668100842 {WORDS}        60"), Seen { time_ns: None, ..all }),
        (format!("a 12 1.000002: x/Pu: 7f00 668100842 {WORDS}        60"), Seen { pid: None, ..all }),
        (
            format!("a 12 [003] 250 x/Pu: 7f00 668100842 {WORDS}        60"),
            Seen { pid: None, time_ns: None, ..all },
        ),
        (
            format!("a 12/13 1.000002: cpu/mem-stores/Pu: 7f00 1e05080021 {WORDS}        60"),
            Seen { op: Op::Store, answer: Answer::Unknown, ..all },
        ),
    ] {
        assert_eq!(seen(&line), wanted, "{line}");
    }
}

#[test]
fn broken_lines_are_named() {
    let good =
        "a 12/13 1.000002: x/P: 7f00 668100842 |OP LOAD|LVL L3 or L3 hit|SNP None|TLB N/A|LCK No        60\n";
    for (line, reason) in [
        ("hello", "there is no data_src in it"),
        ("a 12/13 1.0: x/P: 668100842", "there is no data_src in it"),
        ("a 12/13 1.0: x/P: |OP LOAD|LVL L1 hit|SNP None|", "there are no event and addr before data_src"),
        ("a 12/13 1.0: x/P: zz 1 |OP LOAD|LVL L1 hit|SNP None|", "its addr is no hexadecimal number"),
        ("a 12/13 1.0: x/P: 7f00 1 |OP LOAD|LVL L1", "its data_src is cut short or of no known form"),
        ("a 12/13 1.0: x/P: 7f00 |OP LOAD|LVL Moon hit|SNP None|", "its data_src is of no known form"),
        ("a 12/13 1:0: x/P: 7f00 1 |OP LOAD|LVL L1 hit|SNP None|", "its time is not like 4268.624641"),
        (
            "a 1.0: x/P: 7f00 1 |OP LOAD|LVL L1 hit|SNP None|",
            "there are no process and thread before its event",
        ),
        (
            "a 7 8 x/P: 7f00 1 |OP LOAD|LVL L1 hit|SNP None|",
            "it has no time, and two numbers that may be the process",
        ),
        ("a 12/13 x/P: 7f00 1 |OP LOAD|LVL L1 hit|SNP None|", "it has no time, which samples before it have"),
        ("a 1/1 1.0: PERF_RECORD_MMAP2 1/1: [0x1000]", "the mapping in it is of no known form"),
    ] {
        let text = format!("# a comment\n{good}\n{line}\n{good}");
        let error = read(&text).unwrap_err();
        match &error {
            PerfMemError::Line { line: 4, reason: found, .. } => assert_eq!(*found, reason, "{line}"),
            other => panic!("{line}: {other}"),
        }
        assert!(error.advice().contains("perf script -F") && error.to_string().starts_with("text, line 4: "));
        let skipping = ImportOptions { skip_bad: 1, ..options() };
        let recording = import_bytes(text.as_bytes(), &skipping).unwrap();
        assert_eq!(recording.samples.iter().map(|it| it.weight).sum::<f32>(), 2.0);
        let twice = format!("{text}{line}\n");
        assert!(matches!(import_bytes(twice.as_bytes(), &skipping), Err(PerfMemError::Line { line: 6, .. })));
    }
    let cut = &SCRIPT[..SCRIPT.len() - 20];
    assert!(matches!(read(cut), Err(PerfMemError::Line { line: 25, reason: "the text ends within it", .. })));
    let long = format!("{good}{}\n{good}", "x".repeat(200_000));
    assert!(matches!(read(&long), Err(PerfMemError::Line { line: 2, .. })));
}

#[test]
fn other_things_are_refused_with_advice() {
    for (text, word) in [
        (REPORT, "summary"),
        ("PERFILE2\0\0", "perf's own file"),
        ("\x1f\u{8b}", ""),
        ("0x16fa0 [0x58]: PERF_RECORD_SAMPLE(IP, 0x4002): 1/1: 0x1 period: 15 addr: 0\n", "raw dump"),
        ("# PID, TID, IP, ADDR, MOON, LOCAL WEIGHT, DSRC, SYMBOL\n", "columns"),
    ] {
        let error = read(text).unwrap_err();
        if !word.is_empty() {
            assert!(
                matches!(error, PerfMemError::Form { .. }) && error.to_string().contains(word),
                "{error}"
            );
            assert!(!error.advice().is_empty());
        }
    }
    assert!(matches!(import(&[], &options()), Err(PerfMemError::NoInput)));
    assert!(matches!(read(""), Err(PerfMemError::NoSamples(_))));
    let missing = import(&[PathBuf::from("no such file")], &options());
    assert!(matches!(missing, Err(PerfMemError::Open { .. })));
    let odd = ImportOptions { granule_bytes: 100, ..options() };
    assert!(matches!(import_bytes(b"", &odd), Err(PerfMemError::Options(_))));
}

#[test]
fn one_process_is_chosen() {
    let line = |pid: u32, at: u32| {
        format!(
            "a {pid}/{pid} 1.0: x/Pu: {:x} 268100142 |OP LOAD|LVL L1 hit|SNP None|TLB N/A|LCK No\n",
            0x1000 + at * 8
        )
    };
    let text: String = (0..10).map(|at| line(if at < 4 { 5 } else { 6 }, at)).collect();
    let weight = |options: &ImportOptions| {
        import_bytes(text.as_bytes(), options).map(|it| it.samples.iter().map(|it| it.weight).sum::<f32>())
    };
    assert_eq!(weight(&options()).unwrap(), 6.0);
    assert_eq!(weight(&ImportOptions { pid: Some(5), ..options() }).unwrap(), 4.0);
    assert!(matches!(weight(&ImportOptions { pid: Some(7), ..options() }), Err(PerfMemError::NoSamples(_))));
}

#[test]
fn parts_side_by_side_are_read_as_one_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    let text = SCRIPT.repeat(40);
    std::fs::write(&path, &text).unwrap();
    let file = File::open(&path).unwrap();
    let plan = Plan {
        pid: None,
        clock: Clock::Time { origin_ns: 4_268_624_641_000, slice_ns: 1_000_000 },
        granule_bytes: 4096,
        entries_max: 1 << 20,
        skip_bad: 0,
    };
    let whole = {
        let mut whole = Collected::new(&plan, 1 << 20);
        let part = FileRange { file: 0, start: 0, end: u64::MAX };
        let end = whole.read_part(&file, form::Form::Script, part, &plan, &Shared::default()).unwrap();
        assert_eq!(end.lines, 1000);
        whole.table.into_sorted(|_| true)
    };
    for bytes in [37, 250, 251, 1000, 100_000] {
        let mut all = Collected::new(&plan, 1 << 20);
        let shared = Shared::default();
        let (mut lines, mut start) = (0, 0);
        while start < text.len() as u64 {
            let part = FileRange { file: 0, start, end: start + bytes };
            lines += all.read_part(&file, form::Form::Script, part, &plan, &shared).unwrap().lines;
            start = part.end;
        }
        assert_eq!((lines, shared.bad.load(Relaxed)), (1000, 0), "{bytes}");
        assert_eq!(all.table.into_sorted(|_| true), whole, "{bytes}");
    }
}

/// Parses a line the slow and obvious way: words between blanks, from the words of the data source outward.
fn slowly(line: &str) -> Option<(u32, u64, u64, Answer, u64)> {
    let (before, behind) = line.split_once("|OP ")?;
    let words: Vec<&str> = before.split_whitespace().collect();
    let [.., who, time, _event, address, bits] = words[..] else { return None };
    let (pid, _) = who.split_once('/')?;
    let (seconds, micros) = time.strip_suffix(':')?.split_once('.')?;
    let time_ns = seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000;
    let (_, answer) = data_src::decode(u64::from_str_radix(bits, 16).ok()?);
    let weight =
        behind.split("  ").map(str::trim).find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let weight = weight.split_whitespace().next()?.parse().ok()?;
    Some((pid.parse().ok()?, time_ns, u64::from_str_radix(address, 16).ok()?, answer, weight))
}

proptest! {
    #[test]
    fn samples_are_what_the_slow_twin_says(
        lines in prop::collection::vec(
            ("[a-z:/ ]{0,15}", 1u32..1 << 22, 0u64..1 << 31, 0u64..1_000_000, 1u64.., 0u64..1 << 46, 0u64..100_000, "[a-z+:<> ]{1,30}"),
            1..20,
        )
    ) {
        let text: String = lines.iter().map(|(comm, pid, seconds, micros, address, bits, weight, symbol)| format!(
            "{comm:>16} {pid:>7}/{pid:<7} {seconds:5}.{micros:06}: cpu/mem-loads,ldlat=30/P: {address:>16x} {bits:>16x} \
             |OP LOAD|LVL Local RAM or RAM hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A  {weight:>16} {:>16x} x{symbol}\n",
            0x40_0000,
        )).collect();
        let mut wanted: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for line in text.lines() {
            let (pid, time_ns, address, answer, cycles) = slowly(line).unwrap();
            match script::parse(line.as_bytes()) {
                Ok(Parsed::Sample(seen)) => {
                    prop_assert_eq!((seen.pid, seen.time_ns, seen.address), (Some(pid), Some(time_ns), address));
                    prop_assert_eq!((seen.answer, seen.cycles), (answer, cycles));
                }
                other => prop_assert!(false, "{}: {:?}", line, other),
            }
            *wanted.entry((u64::from(pid), address / 4096)).or_default() += 1;
        }
        let one = lines[0].1;
        let total: u64 = wanted.iter().filter(|((pid, _), _)| *pid == u64::from(one)).map(|(_, count)| count).sum();
        let options = ImportOptions { pid: Some(one), slice_ns: 1 << 50, ..options() };
        let recording = import_bytes(text.as_bytes(), &options).unwrap();
        prop_assert_eq!(recording.samples.iter().map(|it| it.weight as u64).sum::<u64>(), total);
    }

    /// Any text is accepted or refused.
    #[test]
    fn any_text_is_taken_or_refused(start in 0usize..3, cuts in prop::collection::vec((0usize..6000, 0usize..40, ".{0,12}"), 0..8)) {
        let mut text = [SCRIPT, DUMP, MAPPINGS][start].as_bytes().to_vec();
        for (at, bytes, with) in cuts {
            let at = at.min(text.len());
            let end = (at + bytes).min(text.len());
            text.splice(at..end, with.bytes());
        }
        for skip_bad in [0, u64::MAX] {
            if let Ok(recording) = import_bytes(&text, &ImportOptions { skip_bad, ..options() }) {
                let regions = &recording.head.regions;
                prop_assert!(recording.samples.iter().all(|it| it.offset < regions[it.region as usize].bytes));
            }
        }
    }
}
