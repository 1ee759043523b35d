//! Medium of a simulated disk: its bytes, and their earlier values.
//! Until a sync covers a write, a power loss may take it back.

use std::collections::BTreeMap;
use std::ops::Range;

use tiermem_base::rng::Rng;

use super::{BLOCK_BYTES, SECTOR_BYTES};

/// Former contents kept of one block. Beyond that those in the middle are forgotten, never the one that is durable.
const VERSIONS_MAX: usize = 4;

/// Contents of a block before a write.
#[derive(Debug)]
struct Version {
    /// The number of that write.
    before: u64,
    was: Box<[u8]>,
}

/// A medium with a volatile cache. Writes are numbered from 1; reads see the last one.
#[derive(Debug)]
pub struct Medium {
    bytes: Vec<u8>,
    /// By block: what it was before each write that is not durable, the oldest first.
    versions: BTreeMap<usize, Vec<Version>>,
    written: u64,
}

impl Medium {
    /// A medium of zeros, all of them durable.
    pub fn new(size_bytes: usize) -> Self {
        Medium { bytes: vec![0; size_bytes], versions: BTreeMap::new(), written: 0 }
    }

    /// Makes it at least this large; what comes to it is zeros, and durable.
    pub fn grow(&mut self, size_bytes: usize) {
        self.bytes.resize(size_bytes.max(self.bytes.len()), 0);
    }

    /// The bytes that a reader sees now.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes themselves, to spoil; what is changed here counts as durable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The number of the last write.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The bytes of a range within the medium, in order to change them: one write.
    pub fn change(&mut self, range: Range<usize>) -> &mut [u8] {
        self.written += 1;
        if !range.is_empty() {
            for block in blocks(&range) {
                let start = block * BLOCK_BYTES;
                let was = self.bytes[start..(start + BLOCK_BYTES).min(self.bytes.len())].into();
                let versions = self.versions.entry(block).or_default();
                if versions.len() >= VERSIONS_MAX {
                    versions.remove(1);
                }
                versions.push(Version { before: self.written, was });
            }
        }
        &mut self.bytes[range]
    }

    /// Makes durable every write up to this number.
    pub fn sync(&mut self, up_to: u64) {
        if up_to >= self.written {
            return self.versions.clear();
        }
        self.versions.retain(|_, versions| {
            versions.retain(|version| version.before > up_to);
            !versions.is_empty()
        });
    }

    /// Whether nothing that was written to these bytes may be lost. It looks at whole blocks.
    pub fn is_synced(&self, range: Range<usize>) -> bool {
        self.versions.range(blocks(&range)).next().is_none()
    }

    /// Power is lost: every block is as the last sync left it.
    pub fn lose_unsynced(&mut self) {
        self.lose(|versions| versions.first());
    }

    /// Power is lost: each sector is as it was written last or, by a coin, as it was at any time since the last sync.
    pub fn lose_some_unsynced(&mut self, rng: &mut Rng) {
        self.lose(|versions| {
            let is_lost = rng.below(2) == 0;
            is_lost.then(|| &versions[rng.below(versions.len() as u64) as usize])
        });
    }

    fn lose(&mut self, mut choose: impl FnMut(&[Version]) -> Option<&Version>) {
        for (block, versions) in std::mem::take(&mut self.versions) {
            let start = (block * BLOCK_BYTES).min(self.bytes.len());
            let sectors = self.bytes[start..].chunks_mut(SECTOR_BYTES as usize);
            for (at, sector) in sectors.take(BLOCK_BYTES / SECTOR_BYTES as usize).enumerate() {
                let Some(Version { was, .. }) = choose(&versions) else { continue };
                // A medium that has become longer has sectors that a former content lacks.
                let was = was.get(at * SECTOR_BYTES as usize..).unwrap_or_default();
                let len = was.len().min(sector.len());
                sector[..len].copy_from_slice(&was[..len]);
            }
        }
    }

    /// Makes it longer, by zeros, or shorter.
    pub fn resize(&mut self, size_bytes: usize) {
        self.bytes.resize(size_bytes, 0);
    }
}

/// The blocks that a range touches.
fn blocks(range: &Range<usize>) -> Range<usize> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(medium: &mut Medium, at: usize, value: u8) -> u64 {
        medium.change(at..at + 1)[0] = value;
        medium.written()
    }

    #[test]
    fn a_sync_covers_the_writes_before_it_and_no_later_ones() {
        let mut medium = Medium::new(2 * BLOCK_BYTES);
        let first = write(&mut medium, 0, 1);
        write(&mut medium, 0, 2);
        write(&mut medium, BLOCK_BYTES, 3);
        medium.sync(first);
        assert!(!medium.is_synced(0..1) && !medium.is_synced(BLOCK_BYTES..BLOCK_BYTES + 1));
        medium.lose_unsynced();
        assert_eq!((medium.bytes()[0], medium.bytes()[BLOCK_BYTES]), (1, 0));
    }

    #[test]
    fn any_content_since_the_last_sync_may_survive_and_no_older_one() {
        let mut seen = [0; 4];
        for seed in 0..200 {
            let mut medium = Medium::new(BLOCK_BYTES);
            let durable = write(&mut medium, 0, 1);
            medium.sync(durable);
            write(&mut medium, 0, 2);
            write(&mut medium, 0, 3);
            medium.lose_some_unsynced(&mut Rng::seeded(seed));
            seen[usize::from(medium.bytes()[0])] += 1;
        }
        assert!(seen[0] == 0 && seen[1..].iter().all(|&count| count > 20), "{seen:?}");
    }

    #[test]
    fn the_durable_content_is_kept_however_often_a_block_is_written() {
        let mut medium = Medium::new(BLOCK_BYTES);
        for value in 1..100 {
            write(&mut medium, 0, value);
        }
        medium.lose_unsynced();
        assert_eq!(medium.bytes()[0], 0);
    }
}
