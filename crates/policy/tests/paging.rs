//! Paging by hand: small stories with their acts, and what pages cost.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod paging_world;

use std::collections::{BTreeSet, VecDeque};

use paging_world::{Op, World};
use tiermem_base::Rng;
use tiermem_policy::evict::Named;
use tiermem_policy::evict::any_policy::Order;
use tiermem_policy::evict::lru::{Bump, Lru};
use tiermem_policy::frames::{Arrival, References, TierConfig, domains};
use tiermem_policy::paging::{
    Config, Counts, Event, Outcome, PageRange, PageState, Paging, Reclaim, Role, Watermarks,
};
use tiermem_policy::prefetch;
use tiermem_policy::prefetch::next_n::NextNParameters;

/// The next page after each that faults.
const NEXT: prefetch::Named = prefetch::Named::NextN(NextNParameters { degree: 1, offset: 0 });

fn world(dram: u32, low: u32, high: u32, prefetch: prefetch::Named) -> World<Lru> {
    let mut config = Config { prefetch, ..Config::kernel(dram, 1000) };
    config.tiers[0] = TierConfig { low, high, ..TierConfig::memory(dram) };
    of(config)
}

fn of(config: Config) -> World<Lru> {
    let policy = Lru::new(vec![1.0; domains(&config.frames())], Bump::Always);
    World::new(Paging::new(config, policy).unwrap())
}

impl World<Lru> {
    fn on(&mut self, event: Event) -> Vec<String> {
        let acts = self.run(Op::Event(event));
        self.paging.audit();
        acts
    }
    fn minor(&mut self, page: u64) -> Vec<String> {
        self.on(Event::Fault { page, major: false, write: false })
    }
    fn major(&mut self, page: u64) -> Vec<String> {
        self.on(Event::Fault { page, major: true, write: false })
    }
    fn find(&mut self, first: u64, end: u64, state: PageState) -> Vec<String> {
        self.on(Event::Found { pages: PageRange { first, end }, state })
    }
    /// The oldest act has this outcome.
    fn end(&mut self, outcome: Outcome) -> Vec<String> {
        self.run(Op::Settled { nth: 0, outcome })
    }
    fn counts(&self) -> Counts {
        self.paging.counts()
    }
}

#[test]
fn a_step_pages_out_the_coldest_between_the_watermarks_side_by_side() {
    let mut world = world(6, 1, 3, prefetch::Named::None);
    for page in [9, 3, 8, 2, 7] {
        assert_eq!(world.minor(page), [] as [&str; 0]);
    }
    assert!(!world.paging.is_due(), "one is free");
    world.minor(1);
    world.on(Event::Used { page: 9, write: false });
    assert!(world.paging.is_due());
    // 3, 8 and 2 are the coldest; the kernel is told of pages in their order.
    let out = ["#0 out 2 0 Some(1) false", "#1 out 3 0 Some(1) false", "#2 out 8 0 Some(1) false"];
    assert_eq!(world.on(Event::Step { budget: 100 }), out);
    assert_eq!(world.on(Event::Step { budget: 100 }), [] as [&str; 0], "what is on its way out is free soon");
    // 2 went, 3 could not, 8 was used meanwhile.
    world.end(Outcome::Done);
    world.end(Outcome::Refused);
    world.minor(8);
    world.end(Outcome::Done);
    assert_eq!([1, 2, 3, 7, 8, 9].map(|page| world.paging.tier(page).unwrap()), [0, 1, 0, 0, 0, 0]);
    assert_eq!((world.counts().paged_out, world.counts().stayed), (1, 2));
    world.minor(20);
    world.minor(21);
    assert_eq!(world.on(Event::Step { budget: 1 }).len(), 1, "no more than its budget");
}

