//! Plans: what they save on programs with known accesses, and which inputs are refused.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use proptest::prelude::*;
use tiermem_base::{Heat, Rng};
use tiermem_model::placement::replay::{self, Memory};
use tiermem_model::placement::{
    Assumed, Misfit, Plan, PlannedRegion, Program, analyse, begins_behind, memory,
};

const GRANULE: u64 = 1 << 20;
const SLICE_NS: u64 = 100_000_000;
const ASSUMED: Assumed = Assumed { fast_latency_ns: 96.0, slow_latency_ns: 244.0, move_bytes_per_s: 4e9 };

fn slices(count: usize) -> Vec<(u64, u64)> {
    (0..count as u64).map(|slice| (slice * SLICE_NS, (slice + 1) * SLICE_NS)).collect()
}

fn region(name: &str, granules: usize) -> PlannedRegion {
    PlannedRegion {
        name: name.to_owned(),
        kind: "file".to_owned(),
        path: Some(format!("/models/{name}")),
        permissions: "r--s".to_owned(),
        bytes: granules as u64 * GRANULE,
        ..PlannedRegion::default()
    }
}

/// Weights that are read from start to end again and again, `parts` slices for a pass, beside a small region that is always
/// read.
fn decoding(granules: usize, parts: usize, passes: usize, seed: u64) -> [Heat; 2] {
    let mut rng = Rng::seeded(seed);
    let count = parts * passes;
    let (mut weights, mut buffers) = (Heat::cold(GRANULE, granules, count), Heat::cold(GRANULE, 4, count));
    for slice in 0..count {
        let (from, to) = ((slice % parts) * granules / parts, (slice % parts + 1) * granules / parts);
        for value in &mut weights.row_mut(slice)[from..to] {
            *value = 256.0 * (0.9 + 0.2 * rng.unit_f64()) as f32;
        }
        buffers.row_mut(slice).fill(2000.0);
    }
    [weights, buffers]
}

#[test]
fn decoding_with_half_the_memory_is_halved_and_near_the_clairvoyant() {
    for (parts, seed) in [(8, 1), (12, 2), (20, 3)] {
        let [weights, buffers] = decoding(240, parts, 30, seed);
        let (heats, slices) = ([&weights, &buffers], slices(parts * 30));
        let regions = vec![region("model.gguf", 240), region("buffers", 4)];
        let plan =
            analyse(regions, &Program::new(&heats, &slices).unwrap(), 122 * GRANULE, &ASSUMED).unwrap();
        let predicted = plan.predicted;
        assert_eq!(plan.sweeps.len(), 1, "{predicted:?}");
        assert!(predicted.slow_share_after < predicted.slow_share_before / 2.0, "{parts}: {predicted:?}");
        let saved = |after: f64| predicted.slow_share_before - after;
        let of_clairvoyant = saved(predicted.slow_share_after) / saved(predicted.slow_share_clairvoyant);
        assert!(of_clairvoyant >= 0.8, "{parts}: {of_clairvoyant} {predicted:?}");
        let sweep = plan.sweeps[0];
        let pass_ns = parts as u64 * SLICE_NS;
        assert!(sweep.period_ns.abs_diff(pass_ns) < pass_ns / 10, "{sweep:?}");
    }
}

