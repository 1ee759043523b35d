//! A device in memory whose requests are done when they are submitted: for tests and for simulation beside a live store.
//! It can be opened again, after the death of a process (nothing lost) or of a machine (what was not synced is lost).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tiermem_base::rng::Rng;

use super::completion_queue::Bell;
use super::{BLOCK_BYTES, BlockError, BlockIo, Completion, Op, Request, SECTOR_BYTES, Waker, check_range};

/// The medium, which outlives those who open it. Its clones are the same medium.
#[derive(Clone, Debug)]
pub struct MemoryDisk(Arc<Mutex<Media>>);

#[derive(Debug)]
struct Media {
    bytes: Vec<u8>,
    /// Blocks written since the last sync, as they were at that time.
    unsynced: BTreeMap<u64, Box<[u8]>>,
}

impl MemoryDisk {
    /// A medium of zeros, rounded down to whole blocks.
    pub fn new(capacity_bytes: usize) -> Self {
        let bytes = vec![0; capacity_bytes / BLOCK_BYTES * BLOCK_BYTES];
        MemoryDisk(Arc::new(Mutex::new(Media { bytes, unsynced: BTreeMap::new() })))
    }

    /// Opens it: at first, or as after the death of the process that had it.
    pub fn open(&self) -> Immediate {
        Immediate { disk: self.clone(), done: Vec::new(), bell: Bell::default() }
    }

    /// Power is lost: every block is as it was at the last sync.
    pub fn lose_unsynced(&self) {
        self.lose(|| true);
    }

    /// Power is lost: each sector written since the last sync is, by a coin, as it was then or as it was written last.
    pub fn lose_some_unsynced(&self, rng: &mut Rng) {
        self.lose(|| rng.below(2) == 0);
    }

    fn lose(&self, mut lost: impl FnMut() -> bool) {
        let mut media = self.lock();
        for (block, was) in std::mem::take(&mut media.unsynced) {
            let sectors = media.bytes[block as usize * BLOCK_BYTES..].chunks_exact_mut(SECTOR_BYTES as usize);
            for (sector, was) in sectors.zip(was.chunks_exact(SECTOR_BYTES as usize)) {
                if lost() {
                    sector.copy_from_slice(was);
                }
            }
        }
    }

    /// Whether all that was written to these bytes is synced.
    pub fn is_synced(&self, offset: u64, len_bytes: u64) -> bool {
        let blocks = offset / BLOCK_BYTES as u64..(offset + len_bytes).div_ceil(BLOCK_BYTES as u64);
        self.lock().unsynced.range(blocks).next().is_none()
    }

    /// All bytes, to look at or to spoil; what is changed here counts as synced.
    pub fn with_bytes<R>(&self, look: impl FnOnce(&mut [u8]) -> R) -> R {
        look(&mut self.lock().bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Media> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Media {
    /// The range is within the medium.
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (at, end) = (offset as usize, offset as usize + bytes.len());
        for block in at / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            let was = || self.bytes[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES].into();
            self.unsynced.entry(block as u64).or_insert_with(was);
        }
        self.bytes[at..end].copy_from_slice(bytes);
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.bytes[offset as usize..offset as usize + bytes.len()]);
    }
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

    /// What it lies on, to open again.
    pub fn disk(&self) -> &MemoryDisk {
        &self.disk
    }
}

impl BlockIo for Immediate {
    fn submit(&mut self, mut request: Request) {
        let result = request.check(self.capacity_bytes());
        if result.is_ok() {
            let mut media = self.disk.lock();
            match request.op {
                Op::Read => media.read(request.offset, &mut request.buffer),
                Op::Write => media.write(request.offset, &request.buffer),
                Op::Sync => media.unsynced.clear(),
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
        self.disk.lock().write(offset, bytes);
        Ok(())
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        check_range(Op::Read, offset, bytes.len() as u64, self.capacity_bytes())?;
        self.disk.lock().read(offset, bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.disk.lock().unsynced.clear();
        Ok(())
    }

    fn capacity_bytes(&self) -> u64 {
        self.disk.lock().bytes.len() as u64
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
