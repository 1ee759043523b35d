//! Users: logins and permissions.
//!
//! Users are values, part of the [`crate::settings::Settings`]: a change is made to a copy, which
//! then replaces the old value. Every shard has all users, and receives changes in the same order.
//!
//! A session names its user by a [`Login`]. A bit of its [`crate::command::Mode`] says whether
//! it is checked at all, so requests of an unrestricted `default` user pay for none of this.

mod absent;
mod acl_text;
mod commands;
mod owners;
mod password;
mod rules;
mod user;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::Owner;
pub use commands::CATEGORIES;
pub(crate) use commands::{Command, find_category};
pub use owners::SharedPrefix;
use password::Digest;
pub use password::{Randomless, random_hex};
pub use user::{Access, User};

/// The user that clients are before they log in.
pub const DEFAULT: &str = "default";

/// A rule that cannot be taken, and why, in Redis's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule {:?}: {why}", String::from_utf8_lossy(.rule))]
pub struct BadRule {
    /// The rule as it was given.
    pub rule: Vec<u8>,
    /// The reason.
    pub why: &'static str,
}

/// All users. There is always one called `default`.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: BTreeMap<Arc<str>, Arc<User>>,
    /// The password of `default`, as `requirepass` has it.
    requirepass: Option<Box<str>>,
    /// Grows with every change, so that a [`Login`] knows whether it is of now.
    version: u64,
}

impl PartialEq for Users {
    fn eq(&self, other: &Self) -> bool {
        self.by_name == other.by_name && self.requirepass == other.requirepass
    }
}

impl Eq for Users {}

impl Default for Users {
    fn default() -> Self {
        let default = Arc::new(User::everything(DEFAULT));
        let by_name = [(Arc::clone(default.name()), default)].into();
        // A login that was never checked is of version 0.
        Users { by_name, requirepass: None, version: 1 }
    }
}

/// Whom a session has logged in as.
#[derive(Clone, Debug, Default)]
pub struct Login {
    /// `None`: `default`.
    name: Option<Arc<str>>,
    /// As it was in `version`; none was deleted since.
    user: Option<Arc<User>>,
    version: u64,
}

impl Login {
    /// The login of a user by name, which may not exist.
    pub fn of(name: &str) -> Self {
        Login { name: (name != DEFAULT).then(|| name.into()), ..Login::default() }
    }

    /// The user's name, which is not shared memory only for `default`: `None`.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }
}

impl Users {
    /// The users that a configuration begins with: `default` with its password, and those declared, by name and rules.
    ///
    /// # Errors
    /// Says which user has what wrong.
    pub fn declared<'a>(
        requirepass: Option<&str>,
        users: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, String> {
        let mut all = Users::default();
        all.set_requirepass(requirepass);
        let mut seen: Vec<&str> = Vec::new();
        for (name, rules) in users {
            if !is_name(name) {
                return Err(format!("{name:?} is not a valid name: use one without blanks"));
            }
            if seen.contains(&name) {
                return Err(format!("{name:?} is there twice: put its rules together"));
            }
            seen.push(name);
            let rules = rules.split_whitespace().map(str::as_bytes);
            all.change(name, rules).map_err(|bad| {
                format!("{name:?}, {bad}: mend it, docs/store.md says which rules there are, ACL CAT which categories")
            })?;
        }
        Ok(all)
    }

    /// Makes a user, or changes one, by rules that are applied in order; where one of them is bad, none is.
    pub fn change<'a>(&mut self, name: &str, rules: impl Iterator<Item = &'a [u8]>) -> Result<(), BadRule> {
        let mut user = self.by_name.get(name).map_or_else(|| User::nothing(name), |user| User::clone(user));
        for rule in rules {
            user.apply(rule).map_err(|why| BadRule { rule: rule.to_vec(), why })?;
        }
        self.put(user);
        Ok(())
    }

    fn put(&mut self, user: User) {
        self.by_name.insert(Arc::clone(user.name()), Arc::new(user));
        self.version += 1;
    }

    /// Deletes a user, but for `default`; whether there was one.
    pub fn delete(&mut self, name: &str) -> bool {
        self.version += 1;
        name != DEFAULT && self.by_name.remove(name).is_some()
    }

    /// The password that `requirepass` gives `default`.
    pub fn requirepass(&self) -> Option<&str> {
        self.requirepass.as_deref()
    }

    /// Makes this the only password of `default`, or has it need none.
    pub fn set_requirepass(&mut self, password: Option<&str>) {
        let mut user = User::clone(self.default_user());
        user.set_password(password.map(|password| Digest::of(password.as_bytes())));
        self.requirepass = password.map(Into::into);
        self.put(user);
    }

    /// A user by name.
    pub fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &User> {
        self.by_name.values().map(|user| &**user)
    }

    fn default_user(&self) -> &User {
        &self.by_name[DEFAULT]
    }

    /// Whether a client need not log in at all.
    pub fn are_open(&self) -> bool {
        let user = self.default_user();
        user.is_on() && user.needs_no_password()
    }

    /// Whether `AUTH` with nothing but a password makes no sense, since `default` has none.
    pub fn default_needs_no_password(&self) -> bool {
        self.default_user().needs_no_password()
    }

    /// Whether requests of sessions that are not logged in as another user must be checked.
    pub fn guard_default(&self) -> bool {
        !self.default_user().may_everything()
    }

    /// The login of a user that shows the right password.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Login> {
        let digest = Digest::of(password);
        let user = self.by_name.get(std::str::from_utf8(name).ok()?)?;
        (user.is_on() && user.takes(&digest)).then(|| Login::of(user.name()))
    }

    /// The logged-in user in its present form; `None` where it was deleted.
    #[inline]
    pub fn now<'a>(&'a self, login: &'a Login) -> Option<&'a Arc<User>> {
        if login.version == self.version { login.user.as_ref() } else { self.find(login) }
    }

    fn find(&self, login: &Login) -> Option<&Arc<User>> {
        self.by_name.get(login.name.as_deref().unwrap_or(DEFAULT))
    }

    /// Stores the user's present form in a login, so that it need not be looked up again.
    #[inline]
    pub fn refresh(&self, login: &mut Login) {
        if login.version != self.version {
            *login =
                Login { user: self.find(login).cloned(), version: self.version, name: login.name.take() };
        }
    }

    /// Owners of key prefixes, where users are tenants.
    ///
    /// # Errors
    /// When two would own the same keys.
    pub fn owners(&self) -> Result<Vec<Owner>, SharedPrefix> {
        owners::of(self.iter())
    }
}

/// Whether a user can be called so: rules and lists are divided by blanks.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|letter: char| letter.is_whitespace() || letter.is_control())
}

#[cfg(test)]
mod tests;
