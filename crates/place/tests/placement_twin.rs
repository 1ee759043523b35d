//! Placement twin: the same program and plan through the replay of a recording and through the live executor, on a kernel
//! that is simulated page by page. It covers too little bandwidth, moves that take long, mappings that come and go and have holes, pages
//! that the kernel does not move, plans with windows, phases and always-fast granules, and each way to follow them.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use tiermem_base::{Heat, Rng};
use tiermem_model::placement::replay::{self, How, Memory};
use tiermem_model::placement::{Mapped, Phase, Plan, PlannedRegion, Program, Span, Sweep};
use tiermem_place::migrate::{Executor, MappedRegion, Pages, Placement, Touched};
use tiermem_policy::placement::{FirstTouch, Outcome, Tier};

const PAGE: u64 = 4096;
const GRANULE_PAGES: u64 = 16;
const GRANULE: u64 = GRANULE_PAGES * PAGE;
const SLICE_NS: u64 = 100_000_000;
const SLICES: usize = 50;
const REGIONS: [u32; 3] = [40, 24, 12];
const NODES: [u32; 2] = [0, 1];
/// A page that stays where it is alone does not keep its granule from having moved; an odd one is not among those of a whole granule
/// that are looked at.
const STICKY_PAGE: u64 = 3;

/// A move: the slice behind which it was made, the granule, whether to fast memory, and whether it was refused.
type Moves = Vec<(usize, u32, bool, bool)>;

fn base(region: usize) -> u64 {
    (region as u64 + 1) << 32
}

fn first_of(region: usize) -> u32 {
    REGIONS[..region].iter().sum()
}

/// A program: what it has mapped and accesses in each slice, and what the kernel does not move.
struct World {
    seed: u64,
    heats: Vec<Heat>,
    mapped: Vec<Mapped>,
    plan: Plan,
    placement: Placement,
    move_bytes_per_s: f64,
    move_ns: u64,
    refusals: u64,
    has_tail: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::seeded(seed);
        let placement = [Placement::FirstTouch, Placement::Planned, Placement::Live, Placement::Live]
            [rng.below(4) as usize];
        let has_tail = placement != Placement::FirstTouch && rng.below(2) == 0;
        let mut mapped = Vec::new();
        for (region, granules) in REGIONS.iter().enumerate() {
            mapped.extend(lives(&mut rng, first_of(region), *granules));
        }
        let mut heats: Vec<Heat> =
            REGIONS.iter().map(|granules| Heat::cold(GRANULE, *granules as usize, SLICES)).collect();
        let is_mapped = |slice: usize, granule: u32| is_mapped(&mapped, slice, granule);
        let speed = 1 + rng.below(9) as usize;
        for slice in 0..SLICES {
            let mut touch = |region: usize, at: usize, weight: f32| {
                if is_mapped(slice, first_of(region) + at as u32) {
                    heats[region].row_mut(slice)[at] += weight;
                }
            };
            // A hotspot, phases, and anything anywhere.
            (0..6).for_each(|at| touch(0, (slice * speed + at) % REGIONS[0] as usize, 10.0));
            let phase = slice / 9 % 3 * 8;
            (phase..phase + 8).for_each(|at| touch(1, at, 6.0));
            for _ in 0..rng.below(12) {
                let region = rng.below(3) as usize;
                let at = rng.below(u64::from(REGIONS[region])) as usize;
                touch(region, at, 1.0 + rng.below(40) as f32);
            }
        }
        let fast = [0, 1, 2, 9, 20, 38, 60, 100][rng.below(8) as usize];
        let plan = plan(&mut rng, fast, speed as f64, has_tail);
        let rates = [0.0, 0.7, 9.0, 30.0, 95.0, 400.0, 1e9];
        let move_bytes_per_s = rates[rng.below(7) as usize] * GRANULE as f64;
        let refusals = [0, 0, 3, 10][rng.below(4) as usize];
        let move_ns = [0, 0, 2_000_000, 30_000_000, 250_000_000][rng.below(5) as usize];
        World { seed, heats, mapped, plan, placement, move_bytes_per_s, move_ns, refusals, has_tail }
    }

    /// Whether the kernel does not move a granule behind a slice.
    fn refuses(&self, slice: usize, granule: u32) -> bool {
        let drawn = Rng::seeded(self.seed ^ (slice as u64 / 5) << 32 ^ u64::from(granule) << 8).below(20);
        drawn < self.refusals
    }

    fn fast_granules(&self) -> u32 {
        (self.plan.fast_bytes / GRANULE) as u32
    }

    /// The bytes of a granule that there are: the last one of a region is smaller.
    fn granule_bytes(&self, granule: u32) -> u64 {
        let is_last = (0..REGIONS.len()).any(|region| first_of(region) + REGIONS[region] == granule + 1);
        if self.has_tail && is_last { GRANULE - 5 * PAGE } else { GRANULE }
    }
}

