//! Store over flash compared with memcached's extstore: the share
//! of a fast fill that is kept, and how fast it is read back.
//!
//! Both get the same memory for items, the same bytes of a file, and the same limit on all of their memory,
//! page cache included: extstore reads through the page cache, which would otherwise hold the whole file in
//! memory that is not counted. The limit is a cgroup's, so this needs the right to create one.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use tiermem_base::Rng;
use tiermem_sys::affinity::pin_thread;
use tiermem_trace::generate::{Permutation, ZipfRanks};

use crate::Common;
use crate::memory_limit::MemoryLimit;
use crate::output::{Cell, Rows, print_record};
use crate::server::{Server, free_port};
use crate::summary::{command_rows, median};

const FIELDS: &[&str] = &[
    "round",
    "server",
    "fill_per_s",
    "kept_share",
    "hit_ratio",
    "gets_per_s",
    "p50_us",
    "p99_us",
    "p999_us",
    "cpu_us_per_get",
    "resident_bytes",
];

/// Options of `flash`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// The memcached server, with extstore.
    #[arg(long, value_name = "PATH", default_value = "memcached")]
    memcached: PathBuf,
    /// Where both put their files.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    directory: PathBuf,
    /// Memory for items, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 300)]
    memory_mib: u64,
    /// Bytes of the file, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 3072)]
    file_mib: u64,
    /// What the process and the page cache may have beside the items, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 192)]
    beside_mib: u64,
    /// Keys.
    #[arg(long, value_name = "N", default_value_t = 1_200_000)]
    keys: u64,
    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    value_bytes: usize,
    /// SETs per second of the fill; 0: as fast as it goes.
    #[arg(long, value_name = "N", default_value_t = 0)]
    fill_rate: u64,
    /// Connections that read.
    #[arg(long, value_name = "N", default_value_t = 50)]
    connections: usize,
    /// GETs that each has under way.
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: usize,
    /// Seconds of reading.
    #[arg(long, value_name = "S", default_value_t = 10)]
    seconds: u64,
    /// The core that they run on.
    #[arg(long, value_name = "N", default_value_t = 1)]
    client_core: usize,
    /// Exponent of the popularity of keys; 0: all alike.
    #[arg(long, value_name = "ALPHA", default_value_t = 0.99)]
    alpha: f64,
    /// Rounds; both are measured in each.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rival {
    Extstore,
    Tiermem,
}

impl Rival {
    fn name(self) -> &'static str {
        match self {
            Rival::Extstore => "memcached extstore",
            Rival::Tiermem => "tiermem",
        }
    }
}

/// Figures of one server in one round.
#[derive(Clone, Copy, Debug)]
struct Figures {
    fill_per_s: f64,
    kept: f64,
    hit_ratio: f64,
    gets_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    cpu_us: f64,
    resident_bytes: u64,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let progress = ProgressBar::new(2 * options.rounds as u64);
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} servers, {eta} left")?);
    let (mut rows, mut commands) = (Vec::new(), Vec::new());
    let mut all: Vec<(Rival, Figures)> = Vec::new();
    for round in 0..options.rounds {
        let mut order = [Rival::Extstore, Rival::Tiermem];
        if round % 2 == 1 {
            order.reverse();
        }
        for rival in order {
            let figures = measure(options, rival, &mut commands)?;
            progress.inc(1);
            rows.push(row(round, rival, &figures));
            all.push((rival, figures));
        }
    }
    progress.finish_and_clear();
    let of = |rival: Rival, part: fn(&Figures) -> f64| {
        median(all.iter().filter(|(it, _)| *it == rival).map(|(_, figures)| part(figures)))
    };
    let ratio = |part: fn(&Figures) -> f64| of(Rival::Tiermem, part) / of(Rival::Extstore, part);
    let record = Rows {
        fields: &[
            "gets_ratio",
            "p99_ratio",
            "p999_ratio",
            "hit_ratio",
            "extstore_hit_ratio",
            "kept_share",
            "extstore_kept_share",
        ],
        rows: vec![vec![
            Cell::Number(ratio(|it| it.gets_per_s), 2),
            Cell::Number(ratio(|it| it.p99_us), 2),
            Cell::Number(ratio(|it| it.p999_us), 2),
            Cell::Number(of(Rival::Tiermem, |it| it.hit_ratio), 4),
            Cell::Number(of(Rival::Extstore, |it| it.hit_ratio), 4),
            Cell::Number(of(Rival::Tiermem, |it| it.kept), 4),
            Cell::Number(of(Rival::Extstore, |it| it.kept), 4),
        ]],
    };
    let lists = [("results", Rows { fields: FIELDS, rows }), ("commands", command_rows(&commands))];
    Ok(print_record(options.common.format, &record, &lists)?)
}

