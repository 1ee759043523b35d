//! `tiermem sim cache --tier`: the store's ladder over a trace, without bytes.

mod rows;

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::anyhow;
use clap::Args;
use tiermem_base::latency_curve::{Curve, LOCAL_DRAM, Surcharge};
use tiermem_base::tier::{Capacity, TierError};
use tiermem_base::{Access, Bytes, TierKind, TierSpec};
use tiermem_model::advisor::{Aim, Division, Plan};
use tiermem_policy::ladder::{LEVELS_MAX, LadderConfig};
use tiermem_policy::log::{self, LogConfig};
use tiermem_policy::partition::Objective;
use tiermem_sim::cache::tiered::{TieredCache, TieredConfig};
use tiermem_sim::cache::{self, ShardedCache};
use tiermem_sim::hindsight::BestPlacement;
use tiermem_store::config::StoreConfig;

use self::rows::{added, of_flash, of_tenants};
use crate::failure::Failure;
use crate::ladder::LadderArgs;
use crate::output::{self, Cell, Format, Rows};
use crate::source::{TraceArgs, sample_rate};
use crate::tiers;

/// Counters of a window or of the whole run.
const COUNTED: [&str; 16] = [
    "requests",
    "misses",
    "miss_ratio",
    "fast_hit_share",
    "charged_ns_per_request",
    "promotions",
    "demotions",
    "evictions",
    "relocations",
    "moved_bytes",
    "acts_max",
    "flash_hits",
    "flash_promotions",
    "flash_evictions",
    "flash_admitted_bytes",
    "flash_written_bytes",
];
const FIELDS: [&str; 2 + COUNTED.len() + 3] =
    around_counted(&["policy", "size"], &["items", "metadata_bytes_per_item", "clairvoyant_fast_share"]);
const WINDOW_FIELDS: [&str; 1 + COUNTED.len()] = around_counted(&["window"], &[]);
const TIER_FIELDS: &[&str] =
    &["tier", "capacity_bytes", "hits", "promotions", "demotions", "evictions", "relocations"];
const TENANT_FIELDS: &[&str] =
    &["tenant", "tier", "items", "bytes", "share_bytes", "k", "evictions", "trespasses"];
const FLASH_FIELDS: &[&str] = &[
    "capacity_bytes",
    "items",
    "hits",
    "reads",
    "promotions",
    "evictions",
    "admitted",
    "rejected",
    "refused",
    "unchanged",
    "unindexed",
    "kept",
    "segments_emptied",
    "waits",
    "admitted_bytes",
    "written_bytes",
    "write_amplification",
    "lifetime_years",
];
/// Bytes that the store keeps with each value: an eight-byte header and a key name of sixteen digits.
const ITEM_OVERHEAD_BYTES: u64 = ITEM_HEADER_BYTES + 16;
const ITEM_HEADER_BYTES: u64 = 8;
const NS_PER_YEAR: f64 = 365.25 * 86_400.0 * 1e9;

/// [`COUNTED`] between fields that say what it was counted of.
const fn around_counted<const N: usize>(
    before: &[&'static str],
    after: &[&'static str],
) -> [&'static str; N] {
    let mut fields = [""; N];
    let mut at = 0;
    while at < N {
        let behind = at.saturating_sub(before.len());
        fields[at] = if at < before.len() {
            before[at]
        } else if behind < COUNTED.len() {
            COUNTED[behind]
        } else {
            after[behind - COUNTED.len()]
        };
        at += 1;
    }
    fields
}

/// Kinds of tiers of the store's ladder and log.
const SERVED: [TierKind; 5] =
    [TierKind::Dram, TierKind::Numa, TierKind::Dax, TierKind::Emulated, TierKind::Flash];
/// A shard's region of a flash device is a multiple of this.
const FLASH_BLOCK_BYTES: u64 = 4096;
/// Default bytes of a segment.
const SEGMENT_BYTES: u64 = 2 << 20;

/// One `--tier`.
#[derive(Clone, Debug, PartialEq)]
enum TierArg {
    /// Described.
    Spec(Box<TierSpec>),
    /// Its size alone.
    Size(Capacity),
}

impl FromStr for TierArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(capacity) if !text.contains('=') => {
                let spec = TierSpec { capacity: Some(capacity), ..TierSpec::unsized_of(TierKind::Dram) };
                spec.check().map(|()| TierArg::Size(capacity)).map_err(|error| error.to_string())
            }
            _ => text
                .parse()
                .map(|spec| TierArg::Spec(Box::new(spec)))
                .map_err(|error: TierError| error.to_string()),
        }
    }
}

