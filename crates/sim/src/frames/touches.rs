//! Touches of frames, cut from a trace: each access is cut at the frames' borders, and frames are numbered as they come.

use tiermem_base::{Access, Interner, Op};
use tiermem_policy::Id;
use tiermem_policy::column::Bits;
use tiermem_policy::frames::Frame;

/// The use of a frame by a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is read.
    Read,
    /// It is written, or may have been.
    Write,
    /// Its content is given up. That is no touch.
    Discard,
}

/// A touch: eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The frame.
    pub frame: Frame,
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
}

/// When the pager looks which granules were referenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// After so many touches, at least one.
    Touches(u32),
    /// At multiples of so many nanoseconds of the trace's time, at least one.
    Nanos(u64),
}

/// The way in which a trace is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Size of a frame.
    pub frame_bytes: u32,
    /// Whether records of the same time are in no order: the slices of a recording.
    pub in_slices: bool,
    /// When looks are.
    pub look: Look,
}

impl Cut {
    /// Frames of this size, every touch in order, and no looks.
    pub fn in_order(frame_bytes: u32) -> Self {
        Cut { frame_bytes, in_slices: false, look: Look::Touches(u32::MAX) }
    }
}

/// A trace in memory.
#[derive(Debug)]
pub struct Touches {
    touches: Vec<Touched>,
    pages: Interner,
    /// The page of each frame: an address over the size of a frame.
    page_of: Vec<u64>,
    cut: Cut,
    discards: u64,
    /// Where slices end, in touches; empty where the order is known.
    slice_ends: Vec<u32>,
    /// How many touches there are before each look.
    looks: Vec<u32>,
    time_ns: Option<u64>,
    holds: Bits,
    held: u32,
    held_peak: u32,
}

impl Touches {
    /// Cuts accesses into touches. A key is an address; the size is in bytes, and an access of size 0 touches the frame of its
    /// key. Deletions give frames up; a deletion of an untouched frame is ignored. An access that may be a write counts as one.
    pub fn of<E>(
        records: impl Iterator<Item = Result<Access, E>>,
        cut: Cut,
    ) -> Result<Self, TouchesError<E>> {
        let mut touches = Touches {
            touches: Vec::new(),
            pages: Interner::new(),
            page_of: Vec::new(),
            cut: Cut { frame_bytes: cut.frame_bytes.max(1), ..cut },
            discards: 0,
            slice_ends: Vec::new(),
            looks: Vec::new(),
            time_ns: None,
            holds: Bits::default(),
            held: 0,
            held_peak: 0,
        };
        for (record, access) in (1u64..).zip(records) {
            let access = access.map_err(TouchesError::Trace)?;
            touches.pass_time(access.time_ns);
            touches.add(record, &access).map_err(TouchesError::Size)?;
        }
        if touches.cut.in_slices {
            touches.slice_ends.push(touches.touches.len() as u32);
        }
        Ok(touches)
    }

    /// Ends slices and looks before a record of this time.
    fn pass_time(&mut self, time_ns: u64) {
        let Some(before_ns) = self.time_ns.replace(time_ns).filter(|before_ns| *before_ns != time_ns) else {
            return;
        };
        let touches = self.touches.len() as u32;
        if self.cut.in_slices {
            self.slice_ends.push(touches);
        }
        if let Look::Nanos(every) = self.cut.look
            && before_ns / every.max(1) != time_ns / every.max(1)
        {
            self.looks.push(touches);
        }
    }

