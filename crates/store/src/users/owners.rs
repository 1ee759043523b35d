//! Owners of keys, if users are tenants: by the literal part of a pattern before its first wildcard.

use std::collections::BTreeMap;

use super::user::User;
use crate::engine::Owner;

/// Two users would be the tenant of the same keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "users {first:?} and {second:?} would both own the keys that begin with {prefix:?}: where users are tenants, give each a \
     prefix of its own, or let one of them only read there (%R~{prefix}*)"
)]
pub struct SharedPrefix {
    /// Prefix of the keys.
    pub prefix: String,
    /// The one user.
    pub first: String,
    /// The other.
    pub second: String,
}

/// The literal prefix of all keys that match a pattern.
fn literal_prefix(pattern: &str) -> String {
    let mut prefix = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '*' | '?' | '[' => break,
            '\\' => prefix.extend(letters.next().or(Some('\\'))),
            _ => prefix.push(letter),
        }
    }
    prefix
}

/// A user that only reads keys does not own them.
pub(super) fn of<'a>(users: impl Iterator<Item = &'a User>) -> Result<Vec<Owner>, SharedPrefix> {
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for user in users {
        for pattern in user.keys.iter().filter(|pattern| pattern.access.write) {
            let prefix = literal_prefix(&pattern.text);
            if prefix.is_empty() {
                continue;
            }
            match owners.get(&prefix) {
                Some(&first) if first != &**user.name() => {
                    let (first, second) = (first.to_owned(), user.name().as_ref().to_owned());
                    return Err(SharedPrefix { prefix, first, second });
                }
                _ => owners.insert(prefix, user.name()),
            };
        }
    }
    let owner = |(prefix, name): (String, &str)| Owner { prefix, name: name.to_owned() };
    Ok(owners.into_iter().map(owner).collect())
}
