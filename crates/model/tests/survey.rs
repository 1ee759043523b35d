//! Curves of samples against curves of the whole, on line and after the fact.

mod common;

use common::*;
use tiermem_base::hash::sample_hash;
use tiermem_base::{Access, Op};
use tiermem_model::mrc::{Curve, Kind, Online, Survey, Unit};

fn accesses(workload: &[(u32, u32)]) -> impl Iterator<Item = Access> + '_ {
    // Keys are as sparse as those of a trace.
    workload.iter().map(|&(id, size)| Access::get(0, u64::from(id) << 32 | 7, size))
}

fn survey(workload: &[(u32, u32)], rate: f64, seed: u64) -> Survey {
    let mut survey = Survey::new(rate, seed);
    accesses(workload).for_each(|access| assert!(survey.access(&access)));
    survey
}

fn skewed() -> Workload {
    interleave(&zipf(40_000, 150_000, 0.8, 11), &cycle(100_000, 120_000, 150_000))
}

const KINDS: [&str; 6] = ["lru", "klru:1", "klru:5", "redis:5", "krr:5", "s3-fifo"];

#[test]
fn a_whole_survey_is_exact() {
    let workload = zipf(300, 4_000, 0.8, 12);
    let survey = survey(&workload, 1.0, 0);
    for unit in [Unit::Objects, Unit::Bytes] {
        let sizes = survey.even_sizes(unit, 10);
        let curve = survey.curve(Kind::Lru, unit, &sizes);
        for (point, &size) in curve.points.iter().zip(&sizes) {
            let expected = lru_misses(&workload, unit, size) as f64 / workload.len() as f64;
            assert!((point.miss_ratio - expected).abs() < 1e-12 && point.error == 0.0);
        }
        assert_eq!(*sizes.last().unwrap(), survey.working_set(unit));
    }
}

/// At 5% some 3000 keys are sampled. The interval is one of 95%: of 6 kinds, 8 seeds and 10 sizes few are missed.
#[test]
fn samples_are_close_and_know_how_close() {
    let workload = skewed();
    let whole = survey(&workload, 1.0, 0);
    let sizes = whole.even_sizes(Unit::Objects, 10);
    let (mut held, mut points) = (0, 0);
    for kind in KINDS.map(|kind| kind.parse::<Kind>().unwrap()) {
        let truth = whole.curve(kind, Unit::Objects, &sizes);
        let mut error = 0.0;
        for seed in 1..=8 {
            let sample = survey(&workload, 0.05, seed);
            assert!((sample.keys() / whole.keys() - 1.0).abs() < 0.02);
            let curve = sample.curve(kind, Unit::Objects, &sizes);
            error += curve.mean_absolute_error(&truth) / 8.0;
            for (point, truth) in curve.points.iter().zip(&truth.points) {
                points += 1;
                held += u32::from((point.miss_ratio - truth.miss_ratio).abs() <= point.error);
                assert!(point.error < 0.15, "{kind}: an error of {} says nothing", point.error);
            }
        }
        assert!(error < 0.01, "{kind}: off by {error}");
    }
    assert!(f64::from(held) >= 0.95 * f64::from(points), "{held} of {points}");
}

#[test]
fn windows_add_up_to_the_whole() {
    let workload = skewed();
    let mut windowed = Survey::new(0.2, 3);
    for (number, access) in accesses(&workload).enumerate() {
        windowed.access(&access);
        if (number + 1) % 100_000 == 0 {
            windowed.end_window();
        }
    }
    let sizes = [5_000, 20_000, 50_000];
    for kind in [Kind::Lru, Kind::KLru { k: 5.0 }] {
        let windows = windowed.curves(kind, Unit::Objects, &sizes);
        let whole = windowed.curve(kind, Unit::Objects, &sizes);
        assert_eq!(windows.len(), 3);
        for (at, point) in whole.points.iter().enumerate() {
            let mean = windows.iter().map(|window| window.points[at].miss_ratio).sum::<f64>() / 3.0;
            assert!((mean - point.miss_ratio).abs() < 0.01, "{kind}: {mean} and {}", point.miss_ratio);
        }
        // Cold misses come first.
        assert!(windows[0].points[2].miss_ratio > windows[2].points[2].miss_ratio + 0.05);
    }
}

