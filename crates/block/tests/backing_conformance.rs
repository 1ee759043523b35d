//! Conformance suite of backing stores: one suite, run against each sibling and
//! wrapper, on volumes of many sizes. Random requests of any range that do not
//! overlap are in flight together; what is read must be what a `Vec<u8>` holds.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

#[cfg(feature = "objects")]
mod shelf;
mod stores;
mod toy;

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::NamedTempFile;
use tiermem_base::rng::Rng;
use tiermem_block::backing::{NbdOptions, NbdUnits};
use tiermem_tier::backing::{
    AlignedBuffer, Aligning, Backend, Backing, BackingError, Completion, Faults, Faulty, FileBacking,
    FileOptions, Identity, MemoryStore, Op, OpenError, Request, StoreLabel, Throttled, Waker,
};

use tiermem_block::nbd::wire::TransmissionFlags;
use tiermem_block::nbd::{BlockSizes, Export};

use stores::{PATIENCE, Step, Twin, Volume, Waited, buffer};
use toy::{Nbdkit, Toy, export};

const SIZES: [u64; 7] = [0, 1, 511, 4096, 3 * 4096, 5 * 4096 + 513, 40 * 4096 + 1];

/// Makes a volume of zeroes; `None` where that cannot have this size, or this machine lacks what it needs.
type Maker = fn(u64) -> Option<Box<dyn Volume>>;

/// A store that minds its units as the strictest would.
struct Strict<B>(B, u64);

