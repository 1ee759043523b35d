//! Another server as the store: it dies, stays away, and comes back unchanged or changed.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod stores;
mod toy;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::NamedTempFile;
use tiermem_base::rng::Rng;
use tiermem_block::backing::{NbdOptions, NbdUnits};
use tiermem_block::nbd::{Export, NbdUri};
use tiermem_tier::backing::{AlignedBuffer, Backing, BackingError, Op, OpenError, Request};

use stores::{Step, Twin, Waited, buffer};
use toy::{Nbdkit, Toy, export};

const SIZE: u64 = 1 << 20;

/// Tries again soon, and gives up only what hangs: a busy machine may keep either side for seconds.
fn quick() -> NbdOptions {
    let long = Duration::from_secs(120);
    NbdOptions { pause_max: Duration::from_millis(20), timeout: long, attempt: long, ..NbdOptions::default() }
}

fn connect(uri: &NbdUri, options: NbdOptions) -> Waited {
    Waited::new(Box::new(NbdUnits::connect(uri, options).unwrap()))
}

fn refused(uri: &NbdUri) -> String {
    match NbdUnits::connect(uri, quick()) {
        Err(error @ OpenError::Unusable { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it connects"),
    }
}

#[test]
fn what_was_in_flight_is_sent_again_and_what_was_not_flushed_is_told() {
    let toy = Toy::new(export(SIZE));
    let mut store = connect(&toy.uri(), quick());
    store.write(0, &[1; 5000]).unwrap();
    store.flush().unwrap();
    let done = store.one(Request::write(7, 8192, 512, buffer(&[2; 512])));
    assert_eq!((done.result, done.session, store.store.session()), (Ok(()), 0, 0));

    // Done and not answered; also a write long enough not to be
    // copied, and first a read, which ends in the middle of its data.
    toy.silent(true);
    let before = toy.wait_for_requests(0);
    store.store.submit(Request::read(1, 0, 5000, AlignedBuffer::zeroed(5000)));
    store.store.submit(Request::write(2, 65536, 100_000, buffer(&[4; 100_000])));
    store.store.submit(Request::write(3, 16384, 512, buffer(&[3; 512])));
    store.store.submit(Request::flush(4));
    store.store.submit(Request::zero(5, 300_000, 70_000));
    toy.wait_for_requests(before + 1);
    toy.stop();
    toy.store.crash();
    toy.silent(false);
    let mut done = Vec::new();
    // Told before anything is there again.
    store.wait_until(&mut done, |_, store| store.session() == 1);
    assert!(done.is_empty());
    toy.start();
    let mut done = store.wait_all();
    done.sort_by_key(|it| it.token);
    assert!(done.iter().map(|it| it.token).eq(1..=5));
    assert!(done.iter().all(|it| it.result == Ok(()) && it.session == 1), "{done:?}");
    assert_eq!(done[0].buffer[..5000], [1; 5000]);
    assert_eq!(store.read(16384, 512).unwrap(), [3; 512]);
    assert_eq!(store.read(65536, 100_000).unwrap(), [4; 100_000]);
    assert_eq!(toy.connections(), 2);
}

#[test]
fn the_first_connection_must_be_had() {
    let toy = Toy::new(export(SIZE));
    toy.stop();
    let words = refused(&toy.uri());
    assert!(words.contains("is the server running?") && words.contains("nbd+unix"), "{words}");
    toy.start();
    assert!(refused(&NbdUri { export: "other".to_owned(), ..toy.uri() }).contains("no such export"));
    assert!(refused(&NbdUri { tls: true, ..toy.uri() }).contains("TLS"));
}

#[test]
fn requests_fail_when_nobody_is_there_for_too_long_and_work_when_somebody_is() {
    let toy = Toy::new(export(SIZE));
    let mut store = connect(&toy.uri(), NbdOptions { timeout: Duration::from_millis(30), ..quick() });
    store.write(0, &[1]).unwrap();
    toy.stop();
    for _ in 0..2 {
        let Err(BackingError::Failed(words)) = store.read(0, 1) else { panic!("nobody is there") };
        assert!(words.contains("cannot be reached"), "{words}");
    }
    toy.start();
    while store.read(0, 1) != Ok(vec![1]) {}
    assert_eq!(store.store.session(), 1);
}

#[test]
fn a_server_that_comes_back_with_another_size_is_a_stranger() {
    let toy = Toy::new(export(SIZE));
    let mut store = connect(&toy.uri(), quick());
    store.write(0, &[1]).unwrap();
    toy.stop();
    toy.change(|export| export.size_bytes = 4096);
    toy.start();
    let Err(BackingError::Failed(words)) = store.write(0, &[2]) else { panic!("it is another volume") };
    assert!(words.contains("had 1048576 bytes and has 4096 now"), "{words}");
    toy.stop();
    toy.change(|export| export.size_bytes = SIZE);
    toy.start();
    while store.read(0, 1) != Ok(vec![1]) {}
    assert_eq!(store.store.size_bytes(), SIZE);
}

#[test]
fn an_export_that_is_read_only_is() {
    let toy = Toy::new(Export { read_only: true, ..export(SIZE) });
    let mut store = connect(&toy.uri(), quick());
    assert!(store.store.is_read_only());
    assert_eq!(store.write(0, &[1]), Err(BackingError::ReadOnly));
    assert_eq!(store.read(5, 1), Ok(vec![0]));
}

#[test]
fn nothing_is_lost_or_doubled_while_the_server_dies_again_and_again() {
    let toy = Arc::new(Toy::new(export(SIZE)));
    let over = Arc::new(AtomicBool::new(false));
    let deaths = Arc::new(AtomicUsize::new(0));
    let killer = {
        let (toy, over, deaths) = (toy.clone(), over.clone(), deaths.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let requests = toy.wait_for_requests(0);
                if requests > deaths.load(Ordering::SeqCst) * 40 {
                    toy.stop();
                    toy.start();
                    deaths.fetch_add(1, Ordering::SeqCst);
                }
                std::thread::yield_now();
            }
        })
    };
    let mut rng = Rng::seeded(5);
    let ops = [Op::Read, Op::Read, Op::Write, Op::Write, Op::Zero, Op::Flush];
    let steps: Vec<Step> = (0..2000)
        .map(|_| Step::Request {
            op: ops[rng.below(ops.len() as u64) as usize],
            at: rng.below(SIZE),
            measure: 1,
            bytes: if rng.below(8) == 0 { 60_000 } else { rng.below(5000) },
            slack: false,
        })
        .collect();
    let uri = toy.uri();
    let volume = move |_| Box::new(NbdUnits::connect(&uri, quick()).unwrap()) as Box<dyn Backing>;
    let mut twin = Twin::new("dying", &volume);
    // On a busy machine the killer may sleep through it all.
    while deaths.load(Ordering::SeqCst) <= 5 || twin.waited.store.session() == 0 {
        twin.run(&steps);
    }
    over.store(true, Ordering::SeqCst);
    killer.join().unwrap();
}

#[test]
fn nbdkit_may_be_killed_as_well() {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(SIZE).unwrap();
    let arguments = ["file", file.path().to_str().unwrap()];
    let Some(mut server) = Nbdkit::start(&arguments) else { return eprintln!("nbdkit is not installed") };
    let mut store = connect(&server.uri(), quick());
    for round in 1..6u8 {
        for at in 0..32 {
            store.store.submit(Request::write(at, at * 20_000, 20_000, buffer(&[round; 20_000])));
        }
        server.restart(&arguments);
        assert!(store.wait_all().iter().all(|it| it.result == Ok(())));
        assert_eq!(store.flush(), Ok(()));
        assert_eq!(store.read(0, 32 * 20_000).unwrap(), vec![round; 32 * 20_000]);
    }
    assert!(store.store.session() >= 4);
}
