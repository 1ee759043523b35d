//! Plans of the block cache, carried out on a model of devices: reads return what was written last, blocks never overlap, and
//! nothing is lost by eviction, discarding and writing past the cache.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod extents_world;

use extents_world::{KIB, World, lru};
use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_policy::evict::any_policy::WithPolicy;
use tiermem_policy::evict::{Evict, Lru, Named};
use tiermem_policy::extents::admission::AdmissionRules;
use tiermem_policy::extents::*;

const SPAN: u64 = 2 << 20;

fn config(fill: Fill) -> Config {
    Config { fill, sizing: Sizing::Request, shares: 1 }
}

fn read(offset: u64, bytes: u64) -> Request {
    Request { volume: Volume(0), offset, bytes, write: None, bypass: false }
}

fn write(offset: u64, bytes: u64) -> Request {
    Request { write: Some(Mode::WriteBack), ..read(offset, bytes) }
}

/// Blocks do not overlap, each is where a look-up finds it, and the cache is not overdrawn.
fn assert_sound<O: Evict>(world: &mut World<O>, volumes: u16) {
    let capacity = world.cache.geometry().capacity_bytes();
    let mut held = 0;
    for volume in 0..volumes {
        let mut end = 0;
        let mut places = Vec::new();
        world.cache.visit(Volume(volume), 0..SPAN + (8 << 20), |part, _| {
            assert!(part.offset >= end);
            end = part.offset + part.bytes;
            places.push(part.at..part.at + part.bytes);
        });
        held += places.iter().map(|place| place.end - place.start).sum::<u64>();
    }
    assert!(held <= capacity);
}

fn sizes() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        Just(vec![32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB]),
        Just(vec![4 * KIB, 16 * KIB]),
        Just(vec![64 * KIB]),
        Just(vec![4 * KIB]),
        Just(vec![4 * KIB, 256 * KIB]),
        Just(vec![8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB]),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Request { volume: u16, offset: u64, bytes: u64, write: Option<Mode>, bypass: bool },
    Discard { volume: u16, offset: u64, bytes: u64 },
    Flush { volume: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![
        4 => Just(Mode::WriteBack), 1 => Just(Mode::WriteThrough), 1 => Just(Mode::WriteAround)
    ];
    let write = prop_oneof![Just(None), mode.prop_map(Some)];
    // Sectors: small ones, aligned ones, large ones.
    let extent = prop_oneof![
        (0..SPAN / 512, 1u64..32),
        (0..SPAN / 4096, 1u64..40).prop_map(|(at, len)| (at * 8, len * 8)),
        (0..SPAN / 32768, 1u64..12).prop_map(|(at, len)| (at * 64, len * 64)),
    ];
    let request = (0u16..2, extent, write, prop::bool::weighted(0.1));
    prop_oneof![
        20 => request.prop_map(|(volume, (offset, bytes), write, bypass)|
            Step::Request { volume, offset: offset * 512, bytes: bytes * 512, write, bypass }),
        1 => (0u16..2, 0..SPAN, 0..SPAN / 2).prop_map(|(volume, offset, bytes)|
            Step::Discard { volume, offset, bytes }),
        1 => (0u16..2).prop_map(|volume| Step::Flush { volume }),
    ]
}

/// Runs the steps in a cache, restarts into another, and so on until none are left.
struct Run<'a> {
    policy: Named,
    geometry: Geometry,
    config: Config,
    /// The steps between two restarts.
    lives: &'a [&'a [Step]],
    limit: Option<u64>,
    admission: AdmissionRules,
    before: Option<(World<Lru>, Vec<Kept>, Said)>,
}

/// A block as it is told and restored.
struct Kept {
    volume: Volume,
    class: usize,
    block: Block,
    valid: Vec<std::ops::Range<u64>>,
    dirty: Vec<std::ops::Range<u64>>,
}

fn export<O: Evict>(cache: &Extents<O>) -> Vec<Kept> {
    let mut kept = Vec::new();
    let piece_units = cache.geometry().piece_units();
    cache.map().visit_blocks(|volume, class, block| {
        let first = u64::from(block.slot) * piece_units;
        let units = first..first + block.pieces * piece_units;
        let (valid, dirty) =
            (cache.units().valid_runs(units.clone()).collect(), cache.units().dirty_runs(units).collect());
        kept.push(Kept { volume, class, block, valid, dirty });
    });
    kept
}

/// All that a cache says of what it holds.
type Said = (Vec<(Volume, Part, bool)>, Vec<(Volume, Part)>, Vec<u64>, u64, Vec<u64>);

