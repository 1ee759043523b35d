//! Options of `tiermem heatmap`.

use std::path::PathBuf;

use clap::{Args, FromArgMatches, ValueEnum};
use tiermem_base::{Bytes, Nanos};
use tiermem_trace::recording::{LevelChoice, Mode, parse_level};
use tiermem_trace::{Addresses, Format as TraceFormat};

use super::choice::{self, ColumnChoice};
use crate::numbers::Numbers;
use crate::output::Format;
use crate::source::trace_argument;
use crate::trace::positive_count;

const HELP: &str = "\
Examples:
  tiermem heatmap llama.parquet
  tiermem heatmap llama.parquet -o llama.html
  tiermem heatmap llama.parquet --text                    # a map in the terminal: regions over time
  tiermem heatmap llama.parquet --text --region hottest   # offsets of one region over time
  tiermem heatmap app.rec --text --watch                  # the same while it is recorded, slice by slice
  tiermem heatmap llama.parquet --show idle               # how long memory has been idle
  tiermem heatmap llama.parquet --view wss                # the working set: bytes touched in a slice
  tiermem heatmap llama.parquet --granule 4MiB --columns period -o weights.png
  tiermem heatmap llama.parquet --region llama.gguf:2GiB+512MiB --access remote --slices 10-19 -o slices.svg
  tiermem heatmap llama.parquet --view autocorrelation -o period.svg
  tiermem heatmap after.rec --against before.rec          # what has changed, region by region
  tiermem heatmap llama.parquet --tensors                 # tensors of the model, hottest first
  tiermem heatmap app.rec --sites                         # which code first touched the memory, hottest first
  tiermem heatmap make.rec --processes                    # of a program that started others
  tiermem heatmap make.rec --process 'cc1 #2' -o cc1.html
  tiermem heatmap llama.parquet --op store --region heap -o heap.csv

REC is a recording, or a memory trace with loads and stores; a trace's regions are address ranges without gaps of more than 64 MiB.
A picture shows one region, the hottest unless --region or --all-regions is given. Without -o, a table of all regions is
printed; with --view wss that of the working set, with --show idle that of idle ages. Tables print bytes with units, CSV and JSON as numbers.

Granules can be coarser than the recording's; a finer granule gets its part of each sample that is coarser. The default is the finest granule that
gives a region at most 32,768 granules.

Fields of the table, regions with most accesses first:
  region, name, kind, bytes      number, name, kind (file, anonymous, heap, stack, special) and size
  accesses, share                in the unit of the source (samples, page touches, ...), and their share of all regions'
  granule_bytes                  granule size of the following fields
  touched_granules               granules that were accessed; empty if the region was looked at as a whole: its heat is unknown
  touched_bytes                  how many bytes of them were in memory
  period_granules, period_bytes  the distance at which accesses repeat in space; empty if they do not
  idle_s                         seconds from the end of the last slice with an access to the end of the last slice; empty if there was none,
                                 if the region is not mapped any more, or if the source cannot tell (faults)
  start, end                     with --absolute: first address in the recorded run, and the one behind the last

Fields of the table of the working set (--view wss):
  of, name                       `all` regions together, each `process` if there are several, each `region`; its name
  bytes                          size
  min_bytes, p25_bytes, p50_bytes, p75_bytes, max_bytes
                                 bytes touched in a slice: the least, the quartiles (p50 is the median) and the most of the slices
  touched_bytes                  bytes touched in all slices together
  rss_p50_bytes, rss_max_bytes   bytes of the processes in memory at the end of a slice (RSS): median and most; empty for regions, and
                                 where the recording does not have them
  unknown_heat_share             share of the accesses to mappings that were looked at as wholes, whose bytes are an upper bound; 0 if
                                 below a tenth

Fields of the table of idle ages (--show idle):
  of, name, bytes                `all` regions together, and each `region`; its name and size
  touched_bytes, idle_s          as above
  idle_1s_bytes, idle_10s_bytes, idle_60s_bytes
                                 touched bytes of granules that were not accessed for so long when the last slice ended; empty if unknown
  never_accessed_bytes           bytes of granules without an access, in memory or not; empty if unknown

