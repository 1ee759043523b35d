//! Heat from accessed bits, over a simulated process.
#![allow(clippy::unwrap_used)]

mod simulated_process;

use proptest::prelude::*;
use tiermem_base::Rng;
use tiermem_policy::accessed_bits::{Pacing, Sampler, Settings, Window};

use simulated_process::{GRANULE_BYTES, Process};

/// Heat of each granule as told in each slice of a second.
fn told(process: &mut Process, slices: usize, mut change: impl FnMut(&mut Process, usize)) -> Vec<Vec<f64>> {
    let mut sampler = Sampler::new(Settings::default());
    let mut all = Vec::new();
    let mut look_s = 0.0;
    for slice in 0..slices {
        change(process, slice);
        let end_s = process.now_s + 1.0;
        sampler.set_granules(&process.spans());
        let mut examined = sampler.examine(|_| true);
        examined.iter().for_each(|huge| process.map_by_pages(*huge));
        let mut pacing = Pacing::new(1.0, 12, look_s);
        for number in 0.. {
            let Window { seconds, is_last } = pacing.next(end_s - process.now_s, look_s);
            let read_s = process.now_s + seconds;
            sampler.open(process, read_s).unwrap();
            // As the recorder does: after the first pass, when the next window is open already.
            if number == 1 && !examined.is_empty() {
                examined.iter().for_each(|huge| process.collapse(*huge));
                sampler.end_examining();
                examined.clear();
            }
            while let Some(due_s) = sampler.due_s().filter(|due_s| *due_s < read_s) {
                process.waits_until(due_s);
                sampler.clear_due(process).unwrap();
            }
            process.waits_until(read_s);
            let from_s = process.now_s;
            sampler.pass(process).unwrap();
            look_s = process.now_s - from_s;
            if is_last {
                break;
            }
        }
        if !examined.is_empty() {
            examined.iter().for_each(|huge| process.collapse(*huge));
            sampler.end_examining();
        }
        let mut heat = vec![0.0; process.blocks.len() / 2];
        sampler.take(process, |span, accesses| heat[(span.start / GRANULE_BYTES) as usize] = accesses);
        all.push(heat);
    }
    all
}

fn sum(told: &[Vec<f64>]) -> Vec<f64> {
    (0..told[0].len()).map(|at| told.iter().map(|heat| heat[at]).sum()).collect()
}

fn share(heat: &[f64], of: std::ops::Range<usize>) -> f64 {
    heat[of].iter().sum::<f64>() / heat.iter().sum::<f64>()
}

/// A hot quarter, the second one, that has such a share of all accesses besides its part of the rest.
fn hot_quarter(granules: usize, per_s: f64, hot: f64) -> Vec<f64> {
    let quarter = granules / 4;
    let rest = per_s * (1.0 - hot) / granules as f64;
    let of = |at: usize| rest + if at / quarter == 1 { per_s * hot / quarter as f64 } else { 0.0 };
    (0..granules).map(of).collect()
}

/// Rank correlation of heats.
fn rank_correlation(one: &[f64], other: &[f64]) -> f64 {
    let ranks = |of: &[f64]| {
        let mut order: Vec<usize> = (0..of.len()).collect();
        order.sort_by(|one, other| of[*one].total_cmp(&of[*other]));
        let mut ranks = vec![0.0; of.len()];
        order.iter().enumerate().for_each(|(rank, at)| ranks[*at] = rank as f64);
        ranks
    };
    let (one, other) = (ranks(one), ranks(other));
    let n = one.len() as f64;
    let squares: f64 = one.iter().zip(&other).map(|(one, other)| (one - other).powi(2)).sum();
    1.0 - 6.0 * squares / (n * (n * n - 1.0))
}

fn rates_of(heat: &[f64], is_huge: impl Fn(usize) -> bool) -> Vec<(f64, bool)> {
    heat.iter().enumerate().map(|(at, per_s)| (*per_s, is_huge(at))).collect()
}

/// What the program does again for each second that it is looked at: the setting, and what a change of heat takes.
fn assert_cheap(process: &Process, seconds: u64) {
    let most = Settings::default().pages_per_s * 2.0;
    assert!((process.set_again / seconds) as f64 <= most, "{} pages a second", process.set_again / seconds);
}

