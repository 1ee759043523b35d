//! Disks that change their size while clients are at work.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tiermem_block::disks::{Disks, Job, MemoryDisks, Outcome, Waker};
use tiermem_block::nbd::wire::CommandFlags;
use tiermem_block::nbd::{Command, Errno, Export, Request};
use tiermem_block::server::ServerConfig;

use super::client::Client;
use super::house::{House, SIZE, memory};

/// Disks the first of which gets the wished size when outcomes are taken.
struct Resizing {
    inner: MemoryDisks,
    wish: Arc<AtomicU64>,
}

impl Disks for Resizing {
    fn exports(&self) -> &[Export] {
        self.inner.exports()
    }
    fn submit(&mut self, job: Job) {
        let size_bytes = self.exports()[job.disk].size_bytes;
        assert!(job.offset + job.bytes <= size_bytes, "a job keeps the disk's rules");
        self.inner.submit(job);
    }
    fn take(&mut self, done: &mut Vec<Outcome>) {
        let wish = self.wish.load(Ordering::SeqCst);
        if self.exports()[0].size_bytes != wish {
            self.inner.resize(0, wish);
        }
        self.inner.take(done);
    }
    fn notify(&mut self, waker: Waker) {
        self.inner.notify(waker);
    }
}

#[test]
fn a_disk_that_shrinks_amid_a_payload_refuses_the_write() {
    let wish = Arc::new(AtomicU64::new(SIZE));
    let theirs = Arc::clone(&wish);
    let house = House::of(ServerConfig::default(), move || Resizing { inner: memory(), wish: theirs });
    let mut other = Client::simple(&house.unix, "a");
    // A payload that is copied, and one that is read straight to its place.
    for len_bytes in [8192u32, 256 << 10] {
        wish.store(SIZE, Ordering::SeqCst);
        other.read(0, 1);
        let mut client = Client::simple(&house.unix, "a");
        let offset = SIZE - u64::from(len_bytes);
        let flags = CommandFlags::none();
        let head = Request { cookie: 3, command: Command::Write, flags, offset, len_bytes }.encode();
        let payload = vec![1; len_bytes as usize];
        let (first, rest) = payload.split_at(100);
        client.wire.write_all(&[&head, first].concat()).unwrap();
        house.until(|stats| stats.connections().iter().any(|c| c.traffic.totals().requests[1] == 1));
        wish.store(4096, Ordering::SeqCst);
        other.read(0, 1);
        client.wire.write_all(rest).unwrap();
        let mut reply = [0; 16];
        client.wire.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], Errno::NoSpc.to_wire().to_be_bytes());
        client.write(0, b"goes on");
        drop(client);
        house.until(|stats| stats.open() == 1);
    }
}
