//! Any eviction policy, chosen by its name at run time: for engines that are compiled once and configured at start.

use super::arc::Arc;
use super::cflru::Cflru;
use super::clock::Clock;
use super::fifo::Fifo;
use super::hyperbolic::Hyperbolic;
use super::klru::KLru;
use super::lfu::Lfu;
use super::lhd::Lhd;
use super::lru::{Bump, Lru};
use super::redis::Redis;
use super::s3fifo::S3Fifo;
use super::sieve::Sieve;
use super::slru::Slru;
use super::twoq::TwoQ;
use super::{Departure, Domain, Evict, Item, Named, Origin, Touch};
use crate::Id;
use crate::ladder::INSERTION_POINT_FAST;
use tiermem_base::Rng;

/// A policy's order. One branch a call, which is always taken the same way; simulators, which are compiled for each type, spare
/// themselves that ([`Named::build`]).
#[derive(Clone, Debug)]
#[allow(missing_docs)] // The variants are the types of the modules beside this one.
pub enum Order {
    Fifo(Fifo),
    Clock(Clock),
    Lru(Lru),
    Slru(Slru),
    KLru(KLru),
    Redis(Redis),
    Lfu(Lfu),
    Arc(Arc),
    TwoQ(TwoQ),
    S3Fifo(S3Fifo),
    Sieve(Sieve),
    Lhd(Lhd),
    Hyperbolic(Hyperbolic),
    Cflru(Cflru),
}

/// Calls the policy that is there.
macro_rules! of {
    ($order:expr, $one:ident => $call:expr) => {
        match $order {
            Order::Fifo($one) => $call,
            Order::Clock($one) => $call,
            Order::Lru($one) => $call,
            Order::Slru($one) => $call,
            Order::KLru($one) => $call,
            Order::Redis($one) => $call,
            Order::Lfu($one) => $call,
            Order::Arc($one) => $call,
            Order::TwoQ($one) => $call,
            Order::S3Fifo($one) => $call,
            Order::Sieve($one) => $call,
            Order::Lhd($one) => $call,
            Order::Hyperbolic($one) => $call,
            Order::Cflru($one) => $call,
        }
    };
}
impl Order {
    /// The policy of this name for `domains` domains, each of this capacity (0: unknown, see [`Evict`]).
    pub fn new(named: Named, domains: usize, capacity: u64) -> Self {
        let capacities = std::iter::repeat_n(capacity, domains);
        let points = |point| std::iter::repeat_n(point, domains);
        match named {
            Named::Fifo => Order::Fifo(Fifo::new(domains)),
            Named::Clock => Order::Clock(Clock::new(domains, 1)),
            Named::Clock2 => Order::Clock(Clock::new(domains, 2)),
            Named::Lru => Order::Lru(Lru::new(points(1.0), Bump::Always)),
            Named::LruLazy => Order::Lru(Lru::new(points(INSERTION_POINT_FAST), Bump::AtTail)),
            Named::Slru => Order::Slru(Slru::new(capacities, &Slru::PROTECTED)),
            Named::S4Lru => Order::Slru(Slru::new(capacities, &Slru::QUARTERS)),
            Named::KLru(k) => Order::KLru(KLru::new(domains, k)),
            Named::Redis(k) => Order::Redis(Redis::new(domains, k)),
            Named::Random => Order::KLru(KLru::new(domains, 1)),
            Named::Lfu => Order::Lfu(Lfu::new(domains, false)),
            Named::LfuDa => Order::Lfu(Lfu::new(domains, true)),
            Named::Arc => Order::Arc(Arc::new(capacities)),
            Named::TwoQ => Order::TwoQ(TwoQ::new(capacities)),
            Named::S3Fifo => Order::S3Fifo(S3Fifo::new(capacities)),
            Named::Sieve => Order::Sieve(Sieve::new(domains)),
            Named::Lhd => Order::Lhd(Lhd::new(domains)),
            Named::Hyperbolic => Order::Hyperbolic(Hyperbolic::new(domains)),
            Named::Cflru(window) => Order::Cflru(Cflru::new(domains, window)),
        }
    }
}

impl Evict for Order {
    #[inline]
    fn miss(&mut self, domain: Domain, key: u64) {
        of!(self, one => one.miss(domain, key));
    }

    #[inline]
    fn insert(&mut self, id: Id, domain: Domain, origin: Origin) {
        of!(self, one => one.insert(id, domain, origin));
    }

    #[inline]
    fn insert_low(&mut self, id: Id, domain: Domain, item: Item, go_before: u32) {
        of!(self, one => one.insert_low(id, domain, item, go_before));
    }

    #[inline]
    fn hit(&mut self, id: Id, touch: Touch, domain: impl FnOnce() -> Domain) {
        of!(self, one => one.hit(id, touch, domain));
    }

    #[inline]
    fn mark(&self, id: Id) -> Option<&u64> {
        of!(self, one => one.mark(id))
    }

    #[inline]
    fn resize(&mut self, id: Id, domain: Domain, size: u32) {
        of!(self, one => one.resize(id, domain, size));
    }

    #[inline]
    fn remove(&mut self, id: Id, domain: Domain, departure: Departure) {
        of!(self, one => one.remove(id, domain, departure));
    }

    #[inline]
    fn victim(&mut self, domain: Domain, now: u64, rng: &mut Rng, may_go: impl Fn(Id) -> bool) -> Option<Id> {
        of!(self, one => one.victim(domain, now, rng, may_go))
    }

    fn hottest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        of!(self, one => one.hottest(domain, count, visit));
    }

    fn coldest(&self, domain: Domain, count: usize, visit: impl FnMut(Id)) {
        of!(self, one => one.coldest(domain, count, visit));
    }

    fn clear(&mut self) {
        of!(self, one => one.clear());
    }

    fn len(&self, domain: Domain) -> u32 {
        of!(self, one => one.len(domain))
    }

    fn metadata_bytes(&self) -> u64 {
        of!(self, one => one.metadata_bytes())
    }
}

/// A visitor of a policy of any type: [`Named::build`] makes the policy and calls it.
pub trait WithPolicy {
    /// The visitor's result.
    type Output;
    /// Compiled for each type of policy.
    fn with<E: Evict + Send + std::fmt::Debug + 'static>(self, policy: E) -> Self::Output;
}

impl Named {
    /// Makes the policy for `domains` domains, each of this capacity (0: unknown, see [`Evict`]), and hands it to `then`.
    pub fn build<W: WithPolicy>(self, domains: usize, capacity: u64, then: W) -> W::Output {
        of!(Order::new(self, domains, capacity), one => then.with(one))
    }
}
