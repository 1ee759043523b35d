//! The acts that a cleaner asks of its driver, and the driver's answers.

use std::ops::Range;

use crate::extents::{UNIT_BYTES, Volume};

/// The name of an act that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// An act for the driver. Units are of the volume: byte `offset` lies in unit `offset / `[`crate::extents::UNIT_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Read these units from the cache into a buffer, while no write to them is under way. Answer with [`Outcome::Copied`], or
    /// [`Outcome::Failed`] where they cannot be had now.
    Copy {
        /// Its name.
        token: Token,
        /// The volume of the bytes.
        volume: Volume,
        /// At most [`super::BATCH_BYTES`].
        units: Range<u64>,
    },
    /// Write these units, out of the buffer of the copy that was just answered, to the volume's store. Answer with [`Outcome::Sent`],
    /// [`Outcome::Failed`] or [`Outcome::Full`].
    Send {
        /// Its name.
        token: Token,
        /// The volume of the bytes.
        volume: Volume,
        /// A run of the units that were copied.
        units: Range<u64>,
    },
    /// Flush the volume's store. Answer with [`Outcome::Flushed`], [`Outcome::Failed`] or [`Outcome::Full`].
    Flush {
        /// Its name.
        token: Token,
        /// The volume.
        volume: Volume,
    },
    /// The volume's store need not keep these units, whose clean bytes leave the cache first. Answer with [`Outcome::Trimmed`],
    /// [`Outcome::Failed`] or [`Outcome::Full`]. Writes to them go on meanwhile, and stay in the cache until that.
    Trim {
        /// Its name.
        token: Token,
        /// The volume.
        volume: Volume,
        /// Some of them may be dirty by now.
        units: Range<u64>,
    },
    /// The store has these units for good. Once the driver has noted that for good as well, it says so to
    /// [`crate::extents::Units::cleaned`], as far as they are not dirty again ([`super::Cleaner::lacks_nothing_of`]). There may be none;
    /// writers that wait try again in any case.
    Clean {
        /// The volume.
        volume: Volume,
        /// Ascending.
        runs: Vec<Range<u64>>,
    },
    /// Nothing changes by itself before this time: ask again then, or when something has happened. Each step that ends without it says
    /// that time alone changes nothing.
    Wait {
        /// On the driver's clock.
        until_ns: u64,
    },
}

/// The outcome of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// These runs of a copy's units, ascending, are in a buffer. Units that are missing are not dirty any more, or lost.
    Copied(&'a [Range<u64>]),
    /// The store took it in this session ([`super::Cleaner::add`]).
    Sent {
        /// The store's session.
        session: u64,
    },
    /// All that the store had taken in this session before the flush began is there for good.
    Flushed {
        /// The store's session.
        session: u64,
    },
    /// The store has discarded the units, or whatever it does with a trim.
    Trimmed,
    /// It was not done, or perhaps not.
    Failed,
    /// The same of what a store was asked to do, because the store has no room.
    Full,
}

/// An act that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    Copy { volume: Volume, units: Range<u64> },
    Send { volume: Volume, units: Range<u64>, asked_ns: u64 },
    Flush { volume: Volume, asked_ns: u64 },
    Trim { volume: Volume },
}

/// The acts under way, by their names; names are used again.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay {
    acts: Vec<Option<Pending>>,
    free: Vec<u32>,
}

impl UnderWay {
    pub fn begin(&mut self, act: Pending) -> Token {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.acts.push(None);
                self.acts.len() as u32 - 1
            }
        };
        let before = self.acts[place as usize].replace(act);
        debug_assert!(before.is_none(), "a name is given once");
        Token(place)
    }

    /// Bytes of a volume that acts under way copy or send.
    pub fn bytes_of(&self, volume: Volume) -> u64 {
        let units = |act: &Pending| match act {
            Pending::Copy { volume: of, units } | Pending::Send { volume: of, units, .. }
                if *of == volume =>
            {
                units.end - units.start
            }
            _ => 0,
        };
        self.acts.iter().flatten().map(units).sum::<u64>() * UNIT_BYTES
    }

    /// Ends an act; none where no such act is under way.
    pub fn end(&mut self, token: Token) -> Option<Pending> {
        let act = self.acts.get_mut(token.0 as usize)?.take()?;
        self.free.push(token.0);
        Some(act)
    }
}
