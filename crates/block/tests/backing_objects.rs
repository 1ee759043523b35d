//! Volumes of objects: exclusive writers, refusals, and requests to a store that fails or stalls.
#![cfg(feature = "objects")]
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod shelf;
mod stores;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tiermem_block::backing::BackingSpec;
use tiermem_tier::backing::{Backing, BackingError, ObjectsBacking, ObjectsOptions, Op, OpenError, Request};

use shelf::{Mood, Shelf};
use stores::{Step, Twin, Waited, buffer};

const CHUNK: u64 = 64 << 10;
/// The last chunk is a short one.
const SIZE: u64 = 4 * CHUNK + 1000;
const HEADER_BYTES: usize = 64;

/// Looks at the manifest when it has to, and not by the clock.
fn options() -> ObjectsOptions {
    ObjectsOptions {
        create_bytes: Some(SIZE),
        chunk_bytes: Some(CHUNK),
        trust: Duration::from_secs(3600),
        look_every: Duration::from_secs(3600),
        ..ObjectsOptions::default()
    }
}

fn try_open(shelf: &Shelf, options: ObjectsOptions) -> Result<ObjectsBacking, OpenError> {
    ObjectsBacking::open(Arc::new(shelf.clone()), "a/b", "shelf:a/b", options)
}

fn open(shelf: &Shelf) -> Waited {
    Waited::new(Box::new(try_open(shelf, options()).unwrap()))
}

