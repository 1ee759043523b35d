//! `tiermem store load`: fills a server.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use tiermem_store::import::migrate::{self, RedisUrl};
use tiermem_store::import::{self, Address, LoadError, Login, Report, Row, RowFault, Target};
use tiermem_trace::TraceError;
use tiermem_trace::pairs::{Pair, PairFormat, Pairs};

use crate::failure::Failure;
use crate::output::{self, Cell, Format, Rows};

const FIELDS: &[&str] = &[
    "items",
    "strings",
    "hashes",
    "fields",
    "kept",
    "vanished",
    "skipped",
    "errors",
    "bytes",
    "reconnects",
    "restarts",
    "verified",
    "differing",
    "seconds",
    "items_per_second",
];
const ERROR_FIELDS: &[&str] = &["place", "error"];
const SKIPPED_FIELDS: &[&str] = &["type", "keys"];

const HELP: &str = "\
Examples:
  redis-commands | tiermem store load - --to 127.0.0.1:7379
  tiermem store load values.parquet --to 127.0.0.1:7379
  tiermem store load --from redis://:secret@10.0.0.5:6379/0 --to 127.0.0.1:7379 --resume move.state --verify 1000

Input:
  requests  what `redis-cli --pipe` takes: RESP arrays, or one command per line; sent in order on one connection
  csv       a header line, then columns key, value and optionally ttl_s (seconds to live) and field
            (of the hash `key`; ttl_s is then the field's); in any order, quoted as in RFC 4180, plain or compressed
  parquet   the same columns; key, value and field may be strings, bytes or integers

Fields:
  items             requests, rows or keys processed
  strings, hashes, fields   how many were stored (requests count only as items)
  kept              keys that the server had already (--if-absent)
  vanished          keys that disappeared while they were copied
  skipped           keys of other types than string and hash; the list `skipped_types` names the types
  errors            refused or unreadable items; the list `error_list` has the first ten
  bytes             sent, protocol included
  reconnects        connections that were reopened
  restarts          scans that started over because the source had restarted
  verified, differing   keys compared by --verify, and those that differ
  seconds, items_per_second   wall time
Exit code: 0 everything is stored, 1 there were errors or differences, 2 wrong usage.";

/// Options of `tiermem store load`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// File of requests or rows, or - for requests on standard input.
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    file: Option<PathBuf>,
    /// Copy a running Redis (or another store): redis://[user:password@]host[:port][/db].
    #[arg(long, value_name = "URL")]
    from: Option<RedisUrl>,
    /// The server to fill: HOST:PORT or unix:PATH.
    #[arg(long, value_name = "ADDR")]
    to: Address,
    /// The password of the server to fill.
    #[arg(long, value_name = "PASS")]
    auth: Option<String>,
    /// Database to fill [default: the database of --from, else 0].
    #[arg(long, value_name = "N")]
    db: Option<u32>,
    /// Format of the file [default: by its name (.csv, .parquet, with .gz, .zst, .xz or .bz2), else requests].
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "from")]
    input: Option<Input>,
    /// Commands in flight.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pipeline: u32,
    /// Keep keys that the server already has. Not for requests.
    #[arg(long)]
    if_absent: bool,
    /// Copy only keys that match this pattern, as SCAN's MATCH.
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<String>,
    /// Copy at most this many keys per second.
    #[arg(long, value_name = "KEYS", value_parser = crate::trace::positive_count)]
    rate: Option<u64>,
    /// Record progress in this file, and resume from it if it exists. Removed at the end.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Compare this many copied keys, chosen at random, afterwards.
    #[arg(long, value_name = "N", default_value_t = 0)]
    verify: usize,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Contents of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Input {
    Requests,
    Csv,
    Parquet,
}

/// Time to try to reach a server that was reachable before.
const PATIENCE: Duration = Duration::from_secs(120);