impl<B: Backing> Backing for Strict<B> {
    fn submit(&mut self, request: Request) {
        let (unit, whole) = (self.1, self.0.size_bytes() / self.1 * self.1);
        let end = request.offset + request.bytes;
        let aligned = request.offset.is_multiple_of(unit) && end.is_multiple_of(unit) && end <= whole;
        assert!(aligned || request.offset >= whole || request.op == Op::Describe, "{request:?}");
        self.0.submit(request);
    }
    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.0.completed(out);
    }
    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
    fn notify(&mut self, waker: Waker) {
        self.0.notify(waker);
    }
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }
    fn session(&self) -> u64 {
        self.0.session()
    }
    fn identity(&mut self) -> Identity {
        self.0.identity()
    }
    fn label(&mut self) -> Result<StoreLabel, BackingError> {
        self.0.label()
    }
    fn set_label(&mut self, text: &str) -> Result<(), BackingError> {
        self.0.set_label(text)
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

fn memory(
    size: u64,
    wrap: impl Fn(Box<dyn Backing>) -> Box<dyn Backing> + 'static,
) -> Option<Box<dyn Volume>> {
    let store = MemoryStore::new(size);
    Some(Box::new(move |read_only| {
        wrap(if read_only { Box::new(store.open_read_only()) } else { Box::new(store.open()) })
    }))
}

fn file_in(
    directory: &Path,
    size: u64,
    backend: Backend,
    wrap: impl Fn(FileBacking) -> Box<dyn Backing> + 'static,
) -> Option<Box<dyn Volume>> {
    let file = NamedTempFile::new_in(directory).unwrap();
    file.as_file().set_len(size).unwrap();
    Some(Box::new(move |read_only| {
        let store = loop {
            match FileBacking::open(file.path(), FileOptions { read_only, backend, state_dir: None }) {
                // Another test starts a server just now: until that has its own program, it has our files.
                Err(OpenError::InUse { .. }) => std::thread::yield_now(),
                other => break other.unwrap(),
            }
        };
        assert_eq!(file.as_file().metadata().unwrap().len(), size, "it stays as long as it is");
        wrap(store)
    }))
}

fn file(
    size: u64,
    backend: Backend,
    wrap: impl Fn(FileBacking) -> Box<dyn Backing> + 'static,
) -> Option<Box<dyn Volume>> {
    file_in(&std::env::temp_dir(), size, backend, wrap)
}

fn delays() -> Faults {
    Faults { delayed: 0.5, ..Faults::default() }
}

/// A server of this test's own, made of the project's machines.
fn toy(size: u64, minimum: u32, payload_max: u32, features: TransmissionFlags) -> Option<Box<dyn Volume>> {
    if !size.is_multiple_of(u64::from(minimum)) {
        return None;
    }
    let block = BlockSizes { minimum, preferred: 4096, payload_max };
    let toy = Toy::new(Export { block, features, ..export(size) });
    Some(Box::new(move |read_only| {
        let options = NbdOptions { read_only, depth: 7, attempt: PATIENCE, ..NbdOptions::default() };
        Box::new(NbdUnits::connect(&toy.uri(), options).unwrap()) as Box<dyn Backing>
    }))
}

/// A server of others, where it is installed.
fn nbdkit(size: u64, arguments: &[&str]) -> Option<Box<dyn Volume>> {
    let size_argument = format!("size={size}");
    let server = Nbdkit::start(&[arguments, &[&size_argument]].concat())?;
    Some(Box::new(move |read_only| {
        let options = NbdOptions { read_only, attempt: PATIENCE, ..NbdOptions::default() };
        Box::new(NbdUnits::connect(&server.uri(), options).unwrap()) as Box<dyn Backing>
    }))
}

/// Objects in memory, or in a directory.
#[cfg(feature = "objects")]
mod objects {
    use std::sync::Arc;

    use tiermem_base::rng::Rng;
    use tiermem_block::backing::BackingSpec;
    use tiermem_tier::backing::{Backing, Faults, Faulty, ObjectsBacking, ObjectsOptions, OpenError};

    use super::shelf::Shelf;
    use super::stores::Volume;

    pub fn memory(size: u64, chunk: u64, delays: Faults) -> Option<Box<dyn Volume>> {
        if size == 0 {
            return None;
        }
        let shelf = Shelf::new();
        Some(Box::new(move |read_only| {
            let (create_bytes, chunk_bytes) = (Some(size), Some(chunk));
            let options =
                ObjectsOptions { read_only, create_bytes, chunk_bytes, ..ObjectsOptions::default() };
            // To read, there must be one.
            let create = ObjectsOptions { read_only: false, ..options };
            let open = |options| ObjectsBacking::open(Arc::new(shelf.clone()), "volume", "memory", options);
            let store = open(options).or_else(|_| open(create)).unwrap();
            Box::new(Faulty::new(store, delays.clone(), Rng::seeded(10))) as Box<dyn Backing>
        }))
    }

    pub fn directory(size: u64) -> Option<Box<dyn Volume>> {
        if size == 0 {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        Some(Box::new(move |read_only| {
            let text = format!("objects:{},size={size},chunk=64KiB", directory.path().display());
            let spec: BackingSpec = text.parse().unwrap();
            loop {
                match spec.open(read_only, None) {
                    // As with files.
                    Err(OpenError::InUse { .. }) => std::thread::yield_now(),
                    other => break other.unwrap(),
                }
            }
        }))
    }
}

const LATENCY: Duration = Duration::from_micros(20);

fn kinds() -> Vec<(&'static str, Maker)> {
    #[cfg(not(feature = "objects"))]
    let objects: [(&str, Maker); 0] = [];
    #[cfg(feature = "objects")]
    let objects: [(&str, Maker); 4] = [
        ("objects", |size| objects::memory(size, 64 << 10, Faults::default())),
        ("objects, delayed", |size| objects::memory(size, 64 << 10, delays())),
        ("objects in one chunk", |size| objects::memory(size, 1 << 20, Faults::default())),
        ("objects in a directory", objects::directory),
    ];
    let others: Vec<(&'static str, Maker)> = vec![
        ("memory", |size| memory(size, |store| store)),
        ("throttled", |size| memory(size, |store| Box::new(Throttled::new(store, LATENCY, 4e9)))),
        ("delayed", |size| memory(size, |store| Box::new(Faulty::new(store, delays(), Rng::seeded(7))))),
        ("aligning 512", |size| {
            memory(size, |store| Box::new(Aligning::new(Strict(store, 512), 512, false)))
        }),
        ("aligning 16K, delayed", |size| {
            memory(size, |store| {
                let delayed = Faulty::new(Strict(store, 16384), delays(), Rng::seeded(8));
                Box::new(Aligning::new(delayed, 16384, true))
            })
        }),
        ("file", |size| file(size, Backend::Auto, |store| Box::new(store))),
        ("file, threads", |size| file(size, Backend::Threads, |store| Box::new(store))),
        ("file, throttled", |size| {
            file(size, Backend::Auto, |it| Box::new(Throttled::new(it, LATENCY, 4e9)))
        }),
        ("file, delayed", |size| {
            file(size, Backend::Threads, |it| Box::new(Faulty::new(it, delays(), Rng::seeded(9))))
        }),
        ("file in memory", |size| {
            // Where there is such a file system, it may have no way past the page cache, nor ranges of zeroes.
            let shm = Path::new("/dev/shm");
            if shm.is_dir() { file_in(shm, size, Backend::Auto, |store| Box::new(store)) } else { None }
        }),
        ("nbd", |size| toy(size, 1, 32 << 20, toy::all_features())),
        ("nbd, in pieces", |size| toy(size, 1, 4096, toy::all_features())),
        ("nbd in blocks", |size| toy(size, 4096, 8192, toy::all_features())),
        ("nbd in sectors, without frills", |size| toy(size, 512, 1 << 20, TransmissionFlags::none())),
        ("nbdkit", |size| nbdkit(size, &["memory"])),
        ("nbdkit, simple replies", |size| nbdkit(size, &["--no-sr", "--filter=nozero", "memory"])),
        ("nbdkit in blocks", |size| {
            let policy = "--filter=blocksize-policy";
            let least = ["blocksize-minimum=4096", "blocksize-maximum=32768", "blocksize-error-policy=error"];
            // It refuses sizes that are no multiples, as it should.
            if size % 4096 > 0 { None } else { nbdkit(size, &[&[policy, "memory"][..], &least].concat()) }
        }),
    ];
    others.into_iter().chain(objects).collect()
}

fn for_each_volume(mut check: impl FnMut(&str, u64, &dyn Volume)) {
    for (name, make) in kinds() {
        for size in SIZES {
            if let Some(volume) = make(size) {
                check(&format!("{name}, {size} bytes"), size, &*volume);
            }
        }
    }
}

const MIB: u64 = 1 << 20;

/// What a store says of a volume with some bytes in the midst of a hole: length and whether it is a hole.
fn described(volume: &dyn Volume) -> Vec<(u64, bool)> {
    let mut waited = Waited::new(volume.open(false));
    waited.write(MIB, &[7; 65536]).unwrap();
    assert_eq!(waited.flush(), Ok(()));
    let done = waited.one(Request::describe(5, 4096, 4 * MIB - 4096));
    assert_eq!(done.result, Ok(()));
    done.extents.iter().map(|extent| (extent.bytes, extent.is_hole)).collect()
}

#[test]
fn files_servers_and_memory_tell_their_holes() {
    let holes = [(MIB - 4096, true), (65536, false), (3 * MIB - 65536, true)];
    let size = 4 * MIB;
    let mut stores: Vec<(&str, Option<Box<dyn Volume>>)> = vec![
        ("memory", memory(size, |store| store)),
        ("file", file(size, Backend::Threads, |file| Box::new(file))),
    ];
    stores.push(("nbdkit", nbdkit(size, &["memory"])));
    for (name, volume) in stores {
        let Some(volume) = volume else { continue };
        assert_eq!(described(&*volume), holes, "{name}");
    }
    // One that cannot tell has data.
    let toy = toy(size, 1, 1 << 20, TransmissionFlags::none()).unwrap();
    assert_eq!(described(&*toy), [(size - 4096, false)]);
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        8 => Just(Op::Read), 8 => Just(Op::Write), 1 => Just(Op::Flush), 2 => Just(Op::Trim), 3 => Just(Op::Zero),
        3 => Just(Op::Describe),
    ];
    let measure = prop_oneof![Just(1), Just(512), Just(4096)];
    let bytes = prop_oneof![
        3 => 0u64..600, 2 => 0u64..10000, 2 => (0u64..6).prop_map(|blocks| blocks * 4096), 1 => 0u64..100_000,
    ];
    let request = (op, any::<u32>(), measure, bytes, prop::bool::weighted(0.2)).prop_map(
        |(op, at, measure, bytes, slack)| Step::Request { op, at: u64::from(at), measure, bytes, slack },
    );
    prop_oneof![20 => request, 3 => Just(Step::Poll), 3 => Just(Step::Wait), 1 => Just(Step::Reopen)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn every_store_holds_what_was_written(steps in prop::collection::vec(step(), 1..60)) {
        for_each_volume(|name, _, volume| Twin::new(name, volume).run(&steps));
    }
}

#[test]
fn requests_beyond_the_end_are_refused_and_change_nothing() {
    for_each_volume(|name, size, volume| {
        let mut store = Waited::new(volume.open(false));
        assert_eq!(store.store.size_bytes(), size, "{name}");
        for (offset, bytes) in
            [(size, 1), (0, size + 1), (size + 1, 0), (u64::MAX - 1, 8), (size / 2, u64::MAX)]
        {
            let room = || AlignedBuffer::zeroed(bytes.min(1 << 20) as usize);
            for request in [
                Request::read(1, offset, bytes, room()),
                Request::write(2, offset, bytes, room()),
                Request::trim(3, offset, bytes),
                Request::zero(4, offset, bytes),
            ] {
                let op = request.op;
                let done = store.one(request);
                let Err(BackingError::OutOfRange { size_bytes, .. }) = done.result else {
                    panic!("{name}: {op:?} {offset} {bytes}: {:?}", done.result)
                };
                assert_eq!((size_bytes, done.offset, done.bytes), (size, offset, bytes), "{name}");
            }
        }
        assert!(store.read(0, size).unwrap().iter().all(|byte| *byte == 0), "{name}");
        // Nothing is a request as well, up to the very end.
        for request in [Request::read(1, size, 0, AlignedBuffer::empty()), Request::zero(1, size, 0)] {
            assert_eq!(store.one(request).result, Ok(()), "{name}");
        }
        if size > 4 {
            let short = Request { bytes: size, ..Request::write(9, 0, size, AlignedBuffer::empty()) };
            assert!(matches!(store.one(short).result, Err(BackingError::Failed(_))), "{name}");
        }
    });
}

#[test]
fn a_store_that_is_read_only_reads() {
    for_each_volume(|name, size, volume| {
        if size == 0 {
            return;
        }
        let mut store = Waited::new(volume.open(false));
        assert!(!store.store.is_read_only(), "{name}");
        store.write(size - 1, &[7]).unwrap();
        store.flush().unwrap();
        drop(store);
        let mut store = Waited::new(volume.open(true));
        assert!(store.store.is_read_only(), "{name}");
        let write = Request::write(1, 0, 1, buffer(&[9]));
        for request in [write, Request::trim(2, 0, 1), Request::zero(3, 0, size)] {
            assert_eq!(store.one(request).result, Err(BackingError::ReadOnly), "{name}");
        }
        assert_eq!(store.flush(), Ok(()), "{name}");
        assert_eq!(store.read(size - 1, 1).unwrap(), [7], "{name}");
    });
}

/// A client that acts only when called must get everything, including completions from before it asked to be notified.
#[test]
fn the_waker_is_called_until_everything_was_taken() {
    for_each_volume(|name, size, volume| {
        let mut store = volume.open(false);
        for token in 0..3 {
            store.submit(Request::read(token, 0, size.min(4096), AlignedBuffer::zeroed(4096)));
        }
        let mut store = Waited::new(store);
        let mut done = store.wait_all();
        for round in 1..20 {
            for at in 0..5 {
                let offset = (at * 700).min(size);
                let bytes = size.min(9000).min(size - offset);
                store.store.submit(Request::read(round * 5 + at, offset, bytes, AlignedBuffer::zeroed(9000)));
            }
            done.extend(store.wait_all());
        }
        done.sort_by_key(|it| it.token);
        assert!(done.iter().map(|it| it.token).eq((0..3).chain(5..100)), "{name}");
        assert!(done.iter().all(|it| it.result.is_ok()), "{name}");
    });
}

/// Writes of parts of one unit are no overlap, and must not undo each other.
#[test]
fn neighbours_in_one_block_are_written_together() {
    for_each_volume(|name, size, volume| {
        let mut store = Waited::new(volume.open(false));
        let parts: Vec<(u64, u64)> =
            (0..size.min(9000)).step_by(100).map(|at| (at, (at + 100).min(size))).collect();
        for (token, (from, to)) in parts.iter().enumerate() {
            let request = match token % 3 {
                0 => Request::zero(token as u64, *from, to - from),
                _ => Request::write(token as u64, *from, to - from, buffer(&[token as u8; 100])),
            };
            store.store.submit(request);
        }
        assert!(store.wait_all().iter().all(|it| it.result.is_ok()), "{name}");
        for (token, (from, to)) in parts.iter().enumerate() {
            let byte = if token % 3 == 0 { 0 } else { token as u8 };
            assert!(store.read(*from, to - from).unwrap().iter().all(|it| *it == byte), "{name} {from}");
        }
    });
}

#[test]
fn many_requests_are_queued() {
    for_each_volume(|name, size, volume| {
        let mut store = Waited::new(volume.open(false));
        for token in 0..1000 {
            store.store.submit(Request::read(token, token % (size + 1), 0, AlignedBuffer::empty()));
            store.store.submit(Request::read(1000 + token, 0, size.min(512), AlignedBuffer::zeroed(512)));
        }
        assert_eq!(store.store.in_flight(), 2000, "{name}");
        let mut tokens: Vec<u64> = store.wait_all().iter().map(|it| it.token).collect();
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(0..2000), "{name}");
    });
}

#[test]
fn a_label_stays_with_its_store_and_is_none_of_its_bytes() {
    for_each_volume(|name, size, volume| {
        let mut store = Waited::new(volume.open(false));
        if store.store.label() == Ok(StoreLabel::NotKept) {
            assert!(name.starts_with("nbd"), "{name}");
            return assert!(store.store.set_label("a label").is_err(), "{name}");
        }
        assert_eq!(store.store.label(), Ok(StoreLabel::Absent), "{name}");
        for text in ["a label", "another one, of more words", "a label"] {
            store.store.set_label(text).unwrap();
            let kept = Ok(StoreLabel::Text(text.to_owned()));
            assert_eq!(store.store.label(), kept, "{name}");
            drop(store);
            let mut reader = volume.open(true);
            assert_eq!(reader.label(), kept, "{name}");
            assert_eq!(reader.set_label("no"), Err(BackingError::ReadOnly), "{name}");
            drop(reader);
            store = Waited::new(volume.open(false));
        }
        assert!(store.read(0, size).unwrap().iter().all(|byte| *byte == 0), "{name}");
    });
}

#[test]
fn a_store_can_be_told_by_what_it_is() {
    for_each_volume(|name, size, volume| {
        let first = volume.open(false).identity();
        assert_eq!(first, volume.open(false).identity(), "{name}: nobody has touched it");
        if size > 0 {
            let mut store = Waited::new(volume.open(false));
            store.write(0, &[1]).unwrap();
            store.flush().unwrap();
            assert_eq!(store.store.identity().which, first.which, "{name}");
        }
    });
}
