//! Disks that return wrong data at byte 8192 of their first disk.

use tiermem_block::disks::{Answer, Asker, Disks, Job, Outcome, Task, Waker};
use tiermem_block::nbd::Export;
use tiermem_tier::backing::AlignedBuffer;

/// The first byte of what it lies about.
const AT: u64 = 8192;

/// Kind of wrong data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The write of this number is said to be done and is not.
    LoseWrite(u64),
    /// What is read is what lies at byte 4096.
    Misplace,
    /// What is read is zeroes.
    Zeroes,
    /// One bit of what is read is wrong.
    Flip,
    /// The same, from the second read on.
    Change,
}

/// Disks that return wrong data of others.
pub struct Liar<D> {
    inner: D,
    lie: Lie,
    writes: u64,
    reads: u64,
    now: Vec<Outcome>,
    /// Reads that are to be falsified.
    false_reads: Vec<Asker>,
}

impl<D: Disks> Liar<D> {
    pub fn new(inner: D, lie: Lie) -> Self {
        Liar { inner, lie, writes: 0, reads: 0, now: Vec::new(), false_reads: Vec::new() }
    }
}

impl<D: Disks> Disks for Liar<D> {
    fn exports(&self) -> &[Export] {
        self.inner.exports()
    }

    fn submit(&mut self, mut job: Job) {
        if (job.disk, job.offset) == (0, AT) {
            match job.task {
                Task::Write(_) => {
                    self.writes += 1;
                    if self.lie == Lie::LoseWrite(self.writes) {
                        return self.now.push(Outcome { asker: job.asker, result: Ok(Answer::Done) });
                    }
                }
                Task::Read => {
                    self.reads += 1;
                    match self.lie {
                        Lie::Misplace => job.offset = 4096,
                        Lie::Change if self.reads == 1 => {}
                        _ => self.false_reads.push(job.asker),
                    }
                }
                _ => {}
            }
        }
        self.inner.submit(job);
    }

    fn take(&mut self, done: &mut Vec<Outcome>) {
        self.inner.take(&mut self.now);
        for outcome in &mut self.now {
            let Ok(Answer::Data(pieces)) = &mut outcome.result else { continue };
            if !self.false_reads.contains(&outcome.asker) {
                continue;
            }
            for piece in pieces {
                let bytes = &mut piece.buffer[piece.from..piece.from + piece.bytes];
                match self.lie {
                    Lie::Zeroes => bytes.fill(0),
                    Lie::Flip | Lie::Change => bytes[1000] ^= 4,
                    Lie::LoseWrite(_) | Lie::Misplace => {}
                }
            }
        }
        done.append(&mut self.now);
    }

    fn notify(&mut self, waker: Waker) {
        self.inner.notify(waker);
    }

    fn lend(&mut self, bytes: usize) -> AlignedBuffer {
        self.inner.lend(bytes)
    }

    fn give_back(&mut self, buffer: AlignedBuffer) {
        self.inner.give_back(buffer);
    }
}
