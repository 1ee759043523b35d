//! Interactive page: all views of all regions in one file, which needs no network.

use std::fmt::Write;

use serde_json::{Value, json};
use tiermem_base::Heat;
use tiermem_model::heat::{Quartiles, hotspot};
use tiermem_trace::recording::RegionKind;

use super::autocorrelation::{self, Likeness};
use super::colour::{Map, Rgb, Theme};
use super::words::{bytes, capitalised, count, noun, several, slices, time};
use super::{AccessClass, Field, Look, ScaleChoice, Show, base64, packed, processes, working_set};
use crate::escape::escape;
use crate::quantity::Quantity;

const STYLE: &str = include_str!("../page/page.css");
/// Of what is on no other page.
const MORE_STYLE: &str = include_str!("page.css");
/// What draws: `heatmap(data)`, of the [data](page_data).
pub(super) const VIEWS: &str =
    concat!(include_str!("numbers.js"), include_str!("paint.js"), include_str!("page.js"));
const START: &str = "heatmap(JSON.parse(document.getElementById(\"data\").textContent));";

/// A region of the page.
#[derive(Clone, Debug)]
pub struct PageRegion {
    /// Its field, with all [`AccessClass`]s.
    pub field: Field,
}

/// The name of a kind.
pub fn kind_name(kind: RegionKind) -> &'static str {
    match kind {
        RegionKind::File => "file",
        RegionKind::Anonymous => "anonymous",
        RegionKind::Heap => "heap",
        RegionKind::Stack => "stack",
        RegionKind::Special => "special",
    }
}

/// The page of some regions, the hottest first. `name` is the recording's; `left_out` says of how many regions there was no room.
pub fn page(look: &Look, name: &str, regions: &[PageRegion], left_out: usize) -> String {
    let mut out = String::with_capacity(1 << 20);
    let sum: f64 = regions.iter().map(|region| region.field.sum).sum();
    let (headline, lead) = answer(look, regions, sum);
    let command = look.recording.head.command.join(" ");
    let source = match command.is_empty() {
        true => escape(name),
        false => format!("{}: <b>{}</b>", escape(name), escape(&command)),
    };
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">\
         <title>{} · tiermem heatmap</title><style>{STYLE}{MORE_STYLE}</style></head><body><header>\
         <p class=\"source\">{source}</p><h1>{}</h1><p class=\"lead\">{}</p></header><main>",
        escape(name),
        escape(&headline),
        escape(&lead)
    );
    processes::table(&mut out, look);
    table(&mut out, look, regions, sum, left_out);
    out += include_str!("page.html");
    let notes: Vec<String> =
        look.recording.head.notes.iter().map(|note| format!("<p>{}</p>", escape(note))).collect();
    let _ = write!(
        out,
        "<footer><p>{}; {}. Of a touched granule those bytes count that were in memory.</p>{}<p>Made by tiermem {} from {}.</p></footer></main>",
        escape(&capitalised(&look.what())),
        escape(&regions.first().map_or(String::new(), |it| slices(look.recording, &it.field.slices))),
        notes.concat(),
        env!("CARGO_PKG_VERSION"),
        escape(name)
    );
    // Within a script element nothing else could end it, or open another.
    let data = page_data(look, regions).to_string().replace('<', "\\u003c");
    let _ = write!(
        out,
        "<div id=\"tip\" role=\"status\" hidden></div><script type=\"application/json\" id=\"data\">{data}</script>\
         <script>{VIEWS}{START}</script></body></html>"
    );
    out
}

fn fields(regions: &[PageRegion]) -> impl Iterator<Item = &Field> {
    regions.iter().map(|region| &region.field)
}