#[test]
fn what_the_kernel_brings_in_has_room_and_is_brought_down_afterwards() {
    let mut world = world(4, 1, 1, prefetch::Named::None);
    world.find(0, 10, PageState::Present);
    assert_eq!((world.paging.space().used(0), world.paging.space().capacity(0)), (10, 4));
    let acts = world.on(Event::Step { budget: 100 });
    assert_eq!(acts.len(), 7);
    assert_eq!((&acts[0][..], &acts[6][..]), ("#0 out 0 0 Some(1) false", "#6 out 6 0 Some(1) false"));
    // Less DRAM, and less is kept free than would be left of it.
    let watermarks = Watermarks { low: 5, high: 9 };
    world.on(Event::Capacity { dram_pages: 2, watermarks });
    assert_eq!(world.on(Event::Step { budget: 100 }).len(), 2);
    // Faults find their frame where all moves are taken.
    for page in 100..5000 {
        world.minor(page);
    }
    assert_eq!(world.paging.space().used(0), 10 + 4900);
}

#[test]
fn a_page_scan_is_right() {
    let mut world = world(100, 1, 1, prefetch::Named::None);
    world.find(0, 4, PageState::Present);
    world.find(4, 8, PageState::Swapped);
    assert_eq!(world.paging.tier(3).zip(world.paging.tier(4)), Some((0, 1)));
    assert_eq!(world.counts(), Counts::default(), "what was there before is nobody's doing");
    // The kernel took 2 and 3; 4 is back without a fault; 1 is gone.
    world.find(2, 4, PageState::Swapped);
    world.find(4, 5, PageState::Present);
    world.find(1, 2, PageState::Absent);
    assert_eq!(world.counts(), Counts { kernel_evicted: 2, returned: 1, ..Counts::default() });
    // A major fault at a page that should be there tells the same as a scan.
    world.major(0);
    assert_eq!(world.counts().kernel_evicted, 3);
    assert_eq!(
        (0..5).map(|page| world.paging.tier(page)).collect::<Vec<_>>(),
        [Some(0), None, Some(1), Some(1), Some(0)]
    );
}

#[test]
fn the_first_use_of_what_was_fetched_ahead_is_a_minor_fault_and_no_reference() {
    let mut world = world(100, 1, 1, NEXT);
    world.find(0, 8, PageState::Swapped);
    assert_eq!(world.major(0), ["#0 in 1 1 0 Prefetch"]);
    world.end(Outcome::Done);
    // The granule was used, as 0 was; 1 lies in the swap cache, which looks like swap.
    world.on(Event::Referenced { first: 0, pages_log2: 3 });
    world.find(1, 2, PageState::Swapped);
    assert!(world.paging.is_prefetched(1));
    // Its first use fetches the next, which comes too late, and then what follows that.
    assert_eq!(world.minor(1), ["#1 in 2 1 0 Prefetch"]);
    assert_eq!(world.minor(2), ["#2 in 3 1 0 Prefetch"]);
    let counts = Counts { faults: 1, prefetched: 3, prefetch_used: 2, prefetch_late: 1, ..Counts::default() };
    assert_eq!(world.counts(), counts);
    let Counts { prefetched, prefetch_used, prefetch_late, faults, .. } = counts;
    assert_eq!(counts.accuracy(), prefetch_used as f64 / prefetched as f64);
    assert_eq!(counts.coverage(), prefetch_used as f64 / (prefetch_used + faults) as f64);
    assert_eq!(counts.lateness(), prefetch_late as f64 / prefetch_used as f64);
}

/// The page that leaves first of three that came in this order, after looks that found these pages used.
fn leaves_first(policy: Named, came: [u64; 3], looks: &[&[u64]]) -> u64 {
    let mut config = Config { references: Config::references_of(policy), ..Config::kernel(3, 1000) };
    config.tiers[0] = TierConfig { low: 1, high: 1, ..TierConfig::memory(3) };
    let order = Order::new(policy, domains(&config.frames()), 3);
    let (mut paging, mut rng, mut acts) = (Paging::new(config, order).unwrap(), Rng::seeded(0), Vec::new());
    let mut now = 0;
    let mut on = |event| {
        now += 1;
        paging.on(event, now, &mut rng, &mut acts);
    };
    came.into_iter().for_each(|page| on(Event::Fault { page, major: false, write: false }));
    for used in looks {
        used.iter().for_each(|page| on(Event::Referenced { first: *page, pages_log2: 0 }));
    }
    on(Event::Step { budget: 1 });
    assert_eq!(acts.len(), 1, "{policy:?}");
    acts[0].page()
}

