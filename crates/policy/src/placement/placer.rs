//! Placer, the driver of a placement: which granule moves when, and where newly mapped memory is placed.

use std::ops::Range;

use super::follower::{Act, Follower, Options, Outcome, Seen, Tier};
use super::home::Homes;
use super::payoff::{Course, Shares};
use super::rate_limit::RateLimit;

/// The rule for where a page lies that is touched for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstTouch {
    /// The kernel, in the order of touches: fast memory while it has room.
    #[default]
    Kernel,
    /// The placement, when memory is mapped: see [`Placer::mapped`].
    Bound,
}

/// Decides on a placement. What carries it out, on a running program or on a recording of one, tells it what comes:
///
/// - mappings that came and went ([`Self::mapped`], [`Self::unmapped`]);
/// - where granules lie that were touched ([`Self::placed`]);
/// - what was accessed in a slice of time ([`Self::slice`]).
///
/// Between slices it asks for moves ([`Self::next_move`]) and answers each ([`Self::moved`]) before it asks for the next, until
/// there is none or it has to end: what was not asked for is decided on anew in the next slice. Moves are decided one by one, so
/// that a move out that is refused is followed by one of another granule, and not by a move in that has no room. Most urgent
/// first: fast memory that holds more than belongs there gives it back; then what is wanted comes in, in the order in which it is
/// needed, each after the move out that makes its room.
#[derive(Clone, Debug)]
pub struct Placer {
    follower: Follower,
    homes: Homes,
    first_touch: FirstTouch,
    fast_granules: u32,
    allowance: RateLimit,
    in_flight: Option<Act>,
}

impl Placer {
    /// Begins with nothing mapped. At most `granules_per_s` granules move in a second.
    pub fn new(options: Options, first_touch: FirstTouch, granules_per_s: f64) -> Self {
        let fast_granules = options.fast_granules;
        let named = options.schedule.always.iter().copied().take(fast_granules as usize);
        Placer {
            homes: Homes::new(options.granules, named),
            follower: Follower::new(options),
            first_touch,
            fast_granules,
            allowance: RateLimit::new(granules_per_s),
            in_flight: None,
        }
    }

    /// Granules of fast memory that are neither taken nor promised.
    pub fn fast_left(&self) -> u32 {
        self.fast_granules.saturating_sub(self.follower.fast()).saturating_sub(self.homes.promised())
    }

    /// Granules were mapped: decides their homes ([`Self::decided`]), unless that was decided before or the kernel decides. Room
    /// is given in the order of their numbers, and taken when a granule is touched: the kernel cannot be told to give it to the
    /// granule that is touched first.
    pub fn mapped(&mut self, granules: Range<u32>) {
        if self.first_touch == FirstTouch::Kernel {
            return;
        }
        for granule in granules {
            if self.homes.decided(granule).is_none() {
                let tier = self.home_now(granule);
                self.homes.decide(granule, tier);
            }
        }
    }

    /// Where a granule that is mapped is to come to lie; `None` where the kernel decides.
    pub fn decided(&self, granule: u32) -> Option<Tier> {
        self.homes.decided(granule)
    }

    /// Whether the plan has a granule in fast memory all the time. If so, a granule that was touched before its home was known is
    /// moved there. A granule that the plan does not name stays where it was touched: that no access to it was seen does not make
    /// it cold, since pages that other programs have mapped too are not seen at all.
    pub fn is_named(&self, granule: u32) -> bool {
        self.course() != Course::Rest && self.homes.is_named(granule)
    }

    /// Granules are no longer mapped.
    pub fn unmapped(&mut self, granules: Range<u32>) {
        for granule in granules {
            self.homes.unmapped(granule);
            self.follower.gone(granule);
        }
    }

    /// Where a granule comes to lie that is touched for the first time now.
    pub fn home(&self, granule: u32) -> Tier {
        self.homes.decided(granule).unwrap_or_else(|| self.home_now(granule))
    }

    /// A plan that has failed keeps no room for what it names.
    fn home_now(&self, granule: u32) -> Tier {
        let left = self.fast_left();
        match self.course() {
            Course::Rest if left > 0 => Tier::Fast,
            _ => self.homes.home(granule, left),
        }
    }

    /// A granule was found to lie in a tier: it was touched for the first time, or was moved from outside.
    pub fn placed(&mut self, granule: u32, tier: Tier) {
        self.homes.there(granule, true);
        self.follower.placed(granule, tier);
    }

    /// A slice of time is over, with these accesses. Unused allowance for moves lapses.
    pub fn slice(&mut self, seen: &Seen<'_>) {
        assert!(self.in_flight.is_none(), "a move that was asked for was not answered");
        self.follower.observe(seen, self.allowance.move_ns());
        self.allowance.slice(seen.to_ns.saturating_sub(seen.from_ns));
        self.follower.step(seen.to_ns);
    }

    /// The next move; `None` if there is none in this slice.
    pub fn next_move(&mut self) -> Option<Act> {
        assert!(self.in_flight.is_none(), "the move before was not answered");
        let act = self.follower.next(self.allowance.left())?;
        self.allowance.spend();
        self.in_flight = Some(act);
        Some(act)
    }

    /// Notes the outcome of the move that was asked for, and how long it took.
    pub fn moved(&mut self, act: Act, outcome: Outcome, took_ns: u64) {
        let asked = self.in_flight.take();
        assert_eq!(asked, Some(act), "the answer to another move than was asked for");
        self.allowance.took(took_ns);
        self.follower.done(act, outcome);
        if outcome == Outcome::Absent {
            self.homes.there(act.granule, false);
        }
        debug_assert!(
            outcome != Outcome::Moved || self.follower.tier(act.granule) == Some(act.to),
            "what was moved lies there"
        );
    }

    /// Where a granule lies, `None` if it lies nowhere.
    pub fn tier(&self, granule: u32) -> Option<Tier> {
        self.follower.tier(granule)
    }

    /// Granules in fast memory.
    pub fn fast(&self) -> u32 {
        self.follower.fast()
    }

    /// What is followed now.
    pub fn course(&self) -> Course {
        self.follower.payoff().course()
    }

    /// Of all accesses so far, how many were to fast memory, or would have been.
    pub fn shares(&self) -> Shares {
        self.follower.payoff().total()
    }

    /// The shares of accesses for which it last began to rest; `None` if it never did.
    pub fn rested_for(&self) -> Option<Shares> {
        self.follower.payoff().rested_for()
    }
}
