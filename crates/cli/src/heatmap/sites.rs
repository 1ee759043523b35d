//! Table of sites: which code first touched the memory, and how hot that is.

use anyhow::anyhow;
use tiermem_trace::recording::{RegionRange, SiteHeat, Sites};

use super::asked::Asked;
use crate::failure::Failure;
use crate::output::{Cell, Rows};

const FIELDS: &[&str] = &[
    "share",
    "accesses",
    "loads",
    "stores",
    "touched_share",
    "touched_bytes",
    "site",
    "source",
    "callers",
    "module",
];
/// Callers that are told, the nearest ones.
const CALLERS_MAX: usize = 4;
/// What stands between a function and its caller.
const CALLED_BY: &str = " < ";

/// A line for each site, hottest first, and one for what has no known site.
pub fn table(asked: &Asked) -> Result<Rows, Failure> {
    let recording = asked.recording;
    let Some(sites) = &recording.head.sites else {
        return Err(Failure::failed(anyhow!(
            "{} has no sites; record it again with `tiermem record --sites`",
            asked.path
        )));
    };
    let stretches = match asked.named()? {
        Some(named) => named,
        None => (0..recording.head.regions.len())
            .map(|region| RegionRange::whole(recording, region, asked.granule_bytes()))
            .collect(),
    };
    let heats = recording.heat_of_sites(&asked.selection, &stretches, &asked.slices);
    let source = recording.head.sources.get(usize::from(asked.selection.source.unwrap_or(0)));
    let tells_stores = source.is_some_and(|source| source.tells_stores);
    let sum = |of: fn(&SiteHeat) -> f64| heats.iter().map(of).sum::<f64>();
    let all = (sum(|heat| heat.accesses), sum(|heat| heat.touched_bytes));
    let row = |heat: &SiteHeat| {
        let count = |number: f64| Cell::Number(number, if number.fract() == 0.0 { 0 } else { 3 });
        let known = |number: f64| if tells_stores { count(number) } else { Cell::UNKNOWN };
        let share = |part: f64, all: f64| Cell::Number(if all > 0.0 { part / all } else { 0.0 }, 4);
        let mut cells = vec![
            share(heat.accesses, all.0),
            count(heat.accesses),
            known(heat.loads),
            known(heat.stores),
            share(heat.touched_bytes, all.1),
            Cell::Bytes(heat.touched_bytes.round() as u64),
        ];
        cells.extend(names(sites, heat).map(Cell::Text));
        cells
    };
    Ok(Rows { fields: FIELDS, rows: heats.iter().map(row).collect() })
}

/// The site, its place in the source, its callers, and its file.
fn names(sites: &Sites, heat: &SiteHeat) -> [String; 4] {
    let Some(frame) = heat.site.and_then(|site| sites.frames.get(site as usize)) else {
        return ["unknown".to_owned(), String::new(), String::new(), String::new()];
    };
    let callers = heat.stack.into_iter().flat_map(|stack| sites.callers_of(stack));
    let callers: Vec<String> = callers.take(CALLERS_MAX).map(|caller| caller.name()).collect();
    [
        frame.name(),
        frame.source().unwrap_or_default(),
        callers.join(CALLED_BY),
        frame.module.clone().unwrap_or_default(),
    ]
}
