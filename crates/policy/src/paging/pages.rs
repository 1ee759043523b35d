//! Pages: the frame of each, what DRAM has room for, and what is sent away.

use super::config::{Config, Reclaim, UNLIMITED_PAGES, Watermarks};
use super::counts::Counts;
use super::event::Act;
use super::page_map::{CHUNK, PageMap};
use super::page_range::PageRange;
use super::refaults::Refaults;
use super::room::Room;
use crate::column::Bits;
use crate::evict::Evict;
use crate::frames::{self, ConfigError, Frame, Frames};
use tiermem_base::Rng;

/// What comes along with an event.
#[derive(Debug)]
pub(super) struct Along<'a> {
    pub now: u64,
    pub rng: &'a mut Rng,
    pub acts: &'a mut Vec<Act>,
}

/// The pages of a program, where each of them lies, and which move.
#[derive(Clone, Debug)]
pub(super) struct Pages<E> {
    pub frames: Frames<E>,
    pub map: PageMap,
    pub room: Room,
    pub refaults: Refaults,
    pub counts: Counts,
    /// Pages that hold data in the last tier though none of them was seen yet.
    pub stored: PageRange,
    /// The tier that the kernel pages out to: the first that is not in place.
    pub swap_tier: u8,
    /// The tier in place from which pages leave memory as others come. What is decided about room is decided about this one.
    pub turnover_tier: u8,
    reclaim: Reclaim,
    /// Frames that a plan holds in DRAM.
    held: Bits,
    /// Held pages that the simulated kernel has taken, until the plan hears of them.
    taken: Vec<u64>,
    /// Acts of the frames, until they are translated.
    pub acts: Vec<frames::Act>,
}

impl<E: Evict> Pages<E> {
    pub fn new(config: &Config, pages_ahead: u32, policy: E) -> Result<Self, ConfigError> {
        let dram_pages = config.tiers.get(config.turnover_tier()).map_or(0, |tier| tier.frames);
        Ok(Pages {
            frames: Frames::new(config.frames(), policy)?,
            map: PageMap::default(),
            room: Room::new(dram_pages, pages_ahead),
            refaults: Refaults::default(),
            counts: Counts::default(),
            stored: config.stored,
            swap_tier: config.tiers.iter().take_while(|tier| tier.in_place).count() as u8,
            turnover_tier: config.turnover_tier() as u8,
            reclaim: config.reclaim,
            held: Bits::default(),
            taken: Vec::new(),
            acts: Vec::new(),
        })
    }

    /// A frame for a page that has none. A page that is known to hold data lies in the last tier then.
    pub fn give(&mut self, page: u64, now: u64) -> Option<Frame> {
        let frame = self.map.give(page)?;
        self.frames.grow_to(self.map.frames());
        self.refaults.grow_to(self.map.frames());
        self.held.grow_to(Frame(self.map.frames().saturating_sub(1)).id());
        if self.stored.holds(page) {
            self.frames.adopt(frame, self.frames.space().tiers() - 1, now, &mut self.acts);
        }
        Some(frame)
    }

    /// Turns acts of the frames into acts on pages.
    pub fn translate(&mut self, acts: &mut Vec<Act>) {
        for act in self.acts.drain(..) {
            let leaves = match act {
                frames::Act::Demote { frame, to, .. } if to > self.turnover_tier => Some(frame),
                frames::Act::Drop { frame, to, .. } if to.is_none_or(|to| to > self.turnover_tier) => {
                    Some(frame)
                }
                _ => None,
            };
            if let Some(frame) = leaves.filter(|frame| self.held.get(frame.id())) {
                // Nothing else sends away what is held.
                debug_assert_eq!(self.reclaim, Reclaim::SimulatedKernel);
                self.held.set(frame.id(), false);
                self.taken.push(self.map.page_of(frame));
            }
            acts.push(match act {
                frames::Act::Demote { ticket, frame, from, to, .. } => {
                    Act::PageOut { ticket, page: self.map.page_of(frame), from, to: Some(to), clean: false }
                }
                frames::Act::Drop { ticket, frame, from, to } => {
                    Act::PageOut { ticket, page: self.map.page_of(frame), from, to, clean: true }
                }
                frames::Act::Fetch { ticket, frame, from, to, why } => {
                    Act::Fetch { ticket, page: self.map.page_of(frame), from, to, why }
                }
                // Bytes are the kernel's, which knows what it has; no fault waits here, so none calls a move back.
                frames::Act::Free { .. } | frames::Act::Recall { .. } => continue,
                // Frames are filled and written back where somebody asks for it. Nobody does here.
                frames::Act::Fill { .. } | frames::Act::WriteBack { .. } => continue,
            });
        }
    }