#[test]
fn a_hot_quarter_is_told_at_every_size_of_small_and_huge_pages() {
    for (mib, is_huge) in
        [(256, false), (1024, false), (4096, false), (16384, false), (256, true), (1024, true)]
    {
        let granules = mib / 4;
        let heat = hot_quarter(granules, 2e7, 0.9);
        let mut process = Process::new(&rates_of(&heat, |_| is_huge), 7);
        let told = told(&mut process, 6, |_, _| {});
        for (slice, heat) in told.iter().enumerate().skip(2) {
            let share = share(heat, granules / 4..granules / 2);
            let least = if is_huge { 0.8 } else { 0.875 };
            assert!((least..0.975).contains(&share), "{mib} MiB, huge {is_huge}, slice {slice}: {share}");
        }
        let share = share(&sum(&told[2..]), granules / 4..granules / 2);
        assert!((0.855..0.97).contains(&share), "{mib} MiB, huge {is_huge}: {share}");
        assert_cheap(&process, 6);
    }
}

#[test]
fn huge_and_small_pages_are_told_on_one_scale() {
    // One half has huge pages and nine of ten accesses; then the other way round.
    for hot in [0.9, 0.1] {
        let heat: Vec<f64> = (0..64).map(|at| if at < 32 { hot } else { 1.0 - hot } * 2e7 / 32.0).collect();
        let mut process = Process::new(&rates_of(&heat, |at| at < 32), 3);
        let told = told(&mut process, 6, |_, _| {});
        let share = share(&sum(&told[2..]), 0..32);
        assert!((share - hot).abs() < 0.05, "{share} of {hot}");
        assert!(process.blocks[..64].iter().all(|block| block.is_huge), "a huge page was lost");
    }
}

#[test]
fn a_program_that_waits_for_a_processor_is_told_alike() {
    for (is_huge, is_interrupted) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut process = Process::new(&rates_of(&hot_quarter(256, 2e7, 0.9), |_| is_huge), 5);
        (process.shares_processor, process.is_interrupted) = (!is_interrupted, is_interrupted);
        let told = told(&mut process, 6, |_, _| {});
        let share = share(&sum(&told[2..]), 64..128);
        let least = if is_huge && is_interrupted { 0.8 } else { 0.85 };
        assert!((least..0.975).contains(&share), "huge {is_huge}, interrupted {is_interrupted}: {share}");
    }
}

#[test]
fn heat_that_moves_is_told_where_it_is() {
    for is_huge in [false, true] {
        let quarters: Vec<Vec<f64>> = (0..4)
            .map(|quarter| {
                let mut heat = hot_quarter(256, 2e7, 0.9);
                heat.rotate_right(quarter * 64);
                heat
            })
            .collect();
        let mut process = Process::new(&rates_of(&quarters[0], |_| is_huge), 11);
        let told = told(&mut process, 16, |process, slice| process.set_rates(&quarters[slice / 4]));
        // Huge pages that are hot now were examined when they were not.
        for slice in (0..16).filter(|slice| slice % 4 == 3) {
            let hot = (64 + slice / 4 * 64) % 256;
            let share = share(&told[slice], hot..hot + 64);
            assert!(share > 0.75, "huge {is_huge}, slice {slice}: {share}");
        }
    }
}

#[test]
fn what_comes_between_two_slices_is_of_none() {
    let heat = hot_quarter(64, 2e6, 0.9);
    let mut process = Process::new(&rates_of(&heat, |_| false), 5);
    let all = told(&mut process, 12, |process, slice| {
        if slice >= 8 {
            process.waits_until(process.now_s + 4.0);
            let mut other = heat.clone();
            other.rotate_right(slice % 4 * 16);
            process.set_rates(&other);
        }
    });
    let accesses: Vec<f64> = all.iter().map(|heat| heat.iter().sum()).collect();
    assert!(accesses[4..].iter().all(|it| (1e6..3e6).contains(it)), "{accesses:?}");
}

/// A window of an eighth of memory has nine tenths of all accesses, and passes through it in eight seconds.
fn moving<const GRANULES: usize>(at_s: f64) -> Vec<f64> {
    let window = GRANULES as f64 / 8.0;
    let first = at_s / 8.0 * (GRANULES as f64 - window) % (GRANULES as f64 - window);
    let of = |at: usize| ((at + 1) as f64).min(first + window) - (at as f64).max(first);
    (0..GRANULES).map(|at| 2e7 * (0.1 / GRANULES as f64 + 0.9 * of(at).max(0.0) / window)).collect()
}

/// The hot quarter is another one every two seconds.
fn phases<const GRANULES: usize>(at_s: f64) -> Vec<f64> {
    let mut heat = hot_quarter(GRANULES, 2e7, 0.9);
    heat.rotate_right([1, 3, 0, 2][(at_s / 2.0) as usize % 4] * GRANULES / 4);
    heat
}