impl TierArg {
    /// The tier in this place of the ladder.
    fn spec(&self, at: usize) -> TierSpec {
        match self {
            TierArg::Spec(spec) => (**spec).clone(),
            TierArg::Size(capacity) => {
                let kind = if at == 0 { TierKind::Dram } else { TierKind::Emulated };
                TierSpec { capacity: Some(*capacity), ..TierSpec::unsized_of(kind) }
            }
        }
    }
}

/// How tenants share tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Free,
    Equal,
    Divided(Objective),
}

impl FromStr for Sharing {
    type Err = String;
    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "free" => Ok(Sharing::Free),
            "equal" => Ok(Sharing::Equal),
            // No tenant of a trace was promised anything.
            "latency" | "mean" | "hits" | "fair" => word.parse().map(Sharing::Divided),
            _ => Err(format!("{word:?} is none of free, equal, latency, mean, hits, fair")),
        }
    }
}

/// Which ladder is simulated.
#[derive(Debug, Args)]
pub struct TieredArgs {
    /// A tier as kind:place=size, as in `store serve`, or only a size: the first is then DRAM, the others emulated memory. Repeat it,
    /// fastest first. A size is in bytes or a percentage of the bytes of all items. The last tier can be flash=SIZE: the store's
    /// log.
    #[arg(long, value_name = "KIND=SIZE")]
    tier: Vec<TierArg>,
    /// Configuration file of `store serve`: its [[tier]] tables, [policy] and [config]. Flags replace what it says; shards and tenants
    /// come from flags alone.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Flash: segment size, the unit of writing and garbage collection [default: the tier's, or 2MiB].
    #[arg(long, value_name = "BYTES")]
    flash_segment: Option<Bytes>,
    /// Flash: which items are admitted when it is full: seen or all [default: the tier's, or seen].
    #[arg(long)]
    flash_admission: Option<log::Admission>,
    /// Flash: share that live items never fill [default: the tier's, or 0.1].
    #[arg(long, value_name = "SHARE")]
    flash_reserve: Option<f64>,
    /// Flash: total bytes that the device can be written, for lifetime_years [default: the tier's].
    #[arg(long, value_name = "BYTES")]
    flash_endurance: Option<Bytes>,
    /// Shards: each has an equal part of every tier and the keys that the store would give it, and memory moves between them by the
    /// trace's time, to where items are evicted youngest. Figures are sums over all shards.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    shards: u64,
    /// Curve of all memory tiers below the first [default: each tier's own; a1000-cxl for emulated ones].
    #[arg(long, value_name = "NAME")]
    curve: Option<String>,
    /// Store every key of the trace first, in order of appearance, so that no look-up misses for lack of a write.
    #[arg(long)]
    preload: bool,
    /// How the trace's tenants share the tiers: free (no shares), equal, or divided at run time with the objective latency,
    /// mean, hits or fair.
    #[arg(long, value_name = "HOW", default_value = "free")]
    tenants: Sharing,
    /// Look-ups between two divisions.
    #[arg(long, value_name = "N", default_value = "1M", value_parser = crate::trace::positive_count)]
    tenant_window: u64,
    /// Share of the keys that is sampled for the division.
    #[arg(long, value_name = "R", default_value_t = 0.01, value_parser = sample_rate)]
    tenant_sample: f64,
    #[command(flatten)]
    ladder: LadderArgs,
}

