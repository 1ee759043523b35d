//! Programs with known accesses, under Lackey. Without Valgrind or the programs these tests are skipped.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use tiermem_base::Op;
use tiermem_place::capture::lackey::{self, Options};
use tiermem_place::capture::{CaptureError, Stop};
use tiermem_trace::recording::{Level, Recording, RegionKind};

/// The program beside this test's own, if it was built (`cargo build -p tiermem-workloads`) and Valgrind is there.
fn program(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    let path = own.parent()?.parent()?.join(name);
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    let is_there = has_valgrind && path.exists();
    if !is_there {
        eprintln!("passed over: there is no valgrind or no {}", path.display());
    }
    is_there.then_some(path)
}

fn record(name: &str, arguments: &[&str], options: Options) -> Option<Recording> {
    let program = program(name)?;
    let command = std::iter::once(program.into()).chain(arguments.iter().map(OsString::from)).collect();
    Some(lackey::record(&Options { command, ..options }, &Stop::default(), |_| {}).unwrap())
}

/// Loads and stores of each region.
fn totals(recording: &Recording) -> Vec<(f32, f32)> {
    let mut totals = vec![(0.0, 0.0); recording.head.regions.len()];
    for sample in &recording.samples {
        let (loads, stores) = &mut totals[sample.region as usize];
        *(if sample.op == Op::Store { stores } else { loads }) += sample.weight;
    }
    totals
}

/// 16 words of each page of 1 MiB, read and written 20 times: a table far from the rest of memory, since it is mapped.
#[test]
fn stride_reads_and_writes_each_word_as_often() {
    let arguments = ["--footprint", "1MiB", "--stride", "256", "--accesses", "81920"];
    let Some(recording) = record("stride", &arguments, Options { slice_ns: 1_000_000, ..Options::default() })
    else {
        return;
    };
    let pages_of = |region: usize| {
        let loads = recording.samples.iter().filter(|it| it.region as usize == region && it.op == Op::Load);
        loads.map(|it| it.offset).collect::<std::collections::BTreeSet<_>>().len()
    };
    let table = (0..recording.head.regions.len()).find(|region| pages_of(*region) >= 256);
    let table = table.unwrap_or_else(|| panic!("no region has 256 pages: {:?}", recording.head.regions));
    let mut pages = std::collections::BTreeMap::new();
    for sample in recording.samples.iter().filter(|it| it.region as usize == table) {
        *pages.entry((sample.offset, sample.op)).or_insert(0.0) += sample.weight;
    }
    // 81920 accesses to 256 pages; a page more has the allocator's word, and the first is shared with it.
    for op in [Op::Load, Op::Store] {
        let exact = pages.iter().filter(|((_, it), count)| *it == op && **count == 320.0).count();
        assert!(exact >= 254, "{exact} of 256 pages have 320 {op:?}");
    }
    let head = &recording.head;
    assert!(head.slices.len() > 1 && head.slices.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns));
    assert!(head.regions.iter().any(|it| it.kind == RegionKind::Stack && it.name == "stack"));
    assert!(head.regions.iter().any(|it| it.path.as_deref().is_some_and(|path| path.ends_with("/stride"))));
    assert!(!head.regions.iter().any(|it| it.name.contains("lackey")), "Valgrind's own is not the program's");
    // A table of 1 MiB is in the modelled last level after its first round: 16 lines of each page are filled once.
    let fills: f32 = recording
        .samples
        .iter()
        .filter(|it| it.region as usize == table && it.level == Level::Local)
        .map(|it| it.weight)
        .sum();
    assert!((4000.0..4300.0).contains(&fills), "{fills}");
}

#[test]
fn random_goes_everywhere() {
    let arguments = ["--footprint", "256KiB", "--accesses", "64k"];
    let Some(recording) = record("random", &arguments, Options { caches: None, ..Options::default() }) else {
        return;
    };
    assert!(recording.samples.iter().all(|it| it.level == Level::Unknown));
    // One region has the table. When it is mapped beside other memory without a name the kernel makes one mapping of both, and
    // whether that was looked at before or after is chance: then the region has the other's few accesses as well.
    let has_table = |(loads, stores): &(f32, f32)| {
        (64_000.0..66_000.0).contains(loads) && (64_000.0..66_000.0).contains(stores)
    };
    let totals = totals(&recording);
    assert!(totals.iter().any(has_table), "{totals:?}");
    assert!(!recording.head.sources[0].tells_level);
}

#[test]
fn the_end_is_kept_to_and_a_stop_ends_it() {
    let arguments = ["--footprint", "1MiB", "--accesses", "100M"];
    let Some(recording) =
        record("stride", &arguments, Options { accesses_max: Some(100_000), ..Options::default() })
    else {
        return;
    };
    assert_eq!(recording.samples.iter().map(|it| it.weight).sum::<f32>(), 100_000.0);
    assert!(recording.head.notes.iter().any(|note| note.contains("as many accesses as were asked for")));
    let stop = Stop::default();
    let other = stop.clone();
    let command =
        std::iter::once(program("stride").unwrap().into()).chain(arguments.map(OsString::from)).collect();
    let options = Options { command, ..Options::default() };
    let stopped = lackey::record(&options, &stop, |accesses| {
        if accesses > 10_000 {
            other.stop();
        }
    });
    assert!(stopped.unwrap().head.notes.iter().any(|note| note.contains("stopped")));
}

#[test]
fn what_is_no_program_is_refused() {
    let options = Options { command: vec!["no-such-program".into()], ..Options::default() };
    let error = lackey::record(&options, &Stop::default(), |_| {}).unwrap_err();
    assert!(matches!(error, CaptureError::Command { .. }), "{error}");
}
