//! Command specification: name, arity, flags and keys.

use crate::resp::Args;

/// Effects of a command on the server, in Redis's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// None.
    pub const NONE: Flags = Flags(0);
    /// May change keys.
    pub const WRITE: Flags = Flags(1);
    /// Only reads keys.
    pub const READONLY: Flags = Flags(2);
    /// Refused when memory is full.
    pub const DENYOOM: Flags = Flags(4);
    /// For administrators.
    pub const ADMIN: Flags = Flags(8);
    /// Not for scripts.
    pub const NOSCRIPT: Flags = Flags(16);
    /// Allowed while data are loaded.
    pub const LOADING: Flags = Flags(32);
    /// Allowed on a stale replica.
    pub const STALE: Flags = Flags(64);
    /// Constant or logarithmic time.
    pub const FAST: Flags = Flags(128);
    /// Allowed before the password is given.
    pub const NO_AUTH: Flags = Flags(256);
    /// Allowed while the server is busy.
    pub const ALLOW_BUSY: Flags = Flags(512);
    /// About channels.
    pub const PUBSUB: Flags = Flags(1024);
    /// Not in the slow log.
    pub const SKIP_SLOWLOG: Flags = Flags(2048);
    /// Not while data are loaded beside requests, which never happens here.
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 12);
    /// Refused where commands are queued for a transaction.
    pub const NO_MULTI: Flags = Flags(1 << 13);
    /// Runs at once where other commands are queued for a transaction. Redis has no name for it.
    pub const IN_MULTI: Flags = Flags(1 << 14);
    /// Allowed to a subscriber that speaks RESP2. Redis has no name for it.
    pub const WHILE_SUBSCRIBED: Flags = Flags(1 << 15);

    const NAMES: [(Flags, &'static str); 14] = [
        (Flags::WRITE, "write"),
        (Flags::READONLY, "readonly"),
        (Flags::DENYOOM, "denyoom"),
        (Flags::ADMIN, "admin"),
        (Flags::PUBSUB, "pubsub"),
        (Flags::NOSCRIPT, "noscript"),
        (Flags::LOADING, "loading"),
        (Flags::STALE, "stale"),
        (Flags::SKIP_SLOWLOG, "skip_slowlog"),
        (Flags::FAST, "fast"),
        (Flags::NO_AUTH, "no_auth"),
        (Flags::ALLOW_BUSY, "allow_busy"),
        (Flags::NO_ASYNC_LOADING, "no_async_loading"),
        (Flags::NO_MULTI, "no_multi"),
    ];

    /// Both sets together.
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Redis's names of those set.
    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        Self::NAMES.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}

/// The family a command belongs to; its ACL category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Values that are strings.
    String,
    /// Values that are hashes.
    Hash,
    /// Keys of any type.
    Keyspace,
    /// The connection itself.
    Connection,
    /// The server.
    Server,
    /// Channels and their subscribers.
    PubSub,
    /// Several requests as one.
    Transaction,
}

/// One command, or one of a command's subcommands.
#[derive(Debug)]
pub struct Spec {
    /// The name in lower case.
    pub name: &'static str,
    /// The command this is a subcommand of, or nothing.
    pub container: &'static str,
    /// Number of arguments including the name; negative: at least that many.
    pub arity: i8,
    /// Its effects on the server.
    pub flags: Flags,
    /// The first key's place among the arguments, the last one's (negative from the end), and the step.
    pub keys: (i8, i8, i8),
    /// Its family.
    pub group: Group,
    /// Its subcommands; where there are some, they do the work.
    pub subcommands: &'static [Spec],
}

impl Spec {
    /// Whether it takes `count` arguments.
    #[inline]
    pub fn accepts(&self, count: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= wanted } else { count == wanted }
    }

    /// The name with the container's before it, as errors show it.
    pub fn full_name(&self) -> String {
        match self.container {
            "" => self.name.to_owned(),
            container => format!("{container}|{}", self.name),
        }
    }

    /// All commands of a table, then all subcommands; a command's place there is its number.
    pub(crate) fn all(table: &'static [Spec]) -> impl Iterator<Item = &'static Spec> {
        table.iter().chain(table.iter().flat_map(|spec| spec.subcommands))
    }

    /// The number of a command of a table.
    #[inline]
    pub(crate) fn number(&'static self, table: &'static [Spec]) -> usize {
        if !self.container.is_empty() {
            return self.number_of_subcommand(table);
        }
        // Its place, from its address.
        core::ptr::from_ref(self).addr().wrapping_sub(table.as_ptr().addr()) / size_of::<Spec>()
    }

    #[cold]
    fn number_of_subcommand(&'static self, table: &'static [Spec]) -> usize {
        Self::all(table).position(|spec| core::ptr::eq(spec, self)).unwrap_or(0)
    }

    pub(super) const fn with(mut self, subcommands: &'static [Spec]) -> Self {
        self.subcommands = subcommands;
        self
    }

    pub(super) const fn of(mut self, container: &'static str) -> Self {
        self.container = container;
        self
    }
}

/// The keys that a command names.
pub(super) fn keys<'a>(spec: &Spec, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let (first, last, step) = spec.keys;
    let first = usize::from(first.unsigned_abs());
    let last = if last < 0 {
        args.len() - usize::from(last.unsigned_abs())
    } else {
        usize::from(last.unsigned_abs())
    };
    // Without keys the first is 0, which is the command's name.
    let count = if first == 0 { 0 } else { (last + 1).saturating_sub(first) };
    args.iter_from(first).take(count).step_by(usize::from(step.unsigned_abs()).max(1))
}