Fields of the table of two recordings (--against), regions with the highest rates first; empty where a region is in one of them only:
  of, name, kind                 `all` regions together, and each `region`; its name and kind
  bytes, against_bytes           size in REC, and in the recording that it is compared with
  touched_bytes, against_touched_bytes, touched_ratio
                                 bytes touched, and how many times as many; empty if the heat is unknown
  share, against_share           share of all accesses of the recording
  accesses_per_s, against_accesses_per_s
                                 accesses per second of recorded time, in the unit of the source
  difference_per_s, ratio        by how much REC has more of them, and how many times as many

Fields of the table of sites (--sites), hottest first; the last line is memory whose site is unknown:
  share, accesses                share of the accesses to memory that the site first touched; accesses, in the unit of the source
  loads, stores                  those that are known to be loads or stores; empty if the source cannot tell
  touched_share, touched_bytes   bytes of that memory that were touched, and their share
  site                           the function: the innermost that is not the run-time library's; FILE+ADDRESS if it has no name
  source                         source file and line; empty without debug information
  callers                        functions that called it, the nearest first; of the stack that touched most
  module                         the program or library

Fields of the table of processes (--processes), in the order of births:
  process, name, pid, parent     number, name, number in the system, and the name of the process that made it
  begun_s, lived_s               seconds from the recording's start to its birth, and from there to its end
  observed                       whether its memory was looked at: what ends within 100 ms is not
  regions, accesses, share, command

Fields of CSV and Parquet files, a row for each granule and slice with accesses:
  region, name                   number and name
  granule, offset                the granule's number and offset in the region, in bytes
  slice                          the slice's number
  accesses, loads, stores        counts of the selected accesses; loads and stores are 0 if the source cannot tell
  local, remote, cached          by what answered them; 0 if the source has no levels
  granule_bytes                  granule size
  address                        with --absolute: the granule's address in the recorded run";

/// Options of `tiermem heatmap`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// A recording, or a memory trace.
    #[arg(value_name = "REC", value_parser = trace_argument)]
    pub(super) recording: String,
    /// The file to write: .png, .svg, .html, .csv or .parquet.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Granule size, such as 4MiB.
    #[arg(long, value_name = "SIZE", value_parser = granule)]
    pub(super) granule: Option<Bytes>,
    /// Regions to draw: a name or number, `heap`, `stack` or `anon` (all of that kind), the end of a file's path, `largest`,
    /// `hottest`; or a part of one: NAME:OFFSET+BYTES.
    #[arg(long, value_name = "REGION", conflicts_with = "all_regions")]
    pub(super) region: Option<String>,
    /// The process, where the recording has several [default: all].
    #[arg(long, value_name = "NAME")]
    pub(super) process: Option<String>,
    /// Tell the tensors of mapped GGUF and safetensors files, each as a region: `model.gguf: blk.0.attn_q.weight`.
    #[arg(long)]
    pub(super) tensors: bool,
    /// Print the table of processes.
    #[arg(long, conflicts_with_all = ["output", "process"])]
    pub(super) processes: bool,
    /// Print the table of sites: which code first touched the memory. Needs a recording with `record --sites`.
    #[arg(long, conflicts_with_all = ["output", "processes", "text", "against", "view", "show"])]
    pub(super) sites: bool,
    /// Print a map as text: time from left to right; without --region, a row for each region.
    #[arg(long, conflicts_with_all = ["output", "processes", "view", "show", "columns", "together", "theme", "format"])]
    pub(super) text: bool,
    /// Draw the map anew at each slice of a recording that is under way, until it ends; Ctrl-C ends the view earlier.
    #[arg(long, requires = "text", conflicts_with_all = ["slices", "against"])]
    pub(super) watch: bool,
    /// Tell the addresses of the recorded run beside offsets. Another run has them elsewhere.
    #[arg(long)]
    pub(super) absolute: bool,
    /// Compare with another recording: regions of the same name side by side; -o writes a page of them, or a picture of one.
    #[arg(long, value_name = "REC", conflicts_with_all = ["processes", "text", "view", "show", "all_regions", "absolute", "together"])]
    pub(super) against: Option<String>,
    /// All accessed regions, side by side (map) or together (wss).
    #[arg(long)]
    pub(super) all_regions: bool,
    /// What to draw.
    #[arg(long, value_enum, default_value_t)]
    pub(super) view: View,
    /// What a granule's colour shows.
    #[arg(long, value_enum, default_value_t)]
    pub(super) show: ShowArg,
    /// Only loads or only stores.
    #[arg(long, value_enum, default_value_t)]
    pub(super) op: OpArg,
    /// Only accesses answered there: all, memory, local, remote, cached.
    #[arg(long, value_name = "TYPE", default_value = "all", value_parser = parse_level)]
    pub(super) access: LevelChoice,
    /// Only accesses of the program (user) or of the kernel.
    #[arg(long, value_name = "WHO", value_parser = choice::mode)]
    pub(super) mode: Option<Mode>,
    /// Source of the accesses, if a recording has several [default: the first].
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    /// Slices to draw side by side, such as 0-9, 3.. or 0,5,10.
    #[arg(long, value_name = "LIST")]
    pub(super) slices: Option<Numbers>,
    /// Sum the slices of --slices into one picture.
    #[arg(long, requires = "slices")]
    pub(super) together: bool,
    /// Only granules A to B of the region.
    #[arg(long, value_name = "A-B")]
    pub(super) granules: Option<Numbers>,
    /// Granules per row of a map: a number, period (the detected one) or square.
    #[arg(long, value_name = "N", default_value = "square")]
    pub(super) columns: ColumnChoice,
    /// Colour scale.
    #[arg(long, value_enum, default_value_t)]
    pub(super) scale: ScaleArg,
    /// Colours of PNG and SVG; a page has both themes.
    #[arg(long, value_enum, default_value_t)]
    pub(super) theme: ThemeArg,
    /// Output format of the table of regions.
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
    /// Length of a slice, for a plain trace.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = slice, help_heading = "Plain traces")]
    pub(super) slice: Nanos,
    /// Stop after this many requests.
    #[arg(long, value_name = "N", value_parser = positive_count, help_heading = "Plain traces")]
    pub(super) requests: Option<u64>,
    /// Skip up to N broken records.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Plain traces")]
    pub(super) skip_bad: u64,
    /// Format of the trace file, if it is not detected.
    #[arg(long, value_name = "FORMAT", help_heading = "Plain traces")]
    pub(super) trace_format: Option<TraceFormat>,
    /// Address to use of a memory trace: virtual or physical.
    #[arg(long, value_name = "WHICH", default_value = "virtual", help_heading = "Plain traces")]
    pub(super) addresses: Addresses,
}