fn row(round: usize, rival: Rival, figures: &Figures) -> Vec<Cell> {
    vec![
        Cell::Count(round as u64),
        Cell::Text(rival.name().to_owned()),
        Cell::Number(figures.fill_per_s, 0),
        Cell::Number(figures.kept, 4),
        Cell::Number(figures.hit_ratio, 4),
        Cell::Number(figures.gets_per_s, 0),
        Cell::Number(figures.p50_us, 0),
        Cell::Number(figures.p99_us, 0),
        Cell::Number(figures.p999_us, 0),
        Cell::Number(figures.cpu_us, 1),
        Cell::Count(figures.resident_bytes),
    ]
}

fn measure(options: &Options, rival: Rival, commands: &mut Vec<String>) -> Result<Figures> {
    let file = options.directory.join(format!(
        "tiermem-bench-{}-{}",
        rival.name().replace(' ', "-"),
        std::process::id()
    ));
    let limit = MemoryLimit::new("flash", (options.memory_mib + options.beside_mib) << 20)?;
    let server = match rival {
        Rival::Extstore => {
            let (port, memory) = (free_port()?, options.memory_mib.to_string());
            let extstore = format!("ext_path={}:{}M", file.display(), options.file_mib);
            let arguments = ["-m", &memory, "-t", "1", "-p", &port.to_string(), "-U", "0"];
            let arguments = arguments.into_iter().chain(["-l", "127.0.0.1", "-u", "root", "-o", &extstore]);
            Server::start_program(port, options.common.server_core, &options.memcached, arguments)?
        }
        Rival::Tiermem => {
            let memory = format!("dram={}MiB", options.memory_mib);
            let flash = format!("flash:{}={}MiB", file.display(), options.file_mib);
            Server::start_tiermem(&options.common, &["--tier", &memory, "--tier", &flash, "--reset"])?
        }
    };
    limit.hold(server.process())?;
    commands.push(server.command().to_owned());
    let figures = fill_and_read(options, rival, &server);
    drop(server);
    let _ = fs::remove_file(&file);
    figures
}