fn said<O: Evict>(cache: &mut Extents<O>, shares: u16) -> Said {
    let (mut cached, mut dirty) = (Vec::new(), Vec::new());
    for volume in [Volume(0), Volume(1)] {
        cache.visit(volume, 0..SPAN * 2, |part, is_dirty| cached.push((volume, part, is_dirty)));
    }
    cache.visit_dirty(|volume, part| dirty.push((volume, part)));
    let held = (0..shares).map(|share| cache.shares().held_bytes(Share(share))).collect();
    (cached, dirty, cache.map().blocks().to_vec(), cache.units().dirty_bytes(), held)
}

impl WithPolicy for Run<'_> {
    type Output = ();

    fn with<E: Evict + Send + std::fmt::Debug + 'static>(self, order: E) {
        let shares = self.config.shares;
        let mut cache = Extents::new(self.geometry.clone(), self.config, order, Rng::seeded(7));
        cache.shares_mut().assign(Volume(1), Share(shares - 1));
        if let Some(limit) = self.limit {
            cache.shares_mut().set_limit(Share(shares - 1), limit);
        }
        cache.set_admission(self.admission);
        let mut world = match self.before {
            None => World::with(cache),
            Some((world, kept, before)) => {
                // From the middle on, so that neither groups nor places come in order.
                let (early, late) = kept.split_at(kept.len() / 2);
                for Kept { volume, class, block, valid, dirty } in late.iter().chain(early) {
                    cache.restore(block.slot, *class, *volume, block.piece, valid, dirty).unwrap();
                }
                assert_eq!(said(&mut cache, shares), before);
                world.under(cache)
            }
        };
        let Some((steps, lives)) = self.lives.split_first() else { return };
        for step in *steps {
            match *step {
                Step::Request { volume, offset, bytes, write, bypass } => {
                    // As chance has it, some reads wait.
                    world.reads_wait = offset % (8 * KIB) < 4 * KIB;
                    world.request(Request { volume: Volume(volume), offset, bytes, write, bypass });
                }
                // What a client discards reads as anything: here as it was last written back, which is written first.
                Step::Discard { volume, offset, bytes } => {
                    world.flush(Volume(volume), SPAN * 2);
                    world.cache.discard(Volume(volume), offset..offset + bytes);
                }
                Step::Flush { volume } => world.flush(Volume(volume), SPAN * 2),
            }
            assert_sound(&mut world, 2);
        }
        if !lives.is_empty() {
            let (kept, said) = (export(&world.cache), said(&mut world.cache, shares));
            let devices =
                world.under(Extents::new(self.geometry.clone(), self.config, lru(shares), Rng::seeded(7)));
            let before = Some((devices, kept, said));
            let policy = self.policy;
            return policy.build(2 * usize::from(shares), 0, Run { lives, before, ..self });
        }
        for volume in 0..2 {
            world.flush(Volume(volume), SPAN * 2);
        }
        assert_eq!(world.cache.units().dirty_bytes(), 0);
        world.assert_core_is_complete();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn reads_return_what_was_written_last(
        sizes in sizes(),
        whole in any::<bool>(),
        around in prop::option::of(prop::option::of((prop::option::of(0u8..4), prop::option::of(0u8..4)))),
        policy in prop::sample::select(Named::ALL.to_vec()),
        groups in 8u64..14,
        limit in prop::option::of(64 * KIB..1024 * KIB),
        shares in 1u16..3,
        steps in prop::collection::vec(step(), 1..120),
        restarts in 0usize..3,
        cutoff in prop::option::of(0..512 * KIB),
        promote_after in 0u8..4,
    ) {
        let largest = *sizes.last().unwrap();
        let geometry = Geometry::new(&sizes, None, groups * largest).unwrap();
        let class = |class: Option<u8>| class.map(|class| class.min(sizes.len() as u8 - 1));
        let sizing = match around {
            None => Sizing::Request,
            Some(None) => Sizing::Observed(Observation::default()),
            Some(Some((read, write))) => Sizing::Around(Around { read: class(read), write: class(write) }),
        };
        let config = Config {
            fill: if whole { Fill::Whole } else { Fill::Units },
            sizing,
            shares,
        };
        let lives: Vec<_> = steps.chunks(steps.len().div_ceil(restarts + 1)).collect();
        let admission = AdmissionRules { sequential_cutoff_bytes: cutoff, promote_after };
        let run = Run { policy, geometry, config, lives: &lives, limit, admission, before: None };
        policy.build(2 * usize::from(shares), 0, run);
    }
}