/// Parts told apart by a hash, each surveyed by itself as if it were a sample: what several machines do.
#[test]
fn parts_of_a_trace_have_the_whole_trace_as_their_mean() {
    let workload = skewed();
    let whole = survey(&workload, 1.0, 0);
    let sizes = whole.even_sizes(Unit::Objects, 8);
    let parts: Vec<Curve> = (0..4u64)
        .map(|part| {
            let own: Workload = workload
                .iter()
                .copied()
                .filter(|access| sample_hash(u64::from(access.0)) % 4 == part)
                .collect();
            let scaled: Vec<u64> = sizes.iter().map(|size| size / 4).collect();
            let mut curve = survey(&own, 1.0, 0).curve(Kind::Lru, Unit::Objects, &scaled);
            curve.points.iter_mut().zip(&sizes).for_each(|(point, &size)| point.size = size);
            curve
        })
        .collect();
    let mean = Curve::mean(&parts).unwrap();
    let truth = whole.curve(Kind::Lru, Unit::Objects, &sizes);
    assert!(mean.mean_absolute_error(&truth) < 0.002);
    for (point, truth) in mean.points.iter().zip(&truth.points) {
        assert!((point.miss_ratio - truth.miss_ratio).abs() <= point.error + 1e-3, "{point:?} {truth:?}");
    }
}

/// As in a log of `redis-cli monitor` of a look-aside cache: a look-up that says no size, and where it missed a write that does.
#[test]
fn a_size_of_zero_is_no_news() {
    let mut log = Survey::new(1.0, 0);
    let mut told = Survey::new(1.0, 0);
    let mut seen = std::collections::HashSet::new();
    for (id, size) in zipf(2_000, 40_000, 0.8, 15) {
        let get = Access::get(0, u64::from(id), 0);
        let set = Access { op: Op::Set, size, ..get };
        log.access(&get);
        told.access(&Access { size, ..get });
        if seen.insert(id) {
            log.access(&set);
            told.access(&set);
        }
    }
    assert_eq!(log.working_set(Unit::Bytes), told.working_set(Unit::Bytes));
    let sizes = log.even_sizes(Unit::Bytes, 6);
    for kind in ["lru", "klru:1", "klru:16", "krr:5", "aet", "fifo", "s3-fifo", "mini-lru", "mini-klru"] {
        let kind: Kind = kind.parse().unwrap();
        let (a, b) = (log.curve(kind, Unit::Bytes, &sizes), told.curve(kind, Unit::Bytes, &sizes));
        assert_eq!(a, b, "{kind}");
        assert!(a.points[0].miss_ratio > a.points[5].miss_ratio + 0.2, "{kind}: {a:?}");
    }
}

/// Look-ups that all say nothing until much later: the model's time passes all the same.
#[test]
fn sizes_that_grow_count() {
    let mut model = Kind::KLru { k: 5.0 }.model(Unit::Bytes, &[10_000], 1.0, 0);
    for round in 0..20 {
        for id in 0..500 {
            model.access(id, 0);
            model.access(id, if round == 0 { 0 } else { 100 });
        }
    }
    assert!(model.misses(&[10_000])[0] > 5_000.0);
}

#[test]
fn deletions_make_room_and_misses() {
    let mut survey = Survey::new(1.0, 0);
    let get = |key| Access::get(0, key, 1);
    let del = |key| Access { op: Op::Del, ..get(key) };
    for access in [get(1), get(2), del(1), del(9), get(1), get(2)] {
        survey.access(&access);
    }
    for kind in ["lru", "klru:5", "krr:5", "lfu"] {
        let curve = survey.curve(kind.parse().unwrap(), Unit::Objects, &[2]);
        assert_eq!((curve.requests, curve.points[0].miss_ratio), (4.0, 0.75), "{kind}");
    }
}

