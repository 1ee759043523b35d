//! Reads words of a table around a spot that moves through it again and again, and says where it was when.
#![forbid(unsafe_code)]

use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiermem_workloads::{Rng, mix, settings};

fn main() {
    let [footprint, hot, pass_ms, passes, background, per_s, seed, pause_ms] = settings(
        "Reads words of a table, most of them in a stretch that moves through it from low to high addresses, again and again. \
         Prints unix_ns,offset some hundred times in each pass: the middle of the stretch at that time.",
        [
            ("footprint", 1 << 30, "bytes of the table"),
            ("hot", 32 << 20, "bytes of the stretch"),
            ("pass-ms", 10_000, "milliseconds of a pass"),
            ("passes", 2, "how often it passes through"),
            ("background", 10, "of 100 reads, those that go anywhere"),
            ("per-second", 2_000_000, "words read in a second, at most"),
            ("seed", 1, "of the random numbers"),
            ("pause-ms", 0, "milliseconds between the allocation of the table and its first touch"),
        ],
    );
    let words = (footprint / 8).max(1);
    let hot_words = (hot / 8).clamp(1, words);
    let mut table: Vec<u64> = Vec::with_capacity(words as usize);
    std::thread::sleep(Duration::from_millis(pause_ms));
    table.extend(0..words);
    let mut rng = Rng::new(seed);
    let (mut checksum, mut count) = (0_u64, 0_u64);
    let begun = Instant::now();
    let pass = Duration::from_millis(pass_ms.max(1));
    let batch = (per_s / 1000).max(1);
    let (mut places, mut told) = (String::from("unix_ns,offset\n"), 0);
    loop {
        let passed = begun.elapsed().as_secs_f64() / pass.as_secs_f64();
        if passed >= passes as f64 {
            break;
        }
        let start = (passed.fract() * (words - hot_words) as f64) as u64;
        if (passed * 200.0) as u64 >= told {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            places += &format!("{now},{}\n", (start + hot_words / 2) * 8);
            told = (passed * 200.0) as u64 + 1;
        }
        for _ in 0..batch {
            let word = match rng.below(100) < background {
                true => rng.below(words),
                false => start + rng.below(hot_words),
            };
            checksum = checksum.wrapping_add(table[word as usize]);
        }
        count += batch;
        let due = begun + Duration::from_nanos((count as f64 / per_s.max(1) as f64 * 1e9) as u64);
        if let Some(early) =
            due.checked_duration_since(Instant::now()).filter(|it| *it > Duration::from_micros(200))
        {
            std::thread::sleep(early);
        }
    }
    // Who does not want to read on has what was wanted.
    let _ = std::io::stdout().lock().write_all(places.as_bytes());
    eprintln!("hotspot: checksum {:016x}", mix(checksum));
}
