//! `tiermem partition`: how to divide memory among tenants, from traces of what they do.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use tiermem_base::latency_curve::NETWORK_STORE;
use tiermem_base::tier::{Capacity, TierError};
use tiermem_base::{Access, Bytes, Nanos, TierSpec};
use tiermem_model::mrc::{Kind, Survey, Unit};
use tiermem_model::partition::{self, Pieces, Profile, Share, TenantTerms};
use tiermem_policy::choose_k::{K_DEFAULT, Overheads};
use tiermem_policy::partition::Objective;

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::size::Size;
use crate::source::{Reading, TraceArgs, sample_rate, steps_bar, trace_argument};
use crate::tiers;

const FIELDS: &[&str] = &[
    "tenant",
    "rate",
    "miss_ns",
    "working_set_bytes",
    "share_bytes",
    "k",
    "miss_ratio",
    "loss_ns",
    "equal_miss_ratio",
    "equal_loss_ns",
    "kept",
];

const HELP: &str = "\
Examples:
  tiermem partition shared.csv.zst --memory 512MiB
  tiermem partition web.csv src2.csv --memory 1GiB --tenant web:miss=2ms --tenant src2:miss=200us,min=64MiB
  tiermem partition 'mix:0.5*zipf(alpha=0.8)+0.5*zipf(alpha=1.2)' --memory 50% --objective fair
  tiermem partition shared.csv.zst --config store.toml
  tiermem partition clients.csv --tenants 15 --memory 25% --sample 0.01 -o tenants.toml

Tenants: the tenant column of a single trace, or one tenant per trace, named after its file.

Objectives:
  latency   least time lost to misses (default)
  mean      least mean time lost per look-up, over tenants, however often each asks
  hits      fewest misses
  fair      maximise the smallest gain among tenants, each as a part of what memory could gain it
  slo       keep promises (hits=, latency=) first, then as latency

Fields:
  rate               requests per second if the trace has times, otherwise requests
  miss_ns            cost of a miss
  working_set_bytes  all keys at their last sizes, plus --overhead for each
  share_bytes, k     the tenant's memory and its K
  miss_ratio         modelled miss ratio with that share and K
  loss_ns            time lost to misses per request: miss_ratio x miss_ns
  equal_...          the same with memory divided equally (within min and max)
  kept               1: the tenant's promise is kept, or it has none
The last row, all, is the sum; its ratios and losses are means over requests.";

/// Options of `tiermem partition`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// One trace with several tenants, or one trace per tenant.
    #[arg(value_name = "TRACE", required = true, value_parser = trace_argument)]
    traces: Vec<String>,
    /// Memory to divide, or a percentage of all tenants' working sets [default: the sum of the memory tiers in
    /// --config].
    #[arg(long, value_name = "SIZE", required_unless_present = "config")]
    memory: Option<Size>,
    /// File with [[tier]] tables, as `tiermem store serve` reads it: the memory to divide, and the tier below, which answers misses.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Granularity of the division [default: 1/256 of the memory].
    #[arg(long, value_name = "SIZE")]
    granule: Option<Bytes>,
    /// Objective: latency, mean, hits, fair or slo.
    #[arg(long, value_name = "NAME", default_value_t)]
    objective: Objective,
    /// Properties and promises of a tenant: NAME:miss=2ms,min=64MiB,max=1GiB,weight=2,hits=0.9,latency=300us; repeat it for several.
    #[arg(long, value_name = "TERMS")]
    tenant: Vec<TenantTerms>,
    /// Cost of a miss, unless --tenant sets it [default: a read from the first tier of --config below memory, or 1ms, as of the
    /// curve network-store].
    #[arg(long, value_name = "TIME")]
    miss: Option<Nanos>,
    /// Merge the trace's tenants into N, by tenant modulo N.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    tenants: Option<u32>,
    /// Candidate K for K-LRU; repeat it for several.
    #[arg(long, value_name = "K", default_values_t = [1u8, 5, 8, 16], value_parser = clap::value_parser!(u8).range(1..=64))]
    k: Vec<u8>,
    /// Model of K-LRU: klru, or krr as in Wang 2024.
    #[arg(long, value_name = "NAME", default_value = "klru", value_parser = ["klru", "krr"])]
    model: String,
    /// Number of sizes at which curves are computed; between them they are interpolated linearly.
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    points: u32,
    /// Follow only a share R of the keys (spatial sampling).
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = sample_rate)]
    sample: f64,
    /// Bytes per item in addition to key and value.
    #[arg(long, value_name = "BYTES", default_value_t = 56)]
    overhead: u32,
    #[command(flatten)]
    reading: Reading,
    /// Write the division as a configuration file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Divides and prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    let seen = observe(options)?;
    if seen.is_empty() {
        return Err(Failure::failed(anyhow!(
            "no trace has look-ups or writes, so there are no tenants to divide memory among"
        )));
    }
    let tiers = options.config.as_deref().map(tiers::read).transpose()?.unwrap_or_default();
    let miss = miss(options, &tiers)?;
    let working_set: u64 = seen.values().map(|one| one.survey.working_set(Unit::Bytes)).sum();
    let total_bytes = match options.memory {
        Some(memory) => memory.units(working_set),
        None => memory_bytes(&tiers, working_set)
            .map_err(|error| tiers::unfit(options.config.as_deref(), error))?,
    };
    let granule_bytes = options.granule.map_or(total_bytes / 256, |granule| granule.0).max(1);
    let pieces = Pieces { total_bytes, granule_bytes };
    if !(1..=1 << 16).contains(&pieces.count()) {
        return Err(Failure::usage(anyhow!(
            "{} of memory in granules of {} makes {}: choose a --granule that makes 1 to 65536",
            Bytes(total_bytes),
            Bytes(granule_bytes),
            pieces.count()
        )));
    }
    let profiles = profiles(options, &seen, total_bytes, miss)?;
    let overheads = Overheads::default();
    let refuse = |error| Failure::usage(anyhow!("{error} of {}", Bytes(granule_bytes)));
    let shares = partition::divide(&profiles, options.objective, pieces, &overheads).map_err(refuse)?;
    let shares = partition::keep_least(&profiles, &shares, total_bytes, &overheads);
    let equal = partition::divide_equally(&profiles, pieces, &overheads).map_err(refuse)?;
    if let Some(path) = &options.output {
        let text = configuration(options.objective, seen.keys(), &profiles, &shares);
        std::fs::write(path, text)
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(Failure::failed)?;
    }
    let rows = rows(&seen, &profiles, &shares, &equal);
    output::print_rows(options.format, &Rows { fields: FIELDS, rows }).map_err(Failure::failed)
}

