//! `tiermem heatmap`: number of accesses to each part of a program's memory.

mod choice;
mod read;
mod tables;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use tiermem_base::{Bytes, Nanos, Op};
use tiermem_report::heatmap::{
    self, AccessClass, Columns, Field, Look, PageRegion, ScaleChoice, Scene, Show, Theme, TooFine,
};
use tiermem_trace::recording::{LevelChoice, Mode, Recording, RegionRange, Selection, parse_level};
use tiermem_trace::{Addresses, Format as TraceFormat};

use self::choice::ColumnChoice;
use crate::failure::Failure;
use crate::numbers::Numbers;
use crate::output::{Format, print_rows};
use crate::print_text::print_text;
use crate::process_choice;
use crate::source::trace_argument;
use crate::trace::positive_count;

const HELP: &str = "\
Examples:
  tiermem heatmap llama.parquet
  tiermem heatmap llama.parquet -o llama.html
  tiermem heatmap llama.parquet --granule 4MiB --columns period -o weights.png
  tiermem heatmap llama.parquet --region llama.gguf:2GiB+512MiB --access remote --slices 10-19 -o slices.svg
  tiermem heatmap llama.parquet --view autocorrelation -o period.svg
  tiermem heatmap make.rec --processes                    # of a program that started others
  tiermem heatmap make.rec --process 'cc1 #2' -o cc1.html
  tiermem heatmap llama.parquet --op store --region heap -o heap.csv

REC is a recording, or a memory trace with loads and stores; a trace's regions are address ranges without gaps of more than 64 MiB.
A picture shows one region, the hottest unless --region or --all-regions is given. Without -o, a table of all regions is
printed.

Granules can be coarser than the recording's; a finer granule gets its part of each sample that is coarser. The default is the finest granule that
gives a region at most 32,768 granules.

Fields of the table, regions with most accesses first:
  region, name, kind, bytes      number, name, kind (file, anonymous, heap, stack, special) and size
  accesses, share                in the unit of the source (samples, page touches, ...), and their share of all regions'
  granule_bytes                  granule size of the following fields
  touched_granules               granules that were accessed; empty if the region was looked at as a whole: its heat is unknown
  touched_bytes                  how many bytes of them were in memory
  period_granules, period_bytes  the distance at which accesses repeat in space; empty if they do not

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
  granule_bytes                  granule size";

/// Regions that a page has pictures of.
const PAGE_REGIONS: usize = 24;
/// Values (granules times slices) of one region that a page has.
const PAGE_VALUES: u64 = 4 << 20;
/// Maps that stand side by side at most.
const PANELS_MAX: usize = 100;