#[test]
fn decoding_that_is_faster_than_moves_has_some_granules_pass() {
    for (parts, seed) in [(8, 4), (12, 5), (20, 6)] {
        let [weights, buffers] = decoding(240, parts, 30, seed);
        let (heats, slices) = ([&weights, &buffers], slices(parts * 30));
        // All of the weights in and out take three passes.
        let pass_s = parts as f64 * SLICE_NS as f64 / 1e9;
        let assumed = Assumed { move_bytes_per_s: 480.0 * GRANULE as f64 / (3.0 * pass_s), ..ASSUMED };
        let regions = vec![region("model.gguf", 240), region("buffers", 4)];
        let program = Program::new(&heats, &slices).unwrap();
        let plan = analyse(regions, &program, 122 * GRANULE, &assumed).unwrap();
        let still = replay::best_static(&program, &memory(&program, 122 * GRANULE, &assumed)).slow_share();
        let predicted = plan.predicted;
        assert!(plan.sweeps.len() == 1 && plan.sweeps[0].every > 1, "{parts}: {:?}", plan.sweeps);
        let saved = |after: f64| predicted.slow_share_before - after;
        let of_clairvoyant = saved(predicted.slow_share_after) / saved(predicted.slow_share_clairvoyant);
        assert!(of_clairvoyant >= 0.8, "{parts}: {of_clairvoyant} {predicted:?}");
        assert!(predicted.slow_share_after < still * 0.8, "{parts}: {still} {predicted:?}");
    }
}

#[test]
fn a_program_with_phases_gets_them() {
    let mut heat = Heat::cold(GRANULE, 90, 60);
    for slice in 0..60 {
        let from = slice / 5 % 3 * 30;
        heat.row_mut(slice)[from..from + 30].fill(10.0);
    }
    let (heats, slices) = ([&heat], slices(60));
    let program = Program::new(&heats, &slices).unwrap();
    let plan = analyse(vec![region("data", 90)], &program, 30 * GRANULE, &ASSUMED).unwrap();
    assert!(plan.phases.len() == 3 || !plan.sweeps.is_empty(), "{plan:?}");
    assert!(plan.predicted.slow_share_after < plan.predicted.slow_share_before / 2.0, "{:?}", plan.predicted);
}

#[test]
fn phases_are_found_after_memory_was_filled_and_beside_what_never_comes_again() {
    let (granules, count) = (240, 300);
    let mut heat = Heat::cold(GRANULE, granules, count);
    for slice in 0..count {
        let row = heat.row_mut(slice);
        match slice {
            // Filled in its order, in more slices than there are phases.
            0..40 => row[slice * 6..(slice + 1) * 6].fill(256.0),
            // Now and then something else.
            _ if slice % 17 == 0 => row[slice * 7 % granules..][..1].fill(256.0),
            _ => {
                row.fill(1.0);
                let quarter = [2, 0, 3, 1][slice / 20 % 4];
                row[quarter * 60..(quarter + 1) * 60].fill(100.0);
            }
        }
    }
    let (heats, slices) = ([&heat], slices(count));
    let program = Program::new(&heats, &slices).unwrap();
    let plan = analyse(vec![region("data", granules)], &program, 120 * GRANULE, &ASSUMED).unwrap();
    let hot = plan.phases.iter().map(|phase| &phase.spans[0]).collect::<Vec<_>>();
    assert!(
        [120, 0, 180, 60].iter().all(|first| hot.iter().any(|it| it.offset == first * GRANULE)),
        "{hot:?}"
    );
    // What is as cold as all the rest stays where it is, though there were room for it.
    assert!(hot.iter().all(|span| span.bytes <= 61 * GRANULE), "{hot:?}");
    assert!(plan.predicted.slow_share_after < 0.2, "{:?}", plan.predicted);
}

#[test]
fn a_program_that_is_always_the_same_gets_no_moves() {
    let row: Vec<f32> = (0..100).map(|at| if at >= 80 { 50.0 } else { 1.0 }).collect();
    let heat = Heat::of(GRANULE, 100, row.repeat(20));
    let (heats, slices) = ([&heat], slices(20));
    let program = Program::new(&heats, &slices).unwrap();
    let plan = analyse(vec![region("data", 100)], &program, 20 * GRANULE, &ASSUMED).unwrap();
    assert!(plan.sweeps.is_empty() && plan.phases.is_empty());
    assert_eq!(
        plan.always.iter().map(|span| (span.offset, span.bytes)).collect::<Vec<_>>(),
        [(80 * GRANULE, 20 * GRANULE)]
    );
    assert_eq!(plan.predicted.moved_bytes_per_s, 0.0);
    assert!(plan.predicted.slow_share_after < 0.1 && plan.predicted.slow_share_before > 0.8);
}

