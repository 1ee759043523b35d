//! Touches of frames, cut from a trace: each access is cut at the frames' borders, and frames are numbered as they come.

use std::collections::HashMap;

use tiermem_base::{Access, Interner, Op};
use tiermem_policy::Id;
use tiermem_policy::frames::{Frame, OWNERS_MAX};

/// The use of a frame by a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is read.
    Read,
    /// It is written.
    Write,
    /// Its content is given up. That is no touch.
    Discard,
}

/// A touch: eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The frame.
    pub frame: Frame,
    /// The owner of the access.
    pub owner: u16,
    /// The use.
    pub what: Use,
}

const _: () = assert!(size_of::<Touched>() == 8, "a trace is held in memory");

/// Touches that a trace may have: their numbers have 32 bits, and the last one means never.
pub const TOUCHES_MAX: u64 = u32::MAX as u64 - 1;

/// Why a trace ends before its end.
#[derive(Debug, thiserror::Error)]
pub enum TouchesError<E> {
    /// It could not be read.
    #[error(transparent)]
    Trace(E),
    /// It is too large.
    #[error(transparent)]
    Size(TooLarge),
}

/// The quantity that a trace has too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// Touches.
    #[error("record {record} is touch number {TOUCHES_MAX} and more, which is as many as can be simulated")]
    Touches {
        /// Counted from 1.
        record: u64,
    },
    /// Frames.
    #[error(
        "record {record} touches frame number {} and more, which is as many as can be simulated",
        Id::COUNT_MAX
    )]
    Frames {
        /// Counted from 1.
        record: u64,
    },
    /// Tenants.
    #[error("record {record} is of tenant number {OWNERS_MAX} and more: frames have 16 bits for their owner")]
    Owners {
        /// Counted from 1.
        record: u64,
    },
}

/// A trace in memory.
#[derive(Debug)]
pub struct Touches {
    touches: Vec<Touched>,
    pages: Interner,
    /// The page of each frame: an address over the size of a frame.
    page_of: Vec<u64>,
    owners: HashMap<u32, u16>,
    frame_bytes: u32,
    discards: u64,
}

impl Touches {
    /// Cuts accesses into touches of frames of a given size in bytes. A key is an address; the size is in bytes, and an access of
    /// size 0 touches the frame of its key. Deletions give frames up; a deletion of an untouched frame is ignored.
    pub fn of<E>(
        records: impl Iterator<Item = Result<Access, E>>,
        frame_bytes: u32,
    ) -> Result<Self, TouchesError<E>> {
        let mut touches = Touches {
            touches: Vec::new(),
            pages: Interner::new(),
            page_of: Vec::new(),
            owners: HashMap::new(),
            frame_bytes: frame_bytes.max(1),
            discards: 0,
        };
        for (record, access) in (1u64..).zip(records) {
            let access = access.map_err(TouchesError::Trace)?;
            touches.add(record, &access).map_err(TouchesError::Size)?;
        }
        Ok(touches)
    }

    fn add(&mut self, record: u64, access: &Access) -> Result<(), TooLarge> {
        let owners = self.owners.len();
        let owner = match self.owners.get(&access.tenant) {
            Some(owner) => *owner,
            None => {
                let owner = u16::try_from(owners).map_err(|_| TooLarge::Owners { record })?;
                self.owners.insert(access.tenant, owner);
                owner
            }
        };
        let what = match access.op {
            Op::Del => Use::Discard,
            op if op.is_write() => Use::Write,
            _ => Use::Read,
        };
        let frame_bytes = u64::from(self.frame_bytes);
        // What would reach beyond the last address ends there.
        let last = access.key.saturating_add(u64::from(access.size.max(1)) - 1);
        for page in access.key / frame_bytes..=last / frame_bytes {
            if what == Use::Discard && self.pages.get(page).is_none() {
                continue;
            }
            if self.touches.len() as u64 == TOUCHES_MAX {
                return Err(TooLarge::Touches { record });
            }
            let (number, is_new) = self.pages.intern(page);
            if is_new {
                if number >= Id::COUNT_MAX {
                    return Err(TooLarge::Frames { record });
                }
                self.page_of.push(page);
            }
            self.discards += u64::from(what == Use::Discard);
            self.touches.push(Touched { frame: Frame(number), owner, what });
        }
        Ok(())
    }

