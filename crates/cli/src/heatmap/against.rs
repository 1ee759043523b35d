//! Two recordings side by side: regions of the same name, and their maps on one scale.

use std::collections::BTreeMap;

use anyhow::anyhow;
use tiermem_base::Bytes;
use tiermem_report::heatmap::{self, AccessClass, Field, Scene, Side, kind_name};
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
    let mut names: BTreeMap<&str, [Option<&Seen>; 2]> = BTreeMap::new();
    for (side, seen) in [&one.regions, &other.regions].into_iter().enumerate() {
        for seen in seen {
            names.entry(&seen.name).or_default()[side] = Some(seen);
        }
    }
    let mut regions: Vec<[Option<&Seen>; 2]> = names.into_values().collect();
    let rate = |pair: &[Option<&Seen>; 2]| {
        let rates = pair.iter().zip([&one, &other]).map(|(seen, side)| seen.map_or(0.0, |it| side.rate(it)));
        rates.fold(0.0, f64::max)
    };
    regions.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    let mut rows = vec![row("all", [Some(&one.all), Some(&other.all)], [&one, &other])];
    rows.extend(regions.into_iter().map(|pair| row("region", pair, [&one, &other])));
    Ok(Rows { fields: FIELDS, rows })
}

/// The maps of one region of both, on one scale.
pub fn scene(asked: &Asked, against: &Asked) -> Result<Scene, Failure> {
    let window = asked.one()?;
    let name = &asked.recording.head.regions[window.region].name;
    let regions = &against.recording.head.regions;
    let Some(region) = regions.iter().position(|region| region.name == *name) else {
        return Err(Failure::failed(anyhow!(
            "{} has no region {name:?}; choose another with --region",
            against.path
        )));
    };
    let other = RegionRange { region, ..window };
    let bytes = regions[region].bytes.saturating_sub(window.offset).clamp(1, other.bytes.max(1));
    // Of a whole region the other may be larger.
    let is_whole = window.bytes >= asked.recording.head.regions[window.region].bytes;
    let other = match is_whole {
        true => RegionRange::whole(against.recording, region, against.granule_bytes()),
        false => RegionRange { bytes, ..other },
    };
    let granule_bytes = window.granule_bytes.max(other.granule_bytes);
    let field = |asked: &Asked, window: RegionRange| -> Result<Field, Failure> {
        let window = RegionRange { granule_bytes, ..window };
        asked.gather(&[window], &[AccessClass::Accesses])?.pop().ok_or_else(|| asked.nothing())
    };
    let (one, other) = (field(asked, window)?, field(against, other)?);
    let (look, other_look) = (asked.look(), against.look());
    Ok(heatmap::map_against(
        Side { look: &look, field: &one, name: asked.path },
        Side { look: &other_look, field: &other, name: against.path },
    ))
}

/// A recording, as far as it is looked at.
struct Recorded {
    regions: Vec<Seen>,
    all: Seen,
    seconds: f64,
}

/// What was seen of a region, or of all.
struct Seen {
    name: String,
    kind: &'static str,
    bytes: u64,
    accesses: f64,
    /// `None` where mappings were looked at as wholes.
    touched_bytes: Option<u64>,
}

impl Recorded {
    fn of(asked: &Asked) -> Result<Self, Failure> {
        let fields = asked.by_heat(&[AccessClass::Accesses])?;
        let head = &asked.recording.head;
        let seen = |field: &Field| {
            let (region, window) = (&head.regions[field.window.region], &field.window);
            let unknown =
                asked.recording.unknown_heat(&asked.selection, Some(window.region), window.granule_bytes);
            Seen {
                name: region.name.clone(),
                kind: kind_name(region.kind),
                bytes: window.bytes,
                accesses: field.sum,
                touched_bytes: unknown.is_none().then(|| field.touched.bytes()),
            }
        };
        let regions: Vec<Seen> = fields.iter().map(seen).collect();
        let slices = asked.slices.iter().filter_map(|slice| head.slices.get(*slice));
        let ns: u64 = slices.map(|slice| slice.end_ns.saturating_sub(slice.start_ns)).sum();
        Ok(Recorded { all: Seen::all(&regions), regions, seconds: ns as f64 / 1e9 })
    }

    fn none() -> Self {
        Recorded { all: Seen::all(&[]), regions: Vec::new(), seconds: 0.0 }
    }

    fn rate(&self, seen: &Seen) -> f64 {
        if self.seconds > 0.0 { seen.accesses / self.seconds } else { f64::NAN }
    }

    fn share(&self, seen: &Seen) -> f64 {
        if self.all.accesses > 0.0 { seen.accesses / self.all.accesses } else { 0.0 }
    }
}

impl Seen {
    fn all(regions: &[Seen]) -> Self {
        Seen {
            name: "all".to_owned(),
            kind: "",
            bytes: regions.iter().map(|it| it.bytes).sum(),
            accesses: regions.iter().map(|it| it.accesses).sum(),
            // Bytes of which some are not known are not known.
            touched_bytes: regions.iter().map(|it| it.touched_bytes).sum(),
        }
    }
}

/// Both recordings; a name that one of them has is enough.
fn sides(asked: &Asked, against: &Asked) -> Result<[Recorded; 2], Failure> {
    match (asked.named(), against.named()) {
        (Err(error), Err(_)) => Err(error),
        (Ok(_), Err(_)) => Ok([Recorded::of(asked)?, Recorded::none()]),
        (Err(_), Ok(_)) => Ok([Recorded::none(), Recorded::of(against)?]),
        (Ok(_), Ok(_)) => Ok([Recorded::of(asked)?, Recorded::of(against)?]),
    }
}

fn row(of: &str, pair: [Option<&Seen>; 2], sides: [&Recorded; 2]) -> Vec<Cell> {
    let bytes = |bytes: Option<u64>| bytes.map_or(Cell::UNKNOWN, Cell::Bytes);
    let either = pair.iter().flatten().next();
    let of_side = |value: fn(&Recorded, &Seen) -> f64| {
        let one = |at: usize| pair[at].map_or(f64::NAN, |seen| value(sides[at], seen));
        [one(0), one(1)]
    };
    let [share, other_share] = of_side(Recorded::share);
    let [rate, other_rate] = of_side(Recorded::rate);
    let touched = pair.map(|seen| seen.and_then(|seen| seen.touched_bytes));
    let touched_ratio = ratio(touched.map(|bytes| bytes.map_or(f64::NAN, |bytes| bytes as f64)));
    let size = |at: usize| bytes(pair[at].map(|seen| seen.bytes));
    vec![
        Cell::Text(of.to_owned()),
        Cell::Text(either.map_or_else(String::new, |seen| seen.name.clone())),
        Cell::Text(either.map_or("", |seen| seen.kind).to_owned()),
        size(0),
        size(1),
        bytes(touched[0]),
        bytes(touched[1]),
        Cell::Number(touched_ratio, 3),
        Cell::Number(share, 4),
        Cell::Number(other_share, 4),
        Cell::Number(rate, 1),
        Cell::Number(other_rate, 1),
        Cell::Number(rate - other_rate, 1),
        Cell::Number(ratio([rate, other_rate]), 3),
    ]
}

/// What is so many times the other; unknown of nothing.
fn ratio([one, other]: [f64; 2]) -> f64 {
    if other > 0.0 { one / other } else { f64::NAN }
}