fn is_mapped(mapped: &[Mapped], slice: usize, granule: u32) -> bool {
    let slice = slice as u32;
    mapped
        .iter()
        .any(|it| it.granules.contains(&granule) && it.first_slice <= slice && slice <= it.last_slice)
}

/// When the parts of a region are there: all of it always, later, with a hole for a while, or twice.
fn lives(rng: &mut Rng, first: u32, granules: u32) -> Vec<Mapped> {
    let end = SLICES as u32 - 1;
    let all = first..first + granules;
    let mapped = |granules: Range<u32>, first_slice: u32, last_slice: u32| Mapped {
        granules,
        first_slice,
        last_slice,
    };
    let (from, to) = (5 + rng.below(10) as u32, 20 + rng.below(15) as u32);
    let (hole, behind) = (first + granules / 4, first + granules / 2);
    match rng.below(4) {
        0 => vec![mapped(all, 0, end)],
        1 => vec![mapped(all, from, to)],
        2 => vec![mapped(all.clone(), 0, from), mapped(all, to, end)],
        _ => vec![
            mapped(first..hole, 0, end),
            mapped(behind..first + granules, 0, end),
            mapped(hole..behind, 0, from),
            mapped(hole..behind, to, end),
        ],
    }
}

fn plan(rng: &mut Rng, fast: u32, granules_per_slice: f64, has_tail: bool) -> Plan {
    let cut = if has_tail { 5 * PAGE } else { 0 };
    let region = |(at, granules): (usize, &u32)| PlannedRegion {
        name: format!("region {at}"),
        kind: if at == 0 { "file" } else { "anonymous" }.to_owned(),
        path: (at == 0).then(|| "/no/such/model".to_owned()),
        permissions: "rw-p".to_owned(),
        bytes: u64::from(*granules) * GRANULE - cut,
        ..PlannedRegion::default()
    };
    let span = |region: u32, at: u32, granules: u32| {
        let end = u64::from(at + granules) * GRANULE;
        let bytes = end.min(u64::from(REGIONS[region as usize]) * GRANULE - cut) - u64::from(at) * GRANULE;
        Span { region, offset: u64::from(at) * GRANULE, bytes }
    };
    let any_span = |rng: &mut Rng| {
        let region = rng.below(3) as u32;
        let at = rng.below(u64::from(REGIONS[region as usize])) as u32;
        span(region, at, 1 + rng.below(5).min(u64::from(REGIONS[region as usize] - at - 1)) as u32)
    };
    let all = span(0, 0, REGIONS[0]);
    let every = 1 + rng.below(3) as u32;
    let sweep = Sweep {
        span: all,
        period_ns: 0,
        bytes_per_s: granules_per_slice * 10.0 * GRANULE as f64,
        hot_bytes: 6 * GRANULE,
        lead_bytes: 0,
        window_bytes: (4 + rng.below(10)) * GRANULE,
        stride_bytes: 0,
        every,
    };
    let phase = |at: u32| Phase { began_ns: Vec::new(), spans: vec![span(1, at * 8, 8)] };
    Plan {
        version: Plan::VERSION,
        granule_bytes: GRANULE,
        fast_bytes: u64::from(fast) * GRANULE,
        regions: REGIONS.iter().enumerate().map(region).collect(),
        always: (0..rng.below(5)).map(|_| any_span(rng)).collect(),
        phases: if rng.below(2) == 0 { (0..3).map(phase).collect() } else { Vec::new() },
        sweeps: if rng.below(3) > 0 { vec![sweep] } else { Vec::new() },
        ..Plan::default()
    }
}

/// A simulated kernel: pages by address, and the requests to it.
#[derive(Default)]
struct Kernel {
    /// The node of each page that is in memory.
    pages: BTreeMap<u64, u32>,
    /// The node that was asked for.
    bound: BTreeMap<u64, u32>,
    /// Pages that fit on the fast node.
    fast_pages: u64,
    refused: BTreeSet<u32>,
    slice: usize,
    moves: Moves,
    /// What a move takes, and all have taken.
    move_ns: u64,
    now_ns: u64,
}

impl Kernel {
    fn granule(address: u64) -> u32 {
        let region = (address >> 32) as usize - 1;
        first_of(region) + ((address - base(region)) / GRANULE) as u32
    }

