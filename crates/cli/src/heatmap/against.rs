//! Two recordings side by side: regions of the same name, and their maps on one scale.

use std::path::Path;

use anyhow::anyhow;
use tiermem_base::Bytes;
use tiermem_report::heatmap::{self, AccessClass, Field, Pair, Recorded, Scene, Side};
use tiermem_trace::recording::{RegionRange, Unit};

use super::asked::Asked;
use crate::failure::Failure;
use crate::output::{Cell, Rows};

const FIELDS: &[&str] = &[
    "of",
    "name",
    "kind",
    "bytes",
    "against_bytes",
    "touched_bytes",
    "against_touched_bytes",
    "touched_ratio",
    "share",
    "against_share",
    "accesses_per_s",
    "against_accesses_per_s",
    "difference_per_s",
    "ratio",
];

/// Regions of which a page has maps.
const MAPS_MAX: usize = 12;

/// Refuses recordings whose counts mean different things, and says what makes them less alike.
pub fn check(asked: &Asked, against: &Asked) -> Result<(), Failure> {
    let unit = |asked: &Asked| -> (Unit, String) {
        let source = asked.recording.head.sources.get(usize::from(asked.selection.source.unwrap_or(0)));
        source.map_or((Unit::Accesses, "accesses".to_owned()), |source| (source.unit, source.name.clone()))
    };
    let ((one, name), (other, other_name)) = (unit(asked), unit(against));
    if one != other {
        return Err(Failure::failed(anyhow!(
            "{} counts what {name} sees, and {} what {other_name} sees, which cannot be compared; record both with one --source, or choose \
             one with --source",
            asked.path,
            against.path
        )));
    }
    let [granule, other] = [asked, against].map(|it| Bytes(it.recording.head.granule_bytes));
    if granule != other {
        eprintln!(
            "tiermem: {} has granules of {granule}, and {} of {other}: with coarser granules more counts as touched",
            asked.path, against.path
        );
    }
    Ok(())
}

/// A line for all regions together, and one for each name, those with the highest rates first.
pub fn table(asked: &Asked, against: &Asked) -> Result<Rows, Failure> {
    let [one, other] = sides(asked, against)?;
    let rows = heatmap::pairs(&one, &other).into_iter().enumerate().map(|(at, pair)| {
        let of = if at == 0 { "all" } else { "region" };
        row(of, &pair)
    });
    Ok(Rows { fields: FIELDS, rows: rows.collect() })
}

fn row(of: &str, pair: &Pair) -> Vec<Cell> {
    let bytes = |bytes: Option<u64>| bytes.map_or(Cell::UNKNOWN, Cell::Bytes);
    let size = pair.seen().map(|seen| bytes(seen.map(|seen| seen.bytes)));
    let touched = pair.seen().map(|seen| bytes(seen.and_then(|seen| seen.touched_bytes)));
    let (rates, either) = (pair.rates(), pair.either());
    let mut cells = vec![
        Cell::Text(of.to_owned()),
        Cell::Text(either.map_or_else(String::new, |seen| seen.name.clone())),
        Cell::Text(either.map_or("", |seen| seen.kind).to_owned()),
    ];
    cells.extend(size.into_iter().chain(touched));
    cells.push(Cell::Number(pair.touched_ratio(), 3));
    cells.extend(pair.shares().map(|share| Cell::Number(share, 4)));
    cells.extend(rates.map(|rate| Cell::Number(rate, 1)));
    cells.push(Cell::Number(rates[0] - rates[1], 1));
    cells.push(Cell::Number(heatmap::ratio(rates), 3));
    cells
}

/// Both recordings; a name that one of them has is enough.
fn sides(asked: &Asked, against: &Asked) -> Result<[Recorded; 2], Failure> {
    let recorded = |asked: &Asked, is_there: bool| -> Result<Recorded, Failure> {
        let fields = if is_there { asked.by_heat(&[AccessClass::Accesses])? } else { Vec::new() };
        Ok(Recorded::of(&asked.look(), &fields))
    };
    match (asked.named(), against.named()) {
        (Err(error), Err(_)) => Err(error),
        (one, other) => Ok([recorded(asked, one.is_ok())?, recorded(against, other.is_ok())?]),
    }
}

