//! Journals cut and damaged anywhere.

use std::path::Path;

use proptest::prelude::*;
use tiermem_base::Op;

use super::frame::{check_header, header};
use super::*;
use crate::recording::{NODE_UNKNOWN, Recording, Source, read, write};

fn head(notes: &[&str]) -> Head {
    Head {
        version: Head::VERSION,
        granule_bytes: 4096,
        sources: vec![Source { name: "refs".to_owned(), ..Source::default() }],
        notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        ..Head::default()
    }
}

fn region(number: u32, start: u64, bytes: u64, name: &str) -> NumberedRegion {
    let region = Region { name: name.to_owned(), start, bytes, ..Region::default() };
    NumberedRegion { number, within: None, is_mapped: true, region }
}

fn regions(all: &[&NumberedRegion]) -> Facts {
    Facts { regions: all.iter().map(|it| (*it).clone()).collect(), processes: Vec::new() }
}

fn sample(region: u32, address: u64) -> JournalSample {
    JournalSample {
        region,
        address,
        bytes: 4096,
        weight: 2.0,
        resident: 4096,
        source: 0,
        op: Op::Unknown,
        level: Level::Local,
        node: NODE_UNKNOWN,
    }
}

fn slice(number: u64) -> Slice {
    Slice { start_ns: number * 10, end_ns: number * 10 + 9 }
}

/// A journal of three slices in which a region grows downward and takes in another one; its bytes, and where each slice ends.
fn journal(path: &Path) -> (Journal, Vec<usize>) {
    let mut journal = Journal::create(path).unwrap();
    let mut ends = Vec::new();
    let mut end = |path: &Path| ends.push(std::fs::metadata(path).unwrap().len() as usize);
    let (low, high) = (region(1, 0x1000, 0x1000, "low"), region(0, 0x8000, 0x2000, "high"));
    journal
        .slice(&head(&[]), slice(0), regions(&[&high, &low]), &[sample(1, 0x1000), sample(0, 0x8000)])
        .unwrap();
    end(path);
    journal.slice(&head(&[]), slice(1), regions(&[&high, &low]), &[sample(0, 0x9000)]).unwrap();
    end(path);
    let grown = region(0, 0x1000, 0x9000, "high");
    let merged = NumberedRegion { within: Some(0), is_mapped: false, ..low };
    journal.slice(&head(&["a note"]), slice(2), regions(&[&grown, &merged]), &[sample(0, 0x4000)]).unwrap();
    end(path);
    (journal, ends)
}

/// Region and offset of each sample.
fn places(recording: &Recording) -> Vec<(u32, &str, u64)> {
    let name = |region: u32| recording.head.regions[region as usize].name.as_str();
    recording.samples.iter().map(|it| (it.slice, name(it.region), it.offset)).collect()
}

#[test]
fn a_complete_journal_is_the_recording_that_replaces_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rec");
    let (mut journal, _) = journal(&path);
    let recording = journal.end(head(&["a note", "the end"]), Facts::default()).unwrap();
    assert_eq!(recording.head.notes, ["a note", "the end"]);
    assert_eq!(
        places(&recording),
        [(0, "high", 0), (0, "high", 0x7000), (1, "high", 0x8000), (2, "high", 0x3000)]
    );
    assert_eq!(
        recording.head.regions.iter().map(|it| (it.first_slice, it.last_slice)).collect::<Vec<_>>(),
        [(0, 2)]
    );
    assert_eq!(read(&path).unwrap(), recording);
    let accesses: Vec<_> = crate::open(path.to_str().unwrap()).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!((accesses[3].time_ns, accesses[3].key), (20, 0x4000));
    drop(journal);
    crate::recording::write(&path, &recording).unwrap();
    assert_eq!(read(&path).unwrap(), recording);
    assert!(std::fs::read(&path).unwrap().starts_with(b"PAR1"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn cut_anywhere_it_holds_the_slices_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rec");
    let (journal, ends) = journal(&path);
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    for length in 0..=whole.len() {
        let slices = ends.iter().filter(|end| **end <= length).count();
        match recover(&whole[..length]) {
            Err(reason) => {
                assert!(slices == 0 && reason.contains("before its first slice"), "{length}: {reason}")
            }
            Ok(recording) => {
                assert_eq!(recording.head.slices.len(), slices, "{length}");
                assert_eq!(recording.samples.len(), [0, 2, 3, 4][slices], "{length}");
                let note = recording.head.notes.last().unwrap();
                assert!(note.contains(&format!("these are the {slices} slices")), "{note}");
                assert!(!note.contains("damaged"), "{note}");
                // A recording of them is a recording.
                write(&path, &recording).unwrap();
                assert_eq!(read(&path).unwrap(), recording);
            }
        }
    }
    assert_eq!(places(&recover(&whole[..ends[1]]).unwrap())[0], (0, "low", 0));
}

#[test]
fn a_recording_that_is_there_outlives_one_without_a_slice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rec");
    std::fs::write(&path, "older").unwrap();
    drop(Journal::create(&path).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), b"older");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert!(Journal::create(dir.path()).is_err() && Journal::create(&dir.path().join("b/c")).is_err());
}

