//! Payoff of a placement: whether it has more accesses in fast memory than doing nothing would have.
//!
//! **When a prediction fails.** The accesses of each slice are divided four times ([`Shares`]): by where their granules lay
//! (*observed*), where the plan, carried out at once, would have had them (*plan*), where the hottest granules of the slices before
//! would have been (*seen*), and where all would lie if nothing had ever been placed (*undisturbed*: first come, first served). What
//! plan and heat would have had is settled before the slice's own accesses are looked at. What the undisturbed placement would have had
//! more in fast memory than the plan is a *loss* ([`Loss`]), and so is what it would have had more than was observed. A course fails
//! when it has lost as many accesses as [`LOSS_MAX`] slices have: a plan that is all wrong after three slices, one that is a little
//! wrong later. What it gained before counts against that, up to as much: in a program that goes through its memory again and again,
//! first touch is right in one part of each pass, and wrong in the other. In between lies what is predicted and not reached, as moves
//! are slow or refused: that is no failure while it is not worse than doing nothing.
//!
//! A granule counts from some slices after its first touch on, and a slice in which most accesses are to newer ones does not count at
//! all. Programs fill memory before they use it, in whatever order; the undisturbed placement looks perfect then, until fast memory
//! is full; and estimates of heat tell of what was filled for some slices more.
//!
//! **What follows.** A course that fails is left: the placement *rests*. It moves nothing, or, where the undisturbed placement is
//! better than what the failed course has left behind, moves back what that one has in fast memory. It looks again: a plan that
//! comes to be right is taken up again, after a pause. While all courses together have had less in fast memory than doing nothing
//! would have had, each pause is twice as long as the last one, and half of what was lost last time is a failure: so what they lose is
//! bounded, however a program alternates.
//!
//! What is compared of late are sums that decay from slice to slice, so that a slice counts by its accesses.

/// What is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Course {
    /// The plan.
    #[default]
    Plan,
    /// The accesses seen, as the program departs from the plan.
    Seen,
    /// Nothing: what would be followed is worse than doing nothing.
    Rest,
}

/// Of accesses, how many were to fast memory, or would have been.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// All of them.
    pub accesses: f64,
    /// As granules lay.
    pub observed: f64,
    /// By the plan.
    pub plan: f64,
    /// By the accesses seen before.
    pub seen: f64,
    /// If nothing had been placed or moved.
    pub undisturbed: f64,
}

impl Shares {
    /// With each sum brought down to this part of it, and those of a slice added.
    fn decayed(&self, keep: f64, slice: &Shares) -> Shares {
        let sum = |old: f64, new: f64| old * keep + new;
        Shares {
            accesses: sum(self.accesses, slice.accesses),
            observed: sum(self.observed, slice.observed),
            plan: sum(self.plan, slice.plan),
            seen: sum(self.seen, slice.seen),
            undisturbed: sum(self.undisturbed, slice.undisturbed),
        }
    }

    /// The sums as shares of all accesses, which become 1.
    #[must_use]
    pub fn normal(&self) -> Shares {
        let of_all = |sum: f64| if self.accesses > 0.0 { sum / self.accesses } else { 0.0 };
        Shares {
            accesses: of_all(self.accesses),
            observed: of_all(self.observed),
            plan: of_all(self.plan),
            seen: of_all(self.seen),
            undisturbed: of_all(self.undisturbed),
        }
    }
}

/// How much of the sums is kept when the next slice comes.
const KEEP: f64 = 0.8;
/// For so many slices with accesses that count, one after the other, following the accesses seen must be better: estimates of heat err
/// for some slices in the same way, and what is chosen by them looks as good as they say.
const DEPARTURE_SLICES: u32 = 8;
/// A course fails when it has lost as many accesses as so many slices have; at least that many where others have failed before it.
const LOSS_MAX: f64 = 2.0;
const LOSS_MAX_LEAST: f64 = 0.25;
/// So much of a slice's accesses is no loss: it is within the error of their estimate.
const LOSS_FREE: f64 = 0.005;
/// By so much of the accesses of a few slices the undisturbed placement must be better for moves back to it.
const WORSE: f64 = 0.01;
/// The plan is left if following the accesses seen would have had this share more of them in fast memory than the plan and than
/// moving nothing. It is taken up again when the difference has fallen to half of that.
const DEPARTURE: f64 = 0.1;
/// A plan is taken up again if it would have had this share more in fast memory than moving nothing.
const RESUMPTION: f64 = 0.05;
/// Slices that it rests at least, and at most where courses have lost more than they gained, again and again.
const REST_SLICES: [u32; 2] = [16, 4096];

