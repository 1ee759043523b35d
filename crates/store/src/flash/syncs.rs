//! How far what was written is durable against power loss, where that is asked for.
//!
//! At most one sync is under way, and whatever was written when it begins is durable when it is done: so all who ask
//! while one is under way share the next (group commit). Without that demand every moment is past at once, and nobody
//! waits.

use tiermem_policy::shard::Settling;

/// A moment up to which something was written: past when the sync of this number is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// The syncs of one device.
#[derive(Debug, Default)]
pub struct Syncs {
    /// Whether anybody cares.
    wanted: bool,
    /// The numbers of the last sync that was asked for, begun, and done.
    asked: u64,
    begun: u64,
    done: u64,
    /// Something was written since the last one began.
    unsynced: bool,
    /// Something was removed since the last promise.
    owes: bool,
    /// What waits, and until when.
    awaited: Vec<(Settling, Moment)>,
}

impl Syncs {
    /// None so far; `wanted` if anything is to be durable at all.
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

    /// Notes that something was removed, which replies say.
    #[inline]
    pub fn owe(&mut self) {
        self.owes = true;
    }

    /// The moment that replies wait for: past where nothing was removed since the last one.
    #[inline]
    pub fn promise(&mut self) -> Moment {
        if std::mem::take(&mut self.owes) { self.ask() } else { Moment::default() }
    }

    /// Has something wait until what is written by now is durable.
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
    }

    /// Notes that the one under way is done.
    pub fn end(&mut self) {
        self.done = self.begun;
    }

    /// Nothing can be promised any more, so nobody is to wait.
    pub fn give_up(&mut self) {
        self.wanted = false;
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
        syncs.owe();
        let promised = syncs.promise();
        assert!(!syncs.is_past(promised));
        assert_eq!(syncs.promise(), Moment::default(), "it was promised once");
        syncs.give_up();
        assert_eq!((syncs.take_settled(), syncs.take_settled()), (Some(emptied(2)), None));
    }

    #[test]
    fn nobody_waits_where_it_is_not_wanted() {
        let mut syncs = Syncs::new(false);
        syncs.note_write();
        syncs.ask_if_unsynced();
        let moment = syncs.ask();
        assert!(syncs.is_past(moment) && !syncs.is_due());
    }
}
