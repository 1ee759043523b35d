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

/// Byte by byte, as a slow disk would show it.
#[test]
fn who_follows_a_journal_sees_each_slice_once_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (path, grown) = (dir.path().join("a.rec"), dir.path().join("grown.rec"));
    let (mut journal, ends) = journal(&path);
    let mut beside = journal.follow(Limits::NONE).unwrap();
    assert!(beside.read().unwrap() && beside.slices() == 3 && !beside.has_ended());
    let recording = journal.end(head(&["a note", "the end"]), Facts::default()).unwrap();
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&grown, &whole[..MAGIC.len()]).unwrap();
    let mut follower = Follower::open(&grown, Limits::NONE).unwrap().unwrap();
    for length in MAGIC.len()..=whole.len() {
        std::fs::write(&grown, &whole[..length]).unwrap();
        let before = follower.slices();
        let is_new = follower.read().unwrap();
        let slices = ends.iter().filter(|end| **end <= length).count();
        assert!(is_new || before as usize == slices, "{length}");
        assert_eq!(follower.slices() as usize, slices, "{length}");
        let (so_far, newest) = (follower.recording(), follower.newest());
        if slices > 0 {
            let (so_far, newest) = (so_far.unwrap(), newest.unwrap());
            assert_eq!((so_far.head.slices.len(), so_far.incompleteness()), (slices, None));
            assert_eq!(so_far.samples.len(), [0, 2, 3, 4][slices]);
            assert_eq!(newest.head.slices, [slice(slices as u64 - 1)]);
            assert_eq!(newest.samples.len(), [0, 2, 1, 1][slices]);
        } else {
            assert!(so_far.is_err() || so_far.unwrap().samples.is_empty());
        }
        assert_eq!(follower.is_complete(), length == whole.len(), "{length}");
    }
    for mut follower in [follower, beside] {
        let _ = follower.read();
        assert!(follower.has_ended());
        assert_eq!(follower.recording().unwrap(), recording);
    }
    crate::recording::write(&path, &recording).unwrap();
    assert!(Follower::open(&path, Limits::NONE).unwrap().is_none());
}

#[test]
fn a_part_that_is_kept_has_all_accesses_and_the_lives_of_regions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rec");
    let mut journal = Journal::create(&path).unwrap();
    let mut follower = journal.follow(Limits { slices_max: 4, samples_max: 1 << 20 }).unwrap();
    let born = |number: u32, first_slice: u32, last_slice: u32, is_mapped| {
        let NumberedRegion { region, .. } = region(number, u64::from(number) << 20, 1 << 16, "heap");
        let region = Region { name: format!("r{number}"), first_slice, last_slice, ..region };
        NumberedRegion { number, within: None, is_mapped, region }
    };
    for at in 0..20 {
        let facts = match at {
            0 => vec![born(1, 0, 0, true), born(2, 0, 0, true)],
            9 => vec![born(1, 0, 8, false)],
            13 => vec![born(3, 13, 13, true)],
            _ => Vec::new(),
        };
        let facts = Facts { regions: facts, processes: Vec::new() };
        journal
            .slice(&head(&[]), slice(at), facts, &[sample(2, 2 << 20), sample(2, (2 << 20) + 4096)])
            .unwrap();
        follower.read().unwrap();
    }
    assert_eq!((follower.slices(), follower.together()), (20, 8));
    let recording = follower.recording().unwrap();
    let lives = |recording: &Recording| -> Vec<(String, u32, u32)> {
        recording.head.regions.iter().map(|it| (it.name.clone(), it.first_slice, it.last_slice)).collect()
    };
    let life = |name: &str, first: u32, last: u32| (name.to_owned(), first, last);
    assert_eq!(lives(&recording), [life("r1", 0, 1), life("r2", 0, 2), life("r3", 1, 2)]);
    assert_eq!(recording.head.slices.iter().map(|it| it.start_ns).collect::<Vec<_>>(), [0, 80, 160]);
    let weights: Vec<(u32, u64, f32)> =
        recording.samples.iter().map(|it| (it.slice, it.offset, it.weight)).collect();
    let two = |slice: u32, weight: f32| [(slice, 0, weight), (slice, 4096, weight)];
    assert_eq!(weights, [two(0, 16.0), two(1, 16.0), two(2, 8.0)].concat());
    assert_eq!(follower.newest().unwrap().samples.len(), 2);
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
        std::fs::write(&path, &bytes).unwrap();
        // Of what does not begin like a journal nothing is followed.
        if let Some(mut follower) = Follower::open(&path, Limits { slices_max: 4, samples_max: 1 }).unwrap() {
            let read = follower.read();
            prop_assert!(read.is_ok() || slices == 0);
            prop_assert_eq!(follower.slices() as usize, slices);
            // A damaged length may look like a frame that is not whole yet.
            prop_assert!(!follower.is_complete());
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