/// The answer in a headline, and the figures behind it.
fn answer(look: &Look, regions: &[PageRegion], sum: f64) -> (String, String) {
    let noun = noun(look.recording, look.selection.source);
    let Some(first) = regions.first().filter(|_| sum > 0.0) else {
        return (format!("No {noun}"), "Nothing was seen of what is looked at here.".to_owned());
    };
    let (each, curve) = working_set::together(fields(regions));
    let touched = curve.last().copied().unwrap_or(0);
    let most = working_set::bytes_for_share(fields(regions), 0.9);
    let granule_bytes = first.field.window.granule_bytes;
    let unknown = look.recording.unknown_heat(&look.selection, None, granule_bytes);
    let headline = match unknown {
        None => format!("Nine tenths of the {noun} go to {}", bytes(most as f64)),
        Some(_) => "Which memory is hot is not known".to_owned(),
    };
    let mut lead = format!(
        "{} {noun}, {} of them to {}. {} were touched in all{}.",
        count(sum.round()),
        Quantity::Share.tick(first.field.sum / sum),
        look.region_name(&first.field),
        bytes(touched as f64),
        spread(Quartiles::of(each)).map_or(String::new(), |slice| format!(", in a slice {slice}"))
    );
    let in_memory = chosen(regions).iter().filter_map(|slice| look.recording.rss(*slice));
    if let Some(rss) = spread(Quartiles::of(in_memory)) {
        let _ = write!(lead, " In memory were {rss} (RSS).");
    }
    if let Some(share) = unknown {
        let share = Quantity::Share.tick(share);
        let _ = write!(lead, " {share} of the {noun} went to mappings that were looked at as wholes.");
    }
    if let Some(found) = look.recording.initialisation(&look.selection) {
        let share = found.share * 100.0;
        let _ = write!(
            lead,
            " {share:.0}% were touched for the first time in {}: initialisation.",
            found.range()
        );
    }
    if let Some(peak) = Likeness::of(&first.field).peaks.first() {
        let granule_bytes = first.field.window.granule_bytes;
        let _ = write!(lead, " They repeat in space: {}.", autocorrelation::name(peak, granule_bytes));
    }
    (headline, lead)
}

/// The median of some bytes, with the least and the most.
fn spread(quartiles: Option<Quartiles>) -> Option<String> {
    let [min, _, median, _, max] = quartiles?.all().map(|it| bytes(it as f64));
    Some(if min == max { median } else { format!("{median} (median; {min} to {max})") })
}

/// The slices that are looked at.
fn chosen(regions: &[PageRegion]) -> &[usize] {
    regions.first().map_or(&[], |region| &region.field.slices)
}

fn table(out: &mut String, look: &Look, regions: &[PageRegion], sum: f64, left_out: usize) {
    let noun = noun(look.recording, look.selection.source);
    let _ = write!(
        out,
        "<section><h2>Regions</h2><div class=\"card scroll\"><table id=\"regions\"><thead><tr><th>region</th><th>kind</th>\
         <th>size</th><th>touched</th><th>in a slice</th><th>{noun}</th><th>share</th></tr></thead><tbody>"
    );
    for (number, PageRegion { field }) in regions.iter().enumerate() {
        let Some(region) = look.recording.head.regions.get(field.window.region) else { continue };
        let share = if sum > 0.0 { field.sum / sum } else { 0.0 };
        let in_slices = Quartiles::of(field.touched.per_slice.iter().copied());
        let _ = write!(
            out,
            "<tr><th><button type=\"button\" data-region=\"{number}\">{}</button></th><td>{}</td><td>{}</td><td>{}</td><td title=\"{}\">{}</td><td>{}</td>\
             <td><i class=\"share\" style=\"--share:{:.1}%\"></i>{}</td></tr>",
            escape(&look.region_name(field)),
            kind_name(region.kind),
            bytes(field.window.bytes as f64),
            bytes(field.touched.bytes() as f64),
            spread(in_slices).map_or(String::new(), |slice| escape(&slice)),
            in_slices.map_or(String::new(), |it| bytes(it.p50 as f64)),
            count(field.sum.round()),
            share * 100.0,
            Quantity::Share.text(share)
        );
    }
    *out += "</tbody></table>";
    if left_out > 0 {
        let regions = several(left_out, "colder region has", "colder regions have");
        let _ = write!(out, "<p class=\"note\">{regions} no picture here.</p>");
    }
    *out += "</div></section>";
}

