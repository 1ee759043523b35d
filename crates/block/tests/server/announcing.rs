//! Disks that announce outcomes by a descriptor and call nobody.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::thread::{sleep, spawn};
use std::time::Duration;

use tiermem_block::disks::{Disks, Job, MemoryDisks, Outcome, Waker};
use tiermem_block::nbd::Export;
use tiermem_block::server::ServerConfig;

use super::client::Client;
use super::house::{House, memory};

/// Disks with outcomes that come a little later, each with a byte.
struct Announcing {
    inner: MemoryDisks,
    held: Vec<Outcome>,
    announced: UnixStream,
    announce: Sender<()>,
}

impl Announcing {
    fn new() -> Self {
        let (announced, mut announcing) = UnixStream::pair().unwrap();
        announced.set_nonblocking(true).unwrap();
        let (announce, asked) = channel();
        spawn(move || {
            for () in asked {
                sleep(Duration::from_millis(1));
                // Nobody may be there any more.
                let _ = announcing.write_all(&[1]);
            }
        });
        Announcing { inner: memory(), held: Vec::new(), announced, announce }
    }
}

impl Disks for Announcing {
    fn exports(&self) -> &[Export] {
        self.inner.exports()
    }
    fn submit(&mut self, job: Job) {
        self.inner.submit(job);
        let before = self.held.len();
        self.inner.take(&mut self.held);
        self.held[before..].iter().for_each(|_| self.announce.send(()).unwrap());
    }
    fn take(&mut self, done: &mut Vec<Outcome>) {
        while self.announced.read(&mut [0]).is_ok_and(|bytes| bytes == 1) {
            done.push(self.held.remove(0));
        }
    }
    fn notify(&mut self, _: Waker) {}
    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.announced.as_fd())
    }
}

#[test]
fn outcomes_that_a_descriptor_announces_are_answered() {
    let house = House::of(ServerConfig::default(), Announcing::new);
    let mut clients = [0, 1].map(|_| Client::simple(&house.unix, "a"));
    for round in 0..20u64 {
        for (at, client) in clients.iter_mut().enumerate() {
            let offset = round * 8192 + at as u64 * 4096;
            client.write(offset, &[round as u8 + 1; 100]);
            assert_eq!(client.read(offset, 100), [round as u8 + 1; 100]);
        }
    }
}
