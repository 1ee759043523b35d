//! Disks in memory, which answer at once: for tests, and to measure the server alone.

use tiermem_tier::block::AlignedBuffer;

use super::{Answer, BufferPool, Disks, Job, Outcome, Piece, Task, UNIT_BYTES, Waker};
use crate::nbd::wire::{STATE_HOLE, STATE_ZERO, TransmissionFlags};
use crate::nbd::{Context, Contexts, Export, Extent};

/// Size of the chunks in which memory is allocated, when they are first written to.
const CHUNK_BYTES: u64 = 64 * 1024;

/// One disk: its chunks, or nothing where there are only zeroes.
type Chunks = Vec<Option<Box<[u8]>>>;

/// Disks with their bytes in memory. Nothing outlives the process, not even after a flush.
#[derive(Default)]
pub struct MemoryDisks {
    exports: Vec<Export>,
    disks: Vec<Chunks>,
    done: Vec<Outcome>,
    pool: BufferPool,
    waker: Option<Waker>,
}

impl MemoryDisks {
    /// No disk yet.
    pub fn new() -> Self {
        MemoryDisks::default()
    }

    /// A disk of zeroes that can do all there is.
    pub fn add(&mut self, name: &str, size_bytes: u64) -> &mut Export {
        let features = [
            TransmissionFlags::SEND_FLUSH,
            TransmissionFlags::SEND_FUA,
            TransmissionFlags::SEND_TRIM,
            TransmissionFlags::SEND_WRITE_ZEROES,
            TransmissionFlags::SEND_FAST_ZERO,
            TransmissionFlags::SEND_DF,
            TransmissionFlags::SEND_CACHE,
            TransmissionFlags::CAN_MULTI_CONN,
        ];
        let features = features.into_iter().fold(TransmissionFlags::none(), TransmissionFlags::with);
        self.disks.push(chunks(size_bytes));
        let at = self.exports.len();
        self.exports.push(Export { features, contexts: Contexts::all(), ..Export::new(name, size_bytes) });
        &mut self.exports[at]
    }

    /// Resizes a disk. Bytes beyond the new end are dropped.
    ///
    /// # Panics
    /// When the disk does not exist.
    pub fn resize(&mut self, disk: usize, size_bytes: u64) {
        let count = size_bytes.div_ceil(CHUNK_BYTES) as usize;
        self.disks[disk].resize_with(count, || None);
        if let Some(Some(last)) = self.disks[disk].last_mut() {
            last[(size_bytes - (count as u64 - 1) * CHUNK_BYTES) as usize..].fill(0);
        }
        self.exports[disk].size_bytes = size_bytes;
        if let Some(waker) = &self.waker {
            waker();
        }
    }

    fn read(&mut self, disk: usize, offset: u64, bytes: u64) -> Answer {
        let from = (offset % UNIT_BYTES) as usize;
        let bytes = bytes as usize;
        let mut buffer = self.pool.lend(from + bytes);
        let mut rest = &mut buffer[from..from + bytes];
        for (at, part) in parts(offset, bytes as u64) {
            let (here, behind) = rest.split_at_mut(part.len());
            match &self.disks[disk][at] {
                Some(chunk) => here.copy_from_slice(&chunk[part]),
                None => here.fill(0),
            }
            rest = behind;
        }
        Answer::Data(vec![Piece { buffer, from, bytes }])
    }

    fn write(&mut self, disk: usize, offset: u64, bytes: u64, buffer: AlignedBuffer) {
        let from = (offset % UNIT_BYTES) as usize;
        let mut rest = &buffer[from..from + bytes as usize];
        for (at, part) in parts(offset, bytes) {
            let (here, behind) = rest.split_at(part.len());
            let chunk = self.disks[disk][at].get_or_insert_with(|| vec![0; CHUNK_BYTES as usize].into());
            chunk[part].copy_from_slice(here);
            rest = behind;
        }
        self.pool.give_back(buffer);
    }

    fn zero(&mut self, disk: usize, offset: u64, bytes: u64) {
        for (at, part) in parts(offset, bytes) {
            let chunk = &mut self.disks[disk][at];
            if part.len() as u64 == CHUNK_BYTES {
                *chunk = None;
            } else if let Some(chunk) = chunk {
                chunk[part].fill(0);
            }
        }
    }

    fn describe(&self, disk: usize, offset: u64, bytes: u64) -> Answer {
        let mut allocation: Vec<Extent> = Vec::new();
        for (at, part) in parts(offset, bytes) {
            let flags = if self.disks[disk][at].is_some() { 0 } else { STATE_HOLE | STATE_ZERO };
            let len_bytes = part.len() as u32;
            match allocation.last_mut() {
                Some(last) if last.flags == flags => last.len_bytes += len_bytes,
                _ => allocation.push(Extent { len_bytes, flags }),
            }
        }
        let cache = vec![Extent { len_bytes: bytes as u32, flags: Context::CACHED }];
        Answer::Parts { allocation, cache }
    }
}