/// Cost of a miss: as given, or a read from the tier that answers it.
fn miss(options: &Options, tiers: &[TierSpec]) -> Result<Nanos, Failure> {
    match (options.miss, tiers.iter().find(|tier| !tier.kind.is_memory())) {
        (Some(miss), _) => Ok(miss),
        (None, Some(below)) => {
            let curve = below.curve().map_err(|error| tiers::unfit(options.config.as_deref(), error))?;
            Ok(curve.read.latency())
        }
        (None, None) => Ok(NETWORK_STORE.read.latency()),
    }
}

/// Total capacity of the memory tiers; a percentage is of this working set.
fn memory_bytes(tiers: &[TierSpec], working_set: u64) -> Result<u64, TierError> {
    let mut sum = 0u64;
    for tier in tiers.iter().filter(|tier| tier.kind.is_memory()) {
        let bytes = match tier.capacity {
            Some(Capacity::Percent(_)) => tier.capacity.map_or(0, |it| it.of_working_set(working_set)),
            _ => tier.bytes()?,
        };
        sum = sum.saturating_add(bytes);
    }
    Ok(sum)
}

/// Observations of one tenant.
struct Seen {
    survey: Survey,
    /// Per second, or in all.
    rate: f64,
}

fn observe(options: &Options) -> Result<BTreeMap<String, Seen>, Failure> {
    let mut tenants = BTreeMap::new();
    let several = options.traces.len() > 1;
    for trace in &options.traces {
        let args = TraceArgs { trace: trace.clone(), reading: options.reading.clone() };
        let source = args.open()?;
        let mut surveys: BTreeMap<u32, Survey> = BTreeMap::new();
        let mut last_ns = 0;
        for record in source.records() {
            let access = record?;
            last_ns = access.time_ns.max(last_ns);
            let tenant = match options.tenants {
                _ if several => 0,
                Some(count) => access.tenant % count,
                None => access.tenant,
            };
            let survey = surveys.entry(tenant).or_insert_with(|| Survey::new(options.sample, 0));
            let size =
                access.size.saturating_add(u32::from(access.key_size)).saturating_add(options.overhead);
            if !survey.access(&Access { size, ..access }) {
                return Err(Failure::failed(anyhow!(
                    "the sample has more than 2^30 keys; a smaller --sample R holds fewer"
                )));
            }
        }
        source.finish();
        let seconds = last_ns as f64 / 1e9;
        for (tenant, survey) in surveys.into_iter().filter(|(_, survey)| survey.requests() > 0) {
            let requests = survey.requests() as f64;
            let rate = if seconds > 0.0 { requests / seconds } else { requests };
            let name = if several { unused_name(&tenants, trace) } else { tenant.to_string() };
            tenants.insert(name, Seen { survey, rate });
        }
    }
    Ok(tenants)
}

/// A trace's file name up to the first dot, or of a generator its kind; with a number where that is taken.
fn unused_name(taken: &BTreeMap<String, Seen>, trace: &str) -> String {
    let file = trace.rsplit('/').next().unwrap_or(trace);
    let stem = file.split(['.', ':']).next().unwrap_or(file);
    let numbered = (2..).map(|number| format!("{stem}-{number}"));
    std::iter::once(stem.to_owned())
        .chain(numbered)
        .find(|name| !taken.contains_key(name))
        .unwrap_or_default()
}