#[test]
fn who_counts_uses_hears_of_each_look_and_a_list_by_recency_when_a_page_is_to_leave() {
    let looks: [&[u64]; 3] = [&[0], &[0, 2], &[0, 1, 2]];
    for policy in [Named::Lfu, Named::LfuDa] {
        assert_eq!(leaves_first(policy, [0, 1, 2], &looks), 1, "{policy:?}");
    }
    // Where all were used, they are told in the order of addresses; that of their coming stays.
    for policy in [Named::Lru, Named::Slru, Named::S4Lru] {
        assert_eq!(leaves_first(policy, [2, 1, 0], &[&[0, 1, 2]]), 2, "{policy:?}");
    }
}

#[test]
fn a_page_that_left_for_one_that_was_fetched_ahead_pollutes() {
    let mut world = world(8, 2, 4, NEXT);
    world.find(0, 6, PageState::Present);
    world.find(50, 52, PageState::Swapped);
    assert!(!world.paging.is_due());
    assert_eq!(world.major(50), [] as [&str; 0], "no room above the low watermark");
    assert!(world.paging.is_due(), "a wish waits");
    assert_eq!(world.on(Event::Step { budget: 2 }).len(), 2);
    assert_eq!(world.end(Outcome::Done), [] as [&str; 0]);
    assert_eq!(world.end(Outcome::Done), ["#2 in 51 1 0 Prefetch"], "there is room now");
    world.end(Outcome::Done);
    // 51 arrived with less than four free: the next that leaves does so for it, the one after does not.
    world.on(Event::Step { budget: 2 });
    (0..2).for_each(|_| drop(world.end(Outcome::Done)));
    world.major(3);
    world.major(2);
    assert_eq!((world.counts().polluted, world.counts().faults), (1, 3));
    assert_eq!(world.counts().pollution(), 1.0 / 3.0);
}

#[test]
fn pages_of_a_device_are_wished_for_before_they_were_seen() {
    let stored = PageRange { first: 10, end: 20 };
    let mut world = of(Config { stored, prefetch: NEXT, ..Config::kernel(100, 1000) });
    assert_eq!(world.major(15), ["#0 in 16 1 0 Prefetch"]);
    assert_eq!(world.major(19), [] as [&str; 0], "there is no page 20");
    assert_eq!(world.minor(30), [] as [&str; 0]);
    assert_eq!(world.counts().first_touches, 1, "15 and 19 held something");
}

#[test]
fn watermarks_are_a_small_part_of_dram_and_not_too_much_of_a_large_one() {
    for (dram, low, high) in
        [(1, 0, 0), (2, 0, 0), (3, 1, 2), (64, 1, 2), (6400, 100, 200), (1 << 24, 8192, 16384)]
    {
        assert_eq!(Watermarks::of(dram), Watermarks { low, high }, "{dram}");
        assert!(Config::kernel(dram, 1).frames().check().is_ok());
    }
}

