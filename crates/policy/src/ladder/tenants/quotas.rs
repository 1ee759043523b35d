//! Quotas of tenants (shares and K), as the divider of memory sets them: one change at a time, in force at once. Memory follows
//! with the requests that need it.

use super::{Holdings, TENANTS_MAX, Tenants};

/// A change to the shares and K of tenants in a ladder's tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// All shares and K are forgotten: each tenant has the defaults until it is set again.
    Anew,
    /// The share of a tier for tenants that come from now on.
    Newcomers {
        /// The tier.
        tier: usize,
        /// The share.
        share_bytes: u64,
    },
    /// The share of a tier for present tenants whose share was not set.
    Undeclared {
        /// The tier.
        tier: usize,
        /// The share.
        share_bytes: u64,
    },
    /// A tenant has this share of a tier, and this K there.
    Share {
        /// The tenant.
        tenant: u16,
        /// The tier.
        tier: usize,
        /// The share.
        share_bytes: u64,
        /// 0: the tier's own.
        k: u8,
    },
    /// A tenant has this K in a tier; its share stays.
    K {
        /// The tenant.
        tenant: u16,
        /// The tier.
        tier: usize,
        /// 0: the tier's own.
        k: u8,
    },
}

impl Tenants {
    /// Changes what tenants are to have. No share is less than a byte; a tier that there is not is passed over.
    pub fn apply(&mut self, setting: Setting) {
        match setting {
            Setting::Anew => self.levels.iter_mut().for_each(Holdings::forget_shares),
            Setting::Newcomers { tier, share_bytes } => {
                let level = self.levels.get_mut(tier);
                level.into_iter().for_each(|level| level.share_default = share_bytes.max(1));
            }
            Setting::Undeclared { tier, share_bytes } => {
                let level = self.levels.get_mut(tier);
                level.into_iter().for_each(|level| level.set_share_default(share_bytes.max(1)));
            }
            Setting::Share { tenant, tier, share_bytes, k } => {
                let Some(level) = self.levels.get_mut(tier) else { return };
                let tenant = tenant.min(TENANTS_MAX as u16 - 1);
                let holding = level.at(tenant);
                (holding.is_declared, holding.k) = (true, k);
                level.set_share(tenant, share_bytes.max(1));
                debug_assert_eq!(
                    self.level(tenant, tier).share_bytes,
                    share_bytes.max(1),
                    "a tenant has the share that it was given"
                );
            }
            Setting::K { tenant, tier, k } => {
                let Some(level) = self.levels.get_mut(tier) else { return };
                level.at(tenant.min(TENANTS_MAX as u16 - 1)).k = k;
            }
        }
    }
}

impl Holdings {
    fn forget_shares(&mut self) {
        let share_bytes = self.share_default;
        for tenant in 0..self.of.len() {
            if let Some(holding) = self.of[tenant].as_mut() {
                (holding.is_declared, holding.k) = (false, 0);
                self.set_share(tenant as u16, share_bytes);
            }
        }
    }

    /// Sets the share of each tenant whose share was not set otherwise.
    fn set_share_default(&mut self, share_bytes: u64) {
        self.share_default = share_bytes;
        for tenant in 0..self.of.len() {
            if self.get(tenant).is_some_and(|holding| !holding.is_declared) {
                self.set_share(tenant as u16, share_bytes);
            }
        }
    }
}
