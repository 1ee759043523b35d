//! Operations on frames, carried out against the machine by a driver that completes moves in any order it is told to.
#![allow(dead_code)] // Each test program uses its part.

use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_policy::evict::Evict;
use tiermem_policy::frames::{Act, Arrival, Config, Frame, Frames, Outcome, References, Ticket, TierConfig};
use tiermem_policy::prefetch::Insertion;

/// Frames in these tests.
pub const FRAMES: u32 = 24;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Fault { frame: u32, write: bool },
    FaultedIn { frame: u32, write: bool },
    Found { frame: u32, tier: u8 },
    Touch { frame: u32 },
    Granule { frame: u32, frames_log2: u32 },
    Wrote { frame: u32 },
    Prefetch { frame: u32, insertion: Insertion },
    Done { nth: usize, outcome: Outcome },
    FoundZero { nth: usize },
    Step { budget: u32 },
    Pin { frame: u32 },
    Unpin { frame: u32 },
    Discard { frame: u32 },
    WriteBack { frame: u32 },
    Adopt { frame: u32, tier: u8 },
    Assign { frame: u32, owner: u16 },
    Quota { owner: u16, tier: u8, frames: Option<u32> },
    Capacity { tier: u8, frames: u32 },
    Watermarks { tier: u8, low: u32, high: u32 },
}

pub fn op() -> impl Strategy<Value = Op> {
    let frame = 0..FRAMES;
    let outcome =
        prop_oneof![6 => Just(Outcome::Done), 1 => Just(Outcome::Refused), 1 => Just(Outcome::Touched)];
    let insertion = prop_oneof![
        Just(Insertion::Mru),
        Just(Insertion::Mid),
        Just(Insertion::Quarter),
        Just(Insertion::Lru)
    ];
    prop_oneof![
        16 => (frame.clone(), any::<bool>()).prop_map(|(frame, write)| Op::Fault { frame, write }),
        6 => (frame.clone(), any::<bool>()).prop_map(|(frame, write)| Op::FaultedIn { frame, write }),
        3 => (frame.clone(), 0u8..4).prop_map(|(frame, tier)| Op::Found { frame, tier }),
        22 => (any::<usize>(), outcome).prop_map(|(nth, outcome)| Op::Done { nth, outcome }),
        4 => frame.clone().prop_map(|frame| Op::Touch { frame }),
        2 => (frame.clone(), 0u32..4).prop_map(|(frame, frames_log2)| Op::Granule { frame, frames_log2 }),
        3 => frame.clone().prop_map(|frame| Op::Wrote { frame }),
        3 => (frame.clone(), insertion).prop_map(|(frame, insertion)| Op::Prefetch { frame, insertion }),
        1 => any::<usize>().prop_map(|nth| Op::FoundZero { nth }),
        4 => (1u32..5).prop_map(|budget| Op::Step { budget }),
        2 => frame.clone().prop_map(|frame| Op::Pin { frame }),
        2 => frame.clone().prop_map(|frame| Op::Unpin { frame }),
        2 => frame.clone().prop_map(|frame| Op::Discard { frame }),
        2 => frame.clone().prop_map(|frame| Op::WriteBack { frame }),
        1 => (frame.clone(), 0u8..4).prop_map(|(frame, tier)| Op::Adopt { frame, tier }),
        1 => (frame, 0u16..4).prop_map(|(frame, owner)| Op::Assign { frame, owner }),
        1 => (0u16..4, 0u8..4, prop::option::of(0u32..6))
            .prop_map(|(owner, tier, frames)| Op::Quota { owner, tier, frames }),
        1 => (0u8..4, 1u32..10).prop_map(|(tier, frames)| Op::Capacity { tier, frames }),
        1 => (0u8..4, 0u32..3, 0u32..4).prop_map(|(tier, low, high)| Op::Watermarks { tier, low, high }),
    ]
}