    fn touch(&mut self, address: u64) {
        if self.pages.contains_key(&address) {
            return;
        }
        let on_fast = self.pages.values().filter(|node| **node == NODES[0]).count() as u64;
        let unasked = if on_fast < self.fast_pages { NODES[0] } else { NODES[1] };
        let node = self.bound.get(&address).copied().unwrap_or(unasked);
        self.pages.insert(address, node);
    }

    fn unmap(&mut self, start: u64, end: u64) {
        self.pages.retain(|address, _| *address < start || *address >= end);
        self.bound.retain(|address, _| *address < start || *address >= end);
    }

    /// Where most of a granule lies.
    fn tier(&self, granule: u32) -> Option<Tier> {
        let nodes = self.pages.iter().filter(|(address, _)| Kernel::granule(**address) == granule);
        let on = nodes.fold([0, 0], |mut on, (_, node)| {
            on[*node as usize] += 1;
            on
        });
        match on {
            [0, 0] => None,
            [fast, slow] => Some(if fast > slow { Tier::Fast } else { Tier::Slow }),
        }
    }
}

#[derive(Clone)]
struct Shared(Rc<RefCell<Kernel>>);

impl Pages for Shared {
    fn nodes(&mut self, addresses: &[u64], nodes: &mut [i32]) -> io::Result<()> {
        let kernel = self.0.borrow();
        for (address, node) in addresses.iter().zip(nodes) {
            *node = kernel.pages.get(address).map_or(-2, |node| node.cast_signed());
        }
        Ok(())
    }

    fn move_to(&mut self, addresses: &[u64], node: u32, status: &mut [i32]) -> io::Result<()> {
        let mut kernel = self.0.borrow_mut();
        let granule = Kernel::granule(addresses[0]);
        let is_refused = kernel.refused.contains(&granule);
        let move_made = (kernel.slice, granule, node == NODES[0], is_refused);
        kernel.moves.push(move_made);
        kernel.now_ns += kernel.move_ns;
        for (address, status) in addresses.iter().zip(status) {
            assert_eq!(Kernel::granule(*address), granule, "one granule at a time");
            let is_whole = !(0..REGIONS.len()).any(|it| first_of(it) + REGIONS[it] == granule + 1);
            let is_sticky =
                is_whole && granule.is_multiple_of(3) && address / PAGE % GRANULE_PAGES == STICKY_PAGE;
            match kernel.pages.get_mut(address) {
                None => *status = -2,
                Some(_) if is_refused || is_sticky => *status = -16,
                Some(place) => {
                    *place = node;
                    *status = node.cast_signed();
                }
            }
        }
        Ok(())
    }

    fn clock(&mut self) -> Duration {
        Duration::from_nanos(self.0.borrow().now_ns)
    }
}

/// Results of the live executor: its moves, where granules lie at the
/// end and where it takes them to be, and touches of both memories.
struct Done {
    moves: Moves,
    lies: Vec<Option<Tier>>,
    taken: Vec<Option<Tier>>,
    fast: f64,
    slow: f64,
}

fn live(world: &World) -> Done {
    let kernel = Rc::new(RefCell::new(Kernel {
        fast_pages: u64::from(world.fast_granules()) * GRANULE_PAGES,
        move_ns: world.move_ns,
        ..Kernel::default()
    }));
    let placer = world.placement.placer(&world.plan, SLICE_NS, world.move_bytes_per_s);
    let mut executor = Executor::new(&world.plan, placer, NODES, Shared(Rc::clone(&kernel)));
    let mut generations = [0; REGIONS.len()];
    for slice in 0..SLICES {
        let mut now = Vec::new();
        for (region, granules) in REGIONS.iter().enumerate() {
            let mut stretches: Vec<(u64, u64)> = Vec::new();
            for granule in first_of(region)..first_of(region) + granules {
                let start = base(region) + u64::from(granule - first_of(region)) * GRANULE;
                let end = start + world.granule_bytes(granule);
                if !is_mapped(&world.mapped, slice, granule) {
                    kernel.borrow_mut().unmap(start, end);
                    continue;
                }
                match stretches.last_mut().filter(|last| last.1 == start) {
                    Some(last) => last.1 = end,
                    None => stretches.push((start, end)),
                }
            }
            // What comes again is another region.
            if stretches.is_empty() {
                generations[region] += 1;
                continue;
            }
            let number = region as u32 + 10 * generations[region];
            now.push(MappedRegion {
                number,
                start: base(region),
                described: world.plan.regions[region].clone(),
                stretches,
            });
        }
        let mut bind = |start: u64, end: u64, node: u32| {
            kernel.borrow_mut().bound.extend((start..end).step_by(PAGE as usize).map(|page| (page, node)));
        };
        executor.attach(&now, &mut bind).unwrap();
        let mut touched = Vec::new();
        for (region, heat) in world.heats.iter().enumerate() {
            for (at, weight) in heat.row(slice).iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
                let address = base(region) + at as u64 * GRANULE;
                let bytes = world.granule_bytes(first_of(region) + at as u32);
                (address..address + bytes)
                    .step_by(PAGE as usize)
                    .for_each(|page| kernel.borrow_mut().touch(page));
                let number = region as u32 + 10 * generations[region];
                touched.push(Touched { region: number, address, bytes, weight: f64::from(*weight) });
            }
        }
        {
            let mut kernel = kernel.borrow_mut();
            kernel.slice = slice;
            kernel.refused = (0..100).filter(|granule| world.refuses(slice, *granule)).collect();
        }
        let from_ns = slice as u64 * SLICE_NS;
        executor.after_slice(from_ns, from_ns + SLICE_NS, &touched).unwrap();
    }
    let granules = 0..REGIONS.iter().sum();
    let report = executor.report();
    let kernel = kernel.borrow();
    assert_eq!(report.corrected_pages, 0);
    Done {
        moves: kernel.moves.clone(),
        lies: granules.clone().map(|granule| kernel.tier(granule)).collect(),
        taken: granules.map(|granule| executor.placer().tier(granule)).collect(),
        fast: report.fast_accesses,
        slow: report.slow_accesses,
    }
}