/// Fills the server and prints the results.
pub fn run(options: Options) -> Result<(), Failure> {
    let copies =
        options.pattern.is_some() || options.rate.is_some() || options.resume.is_some() || options.verify > 0;
    if options.from.is_none() && copies {
        return Err(Failure::usage(anyhow!("--match, --rate, --resume and --verify go with --from")));
    }
    let login = Login {
        user: None,
        password: options.auth.clone(),
        db: options.db.or(options.from.as_ref().map(|from| from.login.db)).unwrap_or(0),
    };
    let target = Target { to: options.to.clone(), login, pipeline: options.pipeline as usize };
    let report = match (&options.from, &options.file) {
        (Some(from), _) => migrate(&options, from.clone(), target)?,
        (None, Some(file)) => match options.input.unwrap_or_else(|| guess(file)) {
            Input::Requests if options.if_absent => {
                return Err(Failure::usage(anyhow!(
                    "--if-absent is not for requests: they say themselves what they do"
                )));
            }
            Input::Requests => requests(file, &target)?,
            Input::Csv => rows(file, PairFormat::Csv, &target, options.if_absent)?,
            Input::Parquet => rows(file, PairFormat::Parquet, &target, options.if_absent)?,
        },
        (None, None) => return Err(Failure::usage(anyhow!("give a file, - for standard input, or --from"))),
    };
    print(options.format, &report).map_err(|error| Failure::writing("the result", error))?;
    if report.is_clean() {
        return Ok(());
    }
    let differing = report.verified.as_ref().map_or(0, |verified| verified.differing);
    let text = format!("{} errors, {differing} keys differ", report.errors);
    let first = report.complaints.first();
    let first = first.map_or(String::new(), |first| format!("; the first: {}: {}", first.place, first.text));
    Err(Failure::failed(anyhow!("{text}{first}")))
}

fn guess(file: &Path) -> Input {
    let name = file.to_string_lossy().to_ascii_lowercase();
    let packed = [".gz", ".zst", ".xz", ".bz2"];
    let name = packed.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
    match () {
        () if name.ends_with(".csv") => Input::Csv,
        () if name.ends_with(".parquet") => Input::Parquet,
        () => Input::Requests,
    }
}

/// A bar over `total`, or a count where the total is unknown. On a terminal only.
fn bar(total: Option<u64>, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total.unwrap_or(0)).with_message(what);
    let template = match total {
        Some(_) => "{bar:40} {percent:>3}%  {pos} {msg}, {per_sec}  {eta} left",
        None => "{pos} {msg}, {per_sec}  {elapsed}",
    };
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn requests(file: &Path, target: &Target) -> Result<Report, Failure> {
    let (input, total): (Box<dyn Read>, _) = if file == Path::new("-") {
        (Box::new(io::stdin()), None)
    } else {
        let opened = File::open(file);
        let opened =
            opened.map_err(|error| Failure::failed(anyhow!("cannot open {}: {error}", file.display())))?;
        let bytes = opened.metadata().ok().filter(|meta| meta.is_file()).map(|meta| meta.len());
        (Box::new(opened), bytes)
    };
    let bar = bar(total, "bytes");
    let report = import::load_stream(target, input, &mut |bytes| bar.set_position(bytes)).map_err(advise);
    bar.finish_and_clear();
    report
}

fn rows(file: &Path, format: PairFormat, target: &Target, if_absent: bool) -> Result<Report, Failure> {
    if file == Path::new("-") {
        return Err(Failure::usage(anyhow!("rows are read from a file; standard input holds requests")));
    }
    let pairs = Pairs::open(file, Some(format)).map_err(Failure::failed)?;
    let bar = bar(pairs.rows_in_file(), "rows");
    let row = |pair: Pair| Row {
        number: pair.number,
        key: pair.key,
        field: pair.field,
        value: pair.value,
        ttl_s: pair.ttl_s,
    };
    let rows =
        pairs.map(|pair| match pair {
            Ok(pair) => Ok(row(pair)),
            Err(TraceError::Record { place, reason, .. }) => {
                let (tiermem_trace::RecordPosition::Line(number)
                | tiermem_trace::RecordPosition::Record(number)) = place;
                Err(RowFault::Bad { number, text: reason.to_string() })
            }
            Err(error) => Err(RowFault::End(io::Error::other(error))),
        });
    let report = import::load_rows(target, rows, if_absent, &mut |rows| bar.set_position(rows));
    bar.finish_and_clear();
    report.map_err(advise)
}

