//! `tiermem store replay-tenants`: drives a server with several applications at once.

use std::str::FromStr;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use tiermem_base::Nanos;
use tiermem_store::import::{Address, LoadError};
use tiermem_store::load_generator::{self, ApplicationSpec, End, Figures, LoadGeneratorError, MissWait};
use tiermem_trace::TraceError;

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};
use crate::source::{GENERATORS_HELP, Reading, TraceArgs, advise_on_trace, trace_argument};

const FIELDS: &[&str] = &[
    "accesses",
    "hits",
    "hit_ratio",
    "hits_per_second",
    "mean_us",
    "tenants_mean_us",
    "p50_us",
    "p90_us",
    "p95_us",
    "p99_us",
    "p999_us",
    "errors",
    "seconds",
];
const TENANT_FIELDS: &[&str] = &[
    "name",
    "miss_us",
    "accesses",
    "hits",
    "hit_ratio",
    "hits_per_second",
    "mean_us",
    "p50_us",
    "p90_us",
    "p95_us",
    "p99_us",
    "p999_us",
    "errors",
    "seconds",
];
const WINDOW_FIELDS: &[&str] = &["name", "from_s", "accesses", "hit_ratio", "mean_us"];

const HELP: &str = "\
Examples:
  tiermem store replay-tenants --to 127.0.0.1:7379 --seconds 60 --tenant web=web.parquet,miss=2ms --tenant src2=src2.parquet,miss=200us
  tiermem store replay-tenants --to 127.0.0.1:6379 --requests 1M --charge \\
      --tenant a=zipf:objects=100k,miss=1ms --tenant b=loop:objects=50k,miss=8ms

Every record of a tenant's trace is a GET. After a miss the tenant waits as long as its database takes, then sends SET. At the
end of its trace it starts over. A tenant that has finished continues, unmeasured, until all have.

Fields, for all tenants and then for each:
  accesses          GETs, each including what follows a miss
  hits, hit_ratio   those that found their key
  hits_per_second   for all tenants: the sum
  mean_us           mean time of an access: GET and, after a miss, the wait and SET
  tenants_mean_us   mean of the tenants' means: each tenant counts equally, however many accesses it had
  p50_us ... p999_us   percentiles of the time of an access
  errors            commands that the server refused, measured or not; if any, the exit code is 1
  miss_us           time that a tenant's database takes
  seconds           measured time; for all tenants: the longest
With --window, also for each tenant and window, warm-up included: name, from_s, accesses, hit_ratio, mean_us";

/// Options of `tiermem store replay-tenants`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// A tenant: its name, its trace, and how long its database takes after a miss [default: 0us]. Repeat it for several.
    #[arg(long = "tenant", value_name = "NAME=TRACE[,miss=TIME]", required = true, long_help = tenant_help())]
    tenants: Vec<Tenant>,
    /// The server: HOST:PORT or unix:PATH. Any server that speaks RESP.
    #[arg(long, value_name = "ADDR")]
    to: Address,
    /// How the server identifies tenants.
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// Seconds to run for each tenant, instead of --requests N.
    #[arg(long, value_name = "S", value_parser = seconds, required_unless_present = "requests", conflicts_with = "requests")]
    seconds: Option<Duration>,
    /// Share of each tenant's requests or seconds that is not measured, at the start.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = warm_up)]
    warm_up: f64,
    /// Also print means over windows of this many seconds.
    #[arg(long, value_name = "S", value_parser = seconds)]
    window: Option<Duration>,
    /// Do not wait: add the database's time to the access's latency, on a simulated clock per tenant. Requests come in the same
    /// order in every run. Not for servers that measure the cost of a miss.
    #[arg(long)]
    charge: bool,
    /// Time of a command and its reply on these simulated clocks.
    #[arg(long, value_name = "TIME", default_value = "30us", requires = "charge")]
    round_trip: Nanos,
    /// The server's password.
    #[arg(long, value_name = "PASS")]
    auth: Option<String>,
    #[command(flatten)]
    reading: Reading,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// How the server identifies tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum By {
    /// Keys are NAME:KEY.
    #[default]
    Prefix,
    /// NAME is the number of a database.
    Database,
}

