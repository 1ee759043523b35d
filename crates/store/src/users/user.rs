//! User: passwords, commands, keys and channels.

use std::sync::Arc;

use super::commands::Commands;
use super::password::Digest;
use crate::glob;

/// Access of a request to a key. Neither: it only asks about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// It reads the value.
    pub read: bool,
    /// It changes the value or removes it.
    pub write: bool,
}

impl Access {
    /// Only asks about it.
    pub const ASK: Access = Access { read: false, write: false };
    /// Only reads.
    pub const READ: Access = Access { read: true, write: false };
    /// Only writes.
    pub const WRITE: Access = Access { read: false, write: true };
    /// Reads and writes.
    pub const BOTH: Access = Access { read: true, write: true };

    fn covers(self, wanted: Access) -> bool {
        (self.read || !wanted.read) && (self.write || !wanted.write)
    }
}

/// Keys that a user may look at, or change, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyPattern {
    pub text: Box<str>,
    pub access: Access,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: Arc<str>,
    pub(super) on: bool,
    pub(super) no_password: bool,
    /// In the order in which they were given.
    pub(super) passwords: Vec<Digest>,
    pub(super) commands: Commands,
    pub(super) all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    pub(super) all_channels: bool,
    pub(super) channels: Vec<Box<str>>,
}

impl User {
    /// One that can do nothing, not even log in.
    pub(super) fn nothing(name: &str) -> Self {
        User {
            name: name.into(),
            on: false,
            no_password: false,
            passwords: Vec::new(),
            commands: Commands::none(),
            all_keys: false,
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
        }
    }

    /// One that can do everything, and needs no password.
    pub(super) fn everything(name: &str) -> Self {
        User {
            on: true,
            no_password: true,
            commands: Commands::all(),
            all_keys: true,
            all_channels: true,
            ..User::nothing(name)
        }
    }

    /// The name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether it may log in.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Whether any password is right.
    pub fn needs_no_password(&self) -> bool {
        self.no_password
    }

    /// Whether no request of it need be checked.
    pub fn may_everything(&self) -> bool {
        self.all_keys && self.all_channels && self.commands.are_all()
    }

    /// Makes this the only password; without one any is right.
    pub(super) fn set_password(&mut self, password: Option<Digest>) {
        self.no_password = password.is_none();
        self.passwords = password.into_iter().collect();
    }

    /// Whether a password with this digest is right.
    pub(super) fn takes(&self, given: &Digest) -> bool {
        // All are looked at, so that the time does not tell which one it was.
        let right = self.passwords.iter().fold(false, |right, known| right | known.is(given));
        self.no_password || right
    }

    /// Whether it may run the command of this number.
    #[inline]
    pub fn may_run(&self, command: usize) -> bool {
        self.commands.has(command)
    }

    /// Whether it may do this to a key.
    #[inline]
    pub fn may_touch(&self, key: &[u8], wanted: Access) -> bool {
        let mut patterns = self.keys.iter().filter(|pattern| pattern.access.covers(wanted));
        self.all_keys || patterns.any(|pattern| glob::matches(pattern.text.as_bytes(), key, false))
    }

    /// Whether it may read every key that begins so.
    pub fn may_read_all(&self, prefix: &[u8]) -> bool {
        let reads = |text: &str| {
            let literal = text.strip_suffix('*').filter(|rest| !rest.contains(['*', '?', '[', '\\']));
            literal.is_some_and(|literal| prefix.starts_with(literal.as_bytes()))
        };
        self.all_keys || self.keys.iter().any(|pattern| pattern.access.read && reads(&pattern.text))
    }

    /// Whether it may publish to a channel and subscribe to it.
    pub fn may_use_channel(&self, channel: &[u8]) -> bool {
        let matches = |pattern: &str| glob::matches(pattern.as_bytes(), channel, false);
        self.all_channels || self.channels.iter().any(|pattern| matches(pattern))
    }

    /// Whether it may subscribe to a pattern: only to one that it was given.
    pub fn may_use_pattern(&self, pattern: &[u8]) -> bool {
        self.all_channels || self.channels.iter().any(|known| known.as_bytes() == pattern)
    }
}