/// In each slice, which are those from the first second on: the share of the quarter of granules that is hottest, as told.
fn told_of_hottest(told: &[Vec<f64>], rates_at: fn(f64) -> Vec<f64>) -> Vec<f64> {
    const STEPS: usize = 50;
    let of_slice = |(slice, heat): (usize, &Vec<f64>)| {
        let mut rates = vec![0.0; heat.len()];
        for step in 0..STEPS {
            let at_s = 1.0 + slice as f64 + step as f64 / STEPS as f64;
            rates.iter_mut().zip(rates_at(at_s)).for_each(|(sum, rate)| *sum += rate);
        }
        let mut order: Vec<usize> = (0..heat.len()).collect();
        order.sort_by(|one, other| rates[*other].total_cmp(&rates[*one]));
        let hottest: f64 = order[..heat.len() / 4].iter().map(|at| heat[*at]).sum();
        hottest / heat.iter().sum::<f64>()
    };
    told.iter().enumerate().map(of_slice).collect()
}

#[test]
fn heat_that_moves_all_the_time_or_jumps_is_told_where_it_was() {
    type Rates = fn(f64) -> Vec<f64>;
    // 92.5% in all of them. A larger program is looked at less often.
    let cases: [(Rates, f64); 4] =
        [(moving::<64>, 0.87), (phases::<64>, 0.91), (moving::<256>, 0.81), (phases::<256>, 0.89)];
    for (rates_at, least) in cases {
        let mut process = Process::new(&rates_of(&rates_at(1.0), |_| false), 12);
        process.rates_at = Some(rates_at);
        let told = told(&mut process, 14, |_, _| {});
        let mut shares = told_of_hottest(&told, rates_at).split_off(2);
        shares.sort_by(f64::total_cmp);
        assert!(shares[6] > least, "{shares:?}");
        assert_cheap(&process, 14);
    }
}

#[test]
fn memory_that_other_processes_have_mapped_too_is_told_on_the_scale_of_the_rest() {
    // A quarter of the accesses are to own memory, the rest to a file's, of whose granules each second one is hot.
    for (granules, per_s) in [(32, 2e5), (64, 2e6), (256, 2e6)] {
        let of = |at: usize| match at {
            at if at < granules / 4 => per_s / 4.0 / (granules as f64 / 4.0),
            at if at % 2 == 0 => per_s * 0.7 / (granules as f64 * 0.375),
            _ => per_s * 0.05 / (granules as f64 * 0.375),
        };
        let heat: Vec<f64> = (0..granules).map(of).collect();
        let mut process = Process::new(&rates_of(&heat, |_| false), 4);
        process.shared_from = granules / 4 * 2;
        let told = sum(&told(&mut process, 12, |_, _| {})[4..]);
        let own = share(&told, 0..granules / 4);
        assert!((own - 0.25).abs() < 0.08, "{granules} granules at {per_s}: {own}");
        let hot: f64 = (granules / 4..granules).filter(|at| at % 2 == 0).map(|at| told[at]).sum();
        let hot = hot / told.iter().sum::<f64>();
        assert!((hot - 0.7).abs() < 0.08, "{granules} granules at {per_s}: {hot}");
        // What files may cost comes on top.
        let most = Settings::default().pages_per_s * 3.0;
        assert!((process.set_again / 12) as f64 <= most, "{} pages a second", process.set_again / 12);
    }
}

#[test]
fn a_few_hot_pages_are_found_in_every_slice_and_others_are_not() {
    // Of 256 MiB, 64 pages at each 16 MiB.
    let mut process = Process::new(&vec![(0.0, false); 64], 2);
    process.set_pages(|page| if page % 4096 < 64 { 500.0 } else { 0.0 });
    let told = told(&mut process, 5, |_, _| {});
    for heat in &told[2..] {
        let found: Vec<usize> = (0..64).filter(|at| heat[*at] > 0.0).collect();
        assert_eq!(found, (0..64).step_by(4).collect::<Vec<_>>());
        let accesses: f64 = heat.iter().sum();
        assert!((accesses / (16.0 * 64.0 * 500.0)).ln().abs() < 0.5, "{accesses}");
    }
}

#[test]
fn what_is_not_accessed_costs_nothing_and_is_not_told() {
    let mut process = Process::new(&[vec![(0.0, false); 256], vec![(0.0, true); 256]].concat(), 2);
    let told = told(&mut process, 3, |_, _| {});
    assert_eq!((sum(&told).iter().sum::<f64>(), process.set_again), (0.0, 0));
}

#[test]
fn a_process_that_waits_is_not_read_and_one_that_runs_again_is_told() {
    let heat = hot_quarter(64, 2e6, 0.9);
    let mut process = Process::new(&rates_of(&heat, |_| false), 6);
    let mut read = Vec::new();
    let all = told(&mut process, 16, |process, slice| {
        read.push(std::mem::take(&mut process.read));
        process.is_waiting = (4..12).contains(&slice);
        let rates = if process.is_waiting { vec![0.0; 64] } else { heat.clone() };
        process.set_rates(&rates);
    });
    // That it waits for most of the time shows after some windows.
    assert!(read[4] > 128 && read[6] <= 128 && read[8..=12] == [0; 5] && read[13] > 128, "{read:?}");
    let accesses: Vec<f64> = all.iter().map(|heat| heat.iter().sum()).collect();
    assert!(accesses[4..12].iter().all(|it| *it == 0.0), "{accesses:?}");
    assert!(accesses[12..].iter().all(|it| (1e6..3e6).contains(it)), "{accesses:?}");
}