/// What a page draws of: the regions, the hottest first, slice by slice.
pub fn page_data(look: &Look, regions: &[PageRegion]) -> Value {
    let table = |map: Map| base64::encode(map.table().as_flattened());
    let rgb = |colour: Rgb| colour.to_vec();
    let times: Vec<Value> = chosen(regions)
        .iter()
        .map(|slice| {
            let times = look.recording.head.slices.get(*slice).copied().unwrap_or_default();
            json!([
                slice,
                times.start_ns as f64 / 1e9,
                times.end_ns as f64 / 1e9,
                format!("{} to {}", time(times.start_ns), time(times.end_ns))
            ])
        })
        .collect();
    let tells_level = regions.iter().any(|region| {
        let sum = |part| region.field.heat_of(part).map_or(0.0, Heat::sum);
        sum(AccessClass::Remote) + sum(AccessClass::Local) > 0.0
    });
    let shares =
        [0.5, 0.9, 0.99].map(|share| json!([share, working_set::bytes_for_share(fields(regions), share)]));
    let (each, curve) = working_set::together(fields(regions));
    json!({
        "noun": noun(look.recording, look.selection.source),
        "nounOfOne": look.noun_of_one(),
        "what": look.what(),
        "scale": match look.scale { ScaleChoice::Auto => "auto", ScaleChoice::Linear => "linear", ScaleChoice::Log => "log" },
        "show": match look.show { Show::Accesses => "accesses", Show::ShareRemote => "remote", Show::Idle => "idle" },
        "columns": match look.columns { super::Columns::Square => 0, super::Columns::Given(columns) => columns },
        "maps": { "accesses": table(Map::Viridis), "remote": table(Map::Cividis) },
        "never": { "light": rgb(Theme::LIGHT.never), "dark": rgb(Theme::DARK.never) },
        "beyond": { "light": rgb(Theme::LIGHT.grid), "dark": rgb(Theme::DARK.page) },
        "tellsLevel": tells_level,
        "tellsAges": look.tells_ages(),
        "slices": times,
        "workingSet": {
            "each": each,
            "curve": curve,
            "shares": shares,
        },
        "regions": regions.iter().map(|region| region_data(look, &region.field, tells_level)).collect::<Vec<_>>(),
    })
}

fn region_data(look: &Look, field: &Field, tells_level: bool) -> Value {
    let empty = Heat::cold(1, 0, 0);
    let heat = field.heat_of(AccessClass::Accesses).unwrap_or(&empty);
    let part = |part| field.heat_of(part).unwrap_or(&empty);
    let coded = packed::heat(heat);
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    let Likeness { curve, peaks } = Likeness::of(field);
    let granule_bytes = field.window.granule_bytes;
    let peaks: Vec<Value> = peaks
        .iter()
        .take(8)
        .map(|peak| json!([peak.lag, rounded(peak.height), autocorrelation::name(peak, granule_bytes)]))
        .collect();
    let spot =
        |spot: Option<hotspot::Spot>| spot.map(|spot| [rounded(spot.granule), rounded(spot.spread_granules)]);
    let region = look.recording.head.regions.get(field.window.region);
    let totals: serde_json::Map<String, Value> = [
        ("accesses", AccessClass::Accesses),
        ("loads", AccessClass::Loads),
        ("stores", AccessClass::Stores),
        ("local", AccessClass::Local),
        ("remote", AccessClass::Remote),
        ("cached", AccessClass::Cached),
    ]
    .into_iter()
    .filter(|(_, which)| *which == AccessClass::Accesses || part(*which).sum() > 0.0)
    .map(|(name, which)| (name.to_owned(), json!(packed::floats(part(which).totals().into_iter()))))
    .collect();
    let remote = tells_level.then(|| {
        packed::shares(part(AccessClass::Remote), &[part(AccessClass::Local), part(AccessClass::Cached)])
    });
    json!({
        "name": look.region_name(field),
        "kind": region.map(|region| kind_name(region.kind)),
        "path": region.and_then(|region| region.path.as_deref()),
        "fileOffset": region.filter(|region| region.path.is_some()).map(|region| region.file_offset),
        "permissions": region.map(|region| region.permissions.as_str()),
        "bytes": field.window.bytes,
        "sum": field.sum,
        // A number of this size would be rounded.
        "start": look.absolute.then(|| format!("{:#x}", look.start(field))),
        "unknown": look.is_unknown(field),
        "granuleBytes": granule_bytes,
        "firstGranule": field.first_granule,
        "granules": heat.granules(),
        "totals": totals,
        "codes": coded.codes,
        "levels": coded.levels,
        "exact": coded.is_exact,
        "remote": remote,
        "autocorrelation": curve.iter().map(|value| rounded(*value)).collect::<Vec<_>>(),
        "peaks": peaks,
        "path_": hotspot::path(heat).into_iter().map(spot).collect::<Vec<_>>(),
        "touched": field.touched.per_slice,
        "grown": field.touched.since_start,
    })
}
