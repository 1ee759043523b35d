//! Pictures, pages and granules as files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::anyhow;
use tiermem_report::heatmap::{self, AccessClass, PageRegion, Scene};
use tiermem_trace::recording::RegionRange;

use super::asked::Asked;
use super::granules;
use super::options::{ShowArg, View};
use crate::failure::Failure;

/// Regions that a page has pictures of.
const PAGE_REGIONS: usize = 24;
/// Values (granules times slices) of one region that a page has.
const PAGE_VALUES: u64 = 4 << 20;
/// Maps that stand side by side at most.
const PANELS_MAX: usize = 100;

/// Kind of a file, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A picture in pixels.
    Png,
    /// A picture in lines.
    Svg,
    /// A page.
    Html,
    /// Granules as text.
    Csv,
    /// Granules as columns.
    Parquet,
}

/// The kind of file that a name asks for.
pub fn kind(path: &Path) -> Result<Kind, Failure> {
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

/// Writes under a temporary name beside `path`, which gets its name when it is complete.
pub fn write(path: &Path, content: impl FnOnce(File) -> Result<(), Failure>) -> Result<(), Failure> {
    let cannot = |error: io::Error| cannot_write(path, &error);
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

/// Writes a picture.
pub fn write_scene(mut file: File, path: &Path, kind: Kind, scene: &Scene) -> Result<(), Failure> {
    let written = match kind {
        Kind::Png => file.write_all(&heatmap::png(scene)),
        Kind::Svg => file.write_all(heatmap::svg(scene).as_bytes()),
        Kind::Html | Kind::Csv | Kind::Parquet => {
            return Err(Failure::usage(anyhow!(
                "{}: --against writes .html, .png or .svg; without -o it prints a table",
                path.display()
            )));
        }
    };
    written.map_err(|error| cannot_write(path, &error))
}

/// Writes a page.
pub fn write_page(mut file: File, path: &Path, page: &str) -> Result<(), Failure> {
    file.write_all(page.as_bytes()).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(anyhow!("cannot write {}: {error}", path.display()))
}

impl Asked<'_> {
    /// Writes what the name's end asks for.
    pub fn write(&self, file: File, kind: Kind) -> Result<(), Failure> {
        let path = self.options.output.as_deref().unwrap_or(Path::new(""));
        let cannot = |error: io::Error| cannot_write(path, &error);
        match kind {
            Kind::Png | Kind::Svg => write_scene(file, path, kind, &self.scene()?),
            Kind::Html => write_page(file, path, &self.page()?),
            Kind::Csv => granules::write_csv(file, self, &self.by_heat(&AccessClass::ALL)?).map_err(cannot),
            Kind::Parquet => {
                granules::write_parquet(file, self, &self.by_heat(&AccessClass::ALL)?).map_err(cannot)
            }
        }
    }

    fn scene(&self) -> Result<Scene, Failure> {
        if self.options.show == ShowArg::Idle && !self.look().tells_ages() {
            return Err(Failure::usage(anyhow!(
                "page faults tell of first accesses alone, so that ages are unknown; leave --show idle out, or record with --source refs"
            )));
        }
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