#[test]
fn the_published_example_allocates_two_blocks() {
    let sizes = [32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB];
    let mut world = World::new(&sizes, 8 << 20, config(Fill::Whole));
    world.request(read(128 * KIB, 128 * KIB));
    assert_eq!(world.cache.map().blocks(), [0, 0, 1, 0]);
    // Offset 48 KiB, 184 KiB long, with the last 104 KiB there: blocks of 32 and 64 KiB.
    let hit = world.request(read(48 * KIB, 184 * KIB));
    assert!(!hit);
    assert_eq!(world.cache.map().blocks(), [1, 1, 1, 0]);
    assert_eq!((world.plan.allocated_blocks, world.plan.allocated_bytes), (2, 96 * KIB));
    assert_eq!(world.plan.fetch.as_slice(), std::slice::from_ref(&(32 * KIB..128 * KIB)));
    assert!(world.request(read(32 * KIB, 224 * KIB)));
}

#[test]
fn a_request_that_ends_at_a_border_allocates_nothing_behind_it() {
    let mut world = World::new(&[32 * KIB, 64 * KIB], 8 << 20, config(Fill::Whole));
    world.request(read(0, 64 * KIB));
    assert_eq!(world.cache.map().blocks(), [0, 1]);
}

#[test]
fn a_request_that_had_to_wait_gets_what_it_would_have_had() {
    // The cache is full, of clean blocks or of dirty ones, which must be written back one after the other.
    let plan_over = |dirty: bool| {
        let sizing = Sizing::Around(Around { read: Some(3), write: None });
        let config = Config { sizing, ..config(Fill::Units) };
        let mut world = World::new(&[32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB], 2 << 20, config);
        for at in 0..64 {
            world.request(write(at * 32 * KIB, 32 * KIB));
            if !dirty {
                world.flush(Volume(0), SPAN);
            }
        }
        world.request(write(2080 * KIB, 32 * KIB));
        world.flush(Volume(0), if dirty { 0 } else { 4 << 20 });
        world.request(read(2176 * KIB, 4 * KIB));
        (world.plan.fetch.clone(), world.plan.allocated_bytes, world.cache.map().blocks().to_vec())
    };
    let (fetch, bytes, blocks) = plan_over(false);
    assert_eq!(fetch.as_slice(), std::slice::from_ref(&(2112 * KIB..2304 * KIB)));
    assert_eq!(bytes, 192 * KIB);
    assert_eq!(plan_over(true), (fetch, bytes, blocks));
}

#[test]
fn a_request_that_waited_finds_that_others_took_what_it_had() {
    let mut world = World::new(&[32 * KIB], 256 * KIB, config(Fill::Units));
    for at in 0..8 {
        world.request(write(at * 32 * KIB, 32 * KIB));
    }
    // The first half is there; what would make room for the second is dirty.
    let request = write(0, 64 * KIB);
    world.cache.discard(Volume(0), 32 * KIB..64 * KIB);
    world.request(write(1024 * KIB, 32 * KIB));
    let mut plan = Plan::default();
    assert_eq!(world.cache.plan(&request, &mut plan), Verdict::Clean);
    world.flush(Volume(0), SPAN);
    for at in 0..8 {
        world.request(read((64 + at) * 32 * KIB, 32 * KIB));
    }
    plan.again = true;
    assert_eq!(world.cache.plan(&request, &mut plan), Verdict::Ready);
    assert!(plan.through.is_empty(), "all of it has a place: {plan:?}");
    assert_eq!(plan.dirtied, std::slice::from_ref(&(0..64 * KIB)));
}

#[test]
fn what_of_a_write_is_larger_than_the_cache_goes_past_it() {
    for policy in Named::ALL {
        let request = Step::Request {
            volume: 0,
            offset: 0,
            bytes: 160 * KIB,
            write: Some(Mode::WriteBack),
            bypass: false,
        };
        let geometry = Geometry::new(&[4 * KIB, 16 * KIB], None, 128 * KIB).unwrap();
        let lives = [std::slice::from_ref(&request)];
        let admission = AdmissionRules::default();
        let config = config(Fill::Units);
        policy.build(
            2,
            0,
            Run { policy, geometry, config, lives: &lives, limit: None, admission, before: None },
        );
    }
}

