//! Memory overhead: bytes per key beyond key and value, compared with Redis's.

use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Common;
use crate::client::{Client, KEY_BYTES, info_number};
use crate::output::{Cell, Rows, print_record};
use crate::server::{Kind, Server};
use crate::summary::{command_rows, mean};

/// The fields of one value size; bytes per key beyond key and value, but the last three, which say what
/// `tiermem_bytes` is made of.
const FIELDS: &[&str] = &[
    "value_bytes",
    "redis_bytes",
    "tiermem_bytes",
    "ratio",
    "redis_rss_bytes",
    "tiermem_rss_bytes",
    "tiermem_metadata_bytes",
    "tiermem_header_bytes",
    "tiermem_rounding_bytes",
];

/// Options of `memory`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Bytes of a value.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [64, 128, 256, 512, 1024])]
    value_bytes: Vec<usize>,
    /// Keys, with names of 16 bytes.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
}

/// Contents of a server at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    used: u64,
    resident: u64,
    /// Of tiermem: what describes items, and the items with their headers.
    metadata: u64,
    items: u64,
}

/// Bytes per key that one server spent beyond key and value.
#[derive(Clone, Copy, Debug, Default)]
struct Overhead {
    used: f64,
    resident: f64,
    metadata: f64,
    header: f64,
    rounding: f64,
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let progress = ProgressBar::new(2 * options.value_bytes.len() as u64);
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} fills, {eta} left")?);
    let mut commands = Vec::new();
    let mut sizes = Vec::new();
    for &value_bytes in &options.value_bytes {
        let mut both = [Overhead::default(); 2];
        for (kind, overhead) in Kind::BOTH.into_iter().zip(&mut both) {
            // A fresh server each time: freed memory of the fill before would hide what this one takes.
            let server = Server::start(kind, &options.common)?;
            commands.push(server.command().to_owned());
            *overhead = measure(options, &server, kind, value_bytes)?;
            progress.inc(1);
        }
        sizes.push((value_bytes, both));
    }
    progress.finish_and_clear();
    let rows = sizes.iter().map(|(value_bytes, [redis, tiermem])| {
        let mut row = vec![Cell::Count(*value_bytes as u64)];
        row.extend(cells(*redis, *tiermem));
        row
    });
    let results = Rows { fields: FIELDS, rows: rows.collect() };
    let mean_of = |server: usize| {
        let of = |part: fn(&Overhead) -> f64| mean(sizes.iter().map(|(_, both)| part(&both[server])));
        Overhead {
            used: of(|it| it.used),
            resident: of(|it| it.resident),
            metadata: of(|it| it.metadata),
            header: of(|it| it.header),
            rounding: of(|it| it.rounding),
        }
    };
    let means = Rows { fields: &FIELDS[1..], rows: vec![cells(mean_of(0), mean_of(1))] };
    let record = Rows {
        fields: &["keys", "key_bytes"],
        rows: vec![vec![Cell::Count(options.keys), Cell::Count(KEY_BYTES as u64)]],
    };
    let lists = [("results", results), ("mean", means), ("commands", command_rows(&commands))];
    Ok(print_record(options.common.format, &record, &lists)?)
}

fn measure(options: &Options, server: &Server, kind: Kind, value_bytes: usize) -> Result<Overhead> {
    let mut client = Client::connect(server.port())?;
    let before = held(server, &mut client, kind)?;
    client.fill(options.keys, value_bytes)?;
    let after = held(server, &mut client, kind)?;
    let own = (KEY_BYTES + value_bytes) as f64;
    let per_key = |after: u64, before: u64| (after as f64 - before as f64) / options.keys as f64;
    let mut overhead = Overhead {
        used: per_key(after.used, before.used) - own,
        resident: per_key(after.resident, before.resident) - own,
        ..Overhead::default()
    };
    if kind == Kind::Tiermem {
        overhead.metadata = per_key(after.metadata, before.metadata);
        overhead.header = per_key(after.items, before.items) - own;
        overhead.rounding = overhead.used - overhead.metadata - overhead.header;
    }
    Ok(overhead)
}

fn held(server: &Server, client: &mut Client, kind: Kind) -> Result<Held> {
    let text = client.info("memory")?;
    let mut held = Held {
        used: info_number(&text, "used_memory")?,
        resident: server.resident_bytes()?,
        ..Held::default()
    };
    if kind == Kind::Tiermem {
        held.metadata = info_number(&text, "used_memory_overhead")?;
        held.items = info_number(&text, "used_memory_dataset")?;
    }
    Ok(held)
}

fn cells(redis: Overhead, tiermem: Overhead) -> Vec<Cell> {
    vec![
        Cell::Number(redis.used, 1),
        Cell::Number(tiermem.used, 1),
        Cell::Number(tiermem.used / redis.used, 3),
        Cell::Number(redis.resident, 1),
        Cell::Number(tiermem.resident, 1),
        Cell::Number(tiermem.metadata, 1),
        Cell::Number(tiermem.header, 1),
        Cell::Number(tiermem.rounding, 1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_has_the_same_fields_without_the_size() {
        let cells = cells(
            Overhead { used: 80.0, ..Overhead::default() },
            Overhead { used: 60.0, ..Overhead::default() },
        );
        assert_eq!(cells.len(), FIELDS.len() - 1);
        assert_eq!(cells[2], Cell::Number(0.75, 3));
    }
}
