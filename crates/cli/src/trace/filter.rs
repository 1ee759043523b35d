//! `tiermem trace filter`: the part of a trace that meets conditions.

use std::ops::RangeInclusive;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::hash::{Sample, trace_key};
use tiermem_base::{Bytes, Nanos, Op};
use tiermem_trace::filter::{Filter, Judge};

use super::sink::{self, OutputArgs};
use super::{count, positive_count};
use crate::failure::Failure;
use crate::source::{TraceArgs, sample_rate};

const HELP: &str = "\
Examples:
  tiermem trace filter twitter_cluster52.csv.zst --since 5s --until 10s -o window.csv
  tiermem trace filter ycsb-a --op set --first 100k -o updates.csv
  tiermem trace filter volume.csv --keys 0-0xfffff --size 4KiB-64KiB -o front.csv
  tiermem trace filter twitter_cluster52.csv.zst --sample 0.01 -o sample.csv
  tiermem trace filter monitor.log --name user:42 --name user:43 -o two.csv

An access is kept if it meets all conditions; of a repeated condition, one is enough. --every and then --first
count the accesses that meet the conditions. --requests limits what is read.

--sample R keeps all accesses to the keys whose hash is in the lowest share R (spatial sampling, as in SHARDS); --part I/N
keeps the keys whose hash has the remainder I modulo N. The hash is xxh3 of the key's eight little-endian bytes with the
seed 0x74696572_6d656d01, the same everywhere in tiermem.";

/// Options of `tiermem trace filter`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Keep accesses from this time on, since the start of the trace, such as 10s or 250ms.
    #[arg(long, value_name = "TIME")]
    since: Option<Nanos>,
    /// Keep accesses before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<Nanos>,
    /// Keep this operation: get, set, del, read, write, load, store or scan. Repeat it for several.
    #[arg(long, value_name = "OP")]
    op: Vec<Op>,
    /// Keep this key or range of keys, in decimal or with 0x: 7, 100-200, 0x1000-0x1fff. Repeat it for several.
    #[arg(long, value_name = "KEY[-KEY]", value_parser = key_range)]
    keys: Vec<RangeInclusive<u64>>,
    /// Keep the key that has this name in a trace with names. Repeat it for several.
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Keep sizes in this range, such as 4096 or 1KiB-64KiB.
    #[arg(long, value_name = "BYTES[-BYTES]", value_parser = size_range)]
    size: Option<RangeInclusive<u32>>,
    /// Keep this tenant. Repeat it for several.
    #[arg(long, value_name = "N")]
    tenant: Vec<u32>,
    /// Keep a spatial sample of the keys at this rate.
    #[arg(long, value_name = "R", value_parser = sample_rate)]
    sample: Option<f64>,
    /// Keep one part of the keys out of N, numbered from 0.
    #[arg(long, value_name = "I/N", value_parser = part)]
    part: Option<(u64, u64)>,
    /// Of the accesses that meet the conditions, keep the first of every N.
    #[arg(long, value_name = "N", value_parser = positive_count, default_value = "1")]
    every: u64,
    /// Stop after keeping this many accesses.
    #[arg(long, value_name = "N", value_parser = count)]
    first: Option<u64>,
}

/// Writes it.
pub fn run(options: Options) -> Result<(), Failure> {
    let (since, until) = (options.since.unwrap_or_default().0, options.until.map(|until| until.0));
    if until.is_some_and(|until| until <= since) {
        return Err(Failure::usage(anyhow!("--until must be later than --since: nothing would be kept")));
    }
    let named = options.name.iter().map(|name| trace_key(name.as_bytes())).map(|key| key..=key);
    let filter = Filter {
        since_ns: since,
        until_ns: until,
        ops: options.op,
        keys: options.keys.into_iter().chain(named).collect(),
        sizes: options.size.unwrap_or(0..=u32::MAX),
        tenants: options.tenant.into_iter().collect(),
        sample: options.sample.map(Sample::with_rate),
        part: options.part,
        every: options.every,
        first: options.first,
    };
    let mut judge = Judge::new(filter);
    sink::copy(&options.trace, &options.output, |access| judge.judge(access))
}

fn key(text: &str) -> Option<u64> {
    match text.trim().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

fn key_range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let range = key(from).zip(key(to)).filter(|(from, to)| from <= to).map(|(from, to)| from..=to);
    range.ok_or_else(|| "keys are a number or a range such as 100-200 or 0x1000-0x1fff".to_owned())
}

fn size_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let size = |text: &str| text.parse::<Bytes>().ok().and_then(|bytes| u32::try_from(bytes.0).ok());
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let range = size(from).zip(size(to)).filter(|(from, to)| from <= to).map(|(from, to)| from..=to);
    range.ok_or_else(|| "sizes are a number of bytes or a range such as 1KiB-64KiB, below 4GiB".to_owned())
}

fn part(text: &str) -> Result<(u64, u64), String> {
    let numbers =
        text.split_once('/').and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
    let part = numbers.filter(|(part, parts): &(u64, u64)| part < parts);
    part.ok_or_else(|| "a part is I/N with I from 0 to N - 1, such as 0/4".to_owned())
}
