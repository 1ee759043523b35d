//! Syncs: how far writes are durable against power loss, where that is configured.
//!
//! At most one sync is under way. A sync makes everything durable that was written when
//! it began, so all requests that ask while one is under way share the next one (group
//! commit). Without this option every moment is past at once, and no request waits.

use tiermem_policy::shard::Settling;

use super::removals::{Removals, Sync};

/// A moment up to which something was written: past when the sync of this number is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// The syncs of one device.
#[derive(Debug, Default)]
pub struct Syncs {
    /// Whether durability against power loss is configured.
    wanted: bool,
    /// The numbers of the last sync that was asked for, begun, and done.
    asked: u64,
    begun: u64,
    done: u64,
    /// Something was written since the last one began.
    unsynced: bool,
    /// What the replies to requests since the last promise wait for.
    owed: Moment,
    /// What was removed and is not durable.
    removals: Removals,
    /// What waits, and until when.
    awaited: Vec<(Settling, Moment)>,
}

impl Syncs {
    /// No syncs yet; `wanted` if durability against power loss is configured.
    pub fn new(wanted: bool) -> Self {
        Syncs { wanted, ..Syncs::default() }
    }

    /// Whether power loss matters.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Notes that something was written.
    #[inline]
    pub fn note_write(&mut self) {
        self.unsynced = true;
    }

    /// Asks that what is written by now become durable.
    pub fn ask(&mut self) -> Moment {
        if !self.wanted {
            return Moment::default();
        }
        // One that is under way began before this was written.
        self.asked = self.begun + 1;
        Moment(self.asked)
    }

    /// Notes that a removal was journaled, which replies say: of a copy of the key of this hash, or of a whole database.
    #[inline]
    pub fn removed(&mut self, hash: Option<u64>) {
        if self.wanted {
            match hash {
                Some(hash) => self.removals.add(hash),
                None => self.removals.add_all(),
            }
            self.owed = Moment(self.begun + 1);
        }
    }

    /// Notes that a request changes the key of this hash, of which nothing lies on flash: its reply waits for the last removal.
    #[inline]
    pub fn changed(&mut self, hash: u64) {
        if self.wanted
            && let Some(sync) = self.removals.find(hash)
        {
            let number = if sync == Sync::Next { self.begun + 1 } else { self.begun };
            self.owed = self.owed.max(Moment(number));
        }
    }

    /// The moment that replies wait for: past where nothing was removed since the last one, nor changed that was removed
    /// and is not durable.
    #[inline]
    pub fn promise(&mut self) -> Moment {
        let owed = std::mem::take(&mut self.owed);
        self.asked = self.asked.max(owed.0);
        owed
    }

    /// Settles `what` once everything written by now is durable.
    pub fn settle(&mut self, what: Settling) {
        let moment = self.ask();
        self.awaited.push((what, moment));
    }

    /// The next of what has waited long enough.
    pub fn take_settled(&mut self) -> Option<Settling> {
        let at = self.awaited.iter().position(|(_, moment)| self.is_past(*moment))?;
        Some(self.awaited.remove(at).0)
    }

    /// Asks for it unless nothing was written since.
    pub fn ask_if_unsynced(&mut self) {
        if self.unsynced {
            self.ask();
        }
    }

    /// Whether what was written up to then is durable.
    #[inline]
    pub fn is_past(&self, moment: Moment) -> bool {
        !self.wanted || moment.0 <= self.done
    }

    /// Whether a sync is to begin.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.asked > self.begun && self.begun == self.done
    }

    /// Notes that one begins.
    pub fn begin(&mut self) {
        self.begun += 1;
        self.unsynced = false;
        self.removals.begin_sync();
    }

    /// Notes that the one under way is done.
    pub fn end(&mut self) {
        self.done = self.begun;
        self.removals.end_sync();
    }

    /// Ends all waiting: after a failure nothing can be promised any more.
    pub fn give_up(&mut self) {
        self.wanted = false;
        self.removals = Removals::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_ask_while_one_is_under_way_share_the_next() {
        let mut syncs = Syncs::new(true);
        let first = syncs.ask();
        assert!(syncs.is_due() && !syncs.is_past(first));
        syncs.begin();
        let (second, third) = (syncs.ask(), syncs.ask());
        assert!(second == third && second > first && !syncs.is_due());
        syncs.end();
        assert!(syncs.is_past(first) && !syncs.is_past(second) && syncs.is_due());
        syncs.begin();
        syncs.end();
        assert!(syncs.is_past(third) && !syncs.is_due());
    }

    #[test]
    fn what_waits_is_settled_in_turn() {
        let emptied = |segment| Settling::Emptied { segment };
        let mut syncs = Syncs::new(true);
        syncs.settle(emptied(1));
        syncs.begin();
        syncs.settle(emptied(2));
        assert_eq!(syncs.take_settled(), None);
        syncs.end();
        assert_eq!((syncs.take_settled(), syncs.take_settled()), (Some(emptied(1)), None));
        assert_eq!(syncs.promise(), Moment::default(), "nothing was removed");
        syncs.removed(Some(7));
        let promised = syncs.promise();
        assert!(!syncs.is_past(promised));
        assert_eq!(syncs.promise(), Moment::default(), "it was promised once");
        syncs.give_up();
        assert_eq!((syncs.take_settled(), syncs.take_settled()), (Some(emptied(2)), None));
    }

    #[test]
    fn who_changes_what_was_removed_waits_for_the_same_sync() {
        let mut syncs = Syncs::new(true);
        syncs.removed(Some(7 << 24));
        let first = syncs.promise();
        syncs.changed(8 << 24);
        assert_eq!(syncs.promise(), Moment::default(), "another key");
        syncs.changed(7 << 24);
        assert_eq!(syncs.promise(), first, "before it begins");
        syncs.begin();
        syncs.changed(7 << 24);
        assert_eq!(syncs.promise(), first, "while it is under way");
        assert!(!syncs.is_due(), "nobody waits for another one");
        syncs.removed(None);
        syncs.changed(7 << 24);
        let second = syncs.promise();
        assert!(second > first && syncs.asked == second.0);
        syncs.end();
        syncs.changed(7 << 24);
        assert_eq!(syncs.promise(), second, "it was flushed since");
        syncs.begin();
        syncs.end();
        syncs.changed(7 << 24);
        assert_eq!(syncs.promise(), Moment::default());
        syncs.removed(Some(7 << 24));
        syncs.give_up();
        syncs.changed(7 << 24);
        assert!(syncs.is_past(syncs.owed), "nothing can be promised any more");
    }

    #[test]
    fn nobody_waits_where_it_is_not_wanted() {
        let mut syncs = Syncs::new(false);
        syncs.note_write();
        syncs.ask_if_unsynced();
        syncs.removed(Some(7 << 24));
        let moment = syncs.ask().max(syncs.promise());
        assert!(syncs.is_past(moment) && !syncs.is_due());
    }
}