impl TieredArgs {
    /// How tenants share tiers of these curves, if there are tenants.
    fn sharing(&self, curves: &[Curve]) -> Option<cache::Sharing> {
        let aim = match self.tenants {
            Sharing::Free => return None,
            Sharing::Equal => Aim::Off,
            Sharing::Divided(objective) => Aim::Divide(objective),
        };
        let plan = Plan { rate: self.tenant_sample, ..Plan::default() };
        let division = Division { aim, window: self.tenant_window, ..Division::default() };
        let slower_ns = |curve: &Curve| Surcharge::over_dram(curve.read, LOCAL_DRAM.read).latency_ns;
        let slower_ns = curves.iter().map(slower_ns).collect();
        let names = vec!["0".to_owned()];
        Some(cache::Sharing { plan, division, names, slower_ns, ..cache::Sharing::default() })
    }

    /// The tiers: from flags, or from the file.
    fn tiers(&self) -> Result<Vec<TierSpec>, Failure> {
        let mut tiers = match &self.config {
            Some(path) if self.tier.is_empty() => tiers::read(path)?,
            _ => self.tier.iter().enumerate().map(|(at, tier)| tier.spec(at)).collect(),
        };
        if let Some(curve) = &self.curve {
            let memory = tiers.iter_mut().skip(1).filter(|tier| tier.kind.is_memory());
            memory.for_each(|tier| *tier = tier.clone().with_curve(curve));
        }
        for (at, tier) in tiers.iter().enumerate() {
            tier.served_by("sim cache", &SERVED).map_err(|error| self.unfit(error))?;
            if tier.kind == TierKind::Flash && (at == 0 || at + 1 < tiers.len()) {
                return Err(Failure::usage(anyhow!("a flash tier is the last one, below memory")));
            }
        }
        Ok(tiers)
    }

    /// The ladder over tiers of these capacities, before flags: as the file sets it, or the default.
    fn described_ladder(&self, capacities_bytes: &[u64]) -> Result<LadderConfig, Failure> {
        let Some(path) = &self.config else { return Ok(LadderConfig::with_capacities(capacities_bytes)) };
        let capacities: Vec<Bytes> = capacities_bytes.iter().copied().map(Bytes).collect();
        let config = StoreConfig::read(path).map_err(Failure::usage)?;
        config.ladder_over(&capacities).map_err(Failure::usage)
    }

    /// That a tier is not what a ladder needs.
    fn unfit(&self, error: TierError) -> Failure {
        tiers::unfit(self.config.as_deref().filter(|_| self.tier.is_empty()), error)
    }

    /// Whether no ladder is asked for.
    pub fn is_empty(&self) -> bool {
        self.tier.is_empty() && self.config.is_none()
    }

    /// That nothing is asked for which only a ladder has.
    pub fn check_unused(&self) -> Result<(), Failure> {
        match (self.tenants, self.shards) {
            (Sharing::Free, 1) => Ok(()),
            (Sharing::Free, _) => {
                Err(Failure::usage(anyhow!("--shards divide tiers: give --tier or --config")))
            }
            _ => Err(Failure::usage(anyhow!("--tenants share tiers: give --tier or --config"))),
        }
    }

    /// One shard's part of a tier of `bytes`: of flash a region, as the store divides a device.
    fn part(&self, tier: &TierSpec, bytes: u64) -> u64 {
        let part = bytes / self.shards;
        if tier.kind == TierKind::Flash && self.shards > 1 {
            part / FLASH_BLOCK_BYTES * FLASH_BLOCK_BYTES
        } else {
            part
        }
    }