/// Operations of a program that uses few frames often, so that they change places by their uses.
pub fn hot_op() -> impl Strategy<Value = Op> {
    let frame = prop_oneof![4 => 0u32..4, 1 => 0..FRAMES / 2];
    prop_oneof![
        2 => op(),
        20 => frame.clone().prop_map(|frame| Op::Touch { frame }),
        5 => (frame.clone(), any::<bool>()).prop_map(|(frame, write)| Op::FaultedIn { frame, write }),
        4 => (2u32..6).prop_map(|budget| Op::Step { budget }),
        8 => any::<usize>().prop_map(|nth| Op::Done { nth, outcome: Outcome::Done }),
    ]
}

/// Two or three tiers of memory that fill one after the other, over flash.
pub fn pool_config() -> impl Strategy<Value = Config> {
    let sizes = prop::collection::vec(1u32..5, 2..=3);
    (sizes, any::<bool>(), any::<bool>(), 2u32..12).prop_map(|(sizes, sampled, writes_told, moves_max)| {
        let memory = sizes.into_iter().map(TierConfig::memory);
        let tiers: Vec<TierConfig> = memory.chain([TierConfig::storage(FRAMES)]).collect();
        let references = if sampled { References::Sampled } else { References::Told };
        Config { arrival: Arrival::Spill, references, writes_told, moves_max, ..Config::of(&tiers) }
    })
}

/// Two to four small tiers, of any kind that is allowed.
pub fn config() -> impl Strategy<Value = Config> {
    let tier = (1u32..8, any::<bool>(), 0u32..2, 0u32..2);
    let tiers = (prop::collection::vec(tier, 2..=4), 1usize..4, 4u32..30);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let bounds = (1u32..8, prop_oneof![3 => Just(u32::MAX), 1 => 0u32..4], 1u32..5);
    (tiers, flags, bounds, 1u32..5).prop_map(
        |(
            (tiers, in_place, last),
            (apart, sampled, writes_told, spills),
            (moves_max, pinned_max, candidates),
            owners,
        )| {
            let count = tiers.len();
            let spills = spills && in_place < count;
            let tier = |(at, (frames, keeps, low, more)): (usize, (u32, bool, u32, u32))| TierConfig {
                frames: if at + 1 == count { last } else { frames + 2 },
                in_place: at < in_place,
                keeps_copies: keeps && at >= in_place,
                low: if at + 1 == count { 0 } else { low },
                high: if at + 1 == count { 0 } else { low + more },
            };
            Config {
                tiers: tiers.into_iter().enumerate().map(tier).collect(),
                owners,
                apart: apart && !spills,
                arrival: if spills { Arrival::Spill } else { Arrival::First },
                references: if sampled { References::Sampled } else { References::Told },
                writes_told,
                moves_max,
                pinned_max,
                candidates,
                frame_bytes: 4096,
            }
        },
    )
}

/// Frames, and the tickets that are not settled yet, oldest first, with their numbers as they were opened.
pub struct World<E> {
    pub frames: Frames<E>,
    pub tickets: Vec<(Ticket, usize)>,
    opened: usize,
    pub rng: Rng,
    pub now: u64,
}

impl<E: Evict> World<E> {
    pub fn new(config: Config, policy: E) -> Self {
        let mut frames = Frames::new(config, policy).unwrap();
        frames.grow_to(FRAMES);
        World { frames, tickets: Vec::new(), opened: 0, rng: Rng::seeded(7), now: 0 }
    }

