//! Tenant of a key, by its database or by its prefix. Both follow from the key alone, so an
//! item that comes back from flash or from a snapshot needs no record of its tenant. Owners
//! of prefixes are in a table; looking a key up there allocates nothing. Tenant numbers are
//! given on first use and differ between shards; names are the same in all shards.

use tiermem_model::advisor::{OTHERS, Tenants};

use super::DATABASES;

/// Bytes of a key in which its prefix must end.
pub const PREFIX_BYTES_MAX: usize = 64;

/// How tenants of keys are determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Not at all.
    #[default]
    Nobody,
    /// By the number of their database.
    Database,
    /// By the part of the key before the first of this byte, within its first 64 bytes.
    Prefix(u8),
    /// By the owner of the key's prefix.
    User,
}

/// A name, and how its keys begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Prefix of its keys; not empty.
    pub prefix: String,
    /// The tenant's name.
    pub name: String,
}

#[derive(Debug)]
struct Entry {
    prefix: Box<[u8]>,
    tenant: u16,
    /// The entry with the longest prefix that this one's begins with, if there is any.
    within: Option<u32>,
}

/// Prefixes in order, so that all that begin alike stand together behind what they begin with.
#[derive(Debug, Default)]
pub(super) struct Owners {
    entries: Vec<Entry>,
}

impl Owners {
    /// Of prefixes and the numbers of their tenants.
    pub fn new(mut owners: Vec<(&[u8], u16)>) -> Self {
        owners.sort_unstable();
        let mut entries: Vec<Entry> = Vec::with_capacity(owners.len());
        for (prefix, tenant) in owners {
            let mut within = entries.len().checked_sub(1).map(|at| at as u32);
            while let Some(at) = within
                && !prefix.starts_with(&entries[at as usize].prefix)
            {
                within = entries[at as usize].within;
            }
            entries.push(Entry { prefix: prefix.into(), tenant, within });
        }
        Owners { entries }
    }

    /// The tenant with the longest prefix that the key begins with. What stands last at or before the key begins with all
    /// prefixes that the key begins with, so one look among the entries and a few steps outward find it.
    #[inline]
    pub fn of(&self, key: &[u8]) -> Option<u16> {
        let mut at = self.entries.partition_point(|entry| *entry.prefix <= *key).checked_sub(1);
        while let Some(entry) = at.and_then(|at| self.entries.get(at)) {
            if key.starts_with(&entry.prefix) {
                return Some(entry.tenant);
            }
            at = entry.within.map(|at| at as usize);
        }
        None
    }
}

/// Assignment of keys to tenants, by the key alone.
#[derive(Debug)]
pub(super) struct Whose {
    by: By,
    owners: Owners,
}

impl Whose {
    pub fn new(by: By) -> Self {
        Whose { by, owners: Owners::default() }
    }

    /// How tenants of keys are determined.
    #[inline]
    pub fn by(&self) -> By {
        self.by
    }

    /// Assigns prefixes to these tenants from now on.
    pub fn set_owners(&mut self, owners: Vec<(&[u8], u16)>) {
        self.owners = Owners::new(owners);
    }

    /// The tenants that there are before any key is.
    pub fn names(by: By, tells_apart: bool) -> Vec<String> {
        match by {
            By::Nobody if !tells_apart => Vec::new(),
            By::Nobody => vec!["(all)".to_owned()],
            By::Database => (0..DATABASES).map(|db| db.to_string()).collect(),
            By::Prefix(_) | By::User => vec!["(others)".to_owned()],
        }
    }

    /// The tenant of a key, if it is known: a look-up alone makes no new tenant.
    pub fn of(&self, tenants: &Tenants, db: u8, key: &[u8]) -> u16 {
        match self.by {
            By::Nobody => OTHERS,
            By::Database => u16::from(db),
            By::User => self.owners.of(key).unwrap_or(OTHERS),
            By::Prefix(separator) => {
                prefix(separator, key).and_then(|name| tenants.number_of(name)).unwrap_or(OTHERS)
            }
        }
    }
}

/// The part of a key before the separator.
#[inline]
pub(super) fn prefix(separator: u8, key: &[u8]) -> Option<&[u8]> {
    let head = &key[..key.len().min(PREFIX_BYTES_MAX)];
    head.iter().position(|&byte| byte == separator).map(|end| &key[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_has_the_key() {
        let owners: [(&[u8], u16); 6] =
            [(b"b", 4), (b"a:b:", 2), (b"a:", 1), (b"a:b:c", 3), (b"a:x", 5), (b"c", 6)];
        let owners = Owners::new(owners.to_vec());
        for (key, tenant) in [
            ("a:1", Some(1)),
            ("a:b:1", Some(2)),
            ("a:b:", Some(2)),
            ("a:b", Some(1)),
            ("a:b:cd", Some(3)),
            ("a:b:d", Some(2)),
            ("a:c", Some(1)),
            ("a:z", Some(1)),
            ("a", None),
            ("", None),
            ("bz", Some(4)),
            ("c", Some(6)),
            ("d", None),
        ] {
            assert_eq!(owners.of(key.as_bytes()), tenant, "{key}");
        }
        assert_eq!(Owners::default().of(b"a"), None);
    }

    #[test]
    fn the_table_agrees_with_a_plain_search() {
        let words = ["a", "ab", "abc", "b", "ba", "aa", "aab", "c"];
        for chosen in 0..1u32 << words.len() {
            let some: Vec<(&[u8], u16)> = words
                .iter()
                .zip(0..)
                .filter(|(_, bit)| chosen >> bit & 1 == 1)
                .map(|(word, bit)| (word.as_bytes(), bit))
                .collect();
            let owners = Owners::new(some.clone());
            for key in ["", "a", "ab", "abcd", "aabb", "aaa", "bab", "bb", "ca", "d"] {
                let begins = some.iter().filter(|(prefix, _)| key.as_bytes().starts_with(prefix));
                let longest = begins.max_by_key(|(prefix, _)| prefix.len()).map(|(_, tenant)| *tenant);
                assert_eq!(owners.of(key.as_bytes()), longest, "{chosen:b} {key}");
            }
        }
    }
}
