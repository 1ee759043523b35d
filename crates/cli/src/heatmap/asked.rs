//! Part of a recording that the command line selects.

use std::collections::BTreeSet;

use anyhow::anyhow;
use tiermem_base::{Bytes, Op};
use tiermem_report::heatmap::{self, AccessClass, Columns, Field, Look, ScaleChoice, Show, Theme, TooFine};
use tiermem_trace::recording::{Recording, RegionRange, Selection};

use super::choice::{self, ColumnChoice};
use super::options::{OpArg, Options, ScaleArg, ShowArg, ThemeArg};
use crate::failure::Failure;

/// Selection of a recording on the command line.
pub struct Asked<'a> {
    /// As given.
    pub options: &'a Options,
    /// The recording's name on the command line.
    pub path: &'a str,
    /// What it is a part of.
    pub recording: &'a Recording,
    /// Selected accesses.
    pub selection: Selection,
    /// Selected slices, ascending.
    pub slices: Vec<usize>,
}

impl<'a> Asked<'a> {
    /// Reads the options; a mistake in them is a failure.
    pub fn new(options: &'a Options, path: &'a str, recording: &'a Recording) -> Result<Self, Failure> {
        let sources = &recording.head.sources;
        let source = options.source.as_ref().map(|name| {
            let at = sources.iter().position(|source| source.name == *name);
            at.and_then(|at| u8::try_from(at).ok()).ok_or_else(|| {
                let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
                let has = names.join(", ");
                Failure::usage(anyhow!("there is no source {name:?}; {path} has {has}"))
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
                Failure::usage(anyhow!("there is no slice {beyond}; {path} has slices 0 to {last}"))
            }),
        };
        Ok(Asked { options, path, recording, selection, slices: slices? })
    }

    /// Says where a granule is finer than what was recorded: of parts that were looked at more closely it is not.
    pub fn warn_of_fine_granule(&self) -> Result<(), Failure> {
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

    /// Gathers stretches.
    pub fn gather(&self, windows: &[RegionRange], parts: &[AccessClass]) -> Result<Vec<Field>, Failure> {
        let gathered = heatmap::gather(self.recording, &self.selection, windows, &self.slices, parts);
        gathered.map_err(|error: TooFine| {
            let enough = Bytes(error.granule_bytes);
            Failure::failed(anyhow!("{error}; take a coarser granule, --granule {enough}, or one --region"))
        })
    }

    /// `--granule`.
    pub fn granule_bytes(&self) -> Option<u64> {
        self.options.granule.map(|granule| granule.0)
    }

    /// The stretches that `--region` names.
    pub fn named(&self) -> Result<Option<Vec<RegionRange>>, Failure> {
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
    pub fn by_heat(&self, parts: &[AccessClass]) -> Result<Vec<Field>, Failure> {
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
    pub fn sums(&self) -> Vec<(usize, f64)> {
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

    /// The failure where nothing is selected.
    pub fn nothing(&self) -> Failure {
        let what = self.recording.emptiness().unwrap_or_else(|| {
            "nothing in it is what --op, --access, --mode, --source and --slices ask for".to_owned()
        });
        Failure::failed(anyhow!("{}: {what}", self.path))
    }

    /// The stretch that is drawn: the one named, or the hottest region, which is said.
    pub fn one(&self) -> Result<RegionRange, Failure> {
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

    /// How it is drawn.
    pub fn look(&self) -> Look<'a> {
        Look {
            recording: self.recording,
            selection: self.selection.clone(),
            show: match self.options.show {
                ShowArg::Accesses => Show::Accesses,
                ShowArg::ShareRemote => Show::ShareRemote,
                ShowArg::Idle => Show::Idle,
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
            absolute: self.options.absolute,
        }
    }

    /// The same, with the columns that a field's period asks for.
    pub fn look_at(&self, field: &Field) -> Look<'a> {
        let mut look = self.look();
        if self.options.columns == ColumnChoice::Period {
            match heatmap::period_of(field) {
                Some(period) => look.columns = Columns::Given(period),
                None => eprintln!("tiermem: no period stands out; the map is a square"),
            }
        }
        look
    }
}