fn replayed(world: &World) -> Done {
    let heats: Vec<&Heat> = world.heats.iter().collect();
    let slices: Vec<(u64, u64)> =
        (0..SLICES as u64).map(|slice| (slice * SLICE_NS, (slice + 1) * SLICE_NS)).collect();
    let program = Program::new(&heats, &slices).unwrap().with_mappings(world.mapped.clone());
    let is_still = world.placement == Placement::FirstTouch;
    let how = match is_still {
        true => How::default(),
        false => How {
            schedule: world.plan.schedule(),
            live: world.placement == Placement::Live,
            first_touch: FirstTouch::Bound,
        },
    };
    let moves_per_s = if is_still { 0.0 } else { world.move_bytes_per_s / GRANULE as f64 };
    let memory = Memory { fast_granules: world.fast_granules(), moves_per_s };
    let mut moves = Vec::new();
    let (outcome, placer) = replay::carry_out(&program, &memory, &how, |slice, act| {
        let is_refused = world.refuses(slice, act.granule);
        moves.push((slice, act.granule, act.to == Tier::Fast, is_refused));
        (if is_refused { Outcome::Refused } else { Outcome::Moved }, world.move_ns)
    });
    let taken: Vec<_> = (0..program.granules()).map(|granule| placer.tier(granule)).collect();
    Done { moves, lies: taken.clone(), taken, fast: outcome.accesses - outcome.slow, slow: outcome.slow }
}

#[test]
fn a_replay_and_a_running_program_are_placed_alike() {
    // What happened in all of them together: a twin that never met something says nothing of it.
    let (mut moved, mut refused, mut gone) = (0, 0, 0);
    let (mut by_rate, mut by_time) = (BTreeSet::new(), BTreeMap::new());
    for seed in 0..200 {
        let world = World::new(seed);
        let (live, replayed) = (live(&world), replayed(&world));
        let of = format!("seed {seed}: {:?}, {} fast", world.placement, world.fast_granules());
        let differs = live.moves.iter().zip(&replayed.moves).position(|(a, b)| a != b);
        assert_eq!(live.moves, replayed.moves, "{of}, from move {differs:?} on");
        assert_eq!(live.lies, replayed.lies, "{of}: where granules lie");
        assert_eq!(live.taken, replayed.taken, "{of}: where they are taken to lie");
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-3 * (a + b).max(1.0);
        assert!(
            near(live.fast, replayed.fast) && near(live.slow, replayed.slow),
            "{of}: fast {} {}, slow {} {}",
            live.fast,
            replayed.fast,
            live.slow,
            replayed.slow
        );
        assert!(world.placement != Placement::FirstTouch || live.moves.is_empty(), "{of}");
        moved += live.moves.iter().filter(|it| !it.3).count();
        refused += live.moves.iter().filter(|it| it.3).count();
        gone += live.lies.iter().filter(|it| it.is_none()).count();
        // The lowest rate moves little.
        if live.moves.len() > 4 {
            by_rate.insert(world.move_bytes_per_s as u64);
            *by_time.entry(world.move_ns).or_default() += live.moves.len();
        }
    }
    let by_time: Vec<usize> = by_time.into_values().collect();
    assert!(
        moved > 1000 && refused > 100 && gone > 100 && by_rate.len() == 5 && by_time.len() == 4,
        "{moved} {refused} {gone} {by_rate:?} {by_time:?}"
    );
}