fn fill_and_read(options: &Options, rival: Rival, server: &Server) -> Result<Figures> {
    let mut client = Wire::connect(rival, server.port())?;
    let start = Instant::now();
    let value = vec![b'v'; options.value_bytes];
    const BATCH: u64 = 100;
    for first in (0..options.keys).step_by(BATCH as usize) {
        let end = options.keys.min(first + BATCH);
        (first..end).for_each(|key| client.set(key, &value));
        client.send()?;
        (first..end).try_for_each(|_| client.stored())?;
        if let Some(due) = first.checked_div(options.fill_rate).map(|_| end as f64 / options.fill_rate as f64)
        {
            thread::sleep(Duration::from_secs_f64((due - start.elapsed().as_secs_f64()).max(0.0)));
        }
    }
    let fill_s = start.elapsed().as_secs_f64();
    // What is on its way to the file arrives.
    thread::sleep(Duration::from_secs(3));
    let mut kept = 0u64;
    for first in (0..options.keys).step_by(BATCH as usize) {
        let end = options.keys.min(first + BATCH);
        (first..end).for_each(|key| client.get(key));
        client.send()?;
        for _ in first..end {
            kept += u64::from(client.found()?);
        }
    }
    // Nothing of the files is in the page cache when reading begins.
    Command::new("sync").status()?;
    fs::write("/proc/sys/vm/drop_caches", "1").context("drop the page cache (this needs root)")?;
    let cpu_before = server.cpu_time()?;
    let start = Instant::now();
    let deadline = start + Duration::from_secs(options.seconds);
    let readers: Vec<_> = (0..options.connections)
        .map(|reader| {
            let mut wire = Wire::connect(rival, server.port())?;
            let (keys, alpha, depth) = (options.keys, options.alpha, options.depth);
            let core = options.client_core;
            Ok(thread::spawn(move || {
                // The server's core is for the server.
                pin_thread(core).with_context(|| format!("run on core {core}"))?;
                read(&mut wire, keys, alpha, depth, reader as u64, deadline)
            }))
        })
        .collect::<Result<_>>()?;
    let mut latency = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    let (mut gets, mut hits) = (0u64, 0u64);
    for reader in readers {
        let (own, own_hits) = reader.join().map_err(|_| anyhow::anyhow!("a reader died"))??;
        gets += own.len();
        hits += own_hits;
        latency.add(own)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = server.cpu_time()?.since(cpu_before).total_s();
    Ok(Figures {
        fill_per_s: options.keys as f64 / fill_s,
        kept: kept as f64 / options.keys as f64,
        hit_ratio: hits as f64 / gets as f64,
        gets_per_s: gets as f64 / seconds,
        p50_us: latency.value_at_quantile(0.5) as f64,
        p99_us: latency.value_at_quantile(0.99) as f64,
        p999_us: latency.value_at_quantile(0.999) as f64,
        cpu_us: cpu * 1e6 / gets as f64,
        resident_bytes: server.resident_bytes()?,
    })
}

fn read(
    wire: &mut Wire,
    keys: u64,
    alpha: f64,
    depth: usize,
    seed: u64,
    deadline: Instant,
) -> Result<(Histogram<u64>, u64)> {
    let mut rng = Rng::seeded(seed);
    let ranks = if alpha > 0.0 { ZipfRanks::new(keys, alpha) } else { None };
    // Popular keys lie anywhere among the others; the same ones for every reader.
    let names = Permutation::new(keys, 1);
    let mut latency = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    let mut hits = 0;
    while Instant::now() < deadline {
        for _ in 0..depth {
            let rank = match &ranks {
                Some(ranks) => ranks.draw(&mut rng),
                None => rng.below(keys),
            };
            wire.get(names.apply(rank));
        }
        let start = Instant::now();
        wire.send()?;
        for _ in 0..depth {
            hits += u64::from(wire.found()?);
            latency.record((start.elapsed().as_micros() as u64).clamp(1, 60_000_000))?;
        }
    }
    Ok((latency, hits))
}

/// A connection that speaks the server's protocol.
struct Wire {
    rival: Rival,
    replies: BufReader<TcpStream>,
    requests: Vec<u8>,
    line: String,
    value: Vec<u8>,
}

impl Wire {
    fn connect(rival: Rival, port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let replies = BufReader::with_capacity(64 << 10, stream);
        Ok(Wire { rival, replies, requests: Vec::new(), line: String::new(), value: Vec::new() })
    }

    fn set(&mut self, key: u64, value: &[u8]) {
        let len = value.len();
        let head = match self.rival {
            Rival::Extstore => format!("set key:{key:012} 0 0 {len}\r\n"),
            Rival::Tiermem => format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${len}\r\n"),
        };
        self.requests.extend_from_slice(head.as_bytes());
        self.requests.extend_from_slice(value);
        self.requests.extend_from_slice(b"\r\n");
    }

    fn get(&mut self, key: u64) {
        let text = match self.rival {
            Rival::Extstore => format!("get key:{key:012}\r\n"),
            Rival::Tiermem => format!("*2\r\n$3\r\nGET\r\n$16\r\nkey:{key:012}\r\n"),
        };
        self.requests.extend_from_slice(text.as_bytes());
    }

    fn send(&mut self) -> Result<()> {
        self.replies.get_mut().write_all(&self.requests)?;
        self.requests.clear();
        Ok(())
    }

    fn next_line(&mut self) -> Result<&str> {
        self.line.clear();
        if self.replies.read_line(&mut self.line)? == 0 {
            bail!("the server closed the connection");
        }
        Ok(self.line.trim_end())
    }

    fn stored(&mut self) -> Result<()> {
        let line = self.next_line()?;
        if line != "STORED" && line != "+OK" {
            bail!("a set was answered with {line:?}");
        }
        Ok(())
    }

    fn found(&mut self) -> Result<bool> {
        let rival = self.rival;
        let line = self.next_line()?;
        let len = match rival {
            Rival::Extstore if line == "END" => return Ok(false),
            Rival::Extstore => line.rsplit(' ').next().and_then(|len| len.parse::<usize>().ok()),
            Rival::Tiermem if line == "$-1" => return Ok(false),
            Rival::Tiermem => line.strip_prefix('$').and_then(|len| len.parse().ok()),
        };
        let Some(len) = len else { bail!("a get was answered with {line:?}") };
        self.value.resize(len + 2, 0);
        self.replies.read_exact(&mut self.value)?;
        if rival == Rival::Extstore {
            self.next_line()?;
        }
        Ok(true)
    }
}