#[test]
fn a_bounded_number_of_keys_is_enough() {
    let workload = zipf(60_000, 400_000, 0.7, 13);
    let whole = survey(&workload, 1.0, 0);
    let sizes = whole.even_sizes(Unit::Objects, 8);
    for kind in ["lru", "aet", "klru:5", "krr:5"].map(|kind| kind.parse::<Kind>().unwrap()) {
        let truth = whole.curve(kind, Unit::Objects, &sizes);
        let mut online = Online::with_keys(kind, Unit::Objects, &sizes, 4_096).unwrap();
        for access in accesses(&workload) {
            online.access(access.key, access.size);
            assert!(online.keys_sampled() <= 4_096);
        }
        let curve = online.curve();
        assert!(curve.mean_absolute_error(&truth) < 0.015, "{kind}: {curve:?} {truth:?}");
        assert!((online.rate() * whole.keys() / 4_096.0 - 1.0).abs() < 0.1);
    }
    assert!(Online::with_keys("lfu".parse().unwrap(), Unit::Objects, &sizes, 10).is_none());
}

/// The bound is reached early, and what was gathered is settled several times.
#[test]
fn a_survey_of_so_many_keys_is_one_of_their_share() {
    let workload = skewed();
    let whole = survey(&workload, 1.0, 0);
    let sizes = whole.even_sizes(Unit::Objects, 8);
    let mut bounded = Survey::with_keys(2_000, 1);
    for (number, access) in accesses(&workload).enumerate() {
        assert!(bounded.access(&access));
        if number == 100_000 {
            bounded.end_window();
        }
    }
    assert_eq!(bounded.keys_sampled(), 2_000);
    assert!(
        (bounded.working_set(Unit::Bytes) as f64 / whole.working_set(Unit::Bytes) as f64 - 1.0).abs() < 0.1
    );
    // The same keys as a sample of that rate from the start, so the same curve.
    let rate = (20..)
        .map(|step| f64::from(step) * 1e-3)
        .find(|&rate| survey(&workload, rate, 1).keys_sampled() >= 2_000);
    let fixed = survey(&workload, rate.unwrap(), 1);
    let kind = Kind::KLru { k: 5.0 };
    let (a, b) = (bounded.curve(kind, Unit::Objects, &sizes), fixed.curve(kind, Unit::Objects, &sizes));
    assert!(a.mean_absolute_error(&b) < 1e-3, "{a:?} {b:?}");
    assert!(a.mean_absolute_error(&whole.curve(kind, Unit::Objects, &sizes)) < 0.02);
    assert_eq!(bounded.curves(kind, Unit::Objects, &sizes).len(), 2);
}

#[test]
fn old_windows_are_forgotten() {
    let (first, second) = (zipf(20_000, 100_000, 1.2, 14), cycle(50_000, 60_000, 100_000));
    for kind in ["lru", "klru:5", "krr:16", "mini-lru"].map(|kind| kind.parse::<Kind>().unwrap()) {
        let mut online = Online::with_rate(kind, Unit::Objects, &[5_000], 0.2);
        accesses(&first).for_each(|access| online.access(access.key, access.size));
        let skewed = online.curve().points[0].miss_ratio;
        assert!(skewed < 0.3, "{kind}: {skewed}");
        online.end_window(0.0);
        accesses(&second).for_each(|access| online.access(access.key, access.size));
        let looping = online.curve();
        assert!(looping.points[0].miss_ratio > 0.6, "{kind}: {looping:?}");
        assert_eq!(looping.requests, 100_000.0);
    }
}

#[test]
fn a_sampled_object_takes_at_most_72_bytes() {
    // Just after the table of keys has grown there is most of it.
    for kind in ["lru", "klru:5", "krr:5"].map(|kind| kind.parse::<Kind>().unwrap()) {
        let sizes: Vec<u64> = (1..=25).map(|part| part * 10_000).collect();
        let mut online = Online::with_rate(kind, Unit::Objects, &sizes, 1.0);
        for key in 0..200_000u64 {
            online.access(key, 1);
        }
        let few = Online::with_rate(kind, Unit::Objects, &sizes, 1.0).metadata_bytes();
        let per_key = (online.metadata_bytes() - few) as f64 / 200_000.0;
        assert!(per_key <= 72.0, "{kind}: {per_key}");
    }
}