fn profiles(
    options: &Options,
    seen: &BTreeMap<String, Seen>,
    total_bytes: u64,
    miss: Nanos,
) -> Result<Vec<Profile>, Failure> {
    for terms in &options.tenant {
        if !seen.contains_key(&terms.name) {
            let names: Vec<&str> = seen.keys().map(String::as_str).take(20).collect();
            return Err(Failure::usage(anyhow!(
                "there is no tenant {:?}; there are {}",
                terms.name,
                names.join(", ")
            )));
        }
    }
    let bar = steps_bar((seen.len() * options.k.len()) as u64, "curves");
    let mut profiles = Vec::with_capacity(seen.len());
    for (name, one) in seen {
        // Beyond the working set nothing is missed any more but for the first time.
        let largest = one.survey.working_set(Unit::Bytes).min(total_bytes).max(1);
        let mut sizes: Vec<u64> = (1..=u64::from(options.points))
            .map(|at| (largest * at / u64::from(options.points)).max(1))
            .collect();
        sizes.dedup();
        let curve = |&k: &u8| {
            let kind = match options.model.as_str() {
                "krr" => Kind::Krr { k: f64::from(k) },
                _ => Kind::KLru { k: f64::from(k) },
            };
            let curve = one.survey.curve(kind, Unit::Bytes, &sizes);
            bar.inc(1);
            (k, curve)
        };
        let given = options.tenant.iter().rev().find(|terms| terms.name == *name);
        profiles.push(Profile {
            curves: options.k.iter().map(curve).collect(),
            keys_sampled: one.survey.keys_sampled() as u64,
            rate: one.rate,
            miss_ns: given.and_then(|terms| terms.miss).unwrap_or(miss).0 as f64,
            k: K_DEFAULT,
            terms: given.map(|terms| terms.terms).unwrap_or_default(),
        });
    }
    bar.finish_and_clear();
    Ok(profiles)
}

fn rows(
    seen: &BTreeMap<String, Seen>,
    profiles: &[Profile],
    shares: &[Share],
    equal: &[Share],
) -> Vec<Vec<Cell>> {
    let mut rows = Vec::with_capacity(seen.len() + 1);
    for ((((name, one), profile), share), equal) in seen.iter().zip(profiles).zip(shares).zip(equal) {
        rows.push(vec![
            Cell::Text(name.clone()),
            Cell::Number(profile.rate, 1),
            Cell::Number(profile.miss_ns, 0),
            Cell::Count(one.survey.working_set(Unit::Bytes)),
            Cell::Count(share.bytes),
            Cell::Count(u64::from(share.k)),
            Cell::Number(share.miss_ratio, 6),
            Cell::Number(share.miss_ratio * profile.miss_ns, 0),
            Cell::Number(equal.miss_ratio, 6),
            Cell::Number(equal.miss_ratio * profile.miss_ns, 0),
            Cell::Count(u64::from(share.is_kept)),
        ]);
    }
    let rate: f64 = profiles.iter().map(|profile| profile.rate).sum();
    let mean = |shares: &[Share], of: &dyn Fn(&Profile, &Share) -> f64| {
        profiles.iter().zip(shares).map(|(profile, share)| profile.rate * of(profile, share)).sum::<f64>()
            / rate
    };
    let misses = |_: &Profile, share: &Share| share.miss_ratio;
    rows.push(vec![
        Cell::Text("all".to_owned()),
        Cell::Number(rate, 1),
        Cell::Number(mean(shares, &|profile, _| profile.miss_ns), 0),
        Cell::Count(seen.values().map(|one| one.survey.working_set(Unit::Bytes)).sum()),
        Cell::Count(shares.iter().map(|share| share.bytes).sum()),
        Cell::Count(0),
        Cell::Number(mean(shares, &misses), 6),
        Cell::Number(partition::loss_ns(profiles, shares) / rate, 0),
        Cell::Number(mean(equal, &misses), 6),
        Cell::Number(partition::loss_ns(profiles, equal) / rate, 0),
        Cell::Count(u64::from(shares.iter().all(|share| share.is_kept))),
    ]);
    rows
}

/// The division as configuration.
fn configuration<'a>(
    objective: Objective,
    names: impl Iterator<Item = &'a String>,
    profiles: &[Profile],
    shares: &[Share],
) -> String {
    let mut text = format!("# Made by tiermem partition, objective {objective}.\n");
    for ((name, profile), share) in names.zip(profiles).zip(shares) {
        text += &format!(
            "\n[[tenant]]\nname = {}\nshare = \"{}B\"\nk = {}\nmiss_cost = \"{}\"\n",
            toml_string(name),
            share.bytes,
            share.k,
            Nanos(profile.miss_ns as u64)
        );
    }
    text
}

/// A string as TOML writes it: JSON's escapes are among its own.
fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
