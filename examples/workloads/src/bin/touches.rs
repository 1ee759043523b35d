//! Touches pages of memory at random, most of the time the same part of them.
#![forbid(unsafe_code)]

use std::io::{BufWriter, Write, stdout};
use std::process::exit;
use std::time::Instant;

use tiermem_workloads::{PageSize, Pages, Rng, major_faults, mix, settings_and_flags};

fn main() {
    let (
        [count, touches, hot_pages, hot_from, hot_touches, writes, seed],
        [is_scattered, checks_all, tells_order, is_huge, is_small],
    ) = settings_and_flags(
        "Fills pages of memory and touches them at random, most of the time the same part of them, and checks every byte of each that \
         it touches. Prints the seconds and the major faults of the touches. Exits with 1 if a byte was wrong.",
        [
            ("pages", 65_536, "pages of 4 KiB"),
            ("touches", 262_144, "how often it touches one"),
            ("hot-pages", 30, "of 100 pages, those that are hot"),
            ("hot-from", 0, "of 100 pages, those before the first hot one, where these lie side by side"),
            ("hot-touches", 80, "of 100 touches, those that go to hot pages"),
            ("writes", 0, "of 100 touches, those that write the page anew"),
            ("seed", 1, "of the random numbers"),
        ],
        [
            ("scattered", "the hot pages lie anywhere, not side by side"),
            ("check-all", "check every page in the end, not counted"),
            (
                "order",
                "touch nothing: print the number of each page that it would touch, and `w` where it would write it",
            ),
            ("huge-pages", "ask for huge pages (needs glibc 2.35)"),
            ("small-pages", "have no huge pages"),
        ],
    );
    if let Err(error) = PageSize::of_flags(is_huge, is_small).ask() {
        eprintln!("touches: cannot ask for the size of pages: {error}");
        exit(1);
    }
    let count = count.max(1);
    let parts = (hot_pages, hot_from, hot_touches, writes);
    let mut draw = Draw::new(count, parts, is_scattered, seed);
    if tells_order {
        return tell(&mut draw, touches);
    }
    let mut pages = Pages::filled(count as usize);
    let mut versions = vec![0_u32; pages.count()];
    let mut checksum = 0_u64;
    let faults_before = major_faults();
    let begun = Instant::now();
    for touch in 0..touches {
        let (page, is_written) = draw.touch();
        match pages.check(page, versions[page].into()) {
            Ok(sum) => checksum = mix(checksum ^ sum),
            Err(error) => {
                eprintln!("touches: touch {touch}: {error}");
                exit(1);
            }
        }
        if is_written {
            versions[page] += 1;
            pages.write(page, versions[page].into());
        }
    }
    let real_s = begun.elapsed().as_secs_f64();
    let faults = faults_before.zip(major_faults()).map_or(0, |(before, after)| after - before);
    let wrong = (0..pages.count())
        .filter(|_| checks_all)
        .find_map(|page| pages.check(page, versions[page].into()).err());
    if let Some(error) = wrong {
        eprintln!("touches: in the end: {error}");
        exit(1);
    }
    println!(
        "touches: {touches} of {count} pages, {real_s:.6} s, major faults {faults}, checksum {checksum:016x} ok"
    );
}

/// The order of the touches.
struct Draw {
    rng: Rng,
    /// Places of the hot pages, then of the others.
    places: Vec<u32>,
    hot: u64,
    hot_touches: u64,
    writes: u64,
}

impl Draw {
    /// Percentages: of pages that are hot, of pages before those, of touches that go there, of touches that write.
    fn new(
        count: u64,
        (hot_pages, hot_from, hot_touches, writes): (u64, u64, u64, u64),
        is_scattered: bool,
        seed: u64,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let mut places: Vec<u32> = (0..count as u32).collect();
        places.rotate_left((count * hot_from.min(99) / 100) as usize);
        if is_scattered {
            (1..places.len()).rev().for_each(|at| places.swap(at, rng.below(at as u64 + 1) as usize));
        }
        let hot = (count * hot_pages.min(100) / 100).clamp(1, count);
        Draw { rng, places, hot, hot_touches, writes }
    }

    /// The next page, and whether it is written anew.
    fn touch(&mut self) -> (usize, bool) {
        let (hot, count) = (self.hot, self.places.len() as u64);
        let is_hot = hot == count || self.rng.below(100) < self.hot_touches;
        let rank = if is_hot { self.rng.below(hot) } else { hot + self.rng.below(count - hot) };
        let is_written = self.writes > 0 && self.rng.below(100) < self.writes;
        (self.places[rank as usize] as usize, is_written)
    }
}

fn tell(draw: &mut Draw, touches: u64) {
    let mut out = BufWriter::new(stdout().lock());
    let told = (0..touches).try_for_each(|_| {
        let (page, is_written) = draw.touch();
        writeln!(out, "{page}{}", if is_written { " w" } else { "" })
    });
    if let Err(error) = told.and_then(|()| out.flush()) {
        eprintln!("touches: cannot print the order: {error}");
        exit(1);
    }
}
