//! Passes over memory in the order of its addresses, again and again, and says how long each pass took.
#![forbid(unsafe_code)]

use std::process::exit;
use std::time::{Duration, Instant};

use tiermem_workloads::{PAGE_BYTES, PageSize, Pages, major_faults, mix, settings_and_flags};

fn main() {
    let ([size, passes, pause_ms], [is_writing, tells_range, is_huge, is_small]) = settings_and_flags(
        "Fills anonymous memory, passes over it in the order of its addresses, and checks every byte. Prints the seconds of each \
         pass and the major faults of all passes. Exits with 1 if a byte was wrong.",
        [
            ("size", 1 << 30, "bytes of memory"),
            ("passes", 5, "how often it passes over them"),
            ("pause-ms", 0, "milliseconds of rest before each pass"),
        ],
        [
            ("write", "write each page anew after it was read"),
            ("range", "print the addresses, before the first pass"),
            ("huge-pages", "ask for huge pages (needs glibc 2.35)"),
            ("small-pages", "have no huge pages"),
        ],
    );
    if let Err(error) = PageSize::of_flags(is_huge, is_small).ask() {
        eprintln!("sweep: cannot ask for the size of pages: {error}");
        exit(1);
    }
    let begun = Instant::now();
    let mut pages = Pages::filled(size.div_ceil(PAGE_BYTES).max(1) as usize);
    let fill_s = begun.elapsed().as_secs_f64();
    if tells_range {
        let (start, end) = pages.range();
        println!("range {start:#x}-{end:#x}");
    }
    let (mut times, mut checksum) = (String::new(), 0_u64);
    let faults_before = major_faults();
    for pass in 0..passes {
        std::thread::sleep(Duration::from_millis(pause_ms));
        let version = if is_writing { pass } else { 0 };
        let begun = Instant::now();
        for page in 0..pages.count() {
            match pages.check(page, version) {
                Ok(sum) => checksum = mix(checksum ^ sum),
                Err(error) => {
                    eprintln!("sweep: pass {}: {error}", pass + 1);
                    exit(1);
                }
            }
            if is_writing {
                pages.write(page, version + 1);
            }
        }
        times += &format!(" {:.6}", begun.elapsed().as_secs_f64());
    }
    let faults = faults_before.zip(major_faults()).map_or(0, |(before, after)| after - before);
    let (bytes, way) = (pages.count() as u64 * PAGE_BYTES, if is_writing { "write" } else { "read" });
    println!(
        "sweep: {bytes} bytes, {way}, fill {fill_s:.6} s, passes{times} s, major faults {faults}, checksum {checksum:016x} ok"
    );
}