    fn add(&mut self, record: u64, access: &Access) -> Result<(), TooLarge> {
        let what = match access.op {
            Op::Del => Use::Discard,
            op if op.is_write() || op == Op::Unknown => Use::Write,
            _ => Use::Read,
        };
        let frame_bytes = u64::from(self.cut.frame_bytes);
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
                self.holds.grow_to(Id(number));
            }
            if let Look::Touches(every) = self.cut.look
                && !self.touches.is_empty()
                && (self.touches.len() as u32).is_multiple_of(every.max(1))
            {
                self.looks.push(self.touches.len() as u32);
            }
            self.discards += u64::from(what == Use::Discard);
            self.hold(Id(number), what != Use::Discard);
            self.touches.push(Touched { frame: Frame(number), what });
        }
        Ok(())
    }

    /// Counts the frames that hold something.
    fn hold(&mut self, id: Id, holds: bool) {
        match (self.holds.get(id), holds) {
            (false, true) => self.held += 1,
            (true, false) => self.held -= 1,
            _ => return,
        }
        self.holds.set(id, holds);
        self.held_peak = self.held_peak.max(self.held);
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
        u64::from(self.frames()) * u64::from(self.frame_bytes())
    }

    /// The most bytes that were touched and not given up at one time: what the program requires.
    pub fn required_bytes(&self) -> u64 {
        u64::from(self.held_peak) * u64::from(self.frame_bytes())
    }

    /// Where slices end, in touches; empty where the order of touches is known.
    pub fn slice_ends(&self) -> &[u32] {
        &self.slice_ends
    }

    /// How many touches there are before each look.
    pub fn looks(&self) -> &[u32] {
        &self.looks
    }

    /// Size of a frame.
    pub fn frame_bytes(&self) -> u32 {
        self.cut.frame_bytes
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

    fn cut(accesses: &[Access], cut: Cut) -> Touches {
        Touches::of(accesses.iter().map(|access| Ok::<_, Infallible>(*access)), cut).unwrap()
    }

    fn of(accesses: &[Access]) -> Touches {
        cut(accesses, Cut::in_order(4096))
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
    fn what_nobody_touched_is_not_discarded_and_what_may_be_a_write_is_one() {
        let touches = of(&[
            Access::new(0, Op::Del, 0, 100),
            Access::new(0, Op::Set, 8192, 100),
            Access::new(0, Op::Scan, 0, 5000),
            Access::new(0, Op::Unknown, 0, 1),
            Access::new(0, Op::Del, 4096, 8192),
        ]);
        let told: Vec<_> = touches.touches().iter().map(|one| (one.frame.0, one.what)).collect();
        let (read, write, discard) = (Use::Read, Use::Write, Use::Discard);
        assert_eq!(told, [(0, write), (1, read), (2, read), (1, write), (2, discard), (0, discard)]);
        assert_eq!((touches.count(), touches.frames()), (4, 3));
        assert_eq!(
            (touches.extent(), touches.page_of(Frame(0)), touches.frame_of(7)),
            (Some((0, 2)), 2, None)
        );
    }

    #[test]
    fn what_is_required_is_what_is_held_at_one_time() {
        let (store, del) = (|page: u64| Access::new(0, Op::Store, page << 12, 1), Op::Del);
        let touches =
            of(&[store(0), store(1), store(0), Access::new(0, del, 0, 4096), store(2), store(3), store(2)]);
        assert_eq!((touches.required_bytes(), touches.working_set_bytes()), (3 << 12, 4 << 12));
        assert_eq!(of(&[]).required_bytes(), 0);
    }

    #[test]
    fn slices_are_records_of_one_time_and_looks_come_between() {
        let at = |time_ns, pages: u32| Access::new(time_ns, Op::Load, 0, pages * 4096);
        let records = [at(0, 2), at(0, 1), at(10, 4), at(35, 1), at(35, 1), at(39, 1)];
        let slices = |look| cut(&records, Cut { in_slices: true, look, ..Cut::in_order(4096) });
        let by_time = slices(Look::Nanos(20));
        assert_eq!(by_time.slice_ends(), [3, 7, 9, 10]);
        assert_eq!(by_time.looks(), [7]);
        assert_eq!(slices(Look::Touches(4)).looks(), [4, 8]);
        assert_eq!(of(&records).slice_ends(), [] as [u32; 0]);
    }
}
