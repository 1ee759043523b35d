//! Tenants of a [`TieredCache`]: it tells its divider of their accesses, and carries out the divider's settings.

use tiermem_base::Access;
use tiermem_model::advisor::{Divider, Outcome};
use tiermem_policy::shard::Change;

use super::TieredCache;

impl TieredCache {
    /// From now on it is this access's tenant that asks.
    pub(super) fn come(&mut self, access: &Access) {
        self.access = *access;
        self.access_hash = self.items.hash_of(access.key);
        if let Some(dividing) = &mut self.dividing {
            self.tenant = dividing.of(access.tenant);
            self.at_ns = dividing.reload_ns(access.tenant).map(|_| access.time_ns);
        }
    }

    /// An item that was missed is brought back, which takes its time.
    pub(super) fn reload(&mut self) {
        let reload_ns = self.dividing.as_ref().and_then(|it| it.reload_ns(self.access.tenant));
        if let (Some(at_ns), Some(reload_ns)) = (&mut self.at_ns, reload_ns) {
            *at_ns += reload_ns;
            self.shard.set_clock(*at_ns / 1_000_000);
        }
    }

    pub(super) fn note_look_up(&mut self, key: u64, outcome: Outcome) {
        if self.dividing.is_none() {
            return;
        }
        let hash = self.hash(key);
        if let Some(dividing) = &mut self.dividing
            && dividing.divider.looked_up(self.tenant, hash, outcome, self.at_ns, self.shard.ladder())
        {
            self.apply_settings();
        }
    }

    /// The owner of a written key is a tenant from now on.
    pub(super) fn note_write(&mut self, key: u64, bytes: u64) {
        let Some(dividing) = &mut self.dividing else { return };
        let (tenant, is_new) = dividing.enter(self.access.tenant, &self.shard);
        self.tenant = tenant;
        if is_new {
            self.apply_settings();
        }
        let hash = self.hash(key);
        if let Some(dividing) = &mut self.dividing {
            dividing.divider.wrote(self.tenant, hash, bytes, self.at_ns, self.shard.ladder());
        }
    }

    /// Does what the divider says, and has tier 0 charged with what it keeps.
    pub(super) fn apply_settings(&mut self) {
        if let Some(dividing) = &mut self.dividing {
            dividing
                .divider
                .take_settings()
                .for_each(|setting| self.shard.configure(Change::Tenant(setting)));
        }
        self.shard.charge(self.dividing.as_ref().map_or(0, |it| it.divider.metadata_bytes()));
    }

    /// A tenant's key is gone, and not for want of room.
    pub(super) fn note_gone(&mut self, key: u64, tenant: u16) {
        if self.dividing.is_none() {
            return;
        }
        let hash = self.hash(key);
        if let Some(dividing) = &mut self.dividing {
            dividing.divider.removed(tenant, hash);
        }
    }

    /// The divider, where tenants are told apart.
    pub fn divider(&self) -> Option<&Divider> {
        self.dividing.as_ref().map(|it| &it.divider)
    }

    /// Does what was found best at the end of a window, if one has ended.
    pub(super) fn divide(&mut self) {
        let Some(dividing) = &mut self.dividing else { return };
        if let Some(question) = dividing.divider.take_question() {
            dividing.divider.answered(&question.answer(), self.shard.ladder());
            self.apply_settings();
        }
    }
}