fn tenant_help() -> String {
    format!(
        "A tenant: what it is called, its trace, and what its database takes after a miss [default: 0us]. May be repeated.\n\n\
         The trace is a file or a generator. {GENERATORS_HELP}"
    )
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (1e-3..=1e9).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "a number of seconds is 0.001 or more, such as 60".to_owned())
}

fn warm_up(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "a share to warm up is from 0 to below 1, such as 0.5".to_owned())
}

/// One `--tenant`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tenant {
    name: String,
    trace: String,
    miss: Duration,
}

impl FromStr for Tenant {
    type Err = String;

    /// Reads `web=zipf:objects=1M,miss=2ms`: what a trace is called may hold commas and equal signs itself.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=TRACE"))?;
        let (trace, miss) = match rest.rsplit_once(",miss=") {
            Some((trace, miss)) => (trace, miss.parse::<Nanos>().map_err(|error| error.to_string())?),
            None => (rest, Nanos(0)),
        };
        if name.is_empty() || name.contains(':') {
            return Err(format!(
                "{name:?} is not a valid name: use one without a colon, which ends a key's prefix"
            ));
        }
        let trace = trace_argument(trace)?;
        Ok(Tenant { name: name.to_owned(), trace, miss: Duration::from_nanos(miss.0) })
    }
}

/// Drives the server and prints what each tenant saw.
pub fn run(options: Options) -> Result<(), Failure> {
    let mut names: Vec<&str> = options.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Failure::usage(anyhow!(
            "there are two tenants {:?}; give each a name of its own",
            pair[0]
        )));
    }
    let end = match (options.seconds, options.reading.requests) {
        (Some(time), _) => End::Time(time),
        (None, requests) => End::Accesses(requests.unwrap_or(0).max(1)),
    };
    let driver = load_generator::Options {
        to: options.to,
        auth: options.auth,
        by: match options.by {
            By::Prefix => load_generator::By::Prefix,
            By::Database => load_generator::By::Database,
        },
        miss_wait: match options.charge {
            true => MissWait::Charge { round_trip: Duration::from_nanos(options.round_trip.0) },
            false => MissWait::Wait,
        },
        end,
        warm_up: options.warm_up,
        window: options.window,
        value_scale: options.reading.value_scale,
    };
    let reading = Reading { requests: None, ..options.reading };
    let load_generator = options.tenants.iter().map(|tenant| application(tenant, &reading)).collect();

    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let mut progress = |accesses| {
        bar.set_message(format!("{accesses} accesses in {:.0} s", bar.elapsed().as_secs_f64()));
    };
    let result = load_generator::run(&driver, load_generator, &mut progress);
    bar.finish_and_clear();
    let figures = result.map_err(advise)?;
    print(options.format, &options.tenants, &figures, options.window)
        .map_err(|error| Failure::writing("the result", error))?;
    let errors: u64 = figures.iter().map(|figures| figures.errors).sum();
    match figures.iter().find_map(|figures| figures.first_error.as_ref()) {
        Some(first) => Err(Failure::failed(anyhow!(
            "the server answered {errors} commands with an error, the first: {first}"
        ))),
        None => Ok(()),
    }
}

fn application(tenant: &Tenant, reading: &Reading) -> ApplicationSpec {
    let args = TraceArgs { trace: tenant.trace.clone(), reading: reading.clone() };
    let open = move || -> Result<load_generator::Accesses, load_generator::TraceFault> {
        let trace = args.try_open()?;
        Ok(Box::new(trace.map(|access| access.map_err(load_generator::TraceFault::from))))
    };
    ApplicationSpec { name: tenant.name.clone(), miss: tenant.miss, trace: Box::new(open) }
}