    /// All of them, in the order of the trace.
    pub fn touches(&self) -> &[Touched] {
        &self.touches
    }

    /// How many touch a frame: all but discards.
    pub fn count(&self) -> u64 {
        self.touches.len() as u64 - self.discards
    }

    /// Distinct frames.
    pub fn frames(&self) -> u32 {
        self.page_of.len() as u32
    }

    /// Bytes of all frames that are touched.
    pub fn working_set_bytes(&self) -> u64 {
        u64::from(self.frames()) * u64::from(self.frame_bytes)
    }

    /// Distinct tenants.
    pub fn owners(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Size of a frame.
    pub fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    /// The page of a frame.
    pub fn page_of(&self, frame: Frame) -> u64 {
        self.page_of[frame.0 as usize]
    }

    /// The frame of a page, if it is touched at all.
    pub fn frame_of(&self, page: u64) -> Option<Frame> {
        self.pages.get(page).map(Frame)
    }

    /// The first and the last page.
    pub fn extent(&self) -> Option<(u64, u64)> {
        Some((*self.page_of.iter().min()?, *self.page_of.iter().max()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn of(accesses: &[Access]) -> Touches {
        Touches::of(accesses.iter().map(|access| Ok::<_, Infallible>(*access)), 4096).unwrap()
    }

    fn frames(accesses: &[Access]) -> Vec<u32> {
        of(accesses).touches().iter().map(|touched| touched.frame.0).collect()
    }

    #[test]
    fn an_access_touches_every_frame_that_it_reaches_into() {
        let load = |key, size| Access::new(0, Op::Load, key, size);
        assert_eq!(frames(&[]), [] as [u32; 0]);
        assert_eq!(frames(&[load(5, 0), load(4095, 1), load(4095, 2), load(4096, 4096)]), [0, 0, 0, 1, 1]);
        assert_eq!(frames(&[load(4096, 3 * 4096), load(4095, 4098)]), [0, 1, 2, 3, 0, 1]);
        assert_eq!(frames(&[load(u64::MAX, u32::MAX), load(u64::MAX - 4096, u32::MAX)]), [0, 1, 0]);
    }

    #[test]
    fn tenants_are_numbered_and_what_nobody_touched_is_not_discarded() {
        let touches = of(&[
            Access::new(0, Op::Del, 0, 100),
            Access { tenant: 9, ..Access::new(0, Op::Set, 8192, 100) },
            Access { tenant: 7, ..Access::new(0, Op::Scan, 0, 5000) },
            Access::new(0, Op::Del, 4096, 8192),
        ]);
        let told: Vec<_> = touches.touches().iter().map(|one| (one.frame.0, one.owner, one.what)).collect();
        let (read, discard) = (Use::Read, Use::Discard);
        assert_eq!(told, [(0, 1, Use::Write), (1, 2, read), (2, 2, read), (2, 0, discard), (0, 0, discard)]);
        assert_eq!((touches.count(), touches.frames(), touches.owners()), (3, 3, 3));
        assert_eq!(
            (touches.extent(), touches.page_of(Frame(0)), touches.frame_of(7)),
            (Some((0, 2)), 2, None)
        );
    }

    #[test]
    fn more_tenants_than_owners_are_refused() {
        let records =
            (0..70_000).map(|tenant| Ok::<_, Infallible>(Access { tenant, ..Access::get(0, 0, 1) }));
        assert!(matches!(
            Touches::of(records, 4096),
            Err(TouchesError::Size(TooLarge::Owners { record: 65_537 }))
        ));
    }
}