/// What a course lost against the undisturbed placement, in accesses of a slice.
#[derive(Clone, Copy, Debug, Default)]
struct Loss(f64);

impl Loss {
    /// Of a slice, as a share of a usual slice's accesses; a gain if below 0, of which as much is kept as may be lost. More than all
    /// accesses of a usual slice are not lost in one: of a slice that seems to have many times more, the estimate may be wrong.
    fn add(&mut self, share: f64, most: f64) {
        self.0 = (self.0 + share.clamp(-1.0, 1.0) - LOSS_FREE).max(-most);
    }
}

/// The course of a placement, slice by slice.
#[derive(Clone, Debug)]
pub(super) struct Payoff {
    may_follow: bool,
    is_live: bool,
    recent: Shares,
    /// Slices that `recent` is the sum of, and all of their accesses, decayed as that is.
    recent_slices: f64,
    recent_accesses: f64,
    total: Shares,
    course: Course,
    /// Since the course was taken: by the plan's prediction, and as observed.
    plan_loss: Loss,
    observed_loss: Loss,
    /// What the course may lose.
    loss_max: f64,
    /// Slices that counted since the course was taken.
    slices: u32,
    /// Of the last of them, those in which following the accesses seen would have been better.
    seen_slices: u32,
    /// Accesses in fast memory, of those that counted, that the undisturbed placement would not have had there.
    gain: f64,
    rest_slices: u32,
    /// What was measured when it last began to rest.
    rested_for: Option<Shares>,
}

impl Payoff {
    /// Begins with the plan. `has_plan` says whether that moves anything, and `is_live` whether the accesses seen may be followed:
    /// without either it is the undisturbed placement itself.
    pub fn new(has_plan: bool, is_live: bool) -> Self {
        Payoff {
            may_follow: has_plan || is_live,
            is_live,
            recent: Shares::default(),
            recent_slices: 0.0,
            recent_accesses: 0.0,
            total: Shares::default(),
            course: Course::Plan,
            plan_loss: Loss::default(),
            observed_loss: Loss::default(),
            loss_max: LOSS_MAX,
            slices: 0,
            seen_slices: 0,
            gain: 0.0,
            rest_slices: REST_SLICES[0] / 2,
            rested_for: None,
        }
    }

    pub fn course(&self) -> Course {
        self.course
    }

    /// Whether there is anything to follow.
    pub fn may_follow(&self) -> bool {
        self.may_follow
    }

    /// Sums over all slices, also of accesses that decide nothing.
    pub fn total(&self) -> Shares {
        self.total
    }

    /// The shares, of all accesses that counted of late, with which it last began to rest.
    pub fn rested_for(&self) -> Option<Shares> {
        self.rested_for
    }

    /// Whether it rests, and first come, first served, is better than where granules lie by now.
    pub fn is_to_be_undone(&self) -> bool {
        let Shares { observed, undisturbed, .. } = self.recent.normal();
        self.course == Course::Rest && observed + WORSE < undisturbed
    }

    /// Takes in the accesses of a slice: `all` of them, and those that count.
    pub fn slice(&mut self, all: &Shares, counted: &Shares) {
        self.total = self.total.decayed(1.0, all);
        if counted.accesses <= 0.0 {
            return;
        }
        self.recent = self.recent.decayed(KEEP, counted);
        self.recent_slices = self.recent_slices * KEEP + 1.0;
        self.recent_accesses = self.recent_accesses * KEEP + all.accesses;
        let of_slice = self.recent_slices / self.recent_accesses;
        self.plan_loss.add((counted.undisturbed - counted.plan) * of_slice, self.loss_max);
        self.observed_loss.add((counted.undisturbed - counted.observed) * of_slice, self.loss_max);
        self.gain += counted.observed - counted.undisturbed;
        self.slices = self.slices.saturating_add(1);
        if self.may_follow {
            self.choose();
        }
    }