fn print(
    format: Format,
    tenants: &[Tenant],
    figures: &[Figures],
    window: Option<Duration>,
) -> std::io::Result<()> {
    let mut all = Figures::new();
    figures.iter().for_each(|one| all.add(one));
    let each = |of: fn(&Figures) -> f64| figures.iter().map(of).sum::<f64>();
    let record = [
        counts(&all, each(Figures::hits_per_second)),
        vec![Cell::Number(each(Figures::mean_us) / figures.len() as f64, 2)],
        quantiles_and_rest(&all),
    ];
    let tenant_row = |(tenant, one): (&Tenant, &Figures)| {
        let head = [Cell::Text(tenant.name.clone()), Cell::Number(tenant.miss.as_secs_f64() * 1e6, 0)];
        [head.to_vec(), counts(one, one.hits_per_second()), quantiles_and_rest(one)].concat()
    };
    let rows = tenants.iter().zip(figures).map(tenant_row).collect();
    let mut lists = vec![("tenants", Rows { fields: TENANT_FIELDS, rows })];
    if let Some(length) = window {
        let rows = tenants.iter().zip(figures).flat_map(|(tenant, one)| windows(&tenant.name, one, length));
        lists.push(("windows", Rows { fields: WINDOW_FIELDS, rows: rows.collect() }));
    }
    output::print_record(format, &Rows { fields: FIELDS, rows: vec![record.concat()] }, &lists)
}

fn counts(figures: &Figures, hits_per_second: f64) -> Vec<Cell> {
    vec![
        Cell::Count(figures.accesses),
        Cell::Count(figures.hits),
        Cell::Number(figures.hit_ratio(), 6),
        Cell::Number(hits_per_second, 1),
        Cell::Number(figures.mean_us(), 2),
    ]
}

fn quantiles_and_rest(figures: &Figures) -> Vec<Cell> {
    let mut cells: Vec<_> =
        [0.5, 0.9, 0.95, 0.99, 0.999].into_iter().map(|at| Cell::Number(figures.latency_us(at), 1)).collect();
    cells.push(Cell::Count(figures.errors));
    cells.push(Cell::Number(figures.elapsed.as_secs_f64(), 3));
    cells
}

fn windows(name: &str, figures: &Figures, length: Duration) -> Vec<Vec<Cell>> {
    let row = |(window, number): (&load_generator::WindowStats, u32)| {
        vec![
            Cell::Text(name.to_owned()),
            Cell::Number((length * number).as_secs_f64(), 3),
            Cell::Count(window.accesses),
            Cell::Number(window.hit_ratio(), 6),
            Cell::Number(window.mean_us(), 2),
        ]
    };
    figures.windows.iter().zip(0..).map(row).collect()
}

/// Failure for an error during the run, and how to fix it.
fn advise(error: LoadGeneratorError) -> Failure {
    let advice = match &error {
        LoadGeneratorError::Server(LoadError::Connect { .. }) => "; is the server running there?",
        LoadGeneratorError::Server(LoadError::Login { .. }) => {
            "; give the password with --auth, and as names databases that the server has"
        }
        LoadGeneratorError::Server(LoadError::Garbage { .. } | LoadError::Unexpected { .. }) => {
            "; is this a RESP server's port?"
        }
        LoadGeneratorError::Value(_) => "; choose a smaller --value-scale",
        LoadGeneratorError::Database { .. } => {
            return Failure::usage(anyhow!("{error}; with --by database names are 0, 1, 2 ..."));
        }
        LoadGeneratorError::Trace { source, .. } => {
            return match source.downcast_ref::<TraceError>() {
                Some(error) => advise_on_trace(error),
                None => Failure::failed(anyhow!("{error}: {source}")),
            };
        }
        _ => "",
    };
    Failure::failed(anyhow!("{error}{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_read() {
        let read = |text: &str| text.parse::<Tenant>();
        let web = read("web=zipf:alpha=0.9,objects=1k,miss=200us").unwrap();
        assert_eq!((web.name.as_str(), web.trace.as_str()), ("web", "zipf:alpha=0.9,objects=1k"));
        assert_eq!(web.miss, Duration::from_micros(200));
        assert_eq!(
            read("0=a=b.csv").unwrap(),
            Tenant { name: "0".into(), trace: "a=b.csv".into(), miss: Duration::ZERO }
        );
        for wrong in
            ["web", "=a.csv", "a:b=a.csv", "web=zipf:beta=1", "web=a.csv,miss=2", "web=zipf:miss=2ms"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
