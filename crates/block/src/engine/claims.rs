//! Claims: which operations may touch which units of a volume now.
//!
//! A *claim* is a range of units, shared or exclusive. Conflicting claims are granted in the order in which
//! they were made, so neither readers nor writers starve. An operation makes one claim when it starts. Once
//! that is granted, it may claim more: the units that it is about to fill beside its own range. Those further
//! claims go ahead of all claims of operations without any grant, and wait only for claims granted before their
//! owner's first. So waiting never forms a cycle: every chain ends at an operation that waits for a device.
//!
//! This requires that an operation makes its further claims right
//! after its first is granted, before any other claim is granted.

use std::collections::BTreeMap;
use std::ops::Range;

/// A claim's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimId {
    start: u64,
    serial: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its owner has nothing.
    Waiting,
    /// Its owner has its first claim and waits for this one.
    Pending,
    Granted,
}

#[derive(Clone, Debug)]
struct Claim {
    end: u64,
    owner: u32,
    exclusive: bool,
    state: State,
    /// While waiting: when it came. Afterwards: when its owner was granted its first claim.
    order: u64,
}

/// The claims on one volume.
#[derive(Debug, Default)]
pub struct Claims {
    /// By first unit and a number that makes it unique.
    claims: BTreeMap<(u64, u64), Claim>,
    /// Length of the longest claim so far: bounds the search for claims that reach into a range.
    units_max: u64,
    next: u64,
}

impl Claims {
    /// An owner's first claim, to be granted by [`Self::grant`].
    pub fn claim(&mut self, owner: u32, units: Range<u64>, exclusive: bool) -> ClaimId {
        let order = self.tick();
        self.insert(units, Claim { end: 0, owner, exclusive, state: State::Waiting, order })
    }

    /// A further exclusive claim of an owner whose first claim, `of`, is granted.
    pub fn extend(&mut self, of: ClaimId, units: Range<u64>) -> ClaimId {
        let Claim { owner, order, .. } = self.claims[&(of.start, of.serial)];
        self.insert(units, Claim { end: 0, owner, exclusive: true, state: State::Pending, order })
    }

    /// Grants a claim if it can be; whether it is granted.
    pub fn grant(&mut self, id: ClaimId) -> bool {
        self.try_grant((id.start, id.serial))
    }

    /// Releases a claim; `woken` is called with the owners of the claims that may be granted now.
    pub fn release(&mut self, id: ClaimId, woken: impl FnMut(u32)) {
        let Some(gone) = self.claims.remove(&(id.start, id.serial)) else { return };
        let waiting = self.overlapping(id.start..gone.end).filter(|(_, claim)| claim.state != State::Granted);
        waiting.map(|(_, claim)| claim.owner).for_each(woken);
    }

    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn insert(&mut self, units: Range<u64>, claim: Claim) -> ClaimId {
        let serial = self.tick();
        self.units_max = self.units_max.max(units.end - units.start);
        let key = (units.start, serial);
        self.claims.insert(key, Claim { end: units.end, ..claim });
        ClaimId { start: units.start, serial }
    }

    fn overlapping(&self, units: Range<u64>) -> impl Iterator<Item = (&(u64, u64), &Claim)> {
        let first = units.start.saturating_sub(self.units_max);
        self.claims.range((first, 0)..(units.end, 0)).filter(move |(_, claim)| claim.end > units.start)
    }

