//! Immediate device: memory in which requests are done when they are submitted,
//! for tests and for simulation beside a live store. It can be opened again, after
//! the death of a process (nothing lost) or of a machine (unsynced writes lost).

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tiermem_base::rng::Rng;

use super::completion_queue::Bell;
use super::medium::Medium;
use super::{BLOCK_BYTES, BlockError, BlockIo, Completion, Op, OpenError, Request, Waker, check_range};

/// The medium, which outlives its opened devices. Its clones are the same medium.
#[derive(Clone, Debug)]
pub struct MemoryDisk(Arc<Mutex<Medium>>);

impl MemoryDisk {
    /// A medium of zeros, rounded down to whole blocks.
    pub fn new(capacity_bytes: usize) -> Self {
        MemoryDisk(Arc::new(Mutex::new(Medium::new(capacity_bytes / BLOCK_BYTES * BLOCK_BYTES))))
    }

    /// Opens it: at first, or as after the death of the process that had it.
    pub fn open(&self) -> Immediate {
        Immediate { disk: self.clone(), done: Vec::new(), bell: Bell::default() }
    }

    /// Power is lost: every block is as it was at the last sync.
    pub fn lose_unsynced(&self) {
        self.lock().lose_unsynced();
    }

    /// Power is lost: each sector is as it was written last or, by a coin, as it was at any time since the last sync.
    pub fn lose_some_unsynced(&self, rng: &mut Rng) {
        self.lock().lose_some_unsynced(rng);
    }

    /// Whether all that was written to these bytes is synced.
    pub fn is_synced(&self, offset: u64, len_bytes: u64) -> bool {
        self.lock().is_synced(offset as usize..(offset + len_bytes) as usize)
    }

    /// All bytes, to look at or to spoil; what is changed here counts as synced.
    pub fn with_bytes<R>(&self, look: impl FnOnce(&mut [u8]) -> R) -> R {
        look(self.lock().bytes_mut())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Medium> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A range of a medium that was checked to lie within it.
fn range(offset: u64, len: usize) -> Range<usize> {
    offset as usize..offset as usize + len
}

/// An open [`MemoryDisk`]. A request takes effect in `submit`, and its completion is taken by the next `completed`, in the
/// order of submission.
pub struct Immediate {
    disk: MemoryDisk,
    done: Vec<Completion>,
    bell: Bell,
}

impl Immediate {
    /// A new medium, opened.
    pub fn new(capacity_bytes: usize) -> Self {
        MemoryDisk::new(capacity_bytes).open()
    }

    /// The disk, to open it again.
    pub fn disk(&self) -> &MemoryDisk {
        &self.disk
    }
}

impl BlockIo for Immediate {
    fn submit(&mut self, mut request: Request) {
        let result = request.check(self.capacity_bytes());
        if result.is_ok() {
            let (mut media, len) = (self.disk.lock(), request.buffer.len());
            match request.op {
                Op::Read => request.buffer.copy_from_slice(&media.bytes()[range(request.offset, len)]),
                Op::Write => media.change(range(request.offset, len)).copy_from_slice(&request.buffer),
                Op::Sync => media.sync(u64::MAX),
            }
        }
        self.done.push(request.done(result));
        self.bell.ring();
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.bell.silence();
        out.append(&mut self.done);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        self.completed(out);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn notify(&mut self, waker: Waker) {
        self.bell.set(waker);
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        check_range(Op::Write, offset, bytes.len() as u64, self.capacity_bytes())?;
        self.disk.lock().change(range(offset, bytes.len())).copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        check_range(Op::Read, offset, bytes.len() as u64, self.capacity_bytes())?;
        bytes.copy_from_slice(&self.disk.lock().bytes()[range(offset, bytes.len())]);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.disk.lock().sync(u64::MAX);
        Ok(())
    }

    fn capacity_bytes(&self) -> u64 {
        self.disk.lock().bytes().len() as u64
    }

    fn grow(&mut self, capacity_bytes: u64) -> Result<(), OpenError> {
        self.disk.lock().grow(capacity_bytes as usize);
        Ok(())
    }

    fn describe(&self) -> &'static str {
        "memory"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn death_of_the_process_loses_nothing_and_of_the_machine_what_was_not_synced() {
        let disk = MemoryDisk::new(4 * BLOCK_BYTES);
        let mut device = disk.open();
        device.write_at(100, &[1; 8]).unwrap();
        device.sync().unwrap();
        device.write_at(4090, &[2; 8]).unwrap();
        device.write_at(4090, &[3; 8]).unwrap();
        drop(device);
        let mut bytes = [0; 8];
        disk.open().read_at(4090, &mut bytes).unwrap();
        assert_eq!(bytes, [3; 8]);
        disk.lose_unsynced();
        disk.open().read_at(4090, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 8]);
        disk.open().read_at(100, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 8]);
    }

    #[test]
    fn part_of_what_was_not_synced_may_survive() {
        let mut seen = [0; 2];
        for seed in 0..32 {
            let disk = MemoryDisk::new(BLOCK_BYTES);
            disk.open().write_at(0, &[1]).unwrap();
            disk.lose_some_unsynced(&mut Rng::seeded(seed));
            seen[disk.with_bytes(|bytes| bytes[0]) as usize] += 1;
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }
}
