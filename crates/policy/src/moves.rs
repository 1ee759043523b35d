//! Moves under way, found by the number of what moves: a frame, a pool page.
//!
//! A move is two-phase. It is opened when it is decided, with space taken at both ends; the driver that owns the bytes carries it
//! out and settles its [`Ticket`] with an [`Outcome`]. Tickets are settled in any order. A key may disappear before that (its
//! address range is unmapped, say): then the ticket is *void*, its key is free for another move, and both ends stay taken until
//! the ticket is settled, because a copy may still be running.
//!
//! ```text
//!   open(key) ─────> live ──settle──> done | refused | touched
//!                     │
//!                     └─void(key)──> void ──settle──> void
//! ```
//!
//! Invariants, asserted at both ends: a key has at most one live move; a ticket is settled exactly once, and a settled ticket is
//! never found again; moves and bytes opened are those settled and those under way.
//!
//! The ladder has tickets of its own, done in order ([`crate::ladder`]). Frames cannot use those: a fault must find the move of
//! its frame at once, and devices complete in any order.

/// A move's number. A number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    /// How often the slot was used before: a ticket that was settled is told from its slot's next one.
    turn: u32,
    slot: u32,
}

/// How a move ended, as its driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The bytes are at the new place.
    Done,
    /// It could not be done: a device failed, the page is pinned by the kernel. It stays where it is.
    Refused,
    /// It was used meanwhile. It stays where it is, and counts as hot.
    Touched,
}

/// A move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move<P> {
    /// The number of the thing that moves.
    pub key: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The driver's record of it, such as both places.
    pub what: P,
}

/// The move of a settled ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled<P> {
    /// A move of something that is still there.
    Live(Move<P>),
    /// A move of something that is gone.
    Void(Move<P>),
}

/// How many moves there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Opened.
    pub opened: u64,
    /// Settled as [`Outcome::Done`].
    pub done: u64,
    /// Settled as [`Outcome::Refused`].
    pub refused: u64,
    /// Settled as [`Outcome::Touched`].
    pub touched: u64,
    /// Settled after what moved was gone, whatever the outcome.
    pub void: u64,
    /// Bytes of all moves opened.
    pub bytes_opened: u64,
    /// Bytes of all moves settled.
    pub bytes_settled: u64,
}