fn migrate(options: &Options, from: RedisUrl, target: Target) -> Result<Report, Failure> {
    if from.address == target.to && from.login.db == target.login.db {
        return Err(Failure::usage(anyhow!("--from and --to are the same database")));
    }
    let migration = migrate::Options {
        from,
        target,
        pattern: options.pattern.clone(),
        keys_per_second: options.rate,
        if_absent: options.if_absent,
        state: options.resume.clone(),
        verify: options.verify,
        patience: PATIENCE,
    };
    let bar = bar(Some(0), "keys");
    let report = migrate::migrate(&migration, &mut |progress| {
        if let Some(trouble) = progress.trouble {
            bar.println(trouble);
            return;
        }
        // The source may have got more keys meanwhile.
        bar.set_length(progress.keys_in_source.max(progress.keys));
        bar.set_position(progress.keys);
    });
    bar.finish_and_clear();
    report.map_err(advise)
}

/// Failure for an error, and how to fix it.
fn advise(error: LoadError) -> Failure {
    let advice = match &error {
        LoadError::Connect { .. } => "; is the server running there?",
        LoadError::Login { .. } => "; give the password with --auth, or in the URL of --from",
        LoadError::Garbage { .. } | LoadError::Unexpected { .. } => "; is this a RESP server's port?",
        LoadError::OtherState { .. } => {
            return Failure::usage(anyhow!("{error}; give another file to --resume, or remove this one"));
        }
        LoadError::Io { .. } | LoadError::Closed { .. } => "; with --resume a copy goes on from where it was",
        LoadError::State { .. } | LoadError::Input(_) => "",
    };
    Failure::failed(anyhow!("{error}{advice}"))
}

fn print(format: Format, report: &Report) -> io::Result<()> {
    let verified = report.verified.clone().unwrap_or_default();
    let record = Rows {
        fields: FIELDS,
        rows: vec![vec![
            Cell::Count(report.items),
            Cell::Count(report.strings),
            Cell::Count(report.hashes),
            Cell::Count(report.fields),
            Cell::Count(report.kept),
            Cell::Count(report.vanished),
            Cell::Count(report.skipped.values().sum()),
            Cell::Count(report.errors),
            Cell::Count(report.bytes),
            Cell::Count(report.reconnects),
            Cell::Count(report.restarts),
            Cell::Count(verified.keys),
            Cell::Count(verified.differing),
            Cell::Number(report.elapsed.as_secs_f64(), 3),
            Cell::Number(report.items_per_second(), 0),
        ]],
    };
    let complaints = report.complaints.iter();
    let complaints = complaints.map(|it| vec![Cell::Text(it.place.clone()), Cell::Text(it.text.clone())]);
    let skipped = report.skipped.iter();
    let skipped = skipped.map(|(kind, count)| vec![Cell::Text(kind.clone()), Cell::Count(*count)]);
    let lists = [
        ("error_list", Rows { fields: ERROR_FIELDS, rows: complaints.collect() }),
        ("skipped_types", Rows { fields: SKIPPED_FIELDS, rows: skipped.collect() }),
    ];
    // JSON has a list of nothing; for people it is left out.
    let shown: Vec<_> =
        lists.into_iter().filter(|(_, rows)| format == Format::Json || !rows.rows.is_empty()).collect();
    output::print_record(format, &record, &shown)
}