fn chunks(size_bytes: u64) -> Chunks {
    let mut chunks = Chunks::new();
    chunks.resize_with(size_bytes.div_ceil(CHUNK_BYTES) as usize, || None);
    chunks
}

/// The chunks that a range touches, and which bytes of each.
fn parts(offset: u64, bytes: u64) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let end = offset + bytes;
    let mut at = offset;
    std::iter::from_fn(move || {
        let chunk = at / CHUNK_BYTES;
        let begin = at;
        at = ((chunk + 1) * CHUNK_BYTES).min(end);
        let base = chunk * CHUNK_BYTES;
        (begin < end).then(|| (chunk as usize, (begin - base) as usize..(at - base) as usize))
    })
}

impl Disks for MemoryDisks {
    fn exports(&self) -> &[Export] {
        &self.exports
    }

    fn submit(&mut self, job: Job) {
        let Job { asker, disk, task, offset, bytes, durable: _ } = job;
        let mut answer = Answer::Done;
        match task {
            Task::Read => answer = self.read(disk, offset, bytes),
            Task::Write(buffer) => self.write(disk, offset, bytes, buffer),
            Task::Trim | Task::Zero => self.zero(disk, offset, bytes),
            Task::Describe(_) => answer = self.describe(disk, offset, bytes),
            Task::Flush | Task::Prefetch => {}
        }
        self.done.push(Outcome { asker, result: Ok(answer) });
    }

    fn take(&mut self, done: &mut Vec<Outcome>) {
        done.append(&mut self.done);
    }

    fn notify(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }

    fn lend(&mut self, bytes: usize) -> AlignedBuffer {
        self.pool.lend(bytes)
    }

    fn give_back(&mut self, buffer: AlignedBuffer) {
        self.pool.give_back(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Asker;
    use super::*;

    fn run(disks: &mut MemoryDisks, task: Task, offset: u64, bytes: u64) -> Answer {
        let asker = Asker { connection: 1, cookie: 2 };
        disks.submit(Job { asker, disk: 0, task, offset, bytes, durable: false });
        let mut done = Vec::new();
        disks.take(&mut done);
        assert_eq!((done.len(), done[0].asker), (1, asker));
        done.pop().unwrap().result.unwrap()
    }

    fn read(disks: &mut MemoryDisks, offset: u64, bytes: u64) -> Vec<u8> {
        let Answer::Data(pieces) = run(disks, Task::Read, offset, bytes) else { panic!("a read gives data") };
        pieces.iter().flat_map(|piece| piece.buffer[piece.from..piece.from + piece.bytes].to_vec()).collect()
    }

    #[test]
    fn what_is_written_is_read_and_what_is_not_is_a_hole() {
        let mut disks = MemoryDisks::new();
        disks.add("a", 3 * CHUNK_BYTES);
        let (offset, bytes) = (CHUNK_BYTES - 100, 5000);
        let mut buffer = disks.lend((offset % UNIT_BYTES + bytes) as usize);
        buffer.fill(7);
        run(&mut disks, Task::Write(buffer), offset, bytes);
        assert_eq!(read(&mut disks, offset - 1, bytes + 2), [&[0][..], &[7; 5000], &[0]].concat());
        let Answer::Parts { allocation, .. } =
            run(&mut disks, Task::Describe(Contexts::all()), 0, 3 * CHUNK_BYTES)
        else {
            panic!("it describes")
        };
        let lens: Vec<_> = allocation.iter().map(|extent| (extent.len_bytes, extent.flags)).collect();
        assert_eq!(lens, [(2 * CHUNK_BYTES as u32, 0), (CHUNK_BYTES as u32, STATE_HOLE | STATE_ZERO)]);
        run(&mut disks, Task::Zero, offset, 101);
        assert_eq!(read(&mut disks, offset + 100, 3), [0, 7, 7]);
        run(&mut disks, Task::Trim, 0, 3 * CHUNK_BYTES);
        assert!(disks.disks[0].iter().all(Option::is_none));
    }

    #[test]
    fn a_disk_that_shrinks_and_grows_comes_back_as_zeroes() {
        let mut disks = MemoryDisks::new();
        disks.add("a", 2 * CHUNK_BYTES);
        let mut buffer = disks.lend(8192);
        buffer.fill(1);
        run(&mut disks, Task::Write(buffer), 0, 8192);
        disks.resize(0, 4096);
        disks.resize(0, 2 * CHUNK_BYTES);
        assert_eq!(read(&mut disks, 4095, 2), [1, 0]);
        assert_eq!(disks.exports()[0].size_bytes, 2 * CHUNK_BYTES);
    }
}
