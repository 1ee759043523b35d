//! Keyspace notifications: the changes that are published, and their channel names.

use crate::engine::Change;

/// A class of events, as one of the letters of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(u16);

impl Class {
    /// Commands that concern keys of any type.
    pub const GENERIC: Class = Class(1);
    /// Commands on strings.
    pub const STRING: Class = Class(2);
    /// Commands on hashes.
    pub const HASH: Class = Class(1 << 4);
    const EXPIRED: Class = Class(1 << 6);
    const EVICTED: Class = Class(1 << 7);
    const NEW: Class = Class(1 << 10);
    /// Reads of keys that are not there.
    pub const MISS: Class = Class(1 << 11);
}

/// `K` and `E`: to which channels.
const KEYSPACE: u16 = 1 << 12;
const KEYEVENT: u16 = 1 << 13;
/// The classes that `A` abbreviates: `g$lshzxetd`.
const ALL: u16 = (1 << 10) - 1;
/// The letters in the order in which Redis shows them, from the lowest bit.
const LETTERS: &[u8; 14] = b"g$lshzxetdnmKE";
/// The order in which Redis shows them behind the classes.
const SHOWN: [usize; 14] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 11];

/// The value of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotifyFlags(u16);

impl NotifyFlags {
    /// Reads the letters; `None` when there is another one.
    pub fn parse(text: &[u8]) -> Option<Self> {
        text.iter().try_fold(NotifyFlags(0), |flags, letter| match letter {
            b'A' => Some(NotifyFlags(flags.0 | ALL)),
            letter => {
                let bit = LETTERS.iter().position(|known| known == letter)?;
                Some(NotifyFlags(flags.0 | 1 << bit))
            }
        })
    }

    /// The letters; all of `A` as `A`, and then without `n`, as Redis shows them.
    pub fn text(self) -> String {
        let all = self.0 & ALL == ALL;
        let letters = SHOWN.into_iter().filter(|bit| self.0 & 1 << bit != 0 && !(all && *bit <= 10));
        let letters = letters.map(|bit| char::from(LETTERS[bit]));
        all.then_some('A').into_iter().chain(letters).collect()
    }

    /// Whether anything is published at all.
    pub fn is_on(self) -> bool {
        self.0 & (KEYSPACE | KEYEVENT) != 0 && self.0 & !(KEYSPACE | KEYEVENT) != 0
    }

    /// The channels of an event, with the message on each.
    pub(super) fn messages(self, event: &str, db: u8, key: &[u8]) -> [Option<(Vec<u8>, Vec<u8>)>; 2] {
        let keyspace = || ([format!("__keyspace@{db}__:").as_bytes(), key].concat(), event.into());
        let keyevent = || (format!("__keyevent@{db}__:{event}").into_bytes(), key.into());
        [(self.0 & KEYSPACE != 0).then(keyspace), (self.0 & KEYEVENT != 0).then(keyevent)]
    }

    /// Whether events of this class are.
    pub fn has(self, class: Class) -> bool {
        self.is_on() && self.0 & class.0 != 0
    }
}

/// The author of a change: the client, and the event name of its command.
#[derive(Clone, Copy, Debug)]
pub struct Author {
    /// The client, 0 for the store itself.
    pub client: u64,
    /// The class of its command.
    pub class: Class,
    /// The event that a write by it is.
    pub event: &'static str,
}

impl Author {
    /// The store itself: what expires or is evicted without a request.
    pub const STORE: Author = Author { client: 0, class: Class::GENERIC, event: "" };
}

/// The events that a change is, in Redis's order.
pub(super) fn events(change: Change, author: &Author) -> [Option<(Class, &'static str)>; 3] {
    let one = |class, event| [Some((class, event)), None, None];
    match change {
        Change::Written { new, expires } => [
            new.then_some((Class::NEW, "new")),
            Some((author.class, author.event)),
            // A copy takes its expiry along, and that is no event.
            (expires && author.class == Class::STRING).then_some((Class::GENERIC, "expire")),
        ],
        Change::New => one(Class::NEW, "new"),
        Change::Changed => one(author.class, author.event),
        Change::FieldsExpired => one(Class::HASH, "hexpired"),
        Change::Removed if author.event == "rename_to" => one(Class::GENERIC, "rename_from"),
        Change::Removed => one(Class::GENERIC, "del"),
        Change::Expires => one(Class::GENERIC, "expire"),
        Change::Persisted => one(Class::GENERIC, "persist"),
        Change::Expired => one(Class::EXPIRED, "expired"),
        Change::Evicted => one(Class::EVICTED, "evicted"),
        Change::Flushed(_) => [None, None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_shown_as_in_redis() {
        for (text, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("KEAn", "AKE"),
            ("Kg$xnm", "g$xnKm"),
            ("EmA", "AEm"),
            ("g$lshzxetd", "A"),
        ] {
            assert_eq!(NotifyFlags::parse(text.as_bytes()).unwrap().text(), shown, "{text}");
        }
        assert_eq!(NotifyFlags::parse(b"KQ"), None);
        assert!(!NotifyFlags::parse(b"K").unwrap().is_on() && !NotifyFlags::parse(b"A").unwrap().is_on());
        assert!(NotifyFlags::parse(b"Ex").unwrap().has(Class::EXPIRED));
        assert!(!NotifyFlags::parse(b"Ex").unwrap().has(Class::STRING));
        let message = |channel: &[u8], text: &[u8]| Some((channel.to_vec(), text.to_vec()));
        let [keyspace, keyevent] = NotifyFlags::parse(b"KEA").unwrap().messages("set", 2, b"k");
        assert_eq!(keyspace, message(b"__keyspace@2__:k", b"set"));
        assert_eq!(keyevent, message(b"__keyevent@2__:set", b"k"));
        assert_eq!(NotifyFlags::parse(b"EA").unwrap().messages("set", 2, b"k")[0], None);
    }
}