    /// The log on a flash tier of `capacity_bytes`, divided as the store divides it.
    fn log(&self, tier: &TierSpec, capacity_bytes: u64) -> anyhow::Result<LogConfig> {
        let options = &tier.flash;
        let segment_bytes = self.flash_segment.or(options.segment).unwrap_or(Bytes(SEGMENT_BYTES)).0;
        let reserve = self.flash_reserve.or(options.reserve).unwrap_or(log::RESERVE);
        let admission = match (self.flash_admission, &options.admission) {
            (Some(admission), _) => admission,
            (None, Some(word)) => {
                word.parse().map_err(|problem: String| anyhow!(tier.error("admission", problem)))?
            }
            (None, None) => log::Admission::default(),
        };
        if !(64 << 10..=256 << 20).contains(&segment_bytes) || !segment_bytes.is_power_of_two() {
            return Err(anyhow!("--flash-segment must be a power of two between 64KiB and 256MiB"));
        }
        if !(0.02..=0.5).contains(&reserve) {
            return Err(anyhow!("--flash-reserve must be between 0.02 and 0.5"));
        }
        let log = LogConfig::in_region(capacity_bytes, segment_bytes as u32).ok_or_else(|| {
            anyhow!(
                "{} are too small or too large for a flash tier: change it, or --flash-segment",
                Bytes(capacity_bytes)
            )
        })?;
        Ok(LogConfig { admission, reserve, ..log })
    }
}

/// Everything that grows while a trace runs.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    requests: u64,
    misses: u64,
    fast_hits: u64,
    charged_ns: f64,
    moves: [u64; 4],
    moved_bytes: u64,
    /// Hits, promotions, evictions, bytes that came in, bytes written.
    flash: [u64; 5],
}

impl Totals {
    /// Of all shards.
    fn of(cache: &ShardedCache) -> Totals {
        cache.shards().iter().fold(Totals::default(), |sum, shard| sum.and(shard))
    }

