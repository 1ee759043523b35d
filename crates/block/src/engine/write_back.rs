//! The body that the cleaner drives ([`tiermem_policy::extents::cleaner`]): what it wants done, and what it is told.

use tiermem_policy::evict::Order;
use tiermem_policy::extents::cleaner::{Act, Cleaner, Outcome, Token};
use tiermem_policy::extents::{Extents, Plan, Request, Verdict};

/// The cleaner, and its acts until they are carried out.
pub(super) struct WriteBack {
    cleaner: Cleaner,
    /// What it wants done, in order; from [`Self::step`] on the first one last.
    acts: Vec<Act>,
    /// An act has ended since it decided last: it is to decide again.
    was_told: bool,
    /// When time alone changes something for it.
    wake_ns: Option<u64>,
    /// The log had no room when it was to decide last: it begins nothing, and names no time at which it would.
    is_stopped: bool,
    /// It got an event or planned a request since it decided last.
    has_news: bool,
    /// When it decided last.
    decided_ns: u64,
    /// How often it was to decide on something new, and the log had room.
    steps: u64,
}

impl WriteBack {
    pub fn new(cleaner: Cleaner) -> Self {
        WriteBack {
            cleaner,
            acts: Vec::new(),
            was_told: false,
            wake_ns: None,
            is_stopped: false,
            has_news: true,
            decided_ns: 0,
            steps: 0,
        }
    }

    /// The cleaner: what is written back when, and which flushes wait for it.
    pub fn cleaner(&self) -> &Cleaner {
        &self.cleaner
    }

    /// The cleaner, to be informed of events.
    pub fn cleaner_mut(&mut self) -> &mut Cleaner {
        self.has_news = true;
        &mut self.cleaner
    }

    /// Plans a request ([`Cleaner::plan`]), for which the log has room.
    pub fn plan(
        &mut self,
        now_ns: u64,
        extents: &mut Extents<Order>,
        request: &mut Request,
        plan: &mut Plan,
    ) -> Verdict {
        // It may have had none when the cleaner decided last: what the request waits for is begun all the same.
        self.cleaner.set_log_room(true);
        self.has_news = true;
        self.cleaner.plan(now_ns, extents, request, plan, &mut self.acts)
    }

    /// Lets the cleaner decide: [`Self::next_act`] returns its acts.
    pub fn step(&mut self, now_ns: u64, extents: &Extents<Order>, has_log_room: bool, is_waited_for: bool) {
        if !is_waited_for {
            self.cleaner.nobody_waits();
        }
        // What is clean must be said in the log.
        self.cleaner.set_log_room(has_log_room);
        self.wake_ns = None;
        self.was_told = false;
        let is_new = std::mem::take(&mut self.has_news) || self.is_stopped || now_ns != self.decided_ns;
        (self.is_stopped, self.decided_ns) = (!has_log_room, now_ns);
        self.steps += u64::from(has_log_room && is_new);
        self.cleaner.step(now_ns, extents, &mut self.acts);
        self.acts.reverse();
    }

    /// The next act, until there are no more.
    pub fn next_act(&mut self) -> Option<Act> {
        self.acts.pop()
    }

    /// Time alone changes something then.
    pub fn wake_at(&mut self, until_ns: u64) {
        self.wake_ns = Some(until_ns);
    }

    /// When time alone changes something.
    pub fn wake_ns(&self) -> Option<u64> {
        self.wake_ns
    }

    /// Whether it got an event since its last decision.
    pub fn was_told(&self) -> bool {
        self.was_told
    }

    /// Number of its decisions on something new with room in the log.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether it waits for room in the log.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Reports how an act ended; returns the acts to do at once.
    pub fn tell(&mut self, now_ns: u64, act: Token, outcome: Outcome<'_>) -> Vec<Act> {
        let first = self.acts.len();
        (self.was_told, self.has_news) = (true, true);
        self.cleaner.done(now_ns, act, outcome, &mut self.acts);
        self.acts.split_off(first)
    }
}