    /// Runs one operation; its answer and its acts in words, tickets by their numbers.
    pub fn run(&mut self, op: Op) -> (String, Vec<String>) {
        let mut acts = Vec::new();
        self.now += 1;
        let Self { frames, rng, now, .. } = self;
        let now = *now;
        let answer = match op {
            Op::Fault { frame, write } => {
                let found = frames.demand_of(Frame(frame));
                let fault = frames.fault(Frame(frame), write, now, rng, &mut acts);
                self.note(&acts);
                self.words(format!("{found:?} {fault:?}"))
            }
            Op::FaultedIn { frame, write } => {
                let room = frames.faulted_in(Frame(frame), write, now, rng, &mut acts);
                self.note(&acts);
                self.words(format!("{room:?}"))
            }
            Op::Found { frame, tier } => format!("{:?}", frames.found(Frame(frame), tier, now, &mut acts)),
            Op::Touch { frame } => format!("{:?}", frames.touch(Frame(frame), now)),
            Op::Granule { frame, frames_log2 } => {
                frames.touch_granule(Frame(frame >> frames_log2 << frames_log2), frames_log2, now);
                String::new()
            }
            Op::Wrote { frame } => format!("{:?}", frames.wrote(Frame(frame), now, &mut acts)),
            Op::Prefetch { frame, insertion } => {
                let wish = frames.prefetch(Frame(frame), insertion, now, rng, &mut acts);
                self.note(&acts);
                self.words(format!("{wish:?}"))
            }
            Op::Done { nth, outcome } => {
                if self.tickets.is_empty() {
                    return (String::new(), Vec::new());
                }
                let (ticket, _) = self.tickets.remove(nth % self.tickets.len());
                let settled = frames.done(ticket, outcome, now, &mut acts).unwrap();
                assert_eq!(frames.done(ticket, outcome, now, &mut acts), None, "settled once");
                format!("{settled:?}")
            }
            Op::FoundZero { nth } => {
                if let Some(&(ticket, _)) = self.tickets.get(nth % self.tickets.len().max(1)) {
                    frames.found_zero(ticket);
                }
                String::new()
            }
            Op::Step { budget } => {
                let opened = frames.move_counts().opened;
                let begun = frames.step(now, budget, rng, &mut acts);
                assert_eq!(u64::from(begun), frames.move_counts().opened - opened);
                assert!(begun <= budget);
                format!("{begun}")
            }
            Op::Pin { frame } => format!("{:?}", frames.pin(Frame(frame))),
            Op::Unpin { frame } => format!("{:?}", frames.unpin(Frame(frame))),
            Op::Discard { frame } => format!("{:?}", frames.discard(Frame(frame), &mut acts)),
            Op::WriteBack { frame } => {
                format!("{:?}", frames.write_back(Frame(frame), &mut acts).is_some())
            }
            Op::Adopt { frame, tier } => format!("{:?}", frames.adopt(Frame(frame), tier, now, &mut acts)),
            Op::Assign { frame, owner } => format!("{:?}", frames.assign(Frame(frame), owner)),
            Op::Quota { owner, tier, frames: quota } => {
                format!("{:?}", frames.set_quota(owner, tier, quota).is_ok())
            }
            Op::Capacity { tier, frames: capacity } => {
                format!("{:?}", frames.set_capacity(tier, capacity, &mut acts))
            }
            Op::Watermarks { tier, low, high } => format!("{:?}", frames.set_watermarks(tier, low, high)),
        };
        self.note(&acts);
        let words = acts.iter().map(|act| self.words(format!("{act:?}"))).collect();
        (answer, words)
    }

    /// Gives numbers to the tickets that came up.
    fn note(&mut self, acts: &[Act]) {
        for act in acts {
            let ticket = match *act {
                Act::Fill { ticket, .. }
                | Act::Fetch { ticket, .. }
                | Act::Demote { ticket, .. }
                | Act::Drop { ticket, .. }
                | Act::WriteBack { ticket, .. } => ticket,
                Act::Recall { .. } | Act::Free { .. } => continue,
            };
            if self.tickets.iter().all(|(known, _)| *known != ticket) {
                self.tickets.push((ticket, self.opened));
                self.opened += 1;
            }
        }
    }

    /// Tickets by number instead of by what they are made of.
    fn words(&self, mut text: String) -> String {
        for (ticket, number) in &self.tickets {
            text = text.replace(&format!("{ticket:?}"), &format!("#{number}"));
        }
        text
    }
}