#[test]
fn whole_fills_read_before_they_write_and_units_do_not() {
    for (fill, fetched) in [(Fill::Whole, 64 * KIB), (Fill::Units, 0)] {
        let mut world = World::new(&[64 * KIB], 8 << 20, config(fill));
        world.request(write(8 * KIB, 4 * KIB));
        assert_eq!(world.volumes.core_read, fetched);
        world.flush(Volume(0), SPAN);
        let written = if fill == Fill::Whole { 64 * KIB } else { 4 * KIB };
        assert_eq!(world.volumes.core_written, written);
        // A block that is overwritten as a whole need not be read.
        world.request(write(128 * KIB, 64 * KIB));
        assert_eq!(world.volumes.core_read, fetched);
    }
}

#[test]
fn a_tail_block_of_the_wanted_size_is_replaced_and_else_the_tail_group_goes() {
    let sizes = [32 * KIB, 64 * KIB];
    let mut world = World::new(&sizes, 3 * 64 * KIB, config(Fill::Whole));
    // Two groups of small blocks, one large block.
    for piece in [0, 2, 4, 6] {
        world.request(read(piece * 32 * KIB, 32 * KIB));
    }
    world.request(read(512 * KIB, 64 * KIB));
    assert_eq!(world.cache.map().blocks(), [4, 1]);
    // The first small block is the block list's tail: its place is taken, its neighbour in the group stays.
    world.request(read(16 * 32 * KIB + 128 * KIB, 32 * KIB));
    assert_eq!(world.cache.map().blocks(), [4, 1]);
    assert!(!world.request(read(0, 4 * KIB)), "the tail went");
    // Now 2, the next tail, went for 0; the group of 4 and 6 is the tail group. A large block takes all of it.
    world.request(read(1024 * KIB, 64 * KIB));
    assert_eq!(world.cache.map().blocks(), [2, 2]);
    assert!(world.request(read(0, 4 * KIB)));
    assert!(world.request(read(512 * KIB, 64 * KIB)), "used before, but its group was promoted with it");
}

#[test]
fn reading_around_fetches_the_neighbours_that_are_not_there() {
    let sizes = [32 * KIB, 64 * KIB, 128 * KIB];
    let config = Config {
        fill: Fill::Units,
        sizing: Sizing::Around(Around { read: Some(2), write: None }),
        shares: 1,
    };
    let mut world = World::new(&sizes, 8 << 20, config);
    world.request(read(40 * KIB, 4 * KIB));
    assert_eq!(world.plan.fetch.as_slice(), std::slice::from_ref(&(0..128 * KIB)));
    assert_eq!(world.cache.map().blocks(), [0, 0, 1]);
    assert!(world.request(read(0, 128 * KIB)));
}

#[test]
fn a_share_at_its_limit_takes_from_itself() {
    let mut world = World::new(&[64 * KIB], 16 * 64 * KIB, Config { shares: 2, ..config(Fill::Units) });
    world.cache.shares_mut().assign(Volume(1), Share(1));
    world.cache.shares_mut().set_limit(Share(1), 4 * 64 * KIB);
    for block in 0..12 {
        world.request(read(block * 64 * KIB, 4 * KIB));
    }
    for block in 0..100 {
        world.request(Request { volume: Volume(1), ..read(block * 64 * KIB, 4 * KIB) });
    }
    assert_eq!(world.cache.shares().held_bytes(Share(1)), 4 * 64 * KIB);
    assert!((0..12).all(|block| world.request(read(block * 64 * KIB, 4 * KIB))));
}

#[test]
fn a_plan_in_flight_keeps_its_blocks() {
    let mut world = World::new(&[64 * KIB], 4 * 64 * KIB, config(Fill::Units));
    let mut held = Plan::default();
    assert_eq!(world.cache.plan(&read(0, 4 * KIB), &mut held), Verdict::Ready);
    let first = held.fill[0];
    for block in 1..20 {
        world.request(read(block * 64 * KIB, 4 * KIB));
        assert!(world.plan.fill.iter().all(|part| part.at / (64 * KIB) != first.at / (64 * KIB)));
    }
    world.cache.finish(&mut held);
    world.request(read(20 * 64 * KIB, 4 * KIB));
    assert_eq!(world.plan.fill[0].at / (64 * KIB), first.at / (64 * KIB), "the oldest goes once it may");
}

/// A cache of three groups of 64 KiB, each a block of 64 KiB or two of 32 KiB: a slot has 8 units.
fn restored() -> Extents<Lru> {
    let mut cache = World::new(&[32 * KIB, 64 * KIB], 3 * 64 * KIB, config(Fill::Units)).cache;
    cache.restore(3, 0, Volume(1), 9, &[24..26, 30..32], std::slice::from_ref(&(31..32))).unwrap();
    cache
}

