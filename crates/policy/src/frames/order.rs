//! Eviction order of each tier but the last, from which nothing is evicted.
//!
//! A tier's order contains exactly the frames that may leave: those that lie there, are not moving, and are not pinned. So an
//! order never names a frame that may not leave, and never has to be asked again for that reason.

use super::cell::Frame;
use super::config::Config;
use crate::evict::{Departure, Domain, Evict, Item, Origin, Touch};
use tiermem_base::Rng;

/// How many frames go before one that enters low, at most: finding its place takes a step for each.
const GO_BEFORE_MAX: u32 = 64;

/// Any policy, a domain for each tier, or for each tier and owner.
#[derive(Clone, Debug)]
pub(super) struct Order<E> {
    policy: E,
    tiers: u8,
    /// Owners with orders of their own; 1 where all share one.
    owners: u32,
}

/// How many domains the policy of a machine needs.
pub fn domains(config: &Config) -> usize {
    let owners = if config.apart { config.owners as usize } else { 1 };
    config.tiers.len().saturating_sub(1) * owners
}

impl<E: Evict> Order<E> {
    pub fn new(policy: E, config: &Config) -> Self {
        let owners = if config.apart { config.owners } else { 1 };
        Order { policy, tiers: config.tiers.len() as u8 - 1, owners }
    }

    /// Whether a tier has an order.
    #[inline]
    pub fn holds(&self, tier: u8) -> bool {
        tier < self.tiers
    }

    #[inline]
    fn domain(&self, owner: u16, tier: u8) -> Domain {
        debug_assert!(self.holds(tier), "the last tier has no order");
        let owner = if self.owners == 1 { 0 } else { u32::from(owner) };
        Domain(u32::from(tier) * self.owners + owner)
    }

    /// A frame is needed that will come to this tier.
    pub fn miss(&mut self, frame: Frame, owner: u16, tier: u8) {
        self.policy.miss(self.domain(owner, tier), u64::from(frame.0));
    }

    pub fn enter(&mut self, frame: Frame, owner: u16, tier: u8, origin: Origin) {
        self.policy.insert(frame.id(), self.domain(owner, tier), origin);
    }

    /// Enters a new frame near the cold end: one of `one_of` of the domain's frames, at most [`GO_BEFORE_MAX`], are evicted
    /// before it.
    pub fn enter_low(&mut self, frame: Frame, owner: u16, tier: u8, item: Item, one_of: u32) {
        let domain = self.domain(owner, tier);
        let go_before = (self.policy.len(domain).checked_div(one_of)).unwrap_or(0).min(GO_BEFORE_MAX);
        self.policy.insert_low(frame.id(), domain, item, go_before);
    }

    pub fn leave(&mut self, frame: Frame, owner: u16, tier: u8, departure: Departure) {
        self.policy.remove(frame.id(), self.domain(owner, tier), departure);
    }

    #[inline]
    pub fn hit(&mut self, frame: Frame, owner: u16, tier: u8, touch: Touch) {
        let domain = self.domain(owner, tier);
        self.policy.hit(frame.id(), touch, || domain);
    }

    pub fn victim(&mut self, owner: u16, tier: u8, now: u64, rng: &mut Rng) -> Option<Frame> {
        let domain = self.domain(owner, tier);
        self.policy.victim(domain, now, rng, |_| true).map(|id| Frame(id.0))
    }

    pub fn len(&self, owner: u16, tier: u8) -> u32 {
        self.policy.len(self.domain(owner, tier))
    }

    pub fn policy(&self) -> &E {
        &self.policy
    }
}
