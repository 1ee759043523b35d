//! Users that the server begins with.

use serde::Deserialize;

use super::{ConfigError, StoreConfig};
use crate::users::Users;

/// The keys of a `[[user]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserConfig {
    /// What it logs in as; `default` is who has not logged in.
    pub name: String,
    /// What it may do, in the words of `ACL SETUSER`, divided by blanks.
    pub rules: String,
}

impl StoreConfig {
    /// Who may log in.
    pub(super) fn users(&self) -> Result<Users, ConfigError> {
        let declared = self.declared_users.iter().map(|user| (&*user.name, &*user.rules));
        Users::declared(self.server.requirepass.as_deref(), declared)
            .map_err(|problem| ConfigError::Value { key: "user", problem })
    }
}
