//! Bad places of a device or store: ranges of bytes where requests of some kind fail, once or for good.
//!
//! [`super::Faulty`], [`crate::backing::Faulty`] and [`super::Simulated`] have them beside faults by chance.

use std::ops::Range;

use tiermem_sys::disk::{EIO, ENOSPC, EROFS};

use super::{BlockError, Op};

/// How a bad place fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// With `EIO`.
    Io,
    /// As if the file ended there.
    Short,
    /// With `ENOSPC`.
    Full,
    /// With `EROFS`.
    ReadOnly,
}

impl Failing {
    /// The error of a device.
    pub fn block_error(self, op: Op, offset: u64, len: usize) -> BlockError {
        let len_bytes = len as u64;
        let os = |errno| BlockError::Os { op, offset, len_bytes, errno };
        match self {
            Failing::Io => os(EIO),
            Failing::Short => BlockError::Short { op, offset, len_bytes, done_bytes: len_bytes / 2 },
            Failing::Full => os(ENOSPC),
            Failing::ReadOnly => os(EROFS),
        }
    }
}

/// A place that fails. What is left of a failed read's buffer is rubbish; a failed write or sync has done nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPlace {
    /// The requests of this kind that touch it fail. Syncs touch every place.
    pub op: Op,
    /// Where it is.
    pub bytes: Range<u64>,
    /// How they fail.
    pub failing: Failing,
    /// They fail only this often; for good unless given.
    pub times: Option<u32>,
}

/// Bad places of one device or store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadPlaces(Vec<BadPlace>);

impl BadPlaces {
    /// One more.
    pub fn add(&mut self, place: BadPlace) {
        self.0.push(place);
    }

    /// All places work again.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether a request of this kind for these bytes fails for good.
    pub fn is_bad(&self, op: Op, bytes: &Range<u64>) -> bool {
        self.0.iter().any(|place| place.times.is_none() && place.concerns(op, bytes))
    }

    /// A request of this kind for these bytes comes: how it fails, if it does.
    pub fn meet(&mut self, op: Op, bytes: &Range<u64>) -> Option<Failing> {
        let at = self.0.iter().position(|place| place.concerns(op, bytes))?;
        let place = &mut self.0[at];
        let failing = place.failing;
        match &mut place.times {
            Some(times) if *times > 1 => *times -= 1,
            Some(_) => _ = self.0.swap_remove(at),
            None => {}
        }
        Some(failing)
    }
}

impl BadPlace {
    fn concerns(&self, op: Op, bytes: &Range<u64>) -> bool {
        self.op == op && (op == Op::Sync || self.bytes.start < bytes.end && bytes.start < self.bytes.end)
    }
}

/// What a failed read leaves in its buffer: nothing that anybody has written.
pub fn spoil(buffer: &mut [u8]) {
    buffer.iter_mut().zip(0u8..=250).for_each(|(byte, at)| *byte = 0xbd ^ at);
    let len = buffer.len();
    (251..len).for_each(|at| buffer[at] = buffer[at - 251]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_fails_what_touches_it_as_often_as_asked() {
        let mut places = BadPlaces::default();
        let place = |op, times| BadPlace { op, bytes: 4096..8192, failing: Failing::Full, times };
        places.add(place(Op::Write, Some(2)));
        places.add(place(Op::Read, None));
        assert_eq!(places.meet(Op::Write, &(0..4096)), None);
        assert!(places.is_bad(Op::Read, &(8191..9000)) && !places.is_bad(Op::Write, &(4096..8192)));
        for expected in [Some(Failing::Full), Some(Failing::Full), None] {
            assert_eq!(places.meet(Op::Write, &(0..4097)), expected);
            assert_eq!(places.meet(Op::Read, &(8191..9000)), Some(Failing::Full));
        }
        places.add(place(Op::Sync, Some(1)));
        assert_eq!(
            (places.meet(Op::Sync, &(0..0)), places.meet(Op::Sync, &(0..0))),
            (Some(Failing::Full), None)
        );
        places.clear();
        assert_eq!(places.meet(Op::Read, &(4096..8192)), None);
        let mut buffer = [0; 1000];
        spoil(&mut buffer);
        assert!(buffer[..8] != buffer[8..16] && buffer[..251] == buffer[251..502]);
    }
}