    fn choose(&mut self) {
        let now = self.recent.normal();
        // What there is without another move: as it lies, and as it would.
        let still = now.undisturbed.max(now.observed);
        let is_seen_better = self.is_live && now.seen > now.plan.max(still) + DEPARTURE;
        self.seen_slices = if is_seen_better { self.seen_slices.saturating_add(1) } else { 0 };
        let departs = self.seen_slices >= DEPARTURE_SLICES;
        let next = match self.course {
            Course::Plan if departs => Course::Seen,
            Course::Seen if now.seen > now.plan.max(now.undisturbed) + DEPARTURE / 2.0 => Course::Seen,
            Course::Seen if now.plan + WORSE < now.undisturbed => Course::Rest,
            Course::Plan if self.plan_loss.0 > self.loss_max => Course::Rest,
            Course::Plan | Course::Seen => Course::Plan,
            Course::Rest if self.slices < self.rest_slices => Course::Rest,
            Course::Rest if departs => Course::Seen,
            Course::Rest if now.plan > still + RESUMPTION => Course::Plan,
            Course::Rest => Course::Rest,
        };
        // It was predicted well, and is not to be had.
        let is_missed =
            self.course != Course::Rest && next == self.course && self.observed_loss.0 > self.loss_max;
        let next = if is_missed { Course::Rest } else { next };
        if next != self.course {
            (self.course, self.slices, self.seen_slices) = (next, 0, 0);
            (self.plan_loss, self.observed_loss) = (Loss::default(), Loss::default());
            if next == Course::Rest {
                self.rested_for = Some(now);
                let doubled = self.rest_slices.saturating_mul(2).min(REST_SLICES[1]);
                let halved = (self.loss_max / 2.0).max(LOSS_MAX_LEAST);
                (self.rest_slices, self.loss_max) =
                    if self.gain < 0.0 { (doubled, halved) } else { (REST_SLICES[0], LOSS_MAX) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slice of a hundred accesses with these in fast memory: observed, by the plan, by what was seen, undisturbed.
    fn shares([observed, plan, seen, undisturbed]: [f64; 4]) -> Shares {
        Shares { accesses: 100.0, observed, plan, seen, undisturbed }
    }

    /// The courses after each of these slices.
    fn courses(payoff: &mut Payoff, slices: usize, each: [f64; 4]) -> Vec<Course> {
        let slice = |_| {
            payoff.slice(&shares(each), &shares(each));
            payoff.course()
        };
        (0..slices).map(slice).collect()
    }

    #[test]
    fn a_plan_that_is_worse_than_doing_nothing_is_left_after_the_first_slices() {
        use Course::{Plan, Rest};
        let mut payoff = Payoff::new(true, false);
        assert_eq!(courses(&mut payoff, 4, [0.0, 0.0, 99.0, 90.0]), [Plan, Plan, Rest, Rest]);
        let why = payoff.rested_for().unwrap();
        assert!(why.plan < 1e-9 && (why.undisturbed - 0.9).abs() < 1e-9, "{why:?}");
        assert!(payoff.is_to_be_undone());
        // What is moved back is seen, and no more is moved then.
        courses(&mut payoff, 20, [90.0, 0.0, 99.0, 90.0]);
        assert_eq!((payoff.course(), payoff.is_to_be_undone()), (Rest, false));
        // As good as doing nothing is no failure, nor is what lies within the error.
        for plan in [60.0, 59.6] {
            assert_eq!(courses(&mut Payoff::new(true, false), 200, [plan, plan, 0.0, 60.0])[199], Plan);
        }
        assert_eq!(
            courses(&mut Payoff::new(true, false), 200, [58.0, 58.0, 0.0, 60.0])[130..135],
            [Plan, Plan, Plan, Rest, Rest]
        );
    }

    #[test]
    fn a_plan_that_comes_to_be_right_is_taken_up_again() {
        let mut payoff = Payoff::new(true, false);
        courses(&mut payoff, 3, [0.0, 0.0, 0.0, 90.0]);
        let after = courses(&mut payoff, 40, [60.0, 90.0, 0.0, 60.0]);
        assert_eq!(after.iter().position(|it| *it == Course::Plan), Some(REST_SLICES[0] as usize - 1));
        // Not for little: moves cost something too, and so does taking turns.
        let mut payoff = Payoff::new(true, false);
        courses(&mut payoff, 3, [0.0, 0.0, 0.0, 90.0]);
        assert_eq!(courses(&mut payoff, 400, [60.0, 64.0, 0.0, 60.0])[399], Course::Rest);
    }

    #[test]
    fn what_is_predicted_and_not_to_be_had_is_tried_less_and_less_often() {
        let mut payoff = Payoff::new(true, false);
        let all = courses(&mut payoff, 1000, [50.0, 90.0, 0.0, 60.0]);
        let begins: Vec<usize> =
            (1..all.len()).filter(|at| all[*at] == Course::Rest && all[at - 1] == Course::Plan).collect();
        assert_eq!(begins, [21, 48, 86, 153, 284, 543]);
        // Half of what is predicted is no failure while it is more than doing nothing.
        let mut payoff = Payoff::new(true, false);
        assert!(courses(&mut payoff, 1000, [65.0, 90.0, 0.0, 60.0]).iter().all(|it| *it == Course::Plan));
    }

    #[test]
    fn what_was_gained_may_be_lost_again_and_no_more() {
        // The plan is right just while it is not followed.
        let mut payoff = Payoff::new(true, false);
        let (mut observed, mut undisturbed) = (0.0, 0.0);
        for _ in 0..3000 {
            let [now, plan] = if payoff.course() == Course::Plan { [40.0, 40.0] } else { [60.0, 90.0] };
            courses(&mut payoff, 1, [now, plan, 0.0, 60.0]);
            (observed, undisturbed) = (observed + now, undisturbed + 60.0);
        }
        assert!(observed > 0.993 * undisturbed, "{observed} {undisturbed}");
        // It has gained before: it is taken up again as soon as the first time.
        let mut payoff = Payoff::new(true, false);
        courses(&mut payoff, 100, [90.0, 90.0, 0.0, 60.0]);
        for _ in 0..3 {
            let left = courses(&mut payoff, 40, [60.0, 10.0, 0.0, 60.0]);
            assert_eq!(left[39], Course::Rest);
            assert_eq!(courses(&mut payoff, 8, [60.0, 90.0, 0.0, 60.0])[7], Course::Plan);
            courses(&mut payoff, 40, [90.0, 90.0, 0.0, 60.0]);
        }
    }

    #[test]
    fn what_is_seen_is_followed_where_it_is_better_by_far_and_only_there() {
        use Course::{Plan, Rest, Seen};
        let mut payoff = Payoff::new(true, true);
        assert_eq!(courses(&mut payoff, 8, [40.0, 40.0, 75.0, 60.0])[6..], [Plan, Seen]);
        assert_eq!(courses(&mut payoff, 99, [75.0, 40.0, 75.0, 60.0])[98], Seen);
        // The difference has fallen to less than half.
        assert_eq!(courses(&mut payoff, 99, [64.0, 40.0, 64.0, 60.0])[98], Rest);
        let mut payoff = Payoff::new(true, true);
        assert_eq!(courses(&mut payoff, 99, [70.0, 70.0, 79.0, 60.0])[98], Plan);
        assert_eq!(courses(&mut payoff, 99, [70.0, 70.0, 90.0, 60.0])[98], Seen);
        assert_eq!(courses(&mut payoff, 99, [90.0, 90.0, 90.0, 60.0])[98], Plan);
        // Predicted well and not to be had.
        assert_eq!(courses(&mut Payoff::new(true, true), 30, [50.0, 40.0, 90.0, 60.0])[28..], [Seen, Rest]);
        assert_eq!(courses(&mut Payoff::new(true, false), 99, [60.0, 60.0, 90.0, 60.0])[98], Plan);
    }

    #[test]
    fn a_part_of_each_pass_in_which_first_touch_is_right_is_no_reason_to_rest() {
        let mut payoff = Payoff::new(true, false);
        for _ in 0..20 {
            courses(&mut payoff, 10, [85.0, 85.0, 0.0, 100.0]);
            assert_eq!(payoff.course(), Course::Plan);
            courses(&mut payoff, 10, [85.0, 85.0, 0.0, 0.0]);
        }
        // What was gained long ago does not make up for it for ever.
        courses(&mut payoff, 1000, [99.0, 99.0, 0.0, 0.0]);
        assert_eq!(
            courses(&mut payoff, 6, [0.0, 0.0, 0.0, 99.0])[3..],
            [Course::Plan, Course::Rest, Course::Rest]
        );
    }

    #[test]
    fn a_slice_that_seems_to_have_many_times_more_accesses_ends_no_course() {
        let mut payoff = Payoff::new(true, false);
        let many = Shares { accesses: 5000.0, undisturbed: 5000.0, ..Shares::default() };
        for _ in 0..9 {
            courses(&mut payoff, 10, [60.0, 60.0, 0.0, 60.0]);
            let mut one = payoff.clone();
            one.slice(&many, &many);
            assert_eq!(one.course(), Course::Plan);
        }
        // As many in each of them are what they are.
        (0..3).for_each(|_| payoff.slice(&many, &many));
        assert_eq!(payoff.course(), Course::Rest);
    }

    #[test]
    fn slices_count_by_their_accesses() {
        let mut payoff = Payoff::new(true, false);
        courses(&mut payoff, 10, [90.0, 90.0, 0.0, 60.0]);
        let few = Shares { accesses: 1.0, undisturbed: 1.0, ..Shares::default() };
        (0..12).for_each(|_| payoff.slice(&few, &few));
        assert_eq!(payoff.course(), Course::Plan);
        // What does not count decides nothing, and is in the total.
        (0..99).for_each(|_| payoff.slice(&shares([0.0, 0.0, 0.0, 99.0]), &Shares::default()));
        assert_eq!((payoff.course(), payoff.total().accesses), (Course::Plan, 10_912.0));
    }
}
