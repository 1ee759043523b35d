//! Tenants: how they are told apart, and what is known of them beforehand.

use serde::Deserialize;
use tiermem_base::{Bytes, Nanos};
use tiermem_policy::ladder::TENANTS_MAX;

use super::{ConfigError, StoreConfig};
use crate::engine::{By, DATABASES, Declared, PREFIX_BYTES_MAX, Tenancy};

/// The keys of `[tenants]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantsSection {
    /// `none` (default), `database`, `prefix` or `user`.
    pub by: String,
    /// What ends a prefix, one byte. Default `:`.
    pub separator: String,
}

impl Default for TenantsSection {
    fn default() -> Self {
        TenantsSection { by: "none".to_owned(), separator: ":".to_owned() }
    }
}

/// The keys of a `[[tenant]]`: what `tiermem partition -o` writes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// The database's number, the prefix without what ends it, or the user's name.
    pub name: String,
    /// Its part of all memory; it has the same part of every tier.
    pub share: Bytes,
    /// Its sample size, 1 to 64. Default: the tiers' own.
    #[serde(default)]
    pub k: u8,
    /// What a miss costs it, as the division assumed; nothing here asks for it.
    #[serde(default)]
    pub miss_cost: Option<Nanos>,
}

impl StoreConfig {
    /// The tenants that engines begin with.
    pub(super) fn tenancy(&self) -> Result<Tenancy, ConfigError> {
        let error = |key, problem: String| Err(ConfigError::Value { key, problem });
        let by = match (self.tenants.by.as_str(), self.tenants.separator.as_bytes()) {
            ("none", _) => By::Nobody,
            ("database", _) => By::Database,
            ("prefix", &[separator]) => By::Prefix(separator),
            ("user", _) => By::User,
            ("prefix", _) => return error("tenants.separator", "must be one byte, such as \":\"".to_owned()),
            (other, _) => {
                return error("tenants.by", format!("{other:?} is none of none, database, prefix, user"));
            }
        };
        if by == By::Nobody && !self.declared_tenants.is_empty() {
            return error(
                "tenant",
                "tenants are not told apart: give by = \"prefix\", \"database\" or \"user\" in [tenants]"
                    .to_owned(),
            );
        }
        if self.declared_tenants.len() >= TENANTS_MAX {
            return error("tenant", format!("there can be {} at most", TENANTS_MAX - 1));
        }
        let total: u64 = self.memory_tiers().map(|tier| tier.capacity.0).sum();
        let shares: u64 = self.declared_tenants.iter().map(|tenant| tenant.share.0).sum();
        if shares > total {
            return error(
                "tenant",
                format!("shares of {} are more than the {} of memory", Bytes(shares), Bytes(total)),
            );
        }
        let mut declared: Vec<Declared> = Vec::with_capacity(self.declared_tenants.len());
        for tenant in &self.declared_tenants {
            let name = &tenant.name;
            if declared.iter().any(|other| other.name == *name) {
                return error("tenant.name", format!("{name:?} is there twice"));
            }
            if by == By::Database && !(0..DATABASES).any(|db| db.to_string() == *name) {
                return error("tenant.name", format!("{name:?} is no database: 0 to {}", DATABASES - 1));
            }
            if let By::Prefix(separator) = by
                && (name.len() >= PREFIX_BYTES_MAX || name.as_bytes().contains(&separator))
            {
                let problem =
                    format!("{name:?} begins no key: a prefix has no separator and less than 64 bytes");
                return error("tenant.name", problem);
            }
            if tenant.k > 64 {
                return error("tenant.k", format!("{name:?}: must be between 1 and 64"));
            }
            let share = tenant.share.0 as f64 / total.max(1) as f64;
            declared.push(Declared { name: name.clone(), share, k: tenant.k });
        }
        let owners = match by {
            By::User => self.users()?.owners(),
            _ => Ok(Vec::new()),
        };
        let owners =
            owners.map_err(|shared| ConfigError::Value { key: "user", problem: shared.to_string() })?;
        Ok(Tenancy { by, declared, owners })
    }
}