#[test]
fn mappings_cost_nothing_and_pages_alone_a_chunk() {
    let mut world = world(1 << 20, 1, 1, prefetch::Named::None);
    let none = world.paging.metadata_bytes();
    // 50 GiB reserved, and given back.
    world
        .run(Op::Event(Event::Unmapped { pages: PageRange { first: 1 << 30, end: (1 << 30) + (50 << 18) } }));
    assert_eq!(world.paging.metadata_bytes(), none);
    // A page in each of a hundred thousand mappings.
    let pages = 100_000;
    for mapping in 0..pages {
        world.run(Op::Event(Event::Fault { page: mapping * 1000, major: false, write: true }));
    }
    let alone = (world.paging.metadata_bytes() - none) / pages;
    assert!(alone < 360, "{alone} bytes for a page that is alone");
    // As many side by side.
    let before = world.paging.metadata_bytes();
    let first = 1 << 40;
    for page in first..first + pages {
        world.run(Op::Event(Event::Fault { page, major: false, write: true }));
    }
    let dense = (world.paging.metadata_bytes() - before) / pages;
    assert!(dense < 48, "{dense} bytes for a page with neighbours");
}

#[test]
fn a_program_that_maps_and_unmaps_forever_costs_what_it_has_mapped_at_one_time() {
    let mut world = world(1 << 20, 1, 1, prefetch::Named::None);
    let mut bytes = Vec::new();
    for round in 0..20u64 {
        let pages = PageRange { first: round << 20, end: (round << 20) + 5000 };
        for page in pages.first..pages.end {
            world.run(Op::Event(Event::Fault { page, major: false, write: true }));
        }
        world.run(Op::Event(Event::Unmapped { pages }));
        bytes.push(world.paging.metadata_bytes());
        assert_eq!(world.paging.space().used(0), 0);
    }
    world.paging.audit();
    assert_eq!(bytes[1], bytes[19]);
}

/// Passes over two hundred thousand pages with DRAM for half of them, the kernel reclaiming: it takes the page used longest ago.
fn reclaimed_by_the_kernel(dram: u32, pages: u64, passes: u64) -> (Counts, u64) {
    let config = Config { reclaim: Reclaim::Kernel, drop_behind: true, ..Config::kernel(dram, 1 << 20) };
    let mut world = of(config);
    let (mut order, mut in_dram, mut reads) = (VecDeque::new(), BTreeSet::new(), 0);
    for page in (0..passes).flat_map(|_| 0..pages) {
        order.push_back(page);
        if !in_dram.contains(&page) {
            while in_dram.len() >= dram as usize {
                let page: u64 = order.pop_front().unwrap();
                // Those that were used since stand farther back, too.
                if !order.contains(&page) && in_dram.remove(&page) {
                    world.run(Op::Event(Event::Found {
                        pages: PageRange::one(page),
                        state: PageState::Swapped,
                    }));
                }
            }
            in_dram.insert(page);
            let major = reads >= pages;
            reads += 1;
            world.run(Op::Event(Event::Charged { pages: in_dram.len() as u64 }));
            let acts = world.run(Op::Event(Event::Fault { page, major, write: false }));
            for act in acts {
                let page = act.split(' ').nth(2).unwrap().parse().unwrap();
                in_dram.remove(&page);
                world.run(Op::Settled { nth: 0, outcome: Outcome::Done });
            }
        }
    }
    world.paging.audit();
    (world.counts(), reads - pages)
}

#[test]
fn a_sweep_drops_what_it_has_passed_where_the_kernel_reclaims() {
    let (counts, reads) = reclaimed_by_the_kernel(2000, 4000, 12);
    // Without it, eleven passes read all of it.
    assert!(reads < 11 * 4000 * 7 / 10, "{reads}");
    assert!(
        counts.dropped_behind > 10_000
            && counts.probed > 100
            && counts.paged_out == counts.dropped_behind + counts.probed
    );
    // What fits is left alone.
    let (counts, reads) = reclaimed_by_the_kernel(2000, 2000, 12);
    assert_eq!((counts.dropped_behind, counts.probed, reads), (0, 0, 0));
}

