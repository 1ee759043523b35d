//! Session flags: what is unusual about a session, in one word that is tested once per request.

/// A set of unusual states; none for almost all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode(u16);

impl Mode {
    /// Requests are queued for a transaction.
    pub const MULTI: Mode = Mode(1);
    /// Nothing is replied (`CLIENT REPLY OFF`).
    pub const SILENT: Mode = Mode(2);
    /// Nothing is replied to the next request (`CLIENT REPLY SKIP`).
    pub const SKIP_NEXT: Mode = Mode(4);
    /// Keys that it reads are remembered for it.
    pub const TRACKS: Mode = Mode(8);
    /// It is subscribed to something.
    pub const SUBSCRIBED: Mode = Mode(16);
    /// Its reads leave no trace in the order of eviction (`CLIENT NO-TOUCH`).
    pub const NO_TOUCH: Mode = Mode(32);

    /// Its client is at home in another shard, where its requests are counted and monitored.
    pub const GUEST: Mode = Mode(64);

    /// It has logged in as a user of its own, so its permissions are checked.
    pub const RESTRICTED: Mode = Mode(128);

    /// Its request found no room for the reply and comes again: it was counted, and told to monitors.
    pub const PUT_OFF: Mode = Mode(256);

    /// Whether all of `other` are set.
    #[inline]
    pub fn has(self, other: Mode) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets or clears `other`.
    pub fn set(&mut self, other: Mode, on: bool) {
        self.0 = if on { self.0 | other.0 } else { self.0 & !other.0 };
    }

    /// The word itself; 0 when nothing is unusual.
    #[inline]
    pub fn bits(self) -> u16 {
        self.0
    }
}