#[test]
fn what_cannot_be_is_not_restored() {
    let mut cache = restored();
    let before = said(&mut cache, 1);
    let mut refuse = |slot, class, piece, valid: &[(u64, u64)], dirty: &[(u64, u64)]| {
        let ranges =
            |ranges: &[(u64, u64)]| ranges.iter().map(|&(start, end)| start..end).collect::<Vec<_>>();
        let error = cache.restore(slot, class, Volume(1), piece, &ranges(valid), &ranges(dirty)).unwrap_err();
        assert_eq!(said(&mut cache, 1), before);
        error
    };
    use RestoreError as Error;
    assert_eq!(refuse(0, 2, 0, &[], &[]), Error::Class { class: 2, classes: 2 });
    assert_eq!(refuse(6, 0, 0, &[], &[]), Error::Place { slot: 6, pieces: 1 });
    assert_eq!(refuse(u32::MAX, 0, 0, &[], &[]), Error::Place { slot: u32::MAX, pieces: 1 });
    assert_eq!(refuse(1, 1, 0, &[], &[]), Error::Place { slot: 1, pieces: 2 });
    assert_eq!(refuse(2, 1, 0, &[], &[]), Error::Group { slot: 2, group_bytes: 32 * KIB });
    assert_eq!(refuse(3, 0, 0, &[], &[]), Error::Taken(3));
    assert_eq!(refuse(0, 0, 9, &[], &[]), Error::Overlap { slot: 0, other: 3 });
    assert_eq!(refuse(0, 1, 8, &[], &[]), Error::Overlap { slot: 0, other: 3 });
    for piece in [1, 1 << 36, u64::MAX, u64::MAX - 1] {
        assert_eq!(refuse(0, 1, piece, &[], &[]), Error::Address { volume: Volume(1), piece, pieces: 2 });
    }
    for (start, end) in [(15, 17), (17, 18), (5, 3), (0, u64::MAX)] {
        assert_eq!(refuse(0, 1, 2, &[(start, end)], &[]), Error::Units { slot: 0, units: start..end });
        assert_eq!(refuse(0, 1, 2, &[(0, 16)], &[(start, end)]), Error::Units { slot: 0, units: start..end });
    }
    assert_eq!(refuse(0, 1, 2, &[(0, 4)], &[(3, 5)]), Error::Units { slot: 0, units: 3..5 });
    let volume = Volume(Volume::COUNT_MAX);
    let error = cache.restore(0, 0, volume, 0, &[], &[]).unwrap_err();
    assert_eq!(error, Error::Address { volume, piece: 0, pieces: 1 });
}

#[test]
fn blocks_restored_first_go_first_and_holes_are_filled() {
    let mut cache = restored();
    cache.restore(4, 1, Volume(1), 2, std::slice::from_ref(&(32..48)), &[]).unwrap();
    assert_eq!((cache.map().blocks(), cache.units().dirty_bytes()), ([1u64, 1].as_slice(), 4 * KIB));
    let mut world = World::with(cache);
    let mut place = |piece: u64, bytes| {
        let request = Request { volume: Volume(1), ..read(piece * 32 * KIB, bytes) };
        let mut plan = Plan::default();
        let verdict = world.cache.plan(&request, &mut plan);
        world.cache.finish(&mut plan);
        (verdict, plan.fill.first().map(|part| part.at / (32 * KIB)))
    };
    assert_eq!(place(100, 4 * KIB), (Verdict::Ready, Some(2)), "the hole in the group of the small block");
    assert_eq!(place(102, 64 * KIB), (Verdict::Ready, Some(0)), "the group that nobody has");
    // The group of small blocks was used last, but its first block is the oldest, and dirty.
    assert_eq!(place(200, 4 * KIB), (Verdict::Clean, None));
}