#[test]
fn huge_pages_are_looked_at_page_by_page_only_where_their_bits_do_not_tell() {
    // Each is accessed so often in a second; bits tell that where windows are short.
    for (per_s, at_most) in [(2e3, 8), (7e3, 120), (1e5, 1000)] {
        let heat = vec![per_s * 2.0; 64];
        let mut process = Process::new(&rates_of(&heat, |_| true), 4);
        let told = told(&mut process, 12, |_, _| {});
        let count = process.mapped_by_pages;
        assert!(count <= at_most && (per_s < 1e5 || count > 64), "{count} at {per_s}");
        let error = (sum(&told[4..]).iter().sum::<f64>() / 8.0 / heat.iter().sum::<f64>()).ln();
        assert!(error.abs() < 0.25, "{error} at {per_s}");
    }
}

#[test]
fn the_hottest_huge_pages_are_told_first() {
    // The n-th has 1/n of the hottest one's heat, in the order of addresses.
    for seed in 1..=3 {
        let heat: Vec<f64> = (1..=256).map(|rank| 2e6 / f64::from(rank)).collect();
        let mut process = Process::new(&rates_of(&heat, |_| true), seed);
        let told = sum(&told(&mut process, 8, |_, _| {})[4..]);
        let (told_share, true_share) = (share(&told, 0..16), share(&heat, 0..16));
        assert!((told_share - true_share).abs() < 0.1, "{told_share} of {true_share}");
    }
}

#[test]
fn huge_pages_of_all_heats_are_told_about_in_their_order() {
    // Only huge ones, and every other eight granules, at two rates: of the faster one bits tell the colder granules only.
    let pages: [fn(usize) -> bool; 2] = [|_| true, |at| at / 8 % 2 == 1];
    for (granules, is_huge) in [64, 256].into_iter().flat_map(|granules| pages.map(|pages| (granules, pages)))
    {
        for per_s in [1e6, 1e7] {
            let mut ranks = Vec::new();
            for seed in 1..=4 {
                let mut rng = Rng::seeded(seed);
                let mut heat: Vec<f64> = (1..=granules).map(|rank| per_s / 6.0 / rank as f64).collect();
                (1..granules).rev().for_each(|at| heat.swap(at, rng.below(at as u64 + 1) as usize));
                let mut process = Process::new(&rates_of(&heat, is_huge), seed);
                let told = sum(&told(&mut process, 12, |_, _| {})[4..]);
                let mut hottest: Vec<usize> = (0..granules).collect();
                hottest.sort_by(|one, other| heat[*other].total_cmp(&heat[*one]));
                let of = |heat: &[f64]| {
                    hottest[..granules / 4].iter().map(|at| heat[*at]).sum::<f64>() / heat.iter().sum::<f64>()
                };
                let (told_share, true_share) = (of(&told), of(&heat));
                let error = told_share - true_share;
                assert!(
                    error.abs() < 0.1,
                    "{granules} at {per_s}, seed {seed}: {told_share} of {true_share}"
                );
                ranks.push(rank_correlation(&heat, &told));
            }
            let mean = ranks.iter().sum::<f64>() / ranks.len() as f64;
            assert!(mean > 0.9, "{granules} at {per_s}: {ranks:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    /// Granules of all heats, at any size and rate, are told in their order.
    #[test]
    fn granules_are_told_in_the_order_of_their_heat(
        seed in any::<u64>(), granules in 48..512_usize, rate in 5.0..7.3_f64,
    ) {
        let mut rng = Rng::seeded(seed);
        let mut heat: Vec<f64> = (1..=granules).map(|rank| 10_f64.powf(rate) / 6.0 / rank as f64).collect();
        (1..granules).rev().for_each(|at| heat.swap(at, rng.below(at as u64 + 1) as usize));
        // Of huge pages that are too fast for their bits not all have been examined: their order is not told as well.
        let mut process = Process::new(&rates_of(&heat, |_| false), seed);
        let told = sum(&told(&mut process, 10, |_, _| {})[2..]);
        let found = rank_correlation(&heat, &told);
        prop_assert!(found > 0.9, "{found}");
        let error = (told.iter().sum::<f64>() / 8.0 / heat.iter().sum::<f64>()).ln();
        prop_assert!(error.abs() < 0.35, "{error}");
    }
}