    fn try_grant(&mut self, key: (u64, u64)) -> bool {
        let claim = &self.claims[&key];
        if claim.state == State::Granted {
            return true;
        }
        let blocks = |other: &Claim| {
            other.owner != claim.owner
                && (claim.exclusive || other.exclusive)
                && match (claim.state, other.state) {
                    (State::Waiting, State::Waiting) | (State::Pending, State::Pending | State::Granted) => {
                        other.order < claim.order
                    }
                    (State::Waiting, _) => true,
                    _ => false,
                }
        };
        if self.overlapping(key.0..claim.end).any(|(_, other)| blocks(other)) {
            return false;
        }
        let order = if claim.state == State::Waiting { self.tick() } else { claim.order };
        if let Some(claim) = self.claims.get_mut(&key) {
            claim.state = State::Granted;
            claim.order = order;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claimed(claims: &mut Claims, owner: u32, units: Range<u64>, exclusive: bool) -> (ClaimId, bool) {
        let id = claims.claim(owner, units, exclusive);
        (id, claims.grant(id))
    }

    #[test]
    fn readers_share_and_a_writer_is_not_overtaken() {
        let mut claims = Claims::default();
        let (first, granted) = claimed(&mut claims, 1, 0..4, false);
        let (second, shared) = claimed(&mut claims, 2, 2..6, false);
        let (third, alone) = claimed(&mut claims, 3, 3..5, true);
        assert!(granted && shared && !alone);
        assert!(!claimed(&mut claims, 4, 4..5, false).1, "it would overtake the writer");
        assert!(claimed(&mut claims, 5, 0..3, false).1, "the writer does not want this");
        let mut woken = Vec::new();
        claims.release(first, |owner| woken.push(owner));
        assert_eq!(woken, [3]);
        assert!(!claims.grant(third), "2 reads there still");
        claims.release(second, |owner| woken.push(owner));
        assert!(claims.grant(third) && claims.grant(third));
    }

    #[test]
    fn a_further_claim_goes_before_all_that_have_nothing() {
        let mut claims = Claims::default();
        let (own, _) = claimed(&mut claims, 1, 0..4, false);
        let (writer, _) = claimed(&mut claims, 2, 6..8, true);
        let (waiter, granted) = claimed(&mut claims, 3, 3..7, true);
        assert!(!granted);
        let further = claims.extend(own, 4..6);
        assert!(claims.grant(further), "3 waits and has nothing");
        let mut woken = Vec::new();
        claims.release(writer, |owner| woken.push(owner));
        claims.release(own, |owner| woken.push(owner));
        assert!(!claims.grant(waiter));
        claims.release(further, |owner| woken.push(owner));
        assert_eq!(woken, [3, 3, 3]);
        assert!(claims.grant(waiter));
    }

    /// An owner of claims; `wants` is asked for as soon as it has its first.
    struct Owner {
        claims: Vec<(ClaimId, Range<u64>, bool)>,
        has: usize,
        wants: Option<(u64, u64)>,
    }

    /// Owners by number.
    type Owners = std::collections::BTreeMap<u32, Owner>;

    fn attempt(claims: &mut Claims, owners: &mut Owners, id: u32) {
        let Some(owner) = owners.get_mut(&id) else { return };
        while owner.has < owner.claims.len() && claims.grant(owner.claims[owner.has].0) {
            owner.has += 1;
            if let Some((start, len)) = owner.wants.take() {
                let units = start..start + len;
                owner.claims.push((claims.extend(owner.claims[0].0, units.clone()), units, true));
            }
        }
    }

    fn end(claims: &mut Claims, owners: &mut Owners, id: u32) {
        let mut woken = Vec::new();
        for (claim, ..) in owners.remove(&id).unwrap().claims {
            claims.release(claim, |owner| woken.push(owner));
        }
        for id in woken {
            attempt(claims, owners, id);
        }
    }

    fn idle(owners: &Owners) -> Option<u32> {
        owners.iter().find(|(_, owner)| owner.has == owner.claims.len()).map(|(id, _)| *id)
    }

    proptest! {
        /// Owners claim, extend and release at random: two that conflict are never both granted, and all get their turn.
        #[test]
        fn no_conflict_and_no_deadlock(
            steps in prop::collection::vec(
                (0u64..40, 1u64..9, any::<bool>(), prop::option::of((0u64..40, 1u64..9)), 0usize..6), 1..120),
        ) {
            let mut claims = Claims::default();
            let mut owners = Owners::new();
            for (id, (start, len, exclusive, wants, ends)) in steps.into_iter().enumerate() {
                let (id, units) = (id as u32, start..start + len);
                let claim = claims.claim(id, units.clone(), exclusive);
                owners.insert(id, Owner { claims: vec![(claim, units, exclusive)], has: 0, wants });
                attempt(&mut claims, &mut owners, id);
                for _ in 0..ends {
                    let Some(id) = idle(&owners) else { break };
                    end(&mut claims, &mut owners, id);
                }
                let mut held = Vec::new();
                for (id, owner) in &owners {
                    held.extend(owner.claims[..owner.has].iter().map(|(_, units, exclusive)| (id, units, exclusive)));
                }
                for (at, (id, units, exclusive)) in held.iter().enumerate() {
                    for (other, others, is_other) in &held[..at] {
                        let overlap = units.start < others.end && others.start < units.end;
                        prop_assert!(id == other || !overlap || !(**exclusive || **is_other));
                    }
                }
            }
            while !owners.is_empty() {
                let id = idle(&owners);
                prop_assert!(id.is_some(), "{} wait for each other", owners.len());
                end(&mut claims, &mut owners, id.unwrap());
            }
            prop_assert!(claims.claims.is_empty());
        }
    }
}
