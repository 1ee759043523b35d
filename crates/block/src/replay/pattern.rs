//! Pattern that a replay writes: sectors that identify themselves.
//!
//! A sector's bytes follow from its [`Stamp`] alone, so the expected content of a read can be computed without keeping
//! what was written. The stamp is in the sector itself: bytes of the wrong place or of an earlier time are recognized.
//! No two sectors are alike and none is all zeroes, so a server gains nothing by deduplication or compression.

/// Bytes of a sector: what no request divides.
pub const SECTOR_BYTES: u64 = 512;

/// The same as a length.
pub(crate) const SECTOR: usize = SECTOR_BYTES as usize;
/// Words of a sector.
const WORDS: usize = SECTOR / 8;
/// First bytes of a sector.
const MAGIC: u64 = u64::from_le_bytes(*b"tmreplay");
/// 2^64 over the golden ratio: steps that come near no point twice soon.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Identity of a sector and its last write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The run's seed.
    pub seed: u64,
    /// The export's number in the run.
    pub export: u32,
    /// The sector's number in the export.
    pub sector: u64,
    /// Number of the write within the run.
    pub version: u32,
}

fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^ word >> 27
}

impl Stamp {
    fn head(&self) -> [u64; 4] {
        [MAGIC, self.seed, self.sector, u64::from(self.export) << 32 | u64::from(self.version)]
    }

    /// Every word of the sector.
    fn words(&self) -> impl Iterator<Item = u64> {
        let head = self.head();
        let key = head.iter().fold(0, |key: u64, word| mix(key.wrapping_add(STEP) ^ *word));
        let rest = (head.len()..WORDS).map(move |at| mix(key.wrapping_add(STEP.wrapping_mul(at as u64))));
        head.into_iter().chain(rest)
    }

    /// Writes the sector's bytes.
    pub fn fill(&self, sector: &mut [u8; SECTOR]) {
        for (bytes, word) in sector.chunks_exact_mut(8).zip(self.words()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Whether these are the sector's bytes.
    pub fn is(&self, sector: &[u8; SECTOR]) -> bool {
        sector.chunks_exact(8).zip(self.words()).all(|(bytes, word)| bytes == word.to_le_bytes())
    }

    /// The stamp of these bytes; `None` if no replay has written them.
    pub fn of(sector: &[u8; SECTOR]) -> Option<Self> {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&sector[at * 8..][..8]);
            u64::from_le_bytes(bytes)
        };
        let (seed, number, who) = (word(1), word(2), word(3));
        let stamp = Stamp { seed, export: (who >> 32) as u32, sector: number, version: who as u32 };
        stamp.is(sector).then_some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { seed: 7, export: 3, sector: 1 << 40, version: u32::MAX };

    #[test]
    fn a_sector_says_who_it_is() {
        let mut bytes = [0; SECTOR];
        STAMP.fill(&mut bytes);
        assert_eq!(Stamp::of(&bytes), Some(STAMP));
        for at in 0..SECTOR {
            bytes[at] ^= 1;
            assert!(!STAMP.is(&bytes) && Stamp::of(&bytes).is_none(), "byte {at}");
            bytes[at] ^= 1;
        }
        assert_eq!(Stamp::of(&[0; SECTOR]), None);
    }

    #[test]
    fn sectors_have_nothing_in_common_behind_their_heads() {
        let words: Vec<u64> = STAMP.words().collect();
        assert_eq!(words.len(), WORDS);
        for other in [
            Stamp { seed: 8, ..STAMP },
            Stamp { export: 4, ..STAMP },
            Stamp { sector: 0, ..STAMP },
            Stamp { version: 1, ..STAMP },
        ] {
            assert!(other.words().skip(4).all(|word| !words.contains(&word)), "{other:?}");
        }
    }
}
