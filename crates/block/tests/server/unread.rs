//! Clients that ask and never read: whatever they ask for, and however many they are, their replies have a bound.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tiermem_block::disks::{Answer, Disks, Job, MemoryDisks, Outcome, Piece, Task, Waker};
use tiermem_block::nbd::wire::CommandFlags;
use tiermem_block::nbd::{Command, Export, Request};
use tiermem_block::server::ServerConfig;
use tiermem_tier::block::AlignedBuffer;

use super::client::Client;
use super::house::{House, memory};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BUDGET_BYTES: u64 = 64 * MIB;
const CLIENTS: u64 = 40;

/// Bytes of buffers that the disks have given away.
#[derive(Clone, Default)]
struct Given {
    now: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
    open: Arc<AtomicBool>,
}

impl Given {
    fn give(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes as u64, Ordering::SeqCst) + bytes as u64;
        self.most.fetch_max(now, Ordering::SeqCst);
    }
}

/// Disks that answer each job when the next one comes, once they are open, in buffers that are much longer than the answers.
struct Late {
    inner: MemoryDisks,
    given: Given,
    padding: usize,
    fresh: Vec<Outcome>,
    held: Vec<Outcome>,
    waker: Option<Waker>,
}

impl Late {
    fn pad(&self, outcome: &mut Outcome) {
        let Ok(Answer::Data(pieces)) = &mut outcome.result else { return };
        for piece in pieces {
            let mut buffer = AlignedBuffer::zeroed(piece.buffer.len() + self.padding);
            buffer[..piece.bytes].copy_from_slice(&piece.buffer[piece.from..piece.from + piece.bytes]);
            *piece = Piece { buffer, from: 0, bytes: piece.bytes };
            self.given.give(piece.buffer.len());
        }
    }
}

impl Disks for Late {
    fn exports(&self) -> &[Export] {
        self.inner.exports()
    }

    fn submit(&mut self, job: Job) {
        if let Task::Write(buffer) = &job.task {
            self.given.now.fetch_sub(buffer.len() as u64, Ordering::SeqCst);
        }
        self.inner.submit(job);
        self.inner.take(&mut self.fresh);
        for mut outcome in std::mem::take(&mut self.fresh) {
            self.pad(&mut outcome);
            self.held.push(outcome);
        }
    }

    fn take(&mut self, done: &mut Vec<Outcome>) {
        if !self.given.open.load(Ordering::SeqCst) {
            return;
        }
        let ready = if self.held.len() > 1 { self.held.len() - 1 } else { self.held.len() };
        done.extend(self.held.drain(..ready));
        if let (false, Some(waker)) = (self.held.is_empty(), &self.waker) {
            waker();
        }
    }

    fn notify(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }

    fn lend(&mut self, bytes: usize) -> AlignedBuffer {
        let buffer = self.inner.lend(bytes);
        self.given.give(buffer.len());
        buffer
    }

    fn give_back(&mut self, buffer: AlignedBuffer) {
        self.given.now.fetch_sub(buffer.len() as u64, Ordering::SeqCst);
        self.inner.give_back(buffer);
    }
}

/// The most that the disks have given away at a time, to clients of which each asks for `count` reads and reads nothing.
fn most_given(len_bytes: u64, count: u64, padding: usize) -> u64 {
    let given = Given::default();
    // Long buffers are not what a job is counted for: few are under way at a time.
    given.open.store(padding > 0, Ordering::SeqCst);
    let of_disks = given.clone();
    let config = ServerConfig { buffers_bytes_max: BUDGET_BYTES, ..ServerConfig::default() };
    let house = House::of(config, move || Late {
        inner: memory(),
        given: of_disks,
        padding,
        fresh: Vec::new(),
        held: Vec::new(),
        waker: None,
    });
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::simple(&house.unix, "a")).collect();
    let (flags, command) = (CommandFlags::none(), Command::Read);
    let read = |cookie| Request { cookie, command, flags, offset: 0, len_bytes: len_bytes as u32 }.encode();
    let requests: Vec<u8> = (0..count).flat_map(read).collect();
    for client in &mut clients {
        client.wire.write_all(&requests).unwrap();
    }
    // All of them wait for the disks when these answer.
    let is_there = |requests: u64| {
        house.stats.exports().first().is_some_and(|export| export.requests_total() >= requests)
    };
    while !is_there((BUDGET_BYTES / len_bytes).min(CLIENTS) / 2) {
        std::thread::yield_now();
    }
    given.open.store(true, Ordering::SeqCst);
    let mut witness = Client::new(&house.unix, "b");
    for n in 0..300 {
        witness.write(n % 100 * 512, &[n as u8; 512]);
        assert_eq!(witness.read(n % 100 * 512, 512), [n as u8; 512]);
    }
    given.most.load(Ordering::SeqCst)
}

#[test]
fn replies_that_nobody_reads_stay_within_the_budget_whatever_their_size() {
    for (len_bytes, count, padding) in [
        // One of the largest that there are for each.
        (8 * MIB, 4, 0),
        (MIB, 32, 0),
        // Many small ones, of which each alone is within what everybody may hold.
        (64 * KIB, 256, 0),
        (4 * KIB, 4096, 0),
        (512, 4096, 0),
        // Bytes in the midst of much longer buffers.
        (4 * KIB, 1024, 124 << 10),
    ] {
        let most_bytes = most_given(len_bytes, count, padding);
        // A little for everybody; and a job has a long buffer until its reply is put together.
        let bound_bytes = BUDGET_BYTES + (CLIENTS + 2) * 64 * KIB + 256 * padding as u64;
        assert!(
            most_bytes <= bound_bytes,
            "{count} reads of {len_bytes} B in {padding} B more: {} KiB, of {} KiB",
            most_bytes / KIB,
            bound_bytes / KIB
        );
    }
}