#[test]
fn another_version_is_told() {
    let mut other = header();
    other[8] = 9;
    let sum = crc32fast::hash(&other[..12]);
    other[12..].copy_from_slice(&sum.to_le_bytes());
    assert!(check_header(&other).unwrap_err().contains("version 9"));
    other[0] = 0;
    assert!(check_header(&other).unwrap_err().contains("damaged"));
}

proptest! {
    /// A damaged byte costs the slice that it is in and those behind it.
    #[test]
    fn a_damaged_byte_ends_what_is_recovered(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.rec");
        let (journal, ends) = journal(&path);
        drop(journal);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let slices = ends.iter().filter(|end| **end <= at).count();
        match recover(bytes.as_slice()) {
            Err(_) => prop_assert_eq!(slices, 0),
            Ok(recording) => prop_assert_eq!(recording.head.slices.len(), slices),
        }
    }

    #[test]
    fn noise_is_an_error_or_a_recording(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = header().to_vec();
        bytes.extend(noise);
        let _ = recover(bytes.as_slice());
    }
}

#[test]
fn regions_of_descendants_bear_the_names_that_their_processes_have_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tree.rec");
    let mut journal = Journal::create(&path).unwrap();
    let heap = |number: u32, process: u32| {
        let NumberedRegion { region, .. } = region(number, 0x1000, 0x2000, "heap");
        NumberedRegion { number, within: None, is_mapped: true, region: Region { process, ..region } }
    };
    let process = |number: u32, name: &str| {
        let process = Process { name: name.to_owned(), pid: 100 + number, ..Process::default() };
        NumberedProcess { number, process }
    };
    let first = Facts {
        regions: vec![heap(0, 0), heap(1, 1)],
        processes: vec![process(0, "sh"), process(1, "sh"), process(2, "a")],
    };
    journal.slice(&head(&[]), slice(0), first, &[sample(0, 0x1000), sample(1, 0x1000)]).unwrap();
    // The second begins another program.
    let then = Facts { regions: vec![heap(2, 2)], processes: vec![process(1, "a")] };
    journal.slice(&head(&[]), slice(1), then, &[sample(2, 0x2000)]).unwrap();
    let recording = journal.end(head(&[]), Facts::default()).unwrap();
    let names = |recording: &Recording| -> Vec<String> {
        recording.head.regions.iter().map(|it| it.name.clone()).collect()
    };
    assert_eq!(names(&recording), ["heap", "a: heap", "a #2: heap"]);
    assert_eq!(
        recording.head.processes.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
        ["sh", "a", "a #2"]
    );
    assert_eq!(read(&path).unwrap(), recording);
    // The same address of two processes is not the same memory, in the journal and in the final form.
    let keys = |path: &Path| -> Vec<u64> {
        let accesses = crate::open(path.to_str().unwrap()).unwrap();
        accesses.map(|it| it.unwrap().key).collect()
    };
    let wanted = [0x1000, 1 << 48 | 0x1000, 2 << 48 | 0x2000];
    assert_eq!(keys(&path), wanted);
    write(&path, &recording).unwrap();
    assert_eq!((keys(&path).as_slice(), read(&path).unwrap()), (&wanted[..], recording));
}

#[test]
fn each_slice_says_how_much_of_each_process_is_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rss.rec");
    // Of 102 nobody knows.
    let rss_of = |pid: u32| (pid != 102).then_some(u64::from(pid) << 12);
    let mut journal = Journal::create(&path).unwrap().with_rss(rss_of);
    let process = |number: u32, is_observed, ended_ns| NumberedProcess {
        number,
        process: Process { pid: 100 + number, is_observed, ended_ns, ..Process::default() },
    };
    let facts = |processes| Facts { regions: vec![region(0, 0x1000, 0x1000, "heap")], processes };
    journal.slice(&head(&[]), slice(0), facts(vec![process(0, true, None)]), &[sample(0, 0x1000)]).unwrap();
    let born = vec![process(1, true, None), process(2, true, None), process(3, false, None)];
    journal.slice(&head(&[]), slice(1), facts(born), &[]).unwrap();
    journal.slice(&head(&[]), slice(2), facts(vec![process(1, true, Some(25))]), &[]).unwrap();
    let killed = read(&path).unwrap();
    let recording = journal.end(head(&[]), Facts::default()).unwrap();
    for recording in [killed, recording] {
        let of = |process: usize| [0, 1, 2].map(|slice| recording.head.processes[process].rss.at(slice));
        let bytes = [0, 1].map(|number: u64| (100 + number) << 12);
        assert_eq!(of(0), [Some(bytes[0]); 3]);
        assert_eq!(of(1), [None, Some(bytes[1]), None]);
        assert_eq!((of(2), of(3)), ([None; 3], [None; 3]));
        assert_eq!(recording.rss(1), Some(bytes[0] + bytes[1]));
    }
}