#[test]
fn who_is_turned_away_gets_no_place_but_what_is_there() {
    let mut world = World::new(&[64 * KIB], 4 * 64 * KIB, config(Fill::Units));
    world.cache.set_admission(AdmissionRules { sequential_cutoff_bytes: Some(128 * KIB), promote_after: 2 });
    for block in 0..4 {
        world.request(read(block * 64 * KIB, 64 * KIB));
        assert!(!world.plan.bypassed, "there is room");
    }
    world.request(read(10 * 64 * KIB, 4 * KIB));
    assert!(world.plan.bypassed && world.cache.map().blocks() == [4], "missed once");
    world.request(read(10 * 64 * KIB, 4 * KIB));
    assert!(!world.plan.bypassed, "missed twice");
    assert!(world.request(read(64 * KIB, 192 * KIB)) && !world.plan.bypassed, "long, but all there");
    for _ in 0..3 {
        // From the middle of the last block on, by a stream that is long already.
        assert!(world.request(read(128 * KIB, 96 * KIB)));
        world.request(read(224 * KIB, 64 * KIB));
        assert!(world.plan.bypassed);
        assert_eq!(world.plan.fetch.as_slice(), std::slice::from_ref(&(256 * KIB..288 * KIB)));
        assert_eq!(world.plan.cached.iter().map(|part| part.bytes).sum::<u64>(), 32 * KIB);
    }
    world.request(write(288 * KIB, 64 * KIB));
    assert!(!world.plan.bypassed);
}

#[test]
fn what_goes_next_is_named_before_anybody_asks() {
    let sizes = [32 * KIB, 64 * KIB];
    let mut world = World::new(&sizes, 4 * 64 * KIB, config(Fill::Units));
    let reserve = 64 * KIB;
    let cold = |cache: &Extents<Lru>| {
        let (mut parts, mut volumes) = (Vec::new(), Vec::new());
        cache.name_cold(Share(0), reserve, &mut parts, &mut volumes);
        assert!(parts.len() == volumes.len() && volumes.iter().all(|volume| *volume == Volume(0)));
        parts
    };
    assert_eq!(cold(&world.cache), []);
    for block in 0..4 {
        assert_eq!(cold(&world.cache), [], "one group is free");
        world.request(write(block * 128 * KIB, if block % 2 == 0 { 64 * KIB } else { 4 * KIB }));
    }
    world.request(write(768 * KIB, 64 * KIB));
    world.request(write(0, 4 * KIB));
    for (size, block) in [(4, 32), (64, 34), (4, 36), (4, 38), (64, 40)] {
        let mut plan = Plan::default();
        let request = read(block * 128 * KIB, size * KIB);
        // The cache is full of dirty blocks: whichever goes was named.
        if world.cache.plan(&request, &mut plan) == Verdict::Clean {
            let named = cold(&world.cache);
            assert!(plan.clean.iter().all(|part| named.contains(part)), "{:?} of {named:?}", plan.clean);
        } else {
            world.cache.finish(&mut plan);
        }
        world.request(write(block * 128 * KIB, size * KIB));
    }
    world.flush(Volume(0), 64 << 20);
    assert_eq!(cold(&world.cache), []);
}

#[test]
fn who_spares_what_is_dirty_gets_the_place_of_something_clean() {
    for sizes in [&[64 * KIB][..], &[32 * KIB, 64 * KIB]] {
        let mut world = World::new(sizes, 4 * 64 * KIB, config(Fill::Units));
        world.request(write(0, 64 * KIB));
        world.request(write(64 * KIB, 64 * KIB));
        world.request(read(128 * KIB, 64 * KIB));
        world.request(write(192 * KIB, 64 * KIB));
        let dirty_bytes = world.cache.units().dirty_bytes();
        let mut plan = Plan::default();
        let mut asked = read(1024 * KIB, 64 * KIB);
        assert_eq!(world.cache.plan(&asked, &mut plan), Verdict::Clean, "the oldest is dirty");
        plan.settle_for_less(&mut asked);
        assert_eq!(world.cache.plan(&asked, &mut plan), Verdict::Ready);
        assert!(!plan.fill.is_empty() && !plan.bypassed);
        world.cache.finish(&mut plan);
        assert_eq!(world.cache.units().dirty_bytes(), dirty_bytes);
        let mut left = Vec::new();
        world.cache.visit(Volume(0), 128 * KIB..192 * KIB, |part, _| left.push(part));
        assert_eq!(left, [], "the clean one went");
        // Where nothing is clean, that is said again.
        world.request(write(1024 * KIB, 64 * KIB));
        let mut asked = read(2048 * KIB, 64 * KIB);
        for _ in 0..2 {
            assert_eq!(world.cache.plan(&asked, &mut plan), Verdict::Clean);
            plan.settle_for_less(&mut asked);
        }
        assert_eq!(world.cache.plan(&asked, &mut plan), Verdict::Ready);
        assert!(plan.fill.is_empty() && plan.fetch.len() == 1);
        world.cache.finish(&mut plan);
    }
}