/// Ten granules of a file, of which two belong into fast memory.
fn plan_of_text() -> Plan {
    Plan {
        version: Plan::VERSION,
        granule_bytes: GRANULE,
        fast_bytes: 2 * GRANULE,
        always: vec![Span { region: 0, offset: 6 * GRANULE, bytes: 2 * GRANULE }],
        regions: vec![PlannedRegion {
            name: "text".to_owned(),
            kind: "file".to_owned(),
            path: Some("/lib".to_owned()),
            bytes: 10 * GRANULE,
            ..PlannedRegion::default()
        }],
        ..Plan::default()
    }
}

fn mapped_text(plan: &Plan) -> MappedRegion {
    MappedRegion {
        number: 0,
        start: base(0),
        described: plan.regions[0].clone(),
        stretches: vec![(base(0), base(0) + 10 * GRANULE)],
    }
}

/// A library's text was in memory before the program came, and is in none of the plan's lists: where there is no room for it, it is not
/// put into slow memory for that. What the plan names is brought where it belongs.
#[test]
fn what_the_plan_does_not_name_stays_where_it_was_touched() {
    let plan = plan_of_text();
    let kernel = Rc::new(RefCell::new(Kernel::default()));
    for granule in 0..10 {
        let node = NODES[usize::from(granule >= 5)];
        let start = base(0) + granule * GRANULE;
        let pages = (start..start + GRANULE).step_by(PAGE as usize).map(|page| (page, node));
        kernel.borrow_mut().pages.extend(pages);
    }
    let placer = Placement::Planned.placer(&plan, SLICE_NS, 1e12);
    let mut executor = Executor::new(&plan, placer, NODES, Shared(Rc::clone(&kernel)));
    let text = mapped_text(&plan);
    let mut bound = Vec::new();
    let mut bind = |start: u64, end: u64, node: u32| {
        bound.push(((start - base(0)) / GRANULE..(end - base(0)) / GRANULE, node))
    };
    executor.attach(std::slice::from_ref(&text), &mut bind).unwrap();
    executor.after_slice(0, SLICE_NS, &[]).unwrap();
    executor.attach(&[text], &mut bind).unwrap();
    assert_eq!(bound, [(0..6, NODES[1]), (6..8, NODES[0]), (8..10, NODES[1])]);
    assert_eq!(executor.report().corrected_pages, 2 * GRANULE_PAGES - 1);
    let lies: Vec<bool> = (0..10).map(|granule| kernel.borrow().tier(granule) == Some(Tier::Fast)).collect();
    assert_eq!(lies, [true, true, true, true, true, false, true, true, false, false]);
    let moves = kernel.borrow().moves.clone();
    assert_eq!(moves, [(0, 6, true, false), (0, 7, true, false)]);
}

/// A program may give pages back and stay mapped (`MADV_DONTNEED`), which is not reported. A move that finds none
/// of a granule's pages has not moved it: its room in fast memory is free, and its next first touch counts as one.
#[test]
fn a_granule_whose_pages_the_program_gave_back_takes_no_fast_memory() {
    let plan = plan_of_text();
    let kernel = Rc::new(RefCell::new(Kernel::default()));
    let placer = Placement::Planned.placer(&plan, SLICE_NS, 1e12);
    let mut executor = Executor::new(&plan, placer, NODES, Shared(Rc::clone(&kernel)));
    executor.attach(&[mapped_text(&plan)], &mut |_, _, _| ()).unwrap();
    let address = base(0) + 6 * GRANULE;
    let pages = (address..address + GRANULE).step_by(PAGE as usize).map(|page| (page, NODES[1]));
    kernel.borrow_mut().pages.extend(pages);
    kernel.borrow_mut().refused.insert(6);
    executor
        .after_slice(0, SLICE_NS, &[Touched { region: 0, address, bytes: GRANULE, weight: 1.0 }])
        .unwrap();
    assert_eq!(executor.placer().tier(6), Some(Tier::Slow), "it was seen there, and may not move");
    kernel.borrow_mut().refused.clear();
    kernel.borrow_mut().unmap(address, address + GRANULE);
    // What was refused is left alone for a while.
    for slice in 1..100 {
        executor.after_slice(slice * SLICE_NS, (slice + 1) * SLICE_NS, &[]).unwrap();
    }
    assert_eq!(executor.placer().tier(6), None);
}
