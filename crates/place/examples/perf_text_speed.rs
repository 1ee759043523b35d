//! Speed of importing perf's text.
//!
//! ```sh
//! cargo run --release -p tiermem-place --example perf_text_speed -- generate /dev/shm/perf.txt 500   # MB
//! cargo run --release -p tiermem-place --example perf_text_speed -- import /dev/shm/perf.txt 1       # threads
//! ```

use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use tiermem_base::Rng;
use tiermem_place::capture::perf_mem::{ImportOptions, import};

/// Data sources with what perf 6.1 says of them, padded as it does.
const ANSWERS: [(&str, &str); 4] = [
    ("1868100242", "|OP LOAD|LVL LFB/MAB or LFB/MAB hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A     "),
    ("3a68102042", "|OP LOAD|LVL Remote Remote RAM (1 hop) or RAM hit|SNP None|TLB L1 or L2 hit|LCK No"),
    ("468100442", "|OP LOAD|LVL L2 or L2 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A               "),
    ("1a68101042", "|OP LOAD|LVL Local RAM or RAM hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A       "),
];
const EVENT: &str = "cpu/mem-loads,ldlat=30/Pu";
const SYMBOL: &str = "ggml_vec_dot_q4_0_q8_0 (/usr/local/lib/libggml-cpu.so)";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["generate", path, megabytes] => generate(path, megabytes.parse::<u64>()? * 1_000_000),
        ["import", path, threads] => measure(path, threads.parse()?),
        _ => Err("generate PATH MEGABYTES, or import PATH THREADS".into()),
    }
}

/// Samples of a model of 4 GiB that is read from front to end by eight threads, ten seconds of it over and over.
fn generate(path: &str, bytes: u64) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    let mut rng = Rng::seeded(1);
    let (mut written, mut at) = (0u64, 0u64);
    while written < bytes {
        let time_us = 12_345_000_000 + at * 20;
        let address = 0x7f3a_0000_0000 + (at * 8192 + rng.below(1 << 20)) % (4 << 30);
        let (bits, words) = ANSWERS[rng.below(4) as usize];
        let line = format!(
            "       llama-cli {:>7}/{:<7} {:5}.{:06}: {EVENT}: {address:>16x} {bits:>16} {words} {:>16} {:>16x} {SYMBOL}\n",
            9940,
            9940 + at % 8,
            time_us / 1_000_000,
            time_us % 1_000_000,
            30 + rng.below(400),
            0x7f40_0000_1000 + rng.below(4096),
        );
        out.write_all(line.as_bytes())?;
        written += line.len() as u64;
        at += 1;
    }
    out.flush()?;
    println!("{at} samples, {written} bytes");
    Ok(())
}

fn measure(path: &str, threads: usize) -> Result<(), Box<dyn Error>> {
    let bytes = std::fs::metadata(path)?.len();
    let begun = Instant::now();
    let recording = import(&[PathBuf::from(path)], &ImportOptions { threads, ..ImportOptions::default() })?;
    let seconds = begun.elapsed().as_secs_f64();
    let samples: f64 = recording.samples.iter().map(|sample| f64::from(sample.weight)).sum();
    println!(
        "{:.0} MB/s, {:.2} M samples/s, {} threads; {} slices, {} regions, {} stretches",
        bytes as f64 / seconds / 1e6,
        samples / seconds / 1e6,
        threads,
        recording.head.slices.len(),
        recording.head.regions.len(),
        recording.samples.len(),
    );
    recording.head.notes.iter().for_each(|note| println!("  {note}"));
    Ok(())
}
