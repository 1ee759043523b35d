//! `tiermem report`: a trace's memory needs, as one page.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use tiermem_base::TierSpec;
use tiermem_base::tier::Price;
use tiermem_model::cost::{Offer, Prices};
use tiermem_model::mrc::Kind;
use tiermem_report::{Gatherer, Options as ReportOptions, Report, expected_requests, sample_rate_for};

use crate::failure::Failure;
use crate::print_text::print_text;
use crate::source::{TraceArgs, advise_on_trace, positive_k, sample_rate, steps_bar};
use crate::tiers;

const HELP: &str = "\
Examples:
  tiermem report twitter_cluster52.csv.zst -o report.html
  tiermem report big.parquet --sample 0.01 -o report.html
  tiermem report redis.log --price-dram 6 --price-cxl 3 --price-misses 2.50 -o report.html
  tiermem report redis.log --config tiers.toml -o report.html    # the prices of its first two [[tier]] tables

One HTML file that needs no network: popularity, sizes, times, the working set, miss-ratio curves by policy and by K, what
each tenth of the memory buys, and what each hit ratio costs.

Traces of more than 3 million requests are sampled (keys with about a million requests) unless --sample sets the
share; the first line of the page says so.

Prices come from the first two memory tiers in the file of --config. The defaults are DRAM at 4.875 dollars a GB, as work on hybrid
memory pools cites it, and CXL memory at half of that, an assumption: there is no public list price, so give your own. A price paid
once is spread over --months.";

/// Options of `tiermem report`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    #[command(flatten)]
    trace: TraceArgs,
    /// The file to write.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// Follow only a share R of the keys (spatial sampling); 1 follows all.
    #[arg(long, value_name = "R", value_parser = sample_rate)]
    sample: Option<f64>,
    /// Seed of the choice of keys.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Policy whose curve is drawn; repeat it for several. Gains and prices are those of the first.
    #[arg(long, value_name = "NAME", value_parser = kind)]
    policy: Vec<Kind>,
    /// K of K-LRU whose curve is drawn; repeat it for several.
    #[arg(long, value_name = "K", value_parser = positive_k)]
    k: Vec<f64>,
    /// Number of sizes on each curve.
    #[arg(long, value_name = "COUNT", default_value_t = 28, value_parser = clap::value_parser!(u16).range(2..=1000))]
    sizes: u16,
    /// File with [[tier]] tables, as `tiermem store serve` reads it: names and prices of memory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    prices: PriceArgs,
}

/// What memory costs.
#[derive(Debug, Args)]
pub struct PriceArgs {
    /// Dollars per GB of DRAM, the fast memory [default: 4.875].
    #[arg(long, value_name = "DOLLARS", value_parser = price)]
    price_dram: Option<f64>,
    /// Dollars per GB of CXL memory, the slow memory [default: 2.4375].
    #[arg(long, value_name = "DOLLARS", value_parser = price)]
    price_cxl: Option<f64>,
    /// Dollars per million misses.
    #[arg(long, value_name = "DOLLARS", value_parser = price)]
    price_misses: Option<f64>,
    /// Lifetime of memory that is bought, in months.
    #[arg(long, value_name = "N", default_value_t = Prices::default().months, value_parser = months)]
    months: f64,
    /// If DRAM and CXL memory are combined, the share of hits that DRAM serves.
    #[arg(long, value_name = "R", default_value_t = Prices::default().fast_hit_share, value_parser = sample_rate)]
    fast_hits: f64,
}

impl PriceArgs {
    /// What was said, before what the file says.
    fn prices(&self, config: Option<&Path>) -> Result<Prices, Failure> {
        let usual = Prices::default();
        let [fast, slow] = match config {
            Some(path) => offers(path)?,
            None => [usual.fast, usual.slow],
        };
        let given = |offer: Offer, dollars: Option<f64>| Offer {
            price: dollars.map_or(offer.price, Price::dollars_per_gb),
            name: offer.name,
        };
        Ok(Prices {
            fast: given(fast, self.price_dram),
            slow: given(slow, self.price_cxl),
            months: self.months,
            fast_hit_share: self.fast_hits,
            per_million_misses: self.price_misses,
        })
    }
}