#[test]
fn what_is_charged_for_others_takes_room_from_pages() {
    let mut world = world(100, 1, 2, prefetch::Named::None);
    (0..50).for_each(|page| assert_eq!(world.minor(page), [] as [&str; 0]));
    world.on(Event::Charged { pages: 90 });
    // 40 are of others, which leaves 60.
    assert_eq!(world.paging.space().capacity(0), 60);
    world.on(Event::Charged { pages: 1000 });
    assert_eq!(world.paging.space().capacity(0), 50, "a half stays theirs");
    let mut config = Config { reclaim: Reclaim::Kernel, ..Config::kernel(100, 1000) };
    config.drop_behind = true;
    let mut world = of(config);
    let before = world.paging.space().capacity(0);
    world.on(Event::Charged { pages: 1000 });
    assert_eq!(world.paging.space().capacity(0), before, "the kernel's limit is the kernel's");
}

#[test]
fn the_simulated_kernel_takes_what_is_held_and_it_is_fetched_back() {
    let holding = |reclaim| {
        let mut config = Config { reclaim, ..Config::kernel(6, 1000) };
        config.tiers[0] = TierConfig::memory(6);
        let mut world = of(config);
        world.on(Event::Planned { pages: PageRange { first: 1, end: 3 }, role: Role::Held });
        (1..=6).for_each(|page| assert_eq!(world.minor(page), [] as [&str; 0]));
        world
    };
    // An order of ours passes over what is held.
    assert_eq!(holding(Reclaim::Order).minor(7), ["#0 out 3 0 Some(1) false"]);
    let mut world = holding(Reclaim::SimulatedKernel);
    assert_eq!(world.minor(7), ["#0 out 1 0 Some(1) false"]);
    world.end(Outcome::Done);
    // The next fault takes room of its own, and so does the page that comes back.
    assert_eq!(world.minor(8), ["#1 out 2 0 Some(1) false"]);
    assert_eq!(world.end(Outcome::Done), ["#2 out 3 0 Some(1) false"]);
    assert_eq!(world.end(Outcome::Done), ["#3 in 1 1 0 Prefetch"]);
}

/// Local memory for two pages and remote memory for three, over swap.
fn pool(prefetch: prefetch::Named) -> World<Lru> {
    let mut config =
        Config { arrival: Arrival::Spill, references: References::Told, prefetch, ..Config::kernel(3, 1000) };
    config.tiers[0] = TierConfig::memory(3);
    config.tiers.insert(0, TierConfig::memory(2));
    of(config)
}

impl World<Lru> {
    fn tiers(&self, pages: impl IntoIterator<Item = u64>) -> Vec<u8> {
        pages.into_iter().map(|page| self.paging.tier(page).unwrap()).collect()
    }
}

#[test]
fn pages_fill_local_memory_first_and_leave_from_remote_memory_alone() {
    let mut world = pool(prefetch::Named::None);
    for page in 1..=5 {
        assert_eq!(world.minor(page), [] as [&str; 0]);
    }
    assert_eq!(world.tiers(1..=5), [0, 0, 1, 1, 1]);
    // All is full: the coldest of remote memory leaves, though two of local memory are colder.
    assert_eq!(world.minor(6), ["#0 out 3 1 Some(2) false"]);
    world.end(Outcome::Done);
    assert_eq!(
        (world.tiers(1..=6), world.counts().paged_out, world.counts().moved_down),
        (vec![0, 0, 2, 1, 1, 1], 1, 0)
    );
    // What is read back comes to remote memory, too, unless local memory has room.
    world.on(Event::Unmapped { pages: PageRange::one(1) });
    assert_eq!(world.major(3), [] as [&str; 0]);
    assert_eq!(world.tiers(2..=6), [0, 0, 1, 1, 1]);
}