fn refused(shelf: &Shelf, options: ObjectsOptions) -> String {
    match try_open(shelf, options) {
        Err(error @ OpenError::Unusable { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opens"),
    }
}

#[track_caller]
fn assert_says<T: std::fmt::Debug>(result: Result<T, BackingError>, words: &str) {
    let Err(BackingError::Failed(said)) = result else { panic!("{result:?} does not say {words:?}") };
    assert!(said.contains(words), "{said}");
}

fn chunk_name(chunk: u64) -> String {
    format!("a/b/chunks/{chunk:012x}")
}

const MANIFEST: &str = "a/b/tiermem-volume.json";

#[test]
fn a_volume_is_made_when_its_size_is_given() {
    let shelf = Shelf::new();
    let none = ObjectsOptions { create_bytes: None, chunk_bytes: None, ..options() };
    assert!(refused(&shelf, none).contains("size=10GiB"));
    assert!(refused(&shelf, ObjectsOptions { read_only: true, ..options() }).contains("there is no volume"));
    for (create, chunk, words) in [
        (0, CHUNK, "1 byte"),
        ((1 << 53) + 1, CHUNK, "8PiB"),
        (SIZE, 32 << 10, "64KiB"),
        (SIZE, 100_000, "power of two"),
        (SIZE, 128 << 20, "64MiB"),
    ] {
        let wrong = ObjectsOptions { create_bytes: Some(create), chunk_bytes: Some(chunk), ..options() };
        assert!(refused(&shelf, wrong).contains(words), "{words}");
    }
    assert_eq!(shelf.object(MANIFEST), None);
    let mut store = open(&shelf);
    assert_eq!(store.store.size_bytes(), SIZE);
    store.write(SIZE - 1, &[7]).unwrap();
    drop(store);
    // Both are remembered, and may be said again.
    let mut store = Waited::new(Box::new(try_open(&shelf, none).unwrap()));
    assert_eq!(store.store.size_bytes(), SIZE);
    assert_eq!(store.store.describe(), "objects of 64KiB in shelf:a/b");
    assert_eq!(store.read(SIZE - 1, 1).unwrap(), [7]);
    assert_eq!(open(&shelf).read(SIZE - 1, 1).unwrap(), [7]);
    for wrong in [
        ObjectsOptions { create_bytes: Some(SIZE + 1), ..options() },
        ObjectsOptions { chunk_bytes: Some(2 * CHUNK), ..options() },
    ] {
        assert!(refused(&shelf, wrong).contains("there is a volume already"));
    }
}

#[test]
fn what_is_no_manifest_is_refused_and_left_as_it_is() {
    let shelf = Shelf::new();
    drop(open(&shelf));
    let good = String::from_utf8(shelf.object(MANIFEST).unwrap()).unwrap();
    let newer = good.replace("\"version\": 1", "\"version\": 2");
    for (text, words) in [
        (&good[..good.len() / 2], "is damaged"),
        ("", "is damaged"),
        ("{\"layers\": []}", "is not of a volume"),
        (&*newer, "format version 2"),
        (&*"x".repeat(100_000), "more than"),
    ] {
        shelf.place(MANIFEST, text.as_bytes());
        for read_only in [false, true] {
            let said = refused(&shelf, ObjectsOptions { read_only, ..options() });
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(shelf.object(MANIFEST).unwrap(), text.as_bytes());
    }
    // A manifest that is missed is not made anew over what its volume was.
    shelf.place(MANIFEST, good.as_bytes());
    open(&shelf).write(0, &[1]).unwrap();
    shelf.remove(MANIFEST);
    let said = refused(&shelf, options());
    assert!(said.contains("something else (a/b/chunks)"), "{said}");
}

#[test]
fn of_two_who_make_it_at_once_both_have_the_same_volume() {
    for _ in 0..20 {
        let shelf = Shelf::new();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shelf = shelf.clone();
                std::thread::spawn(move || try_open(&shelf, options()).unwrap())
            })
            .collect();
        let mut stores: Vec<_> = threads
            .into_iter()
            .map(|it| Waited::new(Box::new(it.join().unwrap()) as Box<dyn Backing>))
            .collect();
        let flushed: Vec<bool> = stores.iter_mut().map(|store| store.flush().is_ok()).collect();
        assert_eq!(flushed.iter().filter(|it| **it).count(), 1, "one of them writes");
        let which: Vec<_> = stores.iter_mut().map(|store| store.store.identity().which).collect();
        assert_eq!(which[0], which[1]);
    }
}

#[test]
fn an_older_writer_overwrites_nothing_and_is_told() {
    let shelf = Shelf::new();
    let mut old = open(&shelf);
    old.write(0, &[1; 100]).unwrap();
    old.flush().unwrap();
    let mut new = open(&shelf);
    new.write(50, &[2; 100]).unwrap();
    assert_eq!(old.store.session(), 0);
    assert_says(old.write(0, &[3; 10]), "another server has opened the volume to write");
    assert_eq!(old.store.session(), 1);
    // From then on it does nothing at all.
    assert_says(old.read(0, 1), "another server");
    assert_says(old.flush(), "another server");
    assert_eq!(new.read(0, 200).unwrap(), [[1; 50], [2; 50], [2; 50], [0; 50]].concat());
    new.write(0, &[4]).unwrap();
    new.flush().unwrap();
    // It may become the writer again, and then the other is the older one.
    let mut old = open(&shelf);
    assert_eq!(old.read(0, 2).unwrap(), [4, 1]);
    assert_says(new.flush(), "another server");
}

#[test]
fn an_older_writers_late_puts_are_in_no_flush_of_its() {
    let shelf = Shelf::new();
    let mut old = open(&shelf);
    old.write(0, &[1]).unwrap();
    let mut new = open(&shelf);
    // It cannot know, and the newer one has put nothing there.
    let done = old.one(Request::write(1, CHUNK, 1, buffer(&[2])));
    assert_eq!((done.result, done.session), (Ok(()), 0));
    assert_says(old.flush(), "another server");
    assert_eq!(old.store.session(), 1);
    new.write(CHUNK + 1, &[3]).unwrap();
    assert_eq!(new.read(CHUNK, 2).unwrap(), [2, 3]);
    // One that has not looked for too long looks before it puts.
    let mut older = Waited::new(Box::new(
        try_open(&shelf, ObjectsOptions { trust: Duration::ZERO, ..options() }).unwrap(),
    ));
    older.write(0, &[5]).unwrap();
    let _newer = open(&shelf);
    assert_says(older.write(2 * CHUNK, &[6]), "another server");
    assert_eq!(shelf.object(&chunk_name(2)), None);
}

#[test]
fn a_writer_without_work_notices_as_well() {
    let shelf = Shelf::new();
    let often = ObjectsOptions { look_every: Duration::from_millis(1), ..options() };
    let mut old = Waited::new(Box::new(try_open(&shelf, often).unwrap()));
    let _new = open(&shelf);
    old.wait_until(&mut Vec::new(), |_, store| store.session() == 1);
    assert_says(old.read(0, 1), "another server");
}

#[test]
fn somebody_who_heeds_no_manifest_is_noticed() {
    let shelf = Shelf::new();
    let mut store = open(&shelf);
    store.write(0, &[1; 100]).unwrap();
    let before = shelf.object(&chunk_name(0)).unwrap();
    store.write(0, &[2; 100]).unwrap();
    // The very bytes that were there once, by another hand.
    shelf.place(&chunk_name(0), &before);
    store.write(1, &[3]).unwrap();
    drop(store);

    let mut store = open(&shelf);
    store.write(0, &[4; 100]).unwrap();
    for (foreign, covers) in
        [(Some(before.clone()), false), (Some(before), true), (None, false), (None, true)]
    {
        match &foreign {
            Some(bytes) => shelf.place(&chunk_name(0), bytes),
            None => shelf.remove(&chunk_name(0)),
        }
        let bytes = if covers { vec![5; CHUNK as usize] } else { vec![5; 10] };
        assert_says(store.write(0, &bytes), "changed by somebody else");
        // The error was reported; a retry changes what is there now.
        assert_eq!(store.write(0, &bytes), Ok(()));
        assert_eq!(store.flush(), Ok(()));
        let right = if covers { 5 } else { u8::from(foreign.is_some()) };
        assert_eq!(store.read(20, 1).unwrap(), [right]);
    }
}

#[test]
fn a_put_whose_answer_is_lost_is_known_again() {
    let shelf = Shelf::new();
    let mut store = open(&shelf);
    // First where nothing is, then over something.
    for round in 1..3 {
        shelf.set(Mood::LosesAnswers);
        assert_says(store.write(0, &[round; 10]), "the answer is lost");
        shelf.set(Mood::Works);
        assert_eq!(store.write(10, &[round + 10; 10]), Ok(()));
        assert_eq!(store.read(0, 20).unwrap(), [[round; 10], [round + 10; 10]].concat());
        // And where all of the chunk is written, so that it is not got before.
        shelf.set(Mood::LosesAnswers);
        assert_says(store.write(0, &[round; CHUNK as usize]), "the answer is lost");
        shelf.set(Mood::Works);
        assert_eq!(store.write(0, &[round + 20; CHUNK as usize]), Ok(()));
        assert_eq!(store.read(0, 1).unwrap(), [round + 20]);
        shelf.set(Mood::HearsTwice);
        assert_eq!(store.write(0, &[round; 10]), Ok(()));
        assert_eq!(store.write(CHUNK * 2, &[round; CHUNK as usize]), Ok(()));
        assert_eq!(store.flush(), Ok(()));
        shelf.set(Mood::Works);
    }
    drop(store);
    shelf.set(Mood::HearsTwice);
    let mut store = open(&shelf);
    assert_eq!(store.write(0, &[9]), Ok(()));
    assert_eq!(store.read(0, 2).unwrap(), [9, 2]);
}

#[test]
fn a_store_that_heeds_no_conditions_is_refused_to_writers() {
    let shelf = Shelf::new();
    shelf.set(Mood::Heedless);
    assert!(refused(&shelf, options()).contains("takes no notice of If-Match"));
    assert!(try_open(&shelf, ObjectsOptions { read_only: true, ..options() }).is_ok());
}

#[test]
fn an_outage_fails_requests_and_harms_nothing() {
    let shelf = Shelf::new();
    let impatient = ObjectsOptions { patience: Duration::from_millis(20), ..options() };
    let mut store = Waited::new(Box::new(try_open(&shelf, impatient).unwrap()));
    store.write(0, &[1; 100]).unwrap();
    for (mood, words) in [(Mood::Fails, "it fails"), (Mood::Hangs, "no answer within")] {
        shelf.set(mood);
        assert_says(store.read(0, 100), words);
        assert_says(store.read(CHUNK + 5, 100), words);
        assert_says(store.write(0, &[2; 100]), words);
        assert_says(store.write(0, &[2; CHUNK as usize]), words);
        assert_says(store.flush(), words);
        assert_says(store.one(Request::zero(1, CHUNK, CHUNK)).result, words);
        assert!(store.store.identity().version.unwrap().contains("not known"));
        let said = refused(&shelf, impatient);
        assert!(said.contains(words) && said.contains("shelf:a/b"), "{said}");
        // Many at once, and all are answered.
        for token in 0..300 {
            store.store.submit(Request::write(token, token % 4 * CHUNK + token, 1, buffer(&[9])));
        }
        let done = store.wait_all();
        assert!(done.len() == 300 && done.iter().all(|it| it.result.is_err()));
        shelf.set(Mood::Works);
        assert_eq!(store.read(0, 100).unwrap(), [1; 100]);
        assert_eq!(store.write(200, &[3]), Ok(()));
        assert_eq!(store.flush(), Ok(()));
    }
    assert_eq!(store.store.session(), 0);
}

#[test]
fn neighbours_share_a_put() {
    let shelf = Shelf::new();
    let mut store = open(&shelf);
    store.write(0, &[1]).unwrap();
    let before = shelf.chunk_puts();
    shelf.set(Mood::HoldsPuts);
    for token in 0..100 {
        store.store.submit(Request::write(token, token * 100, 100, buffer(&[token as u8; 100])));
    }
    while shelf.chunk_puts() == before {
        std::thread::yield_now();
    }
    // A read waits for no put, and enough other requests keep this chunk from waiting.
    store.store.submit(Request::read(1000, CHUNK, 1, buffer(&[9])));
    let mut done = Vec::new();
    store.wait_until(&mut done, |done, _| !done.is_empty());
    assert_eq!(done[0].token, 1000);
    shelf.set(Mood::Works);
    assert!(store.wait_all().iter().all(|it| it.result == Ok(())));
    let puts = shelf.chunk_puts() - before;
    assert!(puts <= 3, "{puts} puts");
    for token in 0..100 {
        assert_eq!(store.read(token * 100, 100).unwrap(), [token as u8; 100]);
    }
}

#[test]
fn whole_chunks_are_not_got_and_zeroes_are_not_kept() {
    let shelf = Shelf::new();
    let mut store = open(&shelf);
    // Of what was never written there is nothing to give back.
    for request in [Request::trim(1, 0, SIZE), Request::zero(2, 0, SIZE)] {
        assert_eq!(store.one(request).result, Ok(()));
    }
    assert_eq!(store.write(5, &[0; 1000]), Ok(()));
    assert_eq!(shelf.chunk_puts(), 0);
    store.write(0, &vec![7; SIZE as usize]).unwrap();
    assert_eq!(shelf.object(&chunk_name(4)).unwrap().len(), HEADER_BYTES + 1000);
    let gets = shelf.chunk_gets();
    store.write(0, &vec![8; SIZE as usize]).unwrap();
    assert_eq!(shelf.chunk_gets(), gets, "what is stored there is known");
    // A part that is trimmed stays, the short chunk at the end counts as whole.
    assert_eq!(store.one(Request::trim(1, 100, 2 * CHUNK)).result, Ok(()));
    assert_eq!(store.read(100, 1).unwrap(), [8]);
    for (chunk, bytes) in [(0, CHUNK as usize), (1, 0), (2, CHUNK as usize)] {
        assert_eq!(shelf.object(&chunk_name(chunk)).unwrap().len(), HEADER_BYTES + bytes, "{chunk}");
    }
    assert_eq!(store.one(Request::trim(1, 4 * CHUNK, 1000)).result, Ok(()));
    assert_eq!(shelf.object(&chunk_name(4)).unwrap().len(), HEADER_BYTES);
    assert_eq!(store.read(4 * CHUNK, 1000).unwrap(), [0; 1000]);
    // Chunks are given back in pieces as well, if nothing was written there meanwhile.
    for (chunk, writes_amid) in [(2, false), (3, true)] {
        let begin = chunk * CHUNK;
        assert_eq!(store.one(Request::trim(1, begin + 1000, CHUNK - 1000)).result, Ok(()));
        if writes_amid {
            store.write(begin + 5000, &[9]).unwrap();
        }
        assert_eq!(store.one(Request::trim(1, begin, 2000)).result, Ok(()));
        let bytes = if writes_amid { CHUNK as usize } else { 0 };
        assert_eq!(shelf.object(&chunk_name(chunk)).unwrap().len(), HEADER_BYTES + bytes);
    }
    assert_eq!(store.read(3 * CHUNK + 5000, 1).unwrap(), [9]);
    // Zeroes at an end are left away.
    assert_eq!(store.one(Request::zero(1, 1000, CHUNK - 1000)).result, Ok(()));
    assert_eq!(shelf.object(&chunk_name(0)).unwrap().len(), HEADER_BYTES + 1000);
    assert_eq!(store.read(990, 20).unwrap(), [[8; 10], [0; 10]].concat());
    assert_eq!(store.read(CHUNK - 10, 10).unwrap(), [0; 10]);
}

#[test]
fn a_chunk_may_become_longer_amid_a_read() {
    let shelf = Shelf::new();
    let mut store = open(&shelf);
    store.write(0, &[7; CHUNK as usize]).unwrap();
    let long = shelf.object(&chunk_name(0)).unwrap();
    store.one(Request::zero(1, 0, CHUNK)).result.unwrap();
    assert_eq!(store.read(5000, 3).unwrap(), [0; 3]);
    shelf.place_after_failed_get(&chunk_name(0), &long);
    assert_eq!(store.read(5000, 3).unwrap(), [7; 3]);
}

#[test]
fn a_damaged_chunk_is_not_made_good() {
    let shelf = Shelf::new();
    open(&shelf).write(0, &[1; 1000]).unwrap();
    let good = shelf.object(&chunk_name(0)).unwrap();
    let mut flipped = good.clone();
    flipped[HEADER_BYTES + 500] ^= 1;
    for bad in [&flipped[..], &good[..good.len() - 1], &good[..10], b"", b"something else"] {
        shelf.place(&chunk_name(0), bad);
        let mut store = open(&shelf);
        assert_says(store.write(0, &[2]), "cannot be changed");
        assert_eq!(shelf.object(&chunk_name(0)).unwrap(), bad);
        // Its neighbour is well.
        assert_eq!(store.write(CHUNK, &[2]), Ok(()));
    }
    // A chunk of another place is none of this one.
    shelf.place(&chunk_name(2), &good);
    assert_says(open(&shelf).write(2 * CHUNK, &[2]), "another volume or place");
}

#[test]
fn the_state_is_another_whenever_something_was_written() {
    let shelf = Shelf::new();
    let mut store = open(&shelf);
    let first = store.store.identity();
    assert_eq!(store.store.identity(), first);
    for round in 0..3 {
        let before = store.store.identity();
        store.write(round * 100, &[1]).unwrap();
        let after = store.store.identity();
        assert_eq!(after.which, before.which);
        assert_ne!(after.version, before.version);
    }
    let last = store.store.identity();
    drop(store);
    let reader = ObjectsOptions { read_only: true, ..options() };
    assert_eq!(try_open(&shelf, reader).unwrap().identity(), last);
    assert_eq!(open(&shelf).store.identity(), last);
    // Another volume in its place is another one.
    let other = Shelf::new();
    assert_ne!(open(&other).store.identity().which, last.which);
}

#[test]
fn a_directory_has_one_writer_or_readers() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("deep/volume");
    let spec =
        |options: &str| format!("objects:{}{options}", place.display()).parse::<BackingSpec>().unwrap();
    // Another test may start a server just now: until that has its own program, it has our files.
    let open = |options: &str, read_only: bool| loop {
        match spec(options).open(read_only, None) {
            Err(OpenError::InUse { .. }) => std::thread::yield_now(),
            other => return other,
        }
    };
    let Err(error) = open("", false) else { panic!("there is none") };
    assert!(error.to_string().contains("size=10GiB"), "{error}");
    let mut store = Waited::new(open(",size=1MiB,chunk=64KiB", false).unwrap());
    store.write(100_000, &[7; 100_000]).unwrap();
    for read_only in [false, true] {
        assert!(matches!(spec("").open(read_only, None), Err(OpenError::InUse { .. })));
    }
    drop(store);
    let mut readers: Vec<_> = (0..2).map(|_| Waited::new(open("", true).unwrap())).collect();
    for reader in &mut readers {
        assert_eq!(reader.read(99_999, 3).unwrap(), [0, 7, 7]);
    }
    assert!(matches!(spec("").open(false, None), Err(OpenError::InUse { .. })));
    drop(readers);
    // A process that ignores locks is noticed when a chunk is got to be changed.
    let chunk = place.join("chunks/000000000001");
    let before = std::fs::read(&chunk).unwrap();
    // What a put leaves that a death cuts short.
    std::fs::write(place.join("chunks/000000000001#7"), "half").unwrap();
    let mut store = Waited::new(open("", false).unwrap());
    store.write(100_000, &[8]).unwrap();
    std::fs::remove_file(&chunk).unwrap();
    std::fs::write(&chunk, before).unwrap();
    assert_says(store.write(100_000, &[9]), "changed by somebody else");
    assert_eq!(store.write(100_001, &[9]), Ok(()));
    assert_eq!(store.read(100_000, 2).unwrap(), [7, 9]);
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = std::fs::read_dir(&place).unwrap().map(name).collect();
    names.sort_unstable();
    assert_eq!(names, ["chunks", "tiermem-volume.json"]);
    assert!(!place.join("chunks/000000000001#7").exists());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Any requests about the edges of chunks, with any treatment of answers by the store.
    #[test]
    fn edges_of_chunks_are_as_any_other_place(
        steps in prop::collection::vec((0u8..5, 0u64..5, -40i64..40, 0u64..3, 0u64..80, any::<bool>()), 1..60),
    ) {
        let shelf = Shelf::new();
        shelf.set(Mood::HearsTwice);
        let volume = {
            let shelf = shelf.clone();
            move |read_only| Box::new(try_open(&shelf, ObjectsOptions { read_only, ..options() }).unwrap()) as Box<dyn Backing>
        };
        let steps: Vec<Step> = steps
            .into_iter()
            .map(|(op, chunk, near, chunks, bytes, wait)| {
                let op = [Op::Read, Op::Write, Op::Write, Op::Zero, Op::Trim][usize::from(op)];
                let at = (chunk * CHUNK).saturating_add_signed(near);
                let request = Step::Request { op, at, measure: 1, bytes: chunks * CHUNK + bytes, slack: false };
                if wait { vec![request, Step::Wait] } else { vec![request] }
            })
            .flat_map(|steps| steps.into_iter().chain([Step::Poll]))
            .chain([Step::Reopen])
            .collect();
        Twin::new("objects", &volume).run(&steps);
    }
}