/// Memory that is filled in its order, 30 granules in a slice, and of which a quarter is hot from then on.
fn hot_quarter(quarter: usize) -> Heat {
    let (granules, count) = (240, 300);
    let mut heat = Heat::cold(GRANULE, granules, count);
    for slice in 0..count {
        let row = heat.row_mut(slice);
        match slice {
            0..8 => row[slice * 30..(slice + 1) * 30].fill(256.0),
            _ => {
                row.fill(10.0);
                row[quarter * 60..(quarter + 1) * 60].fill(1000.0);
            }
        }
    }
    heat
}

#[test]
fn a_plan_is_followed_where_it_is_right_and_left_where_it_is_not() {
    let slices = slices(300);
    let made = |quarter: usize, fast: u64| {
        let heat = hot_quarter(quarter);
        let heats = [&heat];
        let program = Program::new(&heats, &slices).unwrap();
        analyse(vec![region("data", 240)], &program, fast * GRANULE, &ASSUMED).unwrap()
    };
    let followed = |quarter: usize, plan: &Plan, live: bool| {
        let heat = hot_quarter(quarter);
        let heats = [&heat];
        let program = Program::new(&heats, &slices).unwrap();
        let memory = memory(&program, plan.fast_bytes, &plan.assumed);
        let first = replay::first_touch(&program, &memory);
        let by_plan = replay::follow(&program, &memory, &plan.schedule(), live);
        (first, by_plan, first.accesses / 300.0)
    };
    for live in [false, true] {
        // What is hot is touched last.
        for fast in [60, 120] {
            let (first, by_plan, _) = followed(3, &made(3, fast), live);
            assert!(by_plan.slow < first.slow / 4.0 && by_plan.resting == 0, "{first:?} {by_plan:?}");
        }
        // First touch is the best there is.
        let (first, by_plan, _) = followed(1, &made(1, 120), live);
        assert!(by_plan.slow <= first.slow * 1.01 && by_plan.moves == 0, "{first:?} {by_plan:?}");
        // The plan is for another program: some slices are lost, and no more.
        let (first, by_plan, slice) = followed(1, &made(3, 120), live);
        assert!(by_plan.slow < first.slow + 9.0 * slice, "{first:?} {by_plan:?}");
        assert!(by_plan.resting > 275, "{by_plan:?}");
    }
}

#[test]
fn a_plan_in_a_file_is_the_plan() {
    let [weights, buffers] = decoding(64, 8, 20, 9);
    let heats = [&weights, &buffers];
    let slices = slices(160);
    let regions = vec![region("model.gguf", 64), region("buffers", 4)];
    let program = Program::new(&heats, &slices).unwrap();
    let plan = analyse(regions, &program, 34 * GRANULE, &ASSUMED).unwrap();
    let text = serde_json::to_string_pretty(&plan).unwrap();
    let read = Plan::read(&text).unwrap();
    assert_eq!(read, plan);
    let memory = memory(&program, plan.fast_bytes, &plan.assumed);
    let outcome = replay::follow(&program, &memory, &read.schedule(), false);
    assert!((outcome.slow_share() - plan.predicted.slow_share_after).abs() < 1e-3);
    for (from, to) in [
        ("\"version\": 1", "\"version\": 7"),
        ("\"granule_bytes\": 1048576", "\"granule_bytes\": 0"),
        ("\"region\": 0", "\"region\": 9"),
        ("\"version\": 1", "\"versio\": 1"),
    ] {
        assert!(Plan::read(&text.replace(from, to)).is_err(), "{to}");
    }
    for length in 0..text.len() {
        assert!(Plan::read(&text[..length]).is_err());
    }
}