/// The fast and the slow memory that a file describes.
fn offers(path: &Path) -> Result<[Offer; 2], Failure> {
    let tiers = tiers::read(path)?;
    let memory: Vec<&TierSpec> = tiers.iter().filter(|tier| tier.kind.is_memory()).collect();
    let [fast, slow, ..] = memory[..] else {
        return Err(Failure::usage(anyhow!(
            "the configuration {}: a report compares two tiers of memory, and it describes {}: describe a fast and a slow one",
            path.display(),
            memory.len()
        )));
    };
    let offer = |tier: &TierSpec| {
        let price = tier.price_by_gb().map_err(|error| tiers::unfit(Some(path), error))?;
        if price.currency != DOLLARS {
            let problem =
                format!("a report counts dollars: give the price in {DOLLARS}, not {}", price.currency);
            return Err(tiers::unfit(Some(path), tier.error("currency", problem)));
        }
        Ok(Offer { name: tier.name.clone(), price })
    };
    Ok([offer(fast)?, offer(slow)?])
}

/// The currency in which pages are written.
const DOLLARS: &str = "USD";

fn kind(text: &str) -> Result<Kind, String> {
    text.parse()
}

fn price(text: &str) -> Result<f64, String> {
    let price = text.parse::<f64>().ok().filter(|price| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "a price is a number from 0 on, such as 4.875".to_owned())
}

fn months(text: &str) -> Result<f64, String> {
    let months = text.parse::<f64>().ok().filter(|months| months.is_finite() && *months > 0.0);
    months.ok_or_else(|| "a number of months is above 0, such as 36".to_owned())
}

/// Reads, computes and writes.
pub fn run(options: &Options) -> Result<(), Failure> {
    let path = &options.output;
    // What cannot be written shall not be computed for minutes first; an older page stays until the new one is there.
    let is_new = !path.exists();
    File::options().append(true).create(true).open(path).map_err(|error| cannot_write(path, error))?;
    let write = |report: Report| fs::write(path, report.to_html()).map_err(|error| cannot_write(path, error));
    let written = report(options).and_then(write);
    if written.is_err() && is_new {
        // That the empty file stays would be the smaller trouble.
        let _ = fs::remove_file(path);
    }
    written?;
    let printed = print_text(&format!("{}\n", path.display()));
    printed.map_err(|error| Failure::writing("the page's name", error))
}

fn cannot_write(path: &Path, error: std::io::Error) -> Failure {
    Failure::failed(anyhow!("cannot write the report {}: {error}", path.display()))
}

fn report(options: &Options) -> Result<Report, Failure> {
    let sample_rate = match options.sample {
        Some(rate) => rate,
        None => {
            let expected = expected_requests(options.trace.open_trace()?, options.trace.reading.requests);
            sample_rate_for(expected.map_err(|error| advise_on_trace(&error))?)
        }
    };
    let defaults = ReportOptions::default();
    let prices = options.prices.prices(options.config.as_deref())?;
    let chosen = |given: &[Kind], otherwise| if given.is_empty() { otherwise } else { given.to_vec() };
    let mut ks = if options.k.is_empty() { defaults.ks } else { options.k.clone() };
    ks.sort_by(f64::total_cmp);
    ks.dedup();
    let mut gatherer = Gatherer::new(ReportOptions {
        name: name(&options.trace.trace),
        sample_rate,
        seed: options.seed,
        sizes: usize::from(options.sizes),
        policies: chosen(&options.policy, defaults.policies),
        ks,
        prices,
    });
    let source = options.trace.open()?;
    for record in source.records() {
        gatherer.observe(&record?).map_err(Failure::failed)?;
    }
    source.finish();
    let bar = steps_bar(gatherer.curves() as u64, "curves");
    let report = gatherer.finish(&|done| bar.set_position(done as u64)).map_err(Failure::failed);
    bar.finish_and_clear();
    report
}

/// A generator's description unchanged, and a file by its last name: the report must not show the directory.
fn name(trace: &str) -> String {
    let is_file = !tiermem_trace::Spec::looks_like_one(trace);
    let last = Path::new(trace).file_name().filter(|_| is_file);
    last.map_or_else(|| trace.to_owned(), |name| name.to_string_lossy().into_owned())
}
