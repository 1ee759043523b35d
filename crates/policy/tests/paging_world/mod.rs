//! Events for the paging machine, and a driver that settles its acts when it is told to, in any order.
#![allow(dead_code)] // Each test program uses its part.

use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_policy::evict::Evict;
use tiermem_policy::paging::{Act, Event, Outcome, PageRange, PageState, Paging, Role, Ticket, Watermarks};

/// Pages in these tests: two stretches, apart from each other, and across the borders of the map's chunks.
pub const PAGES: u64 = 24;

/// The address of a page by its number.
pub fn page(number: u64) -> u64 {
    if number < PAGES / 2 { 58 + number } else { (1 << 40) + 250 + number }
}

/// An event without tickets, which only the driver knows.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Event(Event),
    Settled { nth: usize, outcome: Outcome },
}

fn range() -> impl Strategy<Value = PageRange> {
    (0..PAGES, 0u64..9, 0u32..8).prop_map(|(first, pages, all)| match all {
        0 => PageRange { first: page(first), end: u64::MAX },
        _ => PageRange { first: page(first), end: page(first) + pages },
    })
}

/// What a plan says, which no naive twin knows.
pub fn planned() -> impl Strategy<Value = Op> {
    let role = prop_oneof![
        2 => Just(Role::Held),
        2 => (0u16..2, any::<bool>()).prop_map(|(sweep, is_down)| Role::Swept { sweep, is_down }),
        2 => (0u16..3).prop_map(|phase| Role::Phase { phase }),
        1 => Just(Role::Free),
    ];
    (range(), role).prop_map(|(pages, role)| Op::Event(Event::Planned { pages, role }))
}

/// A range that is short, as each of its pages is given a frame.
fn short_range() -> impl Strategy<Value = PageRange> {
    (0..PAGES, 0u64..4).prop_map(|(first, pages)| PageRange { first: page(first), end: page(first) + pages })
}

pub fn op() -> impl Strategy<Value = Op> {
    let outcome =
        prop_oneof![8 => Just(Outcome::Done), 1 => Just(Outcome::Refused), 1 => Just(Outcome::Touched)];
    let number = (0..PAGES).prop_map(page);
    let event = prop_oneof![
        20 => (number.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(page, major, write)| Event::Fault { page, major, write }),
        6 => (number.clone(), any::<bool>()).prop_map(|(page, write)| Event::Used { page, write }),
        3 => (number, 0u32..5).prop_map(|(page, log2)| Event::Referenced {
            first: page >> log2 << log2,
            pages_log2: log2
        }),
        2 => short_range().prop_map(|pages| Event::Found { pages, state: PageState::Present }),
        2 => short_range().prop_map(|pages| Event::Found { pages, state: PageState::Swapped }),
        1 => range().prop_map(|pages| Event::Found { pages, state: PageState::Absent }),
        1 => range().prop_map(|pages| Event::Discarded { pages }),
        1 => range().prop_map(|pages| Event::Unmapped { pages }),
        1 => (0u64..24).prop_map(|pages| Event::Charged { pages }),
        1 => (2u32..12, 0u32..4, 0u32..6).prop_map(|(dram_pages, low, high)| Event::Capacity {
            dram_pages,
            watermarks: Watermarks { low, high: high.max(low) }
        }),
        8 => (1u32..6).prop_map(|budget| Event::Step { budget }),
    ];
    prop_oneof![
        3 => event.prop_map(Op::Event),
        2 => (any::<usize>(), outcome).prop_map(|(nth, outcome)| Op::Settled { nth, outcome }),
    ]
}

/// The machine and its driver.
pub struct World<E> {
    pub paging: Paging<E>,
    pub tickets: Vec<(Ticket, usize)>,
    opened: usize,
    rng: Rng,
    now: u64,
}

impl<E: Evict> World<E> {
    pub fn new(paging: Paging<E>) -> Self {
        World { paging, tickets: Vec::new(), opened: 0, rng: Rng::seeded(5), now: 0 }
    }

    /// Runs an event. Acts have the numbers of their tickets, which count from 0.
    pub fn run(&mut self, op: Op) -> Vec<String> {
        let event = match op {
            Op::Event(event) => event,
            Op::Settled { .. } if self.tickets.is_empty() => return Vec::new(),
            Op::Settled { nth, outcome } => {
                let (ticket, _) = self.tickets.remove(nth % self.tickets.len());
                Event::Settled { ticket, outcome }
            }
        };
        self.now += 1;
        let mut acts = Vec::new();
        self.paging.on(event, self.now, &mut self.rng, &mut acts);
        let mut words = Vec::new();
        for act in acts {
            let number = self.opened;
            self.opened += 1;
            self.tickets.push((act.ticket(), number));
            words.push(match act {
                Act::PageOut { page, from, to, clean, .. } => {
                    format!("#{number} out {page} {from} {to:?} {clean}")
                }
                Act::Fetch { page, from, to, why, .. } => format!("#{number} in {page} {from} {to} {why:?}"),
            });
        }
        words
    }
}
