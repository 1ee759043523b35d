//! NBD server compared with nbdkit: requests a second, p99, and the server's processor time per request.
//!
//! Over memory (nbdkit's memory plugin) both hold the same bytes in memory, so the difference is
//! the cost of serving them. As a cache (`tiermem block serve` and nbdkit's cache filter, each
//! before a file) all requests are hits: the whole disk is written and read before the
//! measurements, and fits into the cache and into memory, where nbdkit's has it in the page cache.
//! `--rival` sets the cache beside another of nbdkit's servers: over memory, or a file without a cache. That file is in
//! the page cache, whose memory is the server's too: `--memory-mib` limits that of both, each in a cgroup of its own.
//!
//! Both servers run during the whole comparison, each on the server's core. fio drives them from
//! another core over a unix socket, one right after the other, with alternating order. Where fio
//! is the bottleneck, the processor time per request says more than the requests a second.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::memory_limit::MemoryLimit;
use crate::output::{Cell, Format, Rows, print_record};
use crate::server::{Server, pinned, shown};
use crate::summary::{command_rows, median};

const FIELDS: &[&str] = &[
    "test",
    "depth",
    "nbdkit_iops",
    "tiermem_iops",
    "iops_ratio",
    "iops_ratio_low",
    "iops_ratio_high",
    "nbdkit_p99_us",
    "tiermem_p99_us",
    "p99_ratio",
    "nbdkit_cpu_us",
    "tiermem_cpu_us",
    "cpu_ratio",
];
/// Tests of fio, and their requests in flight.
const TESTS: [(&str, u32); 4] = [("randread", 32), ("randwrite", 32), ("randread", 1), ("randwrite", 1)];

/// The compared servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Servers over memory.
    Memory,
    /// Caches in front of files.
    Cache,
}

/// What nbdkit serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Served {
    /// Memory.
    Memory,
    /// A file, which is in the page cache.
    File,
    /// A cache in front of a file, both in the page cache.
    Cache,
}