/// The maps of one region of both, on one scale.
pub fn scene(asked: &Asked, against: &Asked) -> Result<Scene, Failure> {
    let window = asked.one()?;
    let Some(other) = counterpart(asked, against, &window) else {
        let name = &asked.recording.head.regions[window.region].name;
        let path = against.path;
        return Err(Failure::failed(anyhow!("{path} has no region {name:?}; choose another with --region")));
    };
    let [one, other] = fields(asked, against, [window, other])?;
    let (look, other_look) = (asked.look(), against.look());
    let [name, other_name] = names(asked, against);
    Ok(heatmap::map_against(
        Side { look: &look, field: &one, name },
        Side { look: &other_look, field: &other, name: other_name },
    ))
}

/// A page of both, with maps of the hottest regions that both have.
pub fn page(asked: &Asked, against: &Asked) -> Result<String, Failure> {
    let [one, other] = sides(asked, against)?;
    let regions: Vec<&str> = heatmap::pairs(&one, &other)
        .iter()
        .skip(1)
        .filter(|pair| pair.seen().iter().all(Option::is_some) && pair.rates().iter().any(|rate| *rate > 0.0))
        .filter_map(|pair| Some(pair.either()?.name.as_str()))
        .collect();
    let whole = |region| RegionRange::whole(asked.recording, region, asked.granule_bytes());
    let all = &asked.recording.head.regions;
    let named = asked.named().ok().flatten().unwrap_or_else(|| (0..all.len()).map(whole).collect());
    let windows = |name: &&str| {
        let window = named.iter().find(|window| all[window.region].name == **name)?;
        Some([*window, counterpart(asked, against, window)?])
    };
    // A map of one granule shows nothing that the table does not have.
    let is_map = |windows: &[RegionRange; 2]| windows.iter().any(|window| window.granules().1 > 1);
    let chosen: Vec<[RegionRange; 2]> = regions.iter().filter_map(windows).filter(is_map).collect();
    let shown = chosen.iter().take(MAPS_MAX);
    let maps: Vec<[Field; 2]> =
        shown.map(|windows| fields(asked, against, *windows)).collect::<Result<_, _>>()?;
    let (look, other_look) = (asked.look(), against.look());
    let [name, other_name] = names(asked, against);
    let sides: Vec<[Side; 2]> = maps
        .iter()
        .map(|[one, other]| {
            [
                Side { look: &look, field: one, name },
                Side { look: &other_look, field: other, name: other_name },
            ]
        })
        .collect();
    let left_out = chosen.len() - maps.len();
    Ok(heatmap::page_against([(&look, &one, name), (&other_look, &other, other_name)], &sides, left_out))
}

/// Names of the recordings, as short as they can be.
fn names<'a>(asked: &Asked<'a>, against: &Asked<'a>) -> [&'a str; 2] {
    let paths = [asked.path, against.path];
    let names = paths.map(|path| Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path));
    if names[0] == names[1] { paths } else { names }
}

/// The same part of the region of that name in the other recording.
fn counterpart(asked: &Asked, against: &Asked, window: &RegionRange) -> Option<RegionRange> {
    let region = &asked.recording.head.regions[window.region];
    let regions = &against.recording.head.regions;
    let other = regions.iter().position(|other| other.name == region.name)?;
    if window.bytes >= region.bytes {
        // All of it, which may be more here.
        return Some(RegionRange::whole(against.recording, other, against.granule_bytes()));
    }
    let bytes = regions[other].bytes.checked_sub(window.offset).filter(|bytes| *bytes > 0)?;
    Some(RegionRange { region: other, bytes: bytes.min(window.bytes), ..*window })
}

/// The fields of both, in granules of one size.
fn fields(asked: &Asked, against: &Asked, windows: [RegionRange; 2]) -> Result<[Field; 2], Failure> {
    let granule_bytes = windows.map(|window| window.granule_bytes).into_iter().max().unwrap_or(1);
    let field = |asked: &Asked, window: RegionRange| -> Result<Field, Failure> {
        let window = RegionRange { granule_bytes, ..window };
        asked.gather(&[window], &[AccessClass::Accesses])?.pop().ok_or_else(|| asked.nothing())
    };
    Ok([field(asked, windows[0])?, field(against, windows[1])?])
}