#[test]
fn another_program_is_refused_with_the_difference() {
    let mut plan =
        Plan { granule_bytes: GRANULE, regions: vec![region("model.gguf", 100)], ..Plan::default() };
    plan.made_from.build_id = Some("aa".to_owned());
    assert!(plan.fits_binary(Some("aa")).is_ok());
    for other in [Some("bb"), None] {
        assert!(plan.fits_binary(other).unwrap_err().to_string().contains("aa"));
    }
    assert_eq!(plan.find(&[region("model.gguf", 100)]), Ok(vec![Some(0)]));
    assert_eq!(plan.find(&[region("other", 100)]), Ok(vec![None]));
    // What a program has given back of a file's start, or has not yet.
    let from = |granules: u64| PlannedRegion {
        file_offset: granules * GRANULE,
        ..region("model.gguf", 100 - granules as usize)
    };
    assert_eq!(plan.find(&[from(60), from(3), from(1)]), Ok(vec![Some(2)]));
    assert_eq!(plan.find(&[from(60)]), Ok(vec![None]));
    assert_eq!(begins_behind(&plan.regions[0], &from(3)), 3 * GRANULE as i64);
    assert_eq!(begins_behind(&from(3), &plan.regions[0]), -3 * GRANULE as i64);
    let grown = [region("model.gguf", 150)];
    assert!(matches!(plan.find(&grown), Err(Misfit::Size { planned, .. }) if planned == 100 * GRANULE));
    plan.regions[0].build_id = Some("11".to_owned());
    let rebuilt = PlannedRegion { build_id: Some("22".to_owned()), ..region("model.gguf", 100) };
    assert!(plan.find(&[rebuilt]).unwrap_err().to_string().contains("22"));
    // Memory of no file is told by its size and order.
    let anonymous = |granules: usize| PlannedRegion {
        kind: "anonymous".to_owned(),
        path: None,
        ..region("anon", granules)
    };
    let plan = Plan {
        granule_bytes: GRANULE,
        regions: vec![anonymous(64), anonymous(8), anonymous(64)],
        ..Plan::default()
    };
    let now = [anonymous(65), anonymous(20), anonymous(8), anonymous(63)];
    assert_eq!(plan.find(&now), Ok(vec![Some(0), Some(2), Some(3)]));
}

proptest! {
    /// No placement meets fewer accesses in slow memory than one that knows what comes, nor more than all.
    #[test]
    fn outcomes_are_ordered(
        granules in 2..40_usize,
        rows in prop::collection::vec(prop::collection::vec(0..20_u8, 40), 1..25),
        fast in 0..40_u32,
        moves_per_s in 0.0..500.0_f64,
    ) {
        let values: Vec<f32> = rows.iter().flat_map(|row| row[..granules].iter().map(|value| f32::from(*value / 4))).collect();
        let heat = Heat::of(GRANULE, granules, values);
        let (heats, slices) = ([&heat], slices(rows.len()));
        let program = Program::new(&heats, &slices).unwrap();
        let memory = Memory { fast_granules: fast, moves_per_s };
        let first = replay::first_touch(&program, &memory);
        let still = replay::best_static(&program, &memory);
        let live = replay::follow_seen(&program, &memory);
        let knowing = replay::clairvoyant(&program, &memory);
        for outcome in [first, still, live, knowing] {
            prop_assert!((outcome.accesses - heat.sum()).abs() < 1e-6 * heat.sum() + 1e-9);
            prop_assert!(outcome.slow <= outcome.accesses + 1e-9);
        }
        prop_assert!(still.slow <= first.slow + 1e-9);
        prop_assert_eq!(first.moves, 0);
        let moves = moves_per_s * SLICE_NS as f64 / 1e9 * rows.len() as f64;
        prop_assert!(knowing.moves as f64 <= moves && live.moves as f64 <= moves);
        if let Ok(plan) = analyse(vec![region("data", granules)], &program, u64::from(fast) * GRANULE, &ASSUMED) {
            let text = serde_json::to_string(&plan).unwrap();
            prop_assert_eq!(Plan::read(&text).unwrap(), plan);
        }
    }
}