    /// DRAM has so many pages from now on.
    pub fn set_dram(&mut self, dram_pages: u32, watermarks: Watermarks) {
        self.room.dram_pages = dram_pages;
        self.set_capacity(dram_pages, watermarks);
    }

    /// All that DRAM is used for takes so many pages.
    pub fn charged(&mut self, pages: u64) {
        let faster = (0..self.turnover_tier).map(|tier| u64::from(self.frames.space().used(tier))).sum();
        let dram_pages = self.room.charge(pages.saturating_sub(faster), self.used_pages());
        self.set_capacity(dram_pages, Watermarks::of(dram_pages));
    }

    fn set_capacity(&mut self, dram_pages: u32, watermarks: Watermarks) {
        let (dram_pages, watermarks) = match self.reclaim {
            Reclaim::Order | Reclaim::SimulatedKernel => (dram_pages, watermarks),
            Reclaim::Kernel => (UNLIMITED_PAGES, Watermarks::of(UNLIMITED_PAGES)),
        };
        let high = watermarks.high.min(dram_pages.saturating_sub(1));
        self.frames.set_capacity(self.turnover_tier, dram_pages, &mut self.acts);
        self.frames.set_watermarks(self.turnover_tier, watermarks.low.min(high), high);
    }

    /// Pages in the tier from which they leave memory.
    pub fn used_pages(&self) -> u32 {
        self.frames.space().used(self.turnover_tier)
    }

    /// A page has come to DRAM, or will.
    pub fn has_come(&mut self) {
        self.room.has_come();
        self.refaults.has_come(self.used_pages().saturating_sub(self.room.dram_pages));
    }

    /// Whether so little of DRAM is free that what comes next makes something leave.
    pub fn is_full(&self) -> bool {
        self.room.is_full(self.used_pages())
    }

    /// Holds a frame that lies in DRAM: nothing that is decided here sends it away. The kernel's reclaim does not know of that.
    pub fn hold(&mut self, frame: Frame) {
        let is_in_memory = self.frames.view(frame).tier.is_some_and(|tier| tier <= self.turnover_tier);
        if !self.held.get(frame.id()) && is_in_memory {
            self.held.set(frame.id(), true);
            if self.reclaim == Reclaim::Order {
                self.frames.pin(frame);
            }
        }
    }

    /// Holds it no longer.
    pub fn let_go(&mut self, frame: Frame) {
        if self.held.get(frame.id()) {
            self.held.set(frame.id(), false);
            if self.reclaim == Reclaim::Order {
                self.frames.unpin(frame);
            }
        }
    }

    /// Whether it is held.
    pub fn is_held(&self, frame: Frame) -> bool {
        self.held.get(frame.id())
    }

    /// The next held page that the simulated kernel has taken.
    pub fn next_taken(&mut self) -> Option<u64> {
        self.taken.pop()
    }

    /// Whether a page can be sent away.
    pub fn may_leave(&self, page: u64) -> bool {
        let may_leave = |frame| self.frames.view(frame).may_leave(self.turnover_tier) && !self.is_held(frame);
        self.map.find(page).is_some_and(may_leave)
    }

    /// Sends a page away if it can be; whether it was.
    pub fn send_away(&mut self, page: u64, along: &mut Along<'_>) -> bool {
        let frame = self.map.find(page).filter(|_| self.may_leave(page));
        let sent = frame.and_then(|frame| self.frames.send_down(frame, along.now, along.rng, &mut self.acts));
        if sent.is_some() {
            self.room.has_left();
        }
        sent.is_some()
    }

    /// Calls `on` for each page of a range that has a frame, in ascending order.
    pub fn each(&mut self, pages: PageRange, mut on: impl FnMut(&mut Self, u64, Frame)) {
        let mut rest = pages;
        while let Some((start, frames)) = self.map.next_chunk(rest) {
            for (page, frame) in (start..).zip(frames) {
                if let Some(frame) = frame.checked_sub(1).map(Frame).filter(|_| pages.holds(page)) {
                    on(self, page, frame);
                }
            }
            rest.first = start.saturating_add(CHUNK);
        }
    }

    /// Bytes held, those of the eviction policy among them.
    pub fn metadata_bytes(&self) -> u64 {
        self.frames.metadata_bytes()
            + self.frames.policy().metadata_bytes()
            + self.map.bytes()
            + self.refaults.metadata_bytes()
            + self.held.bytes()
            + (self.taken.capacity() * size_of::<u64>()) as u64
    }
}