#[test]
fn pages_change_places_in_one_step_and_a_refusal_is_made_good() {
    let mut world = pool(prefetch::Named::None);
    (1..=4).for_each(|page| drop(world.minor(page)));
    // Uses of one page in a row are one use. With the sixth use it is four above twice the one of a local page.
    for use_ in 0..5 {
        assert!(!world.paging.is_due(), "after {use_} uses more");
        world.on(Event::Used { page: 3, write: false });
        world.on(Event::Used { page: 3, write: false });
        world.on(Event::Used { page: 4, write: false });
    }
    assert_eq!(
        world.on(Event::Step { budget: 2 }),
        ["#0 out 1 0 Some(1) false", "#1 in 4 1 0 Demand"],
        "of pages that are used alike, the one used last goes up, and the one used longest ago down"
    );
    world.end(Outcome::Done);
    world.end(Outcome::Done);
    assert_eq!(
        (world.tiers(1..=4), world.counts().moved_up, world.counts().moved_down),
        (vec![1, 0, 1, 0], 1, 1)
    );
    // Page 2 stays where it is, so local memory holds three until a step sends one down.
    assert_eq!(world.on(Event::Step { budget: 2 }), ["#2 out 2 0 Some(1) false", "#3 in 3 1 0 Demand"]);
    world.end(Outcome::Refused);
    world.end(Outcome::Done);
    assert_eq!((world.tiers(1..=4), world.paging.space().used(0)), (vec![1, 0, 0, 0], 3));
    // The page that was refused counts as used six times, like the others, of which it was used the longest ago.
    assert_eq!(world.on(Event::Step { budget: 1 }), ["#4 out 2 0 Some(1) false"]);
    world.end(Outcome::Done);
    assert_eq!((world.paging.space().used(0), world.paging.is_due()), (2, false));
}

#[test]
fn what_is_fetched_ahead_comes_to_remote_memory_where_local_memory_is_full() {
    let mut world = pool(NEXT);
    (1..=4).for_each(|page| drop(world.minor(page)));
    world.find(10, 12, PageState::Swapped);
    assert_eq!(world.major(10), ["#0 out 3 1 Some(2) false"], "room for the page that is wished for");
    assert_eq!(world.end(Outcome::Done), ["#1 in 11 2 1 Prefetch"]);
    world.end(Outcome::Done);
    assert_eq!(
        (world.tiers([1, 2, 3, 4, 10, 11]), world.paging.is_prefetched(11)),
        (vec![0, 0, 2, 1, 1, 1], true)
    );
}

#[test]
fn what_is_fetched_ahead_and_moves_within_memory_is_still_used_for_the_first_time() {
    let mut world = pool(NEXT);
    world.find(10, 11, PageState::Swapped);
    assert_eq!(world.minor(9), ["#0 in 10 2 0 Prefetch"], "local memory has room");
    world.end(Outcome::Done);
    (20..=22).step_by(2).for_each(|page| drop(world.minor(page)));
    for _ in 0..3 {
        world.on(Event::Used { page: 22, write: false });
        world.on(Event::Used { page: 20, write: false });
    }
    assert_eq!(world.on(Event::Step { budget: 2 }), ["#1 out 10 0 Some(1) false", "#2 in 20 1 0 Demand"]);
    world.end(Outcome::Done);
    world.end(Outcome::Done);
    assert_eq!((world.paging.tier(10), world.paging.is_prefetched(10)), (Some(1), true));
    world.minor(10);
    let Counts { prefetched, prefetch_used, prefetch_unused, .. } = world.counts();
    assert_eq!((prefetched, prefetch_used, prefetch_unused), (1, 1, 0));
}

#[test]
fn a_limit_is_that_of_the_tier_from_which_pages_leave() {
    let mut world = pool(prefetch::Named::None);
    (1..=5).for_each(|page| drop(world.minor(page)));
    let capacities = |world: &World<Lru>| [0, 1].map(|tier| world.paging.space().capacity(tier));
    // All that is charged are pages that are known.
    world.on(Event::Charged { pages: 5 });
    assert_eq!(capacities(&world), [2, 3]);
    // One that is not takes the room of one.
    world.on(Event::Charged { pages: 6 });
    assert_eq!(capacities(&world), [2, 2]);
    world.on(Event::Capacity { dram_pages: 4, watermarks: Watermarks::default() });
    assert_eq!(capacities(&world), [2, 4]);
}
