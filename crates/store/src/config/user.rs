//! Configuration of users that exist from the start.

use serde::Deserialize;

use super::{ConfigError, StoreConfig};
use crate::users::Users;

/// The keys of a `[[user]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserConfig {
    /// Login name; sessions that have not logged in are `default`.
    pub name: String,
    /// Its permissions, in the words of `ACL SETUSER`, separated by blanks.
    pub rules: String,
}

impl StoreConfig {
    /// The users that may log in.
    pub(super) fn users(&self) -> Result<Users, ConfigError> {
        let declared = self.declared_users.iter().map(|user| (&*user.name, &*user.rules));
        Users::declared(self.server.requirepass.as_deref(), declared)
            .map_err(|problem| ConfigError::Value { key: "user", problem })
    }
}