/// What to draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum View {
    /// Heatmap: granules in rows, coloured by count.
    #[default]
    Map,
    /// A dot for each granule.
    Scatter,
    /// Autocorrelation of accesses by distance in granules.
    Autocorrelation,
    /// Position of the hotspot over slices.
    Path,
    /// The working set of each slice, and since the start.
    Wss,
}

/// What a granule's colour shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ShowArg {
    /// Number of accesses.
    #[default]
    Accesses,
    /// Share of accesses answered by remote memory.
    ShareRemote,
    /// How long ago the last access was.
    Idle,
}

/// Loads, stores or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OpArg {
    /// Both.
    #[default]
    All,
    /// Loads.
    Load,
    /// Stores.
    Store,
}

/// Scale of colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ScaleArg {
    /// Logarithmic if counts differ by more than a factor of twenty.
    #[default]
    Auto,
    /// Linear.
    Linear,
    /// Logarithmic.
    Log,
}

/// Colours of pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ThemeArg {
    /// For paper.
    #[default]
    Light,
    /// For dark screens.
    Dark,
}

impl Options {
    /// What the command has where a recording alone is given.
    pub fn of(recording: &str) -> Result<Self, clap::Error> {
        let command = Options::augment_args(clap::Command::new("heatmap"));
        let matches = command.try_get_matches_from(["heatmap", "REC"])?;
        // The name is not read as the command line's: it is no description of a trace, whatever it looks like.
        Ok(Options { recording: recording.to_owned(), ..Options::from_arg_matches(&matches)? })
    }
}

fn granule(text: &str) -> Result<Bytes, String> {
    let bytes = text.parse::<Bytes>().map_err(|error| error.to_string())?;
    if bytes.0 > 0 { Ok(bytes) } else { Err("a granule has a byte at least".to_owned()) }
}

fn slice(text: &str) -> Result<Nanos, String> {
    let time = text.parse::<Nanos>().map_err(|error| error.to_string())?;
    if time.0 > 0 { Ok(time) } else { Err("a slice lasts a nanosecond at least".to_owned()) }
}