/// Options of `block-server`.
#[derive(Debug, Args)]
pub struct Options {
    /// What is compared.
    #[arg(long, value_enum, default_value = "memory")]
    kind: Kind,
    /// What nbdkit serves [default: the same kind].
    #[arg(long, value_enum)]
    rival: Option<Served>,
    /// tiermem's cache writes nothing back before the end.
    #[arg(long)]
    idle_store: bool,
    /// The program whose `block serve` is measured [default: the one beside this program].
    #[arg(long, value_name = "PATH")]
    tiermem: Option<PathBuf>,
    /// DRAM of tiermem's cache for copies, in MiB [default: that of the disk].
    #[arg(long, value_name = "MIB")]
    cache_memory_mib: Option<u32>,
    /// DRAM of tiermem's cache for checksums and places, in MiB [default: enough for all].
    #[arg(long, value_name = "MIB")]
    cache_table_memory_mib: Option<u32>,
    /// Memory of each server with its page cache, in MiB, as the limit of a cgroup [default: no limit].
    #[arg(long, value_name = "MIB")]
    memory_mib: Option<u32>,
    /// The example `nbd_memory` [default: the one in `examples` beside this program].
    #[arg(long, value_name = "PATH")]
    nbd_memory: Option<PathBuf>,
    /// The rival.
    #[arg(long, value_name = "PATH", default_value = "nbdkit")]
    nbdkit: PathBuf,
    /// The program that drives both, with its nbd engine.
    #[arg(long, value_name = "PATH", default_value = "fio")]
    fio: PathBuf,
    /// Interleaved pairs that count; one more warms up.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Seconds of one measurement.
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// MiB of the disk, all of them written before the measurements begin.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    mib: u32,
    /// The core that servers run on.
    #[arg(long, value_name = "N", default_value_t = 0)]
    server_core: usize,
    /// The core that fio runs on.
    #[arg(long, value_name = "N", default_value_t = 1)]
    client_core: usize,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// A server and its socket.
struct Rival {
    server: Server,
    socket: PathBuf,
    /// Goes after the server.
    _limit: Option<MemoryLimit>,
}

impl Rival {
    /// The server, which was just started, within the memory that each has.
    fn new(options: &Options, name: &str, server: Server, socket: PathBuf) -> Result<Self> {
        let limit = options.memory_mib.map(|mib| MemoryLimit::new(name, u64::from(mib) << 20)).transpose()?;
        limit.as_ref().map(|limit| limit.hold(server.process())).transpose()?;
        Ok(Rival { server, socket, _limit: limit })
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    iops: f64,
    p99_us: f64,
    cpu_us: f64,
}

/// One of its figures.
type Figure = fn(&Sample) -> f64;

/// The measurements of one pair: nbdkit's and tiermem's.
type Pair = [Sample; 2];

/// A folder for the sockets and for what fio leaves behind, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Its contents are not needed any more.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("tiermem-block-server-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| format!("make the folder {}", folder.display()))?;
    let folder = Folder(folder);
    let rivals = [start_nbdkit(options, &folder.0)?, start_tiermem(options, &folder.0)?];
    let mut commands: Vec<String> = rivals.iter().map(|rival| rival.server.command().to_owned()).collect();
    for rival in &rivals {
        for rw in ["--rw=write", "--rw=read"] {
            fio(options, &folder.0, rival, &[rw, "--bs=1m", "--iodepth=8"], &mut commands)?;
        }
    }
    let progress = ProgressBar::new(TESTS.len() as u64 * u64::from(options.pairs + 1));
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} pairs, {eta} left")?);
    let mut pairs = vec![Vec::new(); TESTS.len()];
    for round in 0..=options.pairs {
        for ((test, depth), pairs) in TESTS.iter().zip(&mut pairs) {
            let mut measure = |rival| measure(options, &folder.0, rival, test, *depth, &mut commands);
            let [nbdkit, tiermem] = &rivals;
            let pair = if round % 2 == 0 {
                [measure(nbdkit)?, measure(tiermem)?]
            } else {
                let tiermem = measure(tiermem)?;
                [measure(nbdkit)?, tiermem]
            };
            // The first round warms up.
            if round > 0 {
                pairs.push(pair);
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let rows = TESTS.iter().zip(&pairs).map(|((test, depth), pairs)| row(test, *depth, pairs)).collect();
    let record = Rows {
        fields: &["kind", "rival", "pairs", "seconds", "block_bytes", "disk_mib"],
        rows: vec![vec![
            Cell::Text(format!("{:?}", options.kind).to_lowercase()),
            Cell::Text(format!("{:?}", served(options)).to_lowercase()),
            Cell::Count(options.pairs.into()),
            Cell::Count(options.seconds.into()),
            Cell::Count(4096),
            Cell::Count(options.mib.into()),
        ]],
    };
    let lists = [("results", Rows { fields: FIELDS, rows }), ("commands", command_rows(&commands))];
    Ok(print_record(options.format, &record, &lists)?)
}

fn served(options: &Options) -> Served {
    options.rival.unwrap_or(match options.kind {
        Kind::Memory => Served::Memory,
        Kind::Cache => Served::Cache,
    })
}

/// A file as large as the disk, for one of the caches.
fn backing_file(options: &Options, folder: &Path, name: &str) -> Result<String> {
    let path = folder.join(name);
    let file = std::fs::File::create_new(&path).with_context(|| format!("make {}", path.display()))?;
    file.set_len(u64::from(options.mib) << 20).with_context(|| format!("make {}", path.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

fn start_nbdkit(options: &Options, folder: &Path) -> Result<Rival> {
    let socket = folder.join("nbdkit");
    let path = socket.to_string_lossy().into_owned();
    let mut arguments = vec!["--foreground".to_owned(), "--unix".to_owned(), path];
    match served(options) {
        Served::Memory => arguments.extend(["memory".to_owned(), format!("{}M", options.mib)]),
        Served::File => arguments.extend(["file".to_owned(), backing_file(options, folder, "nbdkit.img")?]),
        Served::Cache => {
            let file = backing_file(options, folder, "nbdkit.img")?;
            arguments.extend(["--filter=cache", "file", &file, "cache-on-read=true"].map(str::to_owned));
        }
    }
    let server = Server::start_at(&socket, options.server_core, &options.nbdkit, arguments)?;
    Rival::new(options, "nbdkit", server, socket)
}

/// The program that is given, or the one at `place` beside this one.
fn program(given: Option<&PathBuf>, place: &str, how: &str) -> Result<PathBuf> {
    let program = match given {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name(place),
    };
    if !program.is_file() {
        bail!("{} is not there: build it with `{how}`, or name it", program.display());
    }
    Ok(program)
}

fn start_tiermem(options: &Options, folder: &Path) -> Result<Rival> {
    let socket = folder.join("tiermem");
    let address = format!("unix:{}", socket.display());
    let (program, arguments) = match options.kind {
        Kind::Memory => {
            let how = "cargo build --release -p tiermem-block --example nbd_memory";
            let program = program(options.nbd_memory.as_ref(), "examples/nbd_memory", how)?;
            (program, vec![address, format!("{}MiB", options.mib)])
        }
        Kind::Cache => {
            let how = "cargo build --release -p tiermem-cli";
            let program = program(options.tiermem.as_ref(), "tiermem", how)?;
            let export = format!("disk={}", backing_file(options, folder, "tiermem.img")?);
            // Room for the log and for groups that are not full.
            let (path, capacity) = (folder.join("tiermem.cache"), format!("{}MiB", 2 * options.mib));
            let cache = format!("{}:{capacity}", path.display());
            let memory = format!("{}MiB", options.cache_memory_mib.unwrap_or(options.mib));
            let mut words = vec!["block", "serve", "--listen", &address, "--cache-memory", &memory];
            let file = folder.join("tiermem.toml");
            let config = file.to_string_lossy();
            if options.idle_store {
                // What is much is written back there, and not what is old.
                let text =
                    format!("[cache]\npath = {path:?}\ncapacity = \"{capacity}\"\ndirty_age = \"3600s\"\n");
                std::fs::write(&file, text).with_context(|| format!("write {config}"))?;
                words.extend(["--config", &config]);
            } else {
                words.extend(["--cache", &cache]);
            }
            let table = options.cache_table_memory_mib.map(|mib| format!("--cache-table-memory={mib}MiB"));
            let words = words.into_iter().chain(["--export", &export]).map(str::to_owned);
            (program, words.chain(table).collect())
        }
    };
    let server = Server::start_at(&socket, options.server_core, &program, arguments)?;
    Rival::new(options, "tiermem", server, socket)
}

/// Runs fio against a server; what it says.
fn fio(
    options: &Options,
    folder: &Path,
    rival: &Rival,
    arguments: &[&str],
    commands: &mut Vec<String>,
) -> Result<Value> {
    let mut command = pinned(options.client_core, &options.fio);
    command.args(["--name=block-server", "--ioengine=nbd", "--output-format=json"]);
    command.arg(format!("--uri=nbd+unix:///?socket={}", rival.socket.display()));
    command.arg(format!("--size={}m", options.mib)).args(arguments);
    let shown = shown(&command);
    let output = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {shown}"))?;
    if !output.status.success() {
        bail!("{shown} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let value = json(&output.stdout).with_context(|| format!("{shown} does not answer in JSON"))?;
    commands.push(shown);
    Ok(value)
}

/// fio may say a few words before its result.
fn json(bytes: &[u8]) -> Option<Value> {
    let begin = bytes.iter().position(|byte| *byte == b'{')?;
    serde_json::from_slice(&bytes[begin..]).ok()
}

/// Drives one server once.
fn measure(
    options: &Options,
    folder: &Path,
    rival: &Rival,
    test: &str,
    depth: u32,
    commands: &mut Vec<String>,
) -> Result<Sample> {
    let (rw, depth) = (format!("--rw={test}"), format!("--iodepth={depth}"));
    let runtime = format!("--runtime={}", options.seconds);
    let arguments = [&rw, "--bs=4k", &depth, "--norandommap", "--time_based", &runtime];
    let before = rival.server.cpu_time()?;
    let told = fio(options, folder, rival, &arguments, commands)?;
    let used = rival.server.cpu_time()?.since(before);
    sample(&told, test, used.total_s()).with_context(|| format!("fio tells nothing of {test}"))
}

/// Figures of a test from fio's report, with the server's processor time in seconds.
fn sample(told: &Value, test: &str, cpu_s: f64) -> Option<Sample> {
    let side = &told["jobs"][0][test.strip_prefix("rand")?];
    let requests = side["total_ios"].as_f64().filter(|requests| *requests > 0.0)?;
    Some(Sample {
        iops: side["iops"].as_f64()?,
        p99_us: side["clat_ns"]["percentile"]["99.000000"].as_f64()? / 1e3,
        cpu_us: cpu_s * 1e6 / requests,
    })
}

fn row(test: &str, depth: u32, pairs: &[Pair]) -> Vec<Cell> {
    let of = |which: usize, figure: Figure| median(pairs.iter().map(|pair| figure(&pair[which])));
    let ratios = |figure: Figure| pairs.iter().map(move |pair| figure(&pair[1]) / figure(&pair[0]));
    let iops: Figure = |sample| sample.iops;
    let p99: Figure = |sample| sample.p99_us;
    let cpu: Figure = |sample| sample.cpu_us;
    vec![
        Cell::Text(test.to_owned()),
        Cell::Count(depth.into()),
        Cell::Number(of(0, iops), 0),
        Cell::Number(of(1, iops), 0),
        Cell::Number(median(ratios(iops)), 3),
        Cell::Number(ratios(iops).fold(f64::INFINITY, f64::min), 3),
        Cell::Number(ratios(iops).fold(0.0, f64::max), 3),
        Cell::Number(of(0, p99), 0),
        Cell::Number(of(1, p99), 0),
        Cell::Number(median(ratios(p99)), 3),
        Cell::Number(of(0, cpu), 3),
        Cell::Number(of(1, cpu), 3),
        Cell::Number(median(ratios(cpu)), 3),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_fio_says() {
        let said = br#"note: both iodepth >= 1 and a synchronous engine
            {"jobs": [{"read": {"total_ios": 2000, "iops": 1000.5, "clat_ns": {"percentile": {"99.000000": 4200}}},
                       "write": {"total_ios": 0, "iops": 0.0, "clat_ns": {}}}]}"#;
        let told = json(said).unwrap();
        let sample_of = |test| sample(&told, test, 0.01);
        assert_eq!(sample_of("randread"), Some(Sample { iops: 1000.5, p99_us: 4.2, cpu_us: 5.0 }));
        assert_eq!(sample_of("randwrite"), None);
        assert_eq!(json(b"fio: bad"), None);
    }

    #[test]
    fn ratios_are_medians_of_pairs() {
        let one = |iops| Sample { iops, p99_us: 10.0, cpu_us: 2.0 };
        let pairs = [[one(100.0), one(150.0)], [one(10.0), one(40.0)], [one(100.0), one(200.0)]];
        let row = row("randread", 32, &pairs);
        assert_eq!(row.len(), FIELDS.len());
        assert_eq!(
            row[2..7],
            [
                Cell::Number(100.0, 0),
                Cell::Number(150.0, 0),
                Cell::Number(2.0, 3),
                Cell::Number(1.5, 3),
                Cell::Number(4.0, 3)
            ]
        );
    }
}