    /// With one more shard.
    fn and(mut self, cache: &TieredCache) -> Totals {
        let (ladder, figures) = (cache.shard().ladder(), cache.figures());
        for tier in 0..ladder.residents().levels() {
            let [_, counts @ ..] = of_tier(cache, tier);
            self.moves.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        if let Some(tail) = cache.tail() {
            let log = tail.counters();
            let counts = [log.hits, log.promotions, log.evictions, log.admitted_bytes, tail.written_bytes()];
            self.flash.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        self.requests += figures.requests();
        self.misses += figures.misses();
        self.fast_hits += ladder.residents().level(0).counters().hits;
        self.charged_ns += figures.charged_ns();
        self.moved_bytes += figures.moved_bytes();
        self
    }
}

/// Hits, promotions, demotions, evictions and relocations of a tier. What goes to the log is demoted.
fn of_tier(cache: &TieredCache, tier: usize) -> [u64; 5] {
    let shard = cache.shard();
    let (level, sunk) =
        (shard.ladder().residents().level(tier).counters(), shard.log().map_or(0, |log| log.sunk(tier)));
    [level.hits, level.promotions, level.demotions + sunk, level.evictions - sunk, level.relocations]
}

/// A ladder before its first request, and what is known of it.
struct Start {
    cache: ShardedCache,
    /// Of each tier, the log's among them.
    capacities: Vec<u64>,
    clairvoyant_fast_share: f64,
    /// Bytes that the flash device bears to be written.
    endurance: Option<Bytes>,
}

/// Sets a ladder up as it is described, and fills it if that is wanted.
fn set_up(trace: &TraceArgs, args: &TieredArgs) -> Result<Start, Failure> {
    let tiers = args.tiers()?;
    let memory_tiers = tiers.iter().take_while(|tier| tier.kind != TierKind::Flash).count();
    if memory_tiers > LEVELS_MAX {
        return Err(Failure::usage(anyhow!("a ladder has at most {LEVELS_MAX} tiers above flash")));
    }
    let curves = tiers[..memory_tiers].iter().map(TierSpec::curve).collect::<Result<Vec<_>, _>>();
    let curves = curves.map_err(|error| args.unfit(error))?;
    let mut best = BestPlacement::default();
    if tiers.iter().any(|tier| matches!(tier.capacity, Some(Capacity::Percent(_)))) {
        each_record(trace, |access| best.note(access))?;
    }
    let item_bytes = best.working_set_bytes(ITEM_OVERHEAD_BYTES);
    let bytes = |tier: &TierSpec| match tier.capacity {
        Some(capacity) => Ok(capacity.of_working_set(item_bytes)),
        None => tier.bytes(),
    };
    let capacities = tiers.iter().map(bytes).collect::<Result<Vec<u64>, _>>();
    let capacities = capacities.map_err(|error| args.unfit(error))?;
    let parts: Vec<u64> =
        tiers.iter().zip(&capacities).map(|(tier, &bytes)| args.part(tier, bytes)).collect();
    let mut ladder = args.described_ladder(&parts[..memory_tiers])?;
    args.ladder.apply(&mut ladder).map_err(|error| Failure::usage(anyhow!("{error}")))?;
    ladder.tenants = args.tenants != Sharing::Free;
    ladder.check_orders().map_err(|error| Failure::usage(anyhow!("{error}")))?;
    let clairvoyant_fast_share = best.fast_share(capacities[0], ITEM_OVERHEAD_BYTES, !args.preload);
    let flash = tiers.get(memory_tiers).zip(parts.get(memory_tiers));
    let tail = flash.map(|(tier, &bytes)| args.log(tier, bytes)).transpose().map_err(Failure::usage)?;
    let endurance = args.flash_endurance.or(flash.and_then(|(tier, _)| tier.flash.endurance));
    let config = TieredConfig {
        ladder,
        overhead_bytes: ITEM_OVERHEAD_BYTES,
        header_bytes: ITEM_HEADER_BYTES,
        tail,
        sharing: args.sharing(&curves),
        curves,
        seed: 0,
    };
    let mut cache = ShardedCache::new(&config, args.shards as usize);
    if args.preload {
        each_record(trace, |access| cache.preload(access))?;
    }
    Ok(Start { cache, capacities, clairvoyant_fast_share, endurance })
}

/// Simulates and prints. `spans`: requests before anything is counted, and requests of a window.
pub fn run(
    trace: &TraceArgs,
    args: &TieredArgs,
    (warmup, window): (u64, Option<u64>),
    format: Format,
) -> Result<(), Failure> {
    let Start { mut cache, capacities, clairvoyant_fast_share, endurance } = set_up(trace, args)?;
    let mut rows = Vec::new();
    let mut start = Totals::of(&cache);
    let mut before = start;
    let (mut seen, mut counted, mut acts_max) = (0, 0, 0);
    let mut trace_ns = 0..0;
    cache.take_acts_max();
    each_record(trace, |access| {
        if seen == warmup {
            start = Totals::of(&cache);
            (before, counted, acts_max) = (start, 0, 0);
            cache.take_acts_max();
        } else if window.is_some_and(|window| counted == window) && seen > warmup {
            let after = Totals::of(&cache);
            let acts = cache.take_acts_max();
            let mut cells = vec![Cell::Count(rows.len() as u64)];
            cells.extend(since(&before, &after, acts));
            rows.push(cells);
            (before, counted, acts_max) = (after, 0, acts_max.max(acts));
        }
        if seen == 0 {
            trace_ns = access.time_ns..access.time_ns;
        }
        trace_ns.end = trace_ns.end.max(access.time_ns);
        seen += 1;
        counted += 1;
        cache.access(access);
    })?;
    let (after, acts) = (Totals::of(&cache), cache.take_acts_max());
    if window.is_some() {
        let mut cells = vec![Cell::Count(rows.len() as u64)];
        cells.extend(since(&before, &after, acts));
        rows.push(cells);
    }
    let mut total = vec![Cell::Text("ladder".to_owned()), Cell::Count(capacities.iter().sum())];
    total.extend(since(&start, &after, acts_max.max(acts)));
    let sum = |of: fn(&TieredCache) -> u64| cache.shards().iter().map(of).sum::<u64>();
    let items = sum(|cache| cache.shard().ladder().residents().items());
    total.push(Cell::Count(items));
    let items = items + sum(|cache| cache.tail().map_or(0, |tail| tail.items()));
    let metadata_bytes = sum(|cache| cache.shard().ladder().metadata_bytes());
    total.push(Cell::Number(metadata_bytes as f64 / items.max(1) as f64, 2));
    total.push(Cell::Number(clairvoyant_fast_share, 6));
    let tier = |(at, &capacity): (usize, &u64)| {
        let mut cells = vec![Cell::Count(at as u64), Cell::Count(capacity)];
        let shards = cache.shards().iter().map(|shard| of_tier(shard, at));
        cells.extend(shards.fold([0; 5], added).map(Cell::Count));
        cells
    };
    let levels = cache.shards()[0].shard().ladder().residents().levels();
    let tiers = capacities[..levels].iter().enumerate().map(tier).collect();
    let tiers = Rows { fields: TIER_FIELDS, rows: tiers };
    let windows = Rows { fields: &WINDOW_FIELDS, rows };
    let mut lists = vec![("tiers", tiers)];
    if args.tenants != Sharing::Free {
        lists.push(("tenants", Rows { fields: TENANT_FIELDS, rows: of_tenants(&cache) }));
    }
    if cache.shards()[0].tail().is_some() {
        let years = (trace_ns.end - trace_ns.start) as f64 / NS_PER_YEAR;
        let rows = vec![of_flash(&cache, years, endurance)];
        lists.push(("flash", Rows { fields: FLASH_FIELDS, rows }));
    }
    if window.is_some() {
        lists.push(("windows", windows));
    }
    let total = Rows { fields: &FIELDS, rows: vec![total] };
    output::print_record(format, &total, &lists).map_err(Failure::failed)
}

/// Differences between two moments.
fn since(before: &Totals, after: &Totals, acts_max: usize) -> Vec<Cell> {
    let requests = after.requests - before.requests;
    let per_request = |count: f64| count / requests.max(1) as f64;
    let misses = after.misses - before.misses;
    let mut cells = vec![
        Cell::Count(requests),
        Cell::Count(misses),
        Cell::Number(per_request(misses as f64), 6),
        Cell::Number(per_request((after.fast_hits - before.fast_hits) as f64), 6),
        Cell::Number(per_request(after.charged_ns - before.charged_ns), 2),
    ];
    cells.extend(after.moves.iter().zip(before.moves).map(|(after, before)| Cell::Count(after - before)));
    cells.push(Cell::Count(after.moved_bytes - before.moved_bytes));
    cells.push(Cell::Count(acts_max as u64));
    cells.extend(after.flash.iter().zip(before.flash).map(|(after, before)| Cell::Count(after - before)));
    cells
}

fn each_record(trace: &TraceArgs, mut visit: impl FnMut(&Access)) -> Result<(), Failure> {
    let source = trace.open()?;
    for record in source.records() {
        visit(&record?);
    }
    source.finish();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_windows_are_those_of_the_whole() {
        assert_eq!(FIELDS[..3], ["policy", "size", "requests"]);
        assert_eq!(FIELDS[2..2 + COUNTED.len()], WINDOW_FIELDS[1..]);
        assert_eq!(FIELDS.last(), Some(&"clairvoyant_fast_share"));
        assert_eq!(since(&Totals::default(), &Totals::default(), 0).len(), COUNTED.len());
    }

    #[test]
    fn tiers_are_sizes_or_kinds_with_sizes() {
        let tier = |at, text: &str| text.parse::<TierArg>().unwrap().spec(at);
        assert_eq!(tier(0, "64MiB"), "dram=64MiB".parse().unwrap());
        assert_eq!(tier(1, "64MiB"), "emulated=64MiB".parse().unwrap());
        assert_eq!(tier(1, "10%"), "emulated=10%".parse().unwrap());
        assert_eq!(tier(0, "emulated=10%"), "emulated=10%".parse().unwrap());
        assert_eq!(tier(1, "flash:/srv/a=b=8GiB"), "flash:/srv/a=b=8GiB".parse().unwrap());
        for wrong in ["tape=1GiB", "flash=", "flash", "10k", "0"] {
            assert!(wrong.parse::<TierArg>().is_err(), "{wrong}");
        }
    }
}
