//! Redis's own miss ratio at a few memory limits, compared with the models of it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tiermem_base::{Access, Op};
use tiermem_model::mrc::{Kind as CurveKind, Survey, Unit};

use crate::Common;
use crate::client::{Client, info_number};
use crate::output::{Cell, Rows, print_record};
use crate::server::{Kind, Server};
use crate::summary::command_rows;

const FIELDS: &[&str] = &["k", "size", "redis", "modelled", "error", "klru", "lru"];

const HELP: &str = "\
Each server gets the trace as from a look-aside cache's client: a GET, and a SET of a value of --value-bytes where that
finds nothing. Redis keeps the time of an access in whole seconds, so the replay must take long: --seconds.

Fields:
  size      keys held, the mean over the time after the limit was first reached
  redis     miss ratio of redis-server with maxmemory-policy allkeys-lru and maxmemory-samples k
  modelled  the model of Redis's pool (`tiermem mrc --policy redis`) at that size
  error     modelled less redis
  klru      the model without the pool
  lru       exact LRU";

/// Options of `redis-curve`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// A trace file, or a generator.
    trace: String,
    /// Number of requests.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    requests: usize,
    /// Redis's maxmemory-samples.
    #[arg(long, value_name = "K,..", value_delimiter = ',', default_values_t = [5, 10])]
    k: Vec<u32>,
    /// Number of cache sizes to evaluate, evenly spaced below the working set.
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    sizes: u64,
    /// Bytes of each value.
    #[arg(long, value_name = "N", default_value_t = 100)]
    value_bytes: usize,
    /// How long a replay takes at least.
    #[arg(long, value_name = "S", default_value_t = 120.0)]
    seconds: f64,
}

/// Result of a server on the trace.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    misses: u64,
    /// Keys held on the average once the limit was reached.
    keys: f64,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let accesses: Vec<Access> =
        tiermem_trace::open(&options.trace)?.take(options.requests).collect::<Result<_, _>>()?;
    let accesses: Vec<Access> = accesses.into_iter().filter(|access| access.op != Op::Del).collect();
    if accesses.is_empty() {
        bail!("{} has no requests", options.trace);
    }
    let mut survey = Survey::new(1.0, 0);
    accesses.iter().for_each(|access| _ = survey.access(access));
    let keys = survey.keys() as u64;
    let mut commands = Vec::new();
    let (empty, full) = memory_range(options, keys, &mut commands)?;
    let bar = ProgressBar::new(accesses.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {percent}% of the trace, {eta} left")?);
    let plans: Vec<(u32, u64)> = options
        .k
        .iter()
        .flat_map(|&k| {
            (1..=options.sizes).map(move |part| (k, empty + (full - empty) * part / (options.sizes + 1)))
        })
        .collect();
    let outcomes = replay_all(options, &accesses, &plans, &bar, &mut commands)?;
    bar.finish_and_clear();
    let requests = accesses.len() as f64;
    let mut rows = Vec::new();
    let mut sum = 0.0;
    for (&(k, _), outcome) in plans.iter().zip(&outcomes) {
        let size = outcome.keys.round() as u64;
        let at = |kind| survey.curve(kind, Unit::Objects, &[size]).points[0].miss_ratio;
        let (redis, modelled) = (outcome.misses as f64 / requests, at(CurveKind::Redis { k }));
        sum += (modelled - redis).abs();
        rows.push(vec![
            Cell::Count(u64::from(k)),
            Cell::Count(size),
            Cell::Number(redis, 6),
            Cell::Number(modelled, 6),
            Cell::Number(modelled - redis, 6),
            Cell::Number(at(CurveKind::KLru { k: f64::from(k) }), 6),
            Cell::Number(at(CurveKind::Lru), 6),
        ]);
    }
    let record = Rows {
        fields: &["requests", "keys", "mean_absolute_error"],
        rows: vec![vec![
            Cell::Count(accesses.len() as u64),
            Cell::Count(keys),
            Cell::Number(sum / rows.len() as f64, 6),
        ]],
    };
    let curve = Rows { fields: FIELDS, rows };
    print_record(options.common.format, &record, &[("curve", curve), ("commands", command_rows(&commands))])?;
    Ok(())
}

/// Memory of a server without a limit, when it is empty and when it holds every key.
fn memory_range(options: &Options, keys: u64, commands: &mut Vec<String>) -> Result<(u64, u64)> {
    let server = Server::start(Kind::Redis, &options.common)?;
    commands.push(server.command().to_owned());
    let mut client = Client::connect(server.port())?;
    let empty = info_number(&client.info("memory")?, "used_memory")?;
    client.fill(keys, options.value_bytes)?;
    Ok((empty, info_number(&client.info("memory")?, "used_memory")?))
}

/// Sends the trace to a server for each (K, memory limit), all at the same pace.
fn replay_all(
    options: &Options,
    accesses: &[Access],
    plans: &[(u32, u64)],
    bar: &ProgressBar,
    commands: &mut Vec<String>,
) -> Result<Vec<Outcome>> {
    const BATCH: usize = 64;
    let mut servers = Vec::new();
    for &(k, limit) in plans {
        let server = Server::start(Kind::Redis, &options.common)?;
        let mut client = Client::connect(server.port())?;
        for (name, value) in [
            ("maxmemory", limit.to_string()),
            ("maxmemory-policy", "allkeys-lru".to_owned()),
            ("maxmemory-samples", k.to_string()),
        ] {
            client.configure(name, &value)?;
            commands.push(format!("CONFIG SET {name} {value}"));
        }
        servers.push((server, client, Outcome { misses: 0, keys: 0.0 }, 0u64));
    }
    let start = Instant::now();
    let batches = accesses.len().div_ceil(BATCH);
    for (number, batch) in accesses.chunks(BATCH).enumerate() {
        for (_, client, outcome, looks) in &mut servers {
            outcome.misses +=
                client.look_aside(batch.iter().map(|access| access.key), options.value_bytes)?;
            // Some thousand looks at how many keys it holds, from the first eviction on.
            if number % (batches / 4_000).max(1) == 0 {
                let (held, evicted) = client.keys_and_evicted()?;
                if evicted > 0 {
                    *looks += 1;
                    outcome.keys += (held as f64 - outcome.keys) / *looks as f64;
                }
            }
        }
        bar.inc(batch.len() as u64);
        let due = Duration::from_secs_f64(options.seconds * (number + 1) as f64 / batches as f64);
        sleep(due.saturating_sub(start.elapsed()));
    }
    Ok(servers.into_iter().map(|server| server.2).collect())
}