impl Counts {
    fn settled(&self) -> u64 {
        self.done + self.refused + self.touched + self.void
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot<P> {
    /// `None`: the slot is free.
    held: Option<Move<P>>,
    is_void: bool,
    turn: u32,
}

/// No slot, in the index.
const EMPTY: u32 = u32::MAX;

/// The moves under way, bounded in number. Nothing is allocated after [`Self::new`].
#[derive(Clone, Debug)]
pub struct Moves<P> {
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
    /// Slots of live moves by key: open addressing, at most half full.
    index: Vec<u32>,
    shift: u32,
    counts: Counts,
}

impl<P: Copy> Moves<P> {
    /// Room for `in_flight_max` moves at a time, at least one.
    pub fn new(in_flight_max: u32) -> Self {
        let slots = in_flight_max.clamp(1, 1 << 24);
        let index = (2 * slots as usize).next_power_of_two();
        Moves {
            slots: vec![Slot { held: None, is_void: false, turn: 0 }; slots as usize],
            free: (0..slots).rev().collect(),
            index: vec![EMPTY; index],
            shift: 64 - index.trailing_zeros(),
            counts: Counts::default(),
        }
    }

    /// Opens a move; `None` when the largest number is under way. The caller has taken space at both ends.
    ///
    /// # Panics
    /// If the key has a live move: a caller that opens a second one has lost track of the first.
    pub fn open(&mut self, key: u64, bytes: u64, what: P) -> Option<Ticket> {
        assert!(self.position(key).is_none(), "{key} is moving already");
        let slot = self.free.pop()?;
        let held = &mut self.slots[slot as usize];
        debug_assert!(held.held.is_none(), "a free slot holds no move");
        held.held = Some(Move { key, bytes, what });
        held.is_void = false;
        let turn = held.turn;
        self.insert(key, slot);
        self.counts.opened += 1;
        self.counts.bytes_opened += bytes;
        Some(Ticket { turn, slot })
    }

    /// The live move of `key`.
    #[inline]
    pub fn find(&self, key: u64) -> Option<(Ticket, &Move<P>)> {
        let slot = self.index[self.position(key)?];
        let held = &self.slots[slot as usize];
        Some((Ticket { turn: held.turn, slot }, held.held.as_ref()?))
    }

    /// The record of the live move of `key`, to change it.
    pub fn find_mut(&mut self, key: u64) -> Option<&mut P> {
        let slot = self.index[self.position(key)?];
        self.slots[slot as usize].held.as_mut().map(|one| &mut one.what)
    }

    /// A ticket's move, and whether it is void; `None` if it was settled.
    pub fn get(&self, ticket: Ticket) -> Option<(&Move<P>, bool)> {
        let held = self.slots.get(ticket.slot as usize)?;
        let one = held.held.as_ref().filter(|_| held.turn == ticket.turn)?;
        Some((one, held.is_void))
    }

    /// The record of a ticket's move, to change it.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut P> {
        let held = self.slots.get_mut(ticket.slot as usize)?;
        let turn = held.turn;
        held.held.as_mut().filter(|_| turn == ticket.turn).map(|one| &mut one.what)
    }

    /// The thing of this key is gone: its move, if it has one, is void from now on, and the key may be given to another.
    pub fn void(&mut self, key: u64) -> Option<(Ticket, Move<P>)> {
        let position = self.position(key)?;
        let slot = self.index[position];
        self.take_out(position);
        let held = &mut self.slots[slot as usize];
        debug_assert!(!held.is_void, "the index leads to live moves only");
        held.is_void = true;
        held.held.map(|one| (Ticket { turn: held.turn, slot }, one))
    }

    /// Ends a move; `None` if the ticket was settled before.
    pub fn settle(&mut self, ticket: Ticket, outcome: Outcome) -> Option<Settled<P>> {
        let (one, is_void) = self.get(ticket).map(|(one, is_void)| (*one, is_void))?;
        if !is_void {
            let position = self.position(one.key).filter(|&at| self.index[at] == ticket.slot);
            assert!(position.is_some(), "a live move is found by its key");
            position.into_iter().for_each(|at| self.take_out(at));
        }
        let held = &mut self.slots[ticket.slot as usize];
        held.held = None;
        held.turn = held.turn.wrapping_add(1);
        self.free.push(ticket.slot);
        let under_way = self.len() as u64;
        let counts = &mut self.counts;
        counts.bytes_settled += one.bytes;
        match (is_void, outcome) {
            (true, _) => counts.void += 1,
            (_, Outcome::Done) => counts.done += 1,
            (_, Outcome::Refused) => counts.refused += 1,
            (_, Outcome::Touched) => counts.touched += 1,
        }
        assert!(counts.opened == counts.settled() + under_way, "every move is settled once");
        assert!(counts.bytes_settled <= counts.bytes_opened, "no byte arrives that never left");
        Some(if is_void { Settled::Void(one) } else { Settled::Live(one) })
    }

    /// Moves under way, void ones among them.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// How many more can be opened.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// How many can be under way at once.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// All moves under way with their tickets, and whether each is void, in no order that means anything.
    pub fn under_way(&self) -> impl Iterator<Item = (Ticket, &Move<P>, bool)> {
        self.slots.iter().zip(0u32..).filter_map(|(held, slot)| {
            held.held.as_ref().map(|one| (Ticket { turn: held.turn, slot }, one, held.is_void))
        })
    }

    /// How many there were.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes held.
    pub fn metadata_bytes(&self) -> u64 {
        let slots = self.slots.capacity() * size_of::<Slot<P>>();
        (slots + 4 * (self.free.capacity() + self.index.capacity())) as u64
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// Where the index says that `key` moves.
    #[inline]
    fn position(&self, key: u64) -> Option<usize> {
        let mask = self.index.len() - 1;
        let mut at = self.home(key);
        while self.index[at] != EMPTY {
            if self.key_at(at) == Some(key) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    #[inline]
    fn key_at(&self, at: usize) -> Option<u64> {
        self.slots[self.index[at] as usize].held.as_ref().map(|one| one.key)
    }

    fn insert(&mut self, key: u64, slot: u32) {
        let mask = self.index.len() - 1;
        let mut at = self.home(key);
        while self.index[at] != EMPTY {
            at = (at + 1) & mask;
        }
        self.index[at] = slot;
    }

    /// Empties a cell of the index; those behind it that may close up do, so that no search ends too early.
    fn take_out(&mut self, mut hole: usize) {
        let mask = self.index.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            if self.index[at] == EMPTY {
                break;
            }
            let home = self.key_at(at).map_or(at, |key| self.home(key));
            // Whether the hole lies between its home and where it is.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.index[hole] = self.index[at];
                hole = at;
            }
        }
        self.index[hole] = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_ticket_is_settled_once_and_its_slot_used_again() {
        let mut moves = Moves::new(1);
        let first = moves.open(7, 10, 'a').unwrap();
        assert_eq!(moves.open(8, 10, 'b'), None, "one at a time");
        assert_eq!(
            moves.settle(first, Outcome::Done),
            Some(Settled::Live(Move { key: 7, bytes: 10, what: 'a' }))
        );
        assert_eq!(moves.settle(first, Outcome::Done), None);
        let second = moves.open(7, 10, 'c').unwrap();
        assert_ne!(first, second);
        assert_eq!(moves.get(first), None);
        assert_eq!(moves.find(7).map(|(ticket, one)| (ticket, one.what)), Some((second, 'c')));
    }

    #[test]
    fn what_is_gone_may_come_again_while_its_old_move_is_under_way() {
        let mut moves = Moves::new(4);
        let old = moves.open(7, 1, 0).unwrap();
        assert_eq!(moves.void(7).map(|(ticket, _)| ticket), Some(old));
        assert!(moves.find(7).is_none() && moves.void(7).is_none());
        let new = moves.open(7, 1, 1).unwrap();
        assert!(matches!(moves.settle(new, Outcome::Touched), Some(Settled::Live(_))));
        assert!(matches!(moves.settle(old, Outcome::Done), Some(Settled::Void(_))));
        let counts = moves.counts();
        assert_eq!((counts.opened, counts.done, counts.touched, counts.void), (2, 0, 1, 1));
    }

    #[test]
    #[should_panic(expected = "moving already")]
    fn a_second_move_of_one_thing_is_a_mistake() {
        let mut moves = Moves::new(4);
        moves.open(7, 1, ());
        moves.open(7, 1, ());
    }

    proptest! {
        /// The naive twin: lists of live and void moves.
        #[test]
        fn equals_maps(
            ops in prop::collection::vec((0u8..6, 0u64..40, 0usize..40), 1..600),
            room in 1u32..20,
            far in any::<bool>(),
        ) {
            let mut moves = Moves::new(room);
            let mut live: BTreeMap<u64, (Ticket, u32)> = BTreeMap::new();
            let mut void: Vec<(Ticket, u64, u32)> = Vec::new();
            let mut past: Vec<Ticket> = Vec::new();
            // Keys that lie far apart, and keys whose hashes are neighbours.
            let key = |key: u64| if far { key.wrapping_mul(1 << 50 | 1) } else { key };
            for (number, (what, k, nth)) in (0u32..).zip(ops) {
                let k = key(k);
                match what {
                    0..=2 if !live.contains_key(&k) => {
                        let full = live.len() + void.len() == room as usize;
                        let ticket = moves.open(k, u64::from(number), number);
                        prop_assert_eq!(ticket.is_none(), full);
                        if let Some(ticket) = ticket {
                            prop_assert!(!past.contains(&ticket));
                            live.insert(k, (ticket, number));
                        }
                    }
                    3 => {
                        let gone = live.remove(&k);
                        prop_assert_eq!(moves.void(k).map(|(ticket, one)| (ticket, one.what)), gone);
                        void.extend(gone.map(|(ticket, what)| (ticket, k, what)));
                    }
                    4 if !live.is_empty() => {
                        let k = *live.keys().nth(nth % live.len()).unwrap();
                        let (ticket, what) = live.remove(&k).unwrap();
                        let expected = Settled::Live(Move { key: k, bytes: u64::from(what), what });
                        prop_assert_eq!(moves.settle(ticket, Outcome::Done), Some(expected));
                        past.push(ticket);
                    }
                    5 if !void.is_empty() => {
                        let (ticket, k, what) = void.remove(nth % void.len());
                        let expected = Settled::Void(Move { key: k, bytes: u64::from(what), what });
                        prop_assert_eq!(moves.settle(ticket, Outcome::Done), Some(expected));
                        past.push(ticket);
                    }
                    _ => {}
                }
                for k in (0..40).map(key) {
                    prop_assert_eq!(moves.find(k).map(|(ticket, one)| (ticket, one.what)), live.get(&k).copied());
                }
                for ticket in &past {
                    prop_assert_eq!(moves.settle(*ticket, Outcome::Refused), None);
                }
                prop_assert_eq!(moves.len(), live.len() + void.len());
                prop_assert_eq!(moves.room() + moves.len(), moves.capacity());
                let bytes: u64 = moves.under_way().map(|(_, one, _)| one.bytes).sum();
                let counts = moves.counts();
                prop_assert_eq!(counts.bytes_opened - counts.bytes_settled, bytes);
            }
        }
    }
}
