//! Context of a decision: the tenant that needs the room, what making it may cost, the time, random numbers, and the list of
//! acts.

use super::Act;
use crate::Now;
use tiermem_base::Rng;

/// The tenant that room is made for, and what that may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// The tenant that needs it; `None`: no particular tenant.
    pub tenant: Option<u16>,
    /// No tenant's items are protected: the decision cannot be avoided.
    pub is_forced: bool,
    /// Items may go that nothing below the last tier takes.
    pub overflows: bool,
}

/// The context of a decision: the time, the demand that it serves, random numbers, and a place for its acts.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub now: Now,
    pub demand: Demand,
    pub rng: &'a mut Rng,
    pub acts: &'a mut Vec<Act>,
}

impl<'a> Context<'a> {
    /// Room for no particular tenant, at no tenant's cost.
    pub fn new(now: Now, rng: &'a mut Rng, acts: &'a mut Vec<Act>) -> Self {
        Context { now, demand: Demand::default(), rng, acts }
    }

    /// The context of the same decision for another demand.
    pub fn with(&mut self, demand: Demand) -> Context<'_> {
        Context { now: self.now, demand, rng: self.rng, acts: self.acts }
    }

    /// Room for an item of a tenant.
    pub fn wanting(self, tenant: u16) -> Self {
        Context { demand: Demand { tenant: Some(tenant), ..self.demand }, ..self }
    }

    /// The context of the same decision for a tenant; `None`: for no particular tenant.
    pub fn wanted_by(&mut self, tenant: Option<u16>) -> Context<'_> {
        self.with(Demand { tenant, ..self.demand })
    }

    /// The context of the same decision without protection of tenants: it may cost a tenant items of its own part.
    pub fn forced(&mut self) -> Context<'_> {
        self.with(Demand { is_forced: true, ..self.demand })
    }

    /// The context of the same decision where it may cost items that the outlet does not take.
    pub fn overflowing(&mut self) -> Context<'_> {
        self.with(Demand { overflows: true, ..self.demand })
    }
}
