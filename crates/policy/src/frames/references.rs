//! Reference bits, found by sampling: one for each frame, set for a frame or for a run of frames at once.

use super::cell::Frame;

/// The bits.
#[derive(Clone, Debug, Default)]
pub(super) struct ReferenceBits {
    words: Vec<u64>,
}

impl ReferenceBits {
    pub fn grow_to(&mut self, frames: u32) {
        let words = (frames as usize).div_ceil(64);
        if words > self.words.len() {
            self.words.reserve_exact(words - self.words.len());
            self.words.resize(words, 0);
        }
    }

    #[inline]
    pub fn set(&mut self, frame: Frame) {
        self.words[frame.0 as usize / 64] |= 1 << (frame.0 % 64);
    }

    #[cfg(test)]
    pub fn is_set(&self, frame: Frame) -> bool {
        self.words[frame.0 as usize / 64] >> (frame.0 % 64) & 1 == 1
    }

    /// Takes a frame's bit away. Returns whether it was set.
    #[inline]
    pub fn take(&mut self, frame: Frame) -> bool {
        let word = &mut self.words[frame.0 as usize / 64];
        let bit = 1 << (frame.0 % 64);
        let was_set = *word & bit != 0;
        *word &= !bit;
        was_set
    }

    /// Sets the bits of 2^`frames_log2` frames from a multiple of that on: a word for every 64.
    #[inline]
    pub fn set_run(&mut self, first: Frame, frames_log2: u32) {
        let at = first.0 as usize / 64;
        if frames_log2 >= 6 {
            let end = (at + (1 << (frames_log2 - 6))).min(self.words.len());
            self.words[at..end].fill(u64::MAX);
        } else {
            let run = (1u64 << (1 << frames_log2)) - 1;
            self.words[at] |= run << (first.0 % 64);
        }
    }

    pub fn bytes(&self) -> u64 {
        (self.words.capacity() * 8) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_sets_its_own_bits_and_no_others() {
        for frames_log2 in 0..9u32 {
            let run = 1u32 << frames_log2;
            for first in (0..1024).step_by(run as usize) {
                let mut bits = ReferenceBits::default();
                bits.grow_to(1024);
                bits.set_run(Frame(first), frames_log2);
                for frame in 0..1024 {
                    assert_eq!(bits.is_set(Frame(frame)), (first..first + run).contains(&frame));
                }
            }
        }
    }

    #[test]
    fn a_run_ends_with_the_frames() {
        let mut bits = ReferenceBits::default();
        bits.grow_to(100);
        bits.set_run(Frame(0), 10);
        assert!(bits.take(Frame(99)) && !bits.take(Frame(99)));
    }
}
