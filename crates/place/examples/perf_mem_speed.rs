//! How fast text of perf-mem recordings is imported:
//!
//! ```text
//! cargo run --release -p tiermem-place --example perf_mem_speed -- make /dev/shm/mem.txt 500 [dump]
//! cargo run --release -p tiermem-place --example perf_mem_speed -- read /dev/shm/mem.txt 2
//! ```
//!
//! The first writes so many MB of samples, as `perf script` or as `perf mem report -D` prints them: three quarters lie in
//! a tenth of 16 GiB. The second imports them with so many threads.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use tiermem_place::capture::perf_mem::{ImportOptions, import};

const BASE: u64 = 0x7f12_0000_0000;
const BYTES: u64 = 16 << 30;
/// Bits, and the text that perf makes of them.
const SOURCES: [(u64, &str); 4] = [
    (0x6810_0142, "|OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A"),
    (0x1a_6810_1042, "|OP LOAD|LVL Local RAM or RAM hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A"),
    (
        0x3a_6810_2042,
        "|OP LOAD|LVL Remote RAM (1 hop) or Remote RAM hit|SNP None|TLB L2 miss|LCK No|BLK  N/A",
    ),
    (0x2_6810_0144, "|OP STORE|LVL L1 hit|SNP N/A|TLB N/A|LCK N/A|BLK  N/A"),
];

fn make(path: &str, megabytes: u64, is_dump: bool) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut written, mut time_us, mut line) = (0, 12_000_000_u64, Vec::new());
    while written < megabytes * 1_000_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bytes = if state & 3 == 0 { BYTES } else { BYTES / 10 };
        let address = BASE + (state >> 20) % bytes;
        let (bits, text) = SOURCES[(state >> 8 & 3) as usize];
        let (weight, ip) = (state >> 12 & 0xff, 0x55d1_aabb_0000 + (state >> 40 & 0xffff));
        time_us += 7;
        line.clear();
        if is_dump {
            writeln!(
                line,
                "1234 1240 {ip:#x} {address:#x} {weight} {bits:#x} /usr/bin/llama-cli:ggml_vec_dot"
            )?;
        } else {
            let (seconds, rest) = (time_us / 1_000_000, time_us % 1_000_000);
            write!(line, "{:>16} {:7}/{:<7} {seconds:5}.{rest:06}: ", "llama-cli", 1234, 1240)?;
            writeln!(
                line,
                "cpu/mem-loads,ldlat=30/P: {address:16x} {bits:16x} {text:<82} {weight:16} {ip:16x}"
            )?;
        }
        written += line.len() as u64;
        out.write_all(&line)?;
    }
    out.flush()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", path, megabytes] => make(path, megabytes.parse()?, false)?,
        ["make", path, megabytes, "dump"] => make(path, megabytes.parse()?, true)?,
        ["read", path, threads] => {
            let options = ImportOptions {
                threads: threads.parse()?,
                granule_bytes: 2 << 20,
                ..ImportOptions::default()
            };
            let megabytes = File::open(path)?.metadata()?.len() as f64 / 1e6;
            let begun = Instant::now();
            let recording = import(&[PathBuf::from(path)], &options)?;
            let seconds = begun.elapsed().as_secs_f64();
            let accesses: f64 = recording.samples.iter().map(|sample| f64::from(sample.weight)).sum();
            println!(
                "{megabytes:.0} MB, {accesses} samples, {} rows in {seconds:.2} s: {:.0} MB/s",
                recording.samples.len(),
                megabytes / seconds
            );
        }
        _ => return Err("make FILE MB [dump], or read FILE THREADS".into()),
    }
    Ok(())
}