/// Options of `tiermem heatmap`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// A recording, or a memory trace.
    #[arg(value_name = "REC", value_parser = trace_argument)]
    recording: String,
    /// The file to write: .png, .svg, .html, .csv or .parquet.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Granule size, such as 4MiB.
    #[arg(long, value_name = "SIZE", value_parser = granule)]
    granule: Option<Bytes>,
    /// Regions to draw: a name or number, `heap`, `stack` or `anon` (all of that kind), the end of a file's path, `largest`,
    /// `hottest`; or a part of one: NAME:OFFSET+BYTES.
    #[arg(long, value_name = "REGION", conflicts_with = "all_regions")]
    region: Option<String>,
    /// The process, where the recording has several [default: all].
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// Print the table of processes.
    #[arg(long, conflicts_with_all = ["output", "process"])]
    processes: bool,
    /// All accessed regions, side by side (map) or together (wss).
    #[arg(long)]
    all_regions: bool,
    /// What to draw.
    #[arg(long, value_enum, default_value_t)]
    view: View,
    /// What a granule's colour shows.
    #[arg(long, value_enum, default_value_t)]
    show: ShowArg,
    /// Only loads or only stores.
    #[arg(long, value_enum, default_value_t)]
    op: OpArg,
    /// Only accesses answered there: all, memory, local, remote, cached.
    #[arg(long, value_name = "TYPE", default_value = "all", value_parser = parse_level)]
    access: LevelChoice,
    /// Only accesses of the program (user) or of the kernel.
    #[arg(long, value_name = "WHO", value_parser = choice::mode)]
    mode: Option<Mode>,
    /// Source of the accesses, if a recording has several [default: the first].
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Slices to draw side by side, such as 0-9, 3.. or 0,5,10.
    #[arg(long, value_name = "LIST")]
    slices: Option<Numbers>,
    /// Sum the slices of --slices into one picture.
    #[arg(long, requires = "slices")]
    together: bool,
    /// Only granules A to B of the region.
    #[arg(long, value_name = "A-B")]
    granules: Option<Numbers>,
    /// Granules per row of a map: a number, period (the detected one) or square.
    #[arg(long, value_name = "N", default_value = "square")]
    columns: ColumnChoice,
    /// Colour scale.
    #[arg(long, value_enum, default_value_t)]
    scale: ScaleArg,
    /// Colours of PNG and SVG; a page has both themes.
    #[arg(long, value_enum, default_value_t)]
    theme: ThemeArg,
    /// Output format of the table of regions.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Length of a slice, for a plain trace.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = slice, help_heading = "Plain traces")]
    slice: Nanos,
    /// Stop after this many requests.
    #[arg(long, value_name = "N", value_parser = positive_count, help_heading = "Plain traces")]
    requests: Option<u64>,
    /// Skip up to N broken records.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Plain traces")]
    skip_bad: u64,
    /// Format of the trace file, if it is not detected.
    #[arg(long, value_name = "FORMAT", help_heading = "Plain traces")]
    trace_format: Option<TraceFormat>,
    /// Address to use of a memory trace: virtual or physical.
    #[arg(long, value_name = "WHICH", default_value = "virtual", help_heading = "Plain traces")]
    addresses: Addresses,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum View {
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ShowArg {
    /// Number of accesses.
    #[default]
    Accesses,
    /// Share of accesses answered by remote memory.
    ShareRemote,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum OpArg {
    /// Both.
    #[default]
    All,
    /// Loads.
    Load,
    /// Stores.
    Store,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ScaleArg {
    /// Logarithmic if counts differ by more than a factor of twenty.
    #[default]
    Auto,
    /// Linear.
    Linear,
    /// Logarithmic.
    Log,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ThemeArg {
    /// For paper.
    #[default]
    Light,
    /// For dark screens.
    Dark,
}

/// Kind of a file, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Png,
    Svg,
    Html,
    Csv,
    Parquet,
}

fn granule(text: &str) -> Result<Bytes, String> {
    let bytes = text.parse::<Bytes>().map_err(|error| error.to_string())?;
    if bytes.0 > 0 { Ok(bytes) } else { Err("a granule has a byte at least".to_owned()) }
}

fn slice(text: &str) -> Result<Nanos, String> {
    let time = text.parse::<Nanos>().map_err(|error| error.to_string())?;
    if time.0 > 0 { Ok(time) } else { Err("a slice lasts a nanosecond at least".to_owned()) }
}

fn kind(path: &Path) -> Result<Kind, Failure> {
    let end = path.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
    match end.as_deref() {
        Some("png") => Ok(Kind::Png),
        Some("svg") => Ok(Kind::Svg),
        Some("html" | "htm") => Ok(Kind::Html),
        Some("csv") => Ok(Kind::Csv),
        Some("parquet") => Ok(Kind::Parquet),
        _ => Err(Failure::usage(anyhow!(
            "{}: what to write is told by the name's end: .png, .svg, .html, .csv or .parquet",
            path.display()
        ))),
    }
}

/// Reads, gathers, and draws or prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    let output = options.output.as_deref().map(|path| Ok((path, kind(path)?))).transpose()?;
    let mut recording = read::read(options)?;
    if let Some(name) = &options.process {
        recording = process_choice::named(&recording, name)?;
    }
    if let Some(note) = recording.incompleteness() {
        eprintln!("tiermem: {note}");
    }
    let asked = Asked::new(options, &recording)?;
    match output {
        None if options.processes => {
            let printed = print_rows(options.format, &process_choice::table(&recording, &asked.selection));
            printed.map_err(|error| Failure::writing("the table", error))
        }
        None => {
            if let Some(why) = recording.emptiness() {
                eprintln!("tiermem: {why}");
            }
            let fields = asked.by_heat(&[AccessClass::Accesses])?;
            let printed = print_rows(options.format, &tables::regions(&recording, &asked.selection, &fields));
            printed.map_err(|error| Failure::writing("the table", error))
        }
        Some((path, kind)) => {
            write(path, |file| asked.write(file, kind))?;
            let printed = print_text(&format!("{}\n", path.display()));
            printed.map_err(|error| Failure::writing("the file's name", error))
        }
    }
}

/// Writes under a temporary name beside `path`, which gets its name when it is complete.
fn write(path: &Path, content: impl FnOnce(File) -> Result<(), Failure>) -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::failed(anyhow!("cannot write {}: {error}", path.display()));
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".partial");
    let file = File::create(&temporary).map_err(cannot)?;
    let written = content(file).and_then(|()| fs::rename(&temporary, path).map_err(cannot));
    if written.is_err() {
        // That a broken file stays would be the smaller trouble.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Selection of a recording on the command line.
struct Asked<'a> {
    options: &'a Options,
    recording: &'a Recording,
    selection: Selection,
    slices: Vec<usize>,
}

impl<'a> Asked<'a> {
    fn new(options: &'a Options, recording: &'a Recording) -> Result<Self, Failure> {
        let sources = &recording.head.sources;
        let source = options.source.as_ref().map(|name| {
            let at = sources.iter().position(|source| source.name == *name);
            at.and_then(|at| u8::try_from(at).ok()).ok_or_else(|| {
                let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
                let has = names.join(", ");
                Failure::usage(anyhow!("there is no source {name:?}; the recording has {has}"))
            })
        });
        let source = source.transpose()?;
        let told = sources.get(usize::from(source.unwrap_or(0)));
        if let Some(told) = told.filter(|told| options.op != OpArg::All && !told.tells_stores) {
            let name = &told.name;
            return Err(Failure::usage(anyhow!(
                "the source {name} does not tell loads from stores; leave --op out"
            )));
        }
        let selection = Selection {
            source,
            op: match options.op {
                OpArg::All => None,
                OpArg::Load => Some(Op::Load),
                OpArg::Store => Some(Op::Store),
            },
            level: options.access,
            mode: options.mode,
        };
        let count = recording.head.slices.len();
        let slices = match &options.slices {
            None => Ok((0..count).collect()),
            Some(numbers) => numbers.below(count).map_err(|beyond| {
                let last = count.saturating_sub(1);
                Failure::usage(anyhow!("there is no slice {beyond}; the recording has slices 0 to {last}"))
            }),
        };
        let asked = Asked { options, recording, selection, slices: slices? };
        asked.warn_of_fine_granule()?;
        Ok(asked)
    }

    /// Says where a granule is finer than what was recorded: of parts that were looked at more closely it is not.
    fn warn_of_fine_granule(&self) -> Result<(), Failure> {
        let Some(granule) = self.options.granule else { return Ok(()) };
        let named = self.named()?;
        let is_drawn = |region: u32| {
            named.as_ref().is_none_or(|windows| windows.iter().any(|window| window.region == region as usize))
        };
        let taken =
            self.recording.samples.iter().filter(|it| self.selection.takes(it) && is_drawn(it.region));
        let coarse: BTreeSet<u32> =
            taken.filter(|it| u64::from(it.bytes) > granule.0).map(|it| it.region).collect();
        let regions = &self.recording.head.regions;
        let names: Vec<&str> = coarse.iter().take(5).map(|it| regions[*it as usize].name.as_str()).collect();
        if !names.is_empty() {
            let more = if coarse.len() > names.len() { ", ..." } else { "" };
            eprintln!(
                "tiermem: parts of {}{more} were recorded in coarser granules than {granule}; within them accesses are spread evenly",
                names.join(", ")
            );
        }
        Ok(())
    }

    fn gather(&self, windows: &[RegionRange], parts: &[AccessClass]) -> Result<Vec<Field>, Failure> {
        let gathered = heatmap::gather(self.recording, &self.selection, windows, &self.slices, parts);
        gathered.map_err(|error: TooFine| {
            let enough = Bytes(error.granule_bytes);
            Failure::failed(anyhow!("{error}; take a coarser granule, --granule {enough}, or one --region"))
        })
    }

    fn granule_bytes(&self) -> Option<u64> {
        self.options.granule.map(|granule| granule.0)
    }

    /// The stretches that `--region` names.
    fn named(&self) -> Result<Option<Vec<RegionRange>>, Failure> {
        let Some(text) = &self.options.region else { return Ok(None) };
        let mut accesses = vec![0.0; self.recording.head.regions.len()];
        self.sums().into_iter().for_each(|(region, sum)| accesses[region] = sum);
        let windows = choice::regions(self.recording, text, &accesses);
        let windows = windows.map_err(|error| Failure::usage(anyhow!(error)))?;
        let narrowed =
            |window: RegionRange| self.narrowed(window.with_granule(self.recording, self.granule_bytes()));
        windows.into_iter().map(narrowed).collect::<Result<_, _>>().map(Some)
    }

    /// A stretch, cut to the granules that were asked for.
    fn narrowed(&self, window: RegionRange) -> Result<RegionRange, Failure> {
        let Some(granules) = &self.options.granules else { return Ok(window) };
        let (from, to) = granules.ends();
        let size = window.granule_bytes;
        let (first, count) = window.granules();
        if from as u64 >= first + count {
            let last = first + count - 1;
            return Err(Failure::usage(anyhow!("there is no granule {from}; the last one is {last}")));
        }
        let end = window.offset.saturating_add(window.bytes);
        let offset = window.offset.max(size.saturating_mul(from as u64));
        let to = end.min(size.saturating_mul((to as u64).saturating_add(1)));
        Ok(RegionRange { offset, bytes: to.saturating_sub(offset).max(1), ..window })
    }

    /// The selected field of each region, those with most accesses first.
    fn by_heat(&self, parts: &[AccessClass]) -> Result<Vec<Field>, Failure> {
        let windows = match self.named()? {
            Some(windows) => windows,
            None => (0..self.recording.head.regions.len())
                .map(|region| RegionRange::whole(self.recording, region, self.granule_bytes()))
                .collect(),
        };
        let mut fields = self.gather(&windows, parts)?;
        fields.sort_by(|a, b| b.sum.total_cmp(&a.sum));
        Ok(fields)
    }

    /// Accesses of each region, the most first.
    fn sums(&self) -> Vec<(usize, f64)> {
        let mut sums = vec![0.0; self.recording.head.regions.len()];
        let mut is_asked = vec![false; self.recording.head.slices.len()];
        self.slices.iter().for_each(|slice| is_asked[*slice] = true);
        let taken = self.recording.samples.iter().filter(|sample| self.selection.takes(sample));
        for sample in taken.filter(|sample| is_asked[sample.slice as usize]) {
            sums[sample.region as usize] += f64::from(sample.weight);
        }
        let mut sums: Vec<(usize, f64)> = sums.into_iter().enumerate().filter(|it| it.1 > 0.0).collect();
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums
    }

    fn nothing(&self) -> Failure {
        let what = self.recording.emptiness().unwrap_or_else(|| {
            "nothing in it is what --op, --access, --mode, --source and --slices ask for".to_owned()
        });
        Failure::failed(anyhow!("{}: {what}", self.options.recording))
    }

    /// The stretch that is drawn: the one named, or the hottest region, which is said.
    fn one(&self) -> Result<RegionRange, Failure> {
        if let Some(windows) = self.named()? {
            return Ok(windows[0]);
        }
        let sums = self.sums();
        let (region, sum) = *sums.first().ok_or_else(|| self.nothing())?;
        if sums.len() > 1 {
            let all: f64 = sums.iter().map(|(_, sum)| sum).sum();
            let name = &self.recording.head.regions[region].name;
            eprintln!(
                "tiermem: {name} is drawn, the hottest of {} regions with {:.0}% of the accesses; --region NAME draws another, \
                 --all-regions all",
                sums.len(),
                100.0 * sum / all
            );
        }
        self.narrowed(RegionRange::whole(self.recording, region, self.granule_bytes()))
    }

    fn look(&self) -> Look<'a> {
        Look {
            recording: self.recording,
            selection: self.selection.clone(),
            show: match self.options.show {
                ShowArg::Accesses => Show::Accesses,
                ShowArg::ShareRemote => Show::ShareRemote,
            },
            scale: match self.options.scale {
                ScaleArg::Auto => ScaleChoice::Auto,
                ScaleArg::Linear => ScaleChoice::Linear,
                ScaleArg::Log => ScaleChoice::Log,
            },
            columns: match self.options.columns {
                ColumnChoice::Given(columns) => Columns::Given(columns),
                ColumnChoice::Square | ColumnChoice::Period => Columns::Square,
            },
            theme: match self.options.theme {
                ThemeArg::Light => Theme::LIGHT,
                ThemeArg::Dark => Theme::DARK,
            },
        }
    }

    /// The same, with the columns that a field's period asks for.
    fn look_at(&self, field: &Field) -> Look<'a> {
        let mut look = self.look();
        if self.options.columns == ColumnChoice::Period {
            match heatmap::period_of(field) {
                Some(period) => look.columns = Columns::Given(period),
                None => eprintln!("tiermem: no period stands out; the map is a square"),
            }
        }
        look
    }

    fn write(&self, mut file: File, kind: Kind) -> Result<(), Failure> {
        let path = self.options.output.as_deref().unwrap_or(Path::new(""));
        let cannot = |error: io::Error| Failure::failed(anyhow!("cannot write {}: {error}", path.display()));
        match kind {
            Kind::Png => file.write_all(&heatmap::png(&self.scene()?)).map_err(cannot),
            Kind::Svg => file.write_all(heatmap::svg(&self.scene()?).as_bytes()).map_err(cannot),
            Kind::Html => file.write_all(self.page()?.as_bytes()).map_err(cannot),
            Kind::Csv => {
                tables::write_csv(file, self.recording, &self.by_heat(&AccessClass::ALL)?).map_err(cannot)
            }
            Kind::Parquet => {
                tables::write_parquet(file, self.recording, &self.by_heat(&AccessClass::ALL)?).map_err(cannot)
            }
        }
    }

    fn scene(&self) -> Result<Scene, Failure> {
        let parts = heatmap::parts_for(self.look().show);
        let view = self.options.view;
        let several = match self.named()? {
            Some(windows) if windows.len() > 1 => Some(windows),
            None if self.options.all_regions => {
                let whole = |(region, _): &(usize, f64)| {
                    RegionRange::whole(self.recording, *region, self.granule_bytes())
                };
                Some(self.sums().iter().map(whole).collect())
            }
            _ => None,
        };
        if let Some(windows) = several {
            if windows.is_empty() {
                return Err(self.nothing());
            }
            return match view {
                View::Map => {
                    if windows.len() > PANELS_MAX {
                        eprintln!("tiermem: the {PANELS_MAX} hottest of {} regions are drawn", windows.len());
                    }
                    let windows = &windows[..windows.len().min(PANELS_MAX)];
                    Ok(heatmap::map_of_regions(&self.look(), &self.gather(windows, parts)?))
                }
                View::Wss => Ok(heatmap::working_set(&self.look(), &self.gather(&windows, parts)?)),
                _ => Err(Failure::usage(anyhow!(
                    "--all-regions, or a --region that is several, draws a map or the working set (wss)"
                ))),
            };
        }
        let fields = self.gather(&[self.one()?], parts)?;
        let field = fields.first().filter(|field| field.sum > 0.0).ok_or_else(|| self.nothing())?;
        let look = self.look_at(field);
        Ok(match view {
            View::Map if self.options.slices.is_none() || self.options.together || self.slices.len() == 1 => {
                heatmap::map(&look, field)
            }
            View::Map if self.slices.len() > PANELS_MAX => {
                return Err(Failure::usage(anyhow!(
                    "{} slices are more than the {PANELS_MAX} that stand side by side; --together makes one map of them",
                    self.slices.len()
                )));
            }
            View::Map => heatmap::map_of_slices(&look, field),
            View::Scatter => heatmap::scatter(&look, field),
            View::Autocorrelation => heatmap::autocorrelation(&look, field),
            View::Path => heatmap::path(&look, field),
            View::Wss => heatmap::working_set(&look, &fields),
        })
    }

    fn page(&self) -> Result<String, Failure> {
        let windows: Vec<RegionRange> = match self.named()? {
            Some(windows) => windows,
            None => self
                .sums()
                .iter()
                .map(|(region, _)| RegionRange::whole(self.recording, *region, self.granule_bytes()))
                .collect(),
        };
        if windows.is_empty() {
            return Err(self.nothing());
        }
        let left_out = windows.len().saturating_sub(PAGE_REGIONS);
        let windows: Vec<RegionRange> =
            windows.into_iter().take(PAGE_REGIONS).map(|window| self.for_page(window)).collect();
        let fields = self.gather(&windows, &AccessClass::ALL)?;
        let look = fields.first().map_or_else(|| self.look(), |field| self.look_at(field));
        let name = Path::new(&self.options.recording).file_name();
        let name = name.map_or(self.options.recording.clone(), |name| name.to_string_lossy().into_owned());
        let regions: Vec<PageRegion> = fields.into_iter().map(|field| PageRegion { field }).collect();
        Ok(heatmap::page(&look, &name, &regions, left_out))
    }

    /// A stretch in granules that a page has room for.
    fn for_page(&self, mut window: RegionRange) -> RegionRange {
        while window.granules().1.saturating_mul(self.slices.len() as u64) > PAGE_VALUES
            && window.granules().1 > 1
        {
            window.granule_bytes = window.granule_bytes.saturating_mul(2);
        }
        window
    }
}
