//! Acts that the machine asks of its driver, and its answers to calls.

use super::cell::Frame;
use crate::moves::Ticket;
use crate::prefetch::Why;

/// Something to carry out, in the order in which it was decided. All with a ticket are settled by [`super::Frames::done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Make the frame of zeros: it was never used, or holds nothing else.
    Fill {
        /// To settle it.
        ticket: Ticket,
        /// The frame.
        frame: Frame,
        /// The tier that it is placed in.
        to: u8,
    },
    /// Bring the frame to a tier where it can be used, or from there to a faster one.
    Fetch {
        /// To settle it.
        ticket: Ticket,
        /// The frame.
        frame: Frame,
        /// Where it lies.
        from: u8,
        /// Where it shall lie.
        to: u8,
        /// Whether a fault waits for it.
        why: Why,
    },
    /// Bring the frame to the next slower tier.
    Demote {
        /// To settle it.
        ticket: Ticket,
        /// The frame.
        frame: Frame,
        /// Where it lies.
        from: u8,
        /// Where it shall lie.
        to: u8,
        /// Whether an older copy of it lies there, which this one replaces unless both are equal. So it is where the
        /// machine does not hear of writes.
        has_copy: bool,
    },
    /// Take the frame from its tier without writing it: it is zero, or its clean copy lies below.
    Drop {
        /// To settle it.
        ticket: Ticket,
        /// The frame.
        frame: Frame,
        /// Where it lies.
        from: u8,
        /// Where it lies then; `None`: nowhere, it is zero.
        to: Option<u8>,
    },
    /// Write the frame's bytes to a slower tier; it stays where it is, and has a clean copy then.
    WriteBack {
        /// To settle it.
        ticket: Ticket,
        /// The frame.
        frame: Frame,
        /// Where it lies.
        from: u8,
        /// Where its copy shall lie.
        to: u8,
    },
    /// End this move early if that can be done, and settle it: a fault waits for the frame, or the frame was discarded.
    Recall {
        /// The move.
        ticket: Ticket,
    },
    /// The frame's bytes in this tier are no longer needed. Their room is free at once.
    Free {
        /// The frame that the bytes belonged to.
        frame: Frame,
        /// The tier of the bytes.
        tier: u8,
    },
}

/// The answer to a fault: what it must wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// For nothing: the frame is in place.
    Here,
    /// For the frame's own move. If it does not end up in place, ask again.
    After(Ticket),
    /// For this move, which makes room; then ask again.
    Room(Ticket),
    /// For any move to be settled; then ask again.
    Busy,
    /// For nothing that is under way: all that could give room is pinned, or the tiers below are full. Ask again after an
    /// unpin, a discard, a larger capacity or a larger quota.
    Full,
}

/// The answer to a wish to fetch a frame ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It is on its way.
    Sent(Ticket),
    /// There is no room before this move has ended; a caller that still wishes for the frame then may ask again.
    Room(Ticket),
    /// No more than the low watermark is free: the next step makes room. Ask again then, as for [`Self::Room`].
    AfterStep,
    /// It is here, on its way, holds nothing, or there is no room for it.
    No,
}

/// The answer to a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The frame is in place.
    Used,
    /// It lies in place, was fetched ahead, and is used for the first time.
    FirstUse,
    /// A move of it is under way. A driver that cannot use it meanwhile calls [`super::Frames::fault`].
    Moving,
    /// It lies where it cannot be used, or nowhere: that is a fault.
    Away,
}

/// The answer to an attempt to pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// It stays in place until it is unpinned as often.
    Pinned,
    /// It is not in place: fault it in first.
    Away,
    /// It, or all frames together, are pinned as often as they can be.
    TooMany,
}

/// How a move has ended for its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The frame lies at the new place. The old one is free, or holds its clean copy.
    Arrived {
        /// Whether the content at the old place is kept as a copy.
        copy_stays: bool,
    },
    /// It turned out to be zero, so it lies nowhere; both places are free.
    Zero,
    /// The frame lies where it was; the new place is free.
    Stayed,
    /// The frame was gone; both places are free.
    Void,
}

/// A move that was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The frame that moved.
    pub frame: Frame,
    /// From where; `None`: nowhere.
    pub from: Option<u8>,
    /// To where; `None`: nowhere.
    pub to: Option<u8>,
    /// How it ended.
    pub end: End,
    /// Why it moved, as prefetchers have it.
    pub why: Why,
    /// Whether a fault asked for the frame meanwhile.
    pub awaited: bool,
    /// Whether it left its tier and was fetched ahead for nothing.
    pub unused_prefetch: bool,
}

/// Counters since the machine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames made of zeros.
    pub fills: u64,
    /// Frames fetched for a demand.
    pub fetches: u64,
    /// Frames fetched ahead.
    pub prefetches: u64,
    /// Frames moved down with their bytes.
    pub demotions: u64,
    /// Frames that went without a write.
    pub drops: u64,
    /// Frames moved to a faster tier in place.
    pub promotions: u64,
    /// Frames written back that stayed.
    pub write_backs: u64,
    /// Copies given up for room, or because their frame was written.
    pub copies_gone: u64,
    /// Frames that orders were asked for, spared ones included.
    pub looks: u64,
    /// Frames fetched ahead that left unused.
    pub unused_prefetches: u64,
}
