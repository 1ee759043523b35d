//! Heatmap in plain text, for terminals: rows are regions or stretches of one, columns are time.

use std::ops::Range;

use super::layout::count_axis;
use super::scene::wrap;
use super::words::{bytes, capitalised, slices, time};
use super::{AccessClass, Field, Look};
use crate::chart::{Axis, Spread};
use crate::quantity::Quantity;

/// Characters of rates, from the least to the most.
const LEVELS: [char; 8] = [':', '-', '=', '+', '*', '%', '#', '@'];
/// Of what is mapped and was not accessed.
const NO_ACCESS: char = '.';
/// Of what was accessed where it is not known which of its parts were.
const UNKNOWN: char = '?';
/// Of what is not mapped.
const UNMAPPED: char = ' ';
/// Rows of a region at most.
const ROWS_MAX: usize = 32;
/// Characters of a name at most.
const NAME_MAX: usize = 28;
/// Columns of a map at least, however narrow the terminal is.
const MAP_MIN: usize = 10;
/// Columns that a slice takes at most.
const SLICE_COLUMNS_MAX: usize = 10;
/// Columns from the start of one time to that of the next.
const TIME_STEP: usize = 14;

/// What is known of a stretch of memory in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    Unmapped,
    NoAccess,
    Unknown,
    /// Accesses per second and granule, of the hottest granule and slice.
    Rate(f32),
}

struct Row {
    label: String,
    cells: Vec<Cell>,
    remark: String,
}

/// One region, in `columns` columns: rows are stretches of its addresses.
pub fn text_map(look: &Look, field: &Field, columns: usize) -> String {
    let granules = field.granules();
    let together = granules.div_ceil(ROWS_MAX).max(1);
    let step = field.window.granule_bytes.saturating_mul(together as u64);
    let labels: Vec<String> =
        (0..granules).step_by(together).map(|at| address(look, field, at, step)).collect();
    let label = widest(labels.iter());
    let grid = Grid::of(look, field, columns.saturating_sub(label + 3));
    let rows = labels.into_iter().enumerate().map(|(number, label)| {
        let first = number * together;
        let cells = grid.cells(look, field, first..(first + together).min(granules));
        Row { label, cells, remark: String::new() }
    });
    let rows: Vec<Row> = rows.collect();
    let row = format!("a row is {}", bytes(step as f64));
    let title = format!("{}\n{}", look.title(field, &measure(look, field)), look.remark(field));
    drawn(look, &title, &rows, &grid, (label, columns), &[row])
}

/// Several regions, in `columns` columns, each in a row. Their granules have one size.
pub fn text_map_of_regions(look: &Look, fields: &[Field], columns: usize) -> String {
    let Some(first) = fields.first() else { return String::new() };
    let sum: f64 = fields.iter().map(|field| field.sum).sum();
    let names = fields.iter().map(|field| shortened(&look.region_name(field)));
    let names: Vec<String> = names.collect();
    let remark = |field: &Field| {
        let share = Quantity::Share.tick(field.sum / sum.max(f64::MIN_POSITIVE));
        format!("{:>9} {share:>6}", bytes(field.window.bytes as f64))
    };
    let remarks: Vec<String> = fields.iter().map(remark).collect();
    let label = widest(names.iter());
    let beside = widest(remarks.iter()) + 1;
    let grid = Grid::of(look, first, columns.saturating_sub(label + 3 + beside));
    let rows = fields.iter().zip(names).zip(remarks).map(|((field, name), remark)| Row {
        label: format!("{name:<label$}"),
        cells: grid.cells(look, field, 0..field.granules()),
        remark,
    });
    let rows: Vec<Row> = rows.collect();
    let title = format!(
        "{}\n{}; {}; right of it size and share",
        capitalised(&measure(look, first)),
        slices(look.recording, &first.slices),
        look.what()
    );
    drawn(
        look,
        &title,
        &rows,
        &grid,
        (label, columns),
        &["a row is a region, which --region NAME shows by its offsets".to_owned()],
    )
}

fn measure(look: &Look, field: &Field) -> String {
    format!("{} per second and granule of {}", look.noun(), bytes(field.window.granule_bytes as f64))
}

/// Where a granule begins: in its region, or in the recorded run. Steps are told by a unit of which they are whole ones, so that no two are
/// alike.
fn address(look: &Look, field: &Field, granule: usize, step: u64) -> String {
    match field.offset(granule) {
        offset if look.absolute => format!("{:#x}", look.start(field).saturating_add(offset)),
        offset => {
            let is_whole = |unit: &u64| step.is_multiple_of(*unit) && field.offset(0).is_multiple_of(*unit);
            let unit = [1 << 30, 1 << 20, 1 << 10].into_iter().find(is_whole).unwrap_or(1);
            let name = bytes(unit as f64);
            format!("{} {}", offset / unit, name.trim_start_matches("1 "))
        }
    }
}

fn widest<'t>(texts: impl Iterator<Item = &'t String>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

fn shortened(name: &str) -> String {
    match name.chars().count() > NAME_MAX {
        true => name.chars().take(NAME_MAX - 2).chain("..".chars()).collect(),
        false => name.to_owned(),
    }
}

/// Which slices each column has.
struct Grid {
    /// Slices of a column.
    together: usize,
    /// Columns of a slice, where that is one of few.
    wide: usize,
    /// When each slice begins.
    starts_ns: Vec<u64>,
}

impl Grid {
    fn of(look: &Look, field: &Field, room: usize) -> Self {
        let start_ns = |slice: &usize| look.recording.head.slices.get(*slice).map_or(0, |it| it.start_ns);
        let (slices, room) = (field.slices.len().max(1), room.max(MAP_MIN));
        let wide = (room / slices).clamp(1, SLICE_COLUMNS_MAX);
        let starts_ns = field.slices.iter().map(start_ns).collect();
        Grid { together: slices.div_ceil(room), wide, starts_ns }
    }

    /// Rows of a field that stand in one column, or in several where they are few.
    fn groups(&self) -> impl Iterator<Item = Range<usize>> {
        let (together, slices) = (self.together, self.starts_ns.len());
        (0..slices).step_by(together).map(move |first| first..(first + together).min(slices))
    }

    /// The cells of some granules, one for each group of slices.
    fn cells(&self, look: &Look, field: &Field, granules: Range<usize>) -> Vec<Cell> {
        let is_unknown = look.is_unknown(field);
        let Some(heat) = field.heat_of(AccessClass::Accesses) else { return Vec::new() };
        let rate = |row: usize| {
            let most = heat.row(row).get(granules.clone()).unwrap_or(&[]).iter().copied().fold(0.0, f32::max);
            most / seconds(look, field, row)
        };
        let region = look.recording.head.regions.get(field.window.region);
        let is_mapped = |row: usize| {
            let slice = field.slices.get(row).map_or(0, |slice| *slice as u32);
            region.is_none_or(|region| (region.first_slice..=region.last_slice).contains(&slice))
        };
        let cell = |group: Range<usize>| {
            let rows = group.start..group.end.min(heat.slices());
            let most = rows.clone().map(rate).fold(0.0, f32::max);
            match most > 0.0 {
                true if is_unknown => Cell::Unknown,
                true => Cell::Rate(most),
                false if rows.clone().any(is_mapped) => Cell::NoAccess,
                false => Cell::Unmapped,
            }
        };
        self.groups().map(cell).collect()
    }
}

/// The length of a field's slice.
fn seconds(look: &Look, field: &Field, row: usize) -> f32 {
    let slice = field.slices.get(row).and_then(|slice| look.recording.head.slices.get(*slice));
    let ns = slice.map_or(0, |slice| slice.end_ns.saturating_sub(slice.start_ns));
    // A slice without a length is taken for one of a microsecond: a rate has to be a number.
    ns.max(1_000) as f32 / 1e9
}

fn drawn(
    look: &Look,
    title: &str,
    rows: &[Row],
    grid: &Grid,
    (label, columns): (usize, usize),
    remarks: &[String],
) -> String {
    let rates: Vec<f32> = rows.iter().flat_map(|row| &row.cells).filter_map(rate_of).collect();
    let axis = count_axis(look.scale, "", rates.iter());
    let title: Vec<String> = title.lines().flat_map(|line| wrap(line, columns)).collect();
    let mut out = format!("{}\n\n{}\n", title.join("\n"), times(grid, label));
    for row in rows {
        let wide = |cell: &Cell| std::iter::repeat_n(character(&axis, *cell), grid.wide);
        let cells: String = row.cells.iter().flat_map(wide).collect();
        let line = format!("{:>label$} |{cells}| {}", row.label, row.remark);
        out += line.trim_end();
        out.push('\n');
    }
    let mut remarks = remarks.to_vec();
    if grid.together > 1 {
        remarks.push(format!("a column is {} slices", grid.together));
    }
    remarks.push("a character shows the hottest granule and slice of its own".to_owned());
    let remarks = capitalised(&format!("{}.", remarks.join("; ")));
    out += &format!("\n{}\n", wrap(&remarks, columns).join("\n"));
    let is_seen = |wanted: Cell| rows.iter().any(|row| row.cells.contains(&wanted));
    let mut entries = Vec::new();
    if is_seen(Cell::Unmapped) {
        entries.push(format!("{UNMAPPED} not mapped"));
    }
    entries.push(format!("{NO_ACCESS} none"));
    if !rates.is_empty() {
        entries
            .extend((1..).zip(LEVELS).map(|(level, it)| format!("{it} <= {}", short(bound(&axis, level)))));
    }
    if is_seen(Cell::Unknown) {
        entries.push(format!("{UNKNOWN} accessed; which parts is not known"));
    }
    let mut line = String::new();
    for entry in entries {
        if !line.is_empty() && line.chars().count() + 3 + entry.chars().count() > columns {
            out += &format!("{line}\n");
            line.clear();
        }
        line += if line.is_empty() { "" } else { "   " };
        line += &entry;
    }
    // Programs choose the names of their files and memory; a terminal must not take them for commands.
    let shown = |it: char| if it.is_control() && it != '\n' { char::REPLACEMENT_CHARACTER } else { it };
    (out + &line + "\n").chars().map(shown).collect()
}

fn rate_of(cell: &Cell) -> Option<f32> {
    match cell {
        Cell::Rate(rate) => Some(*rate),
        Cell::Unmapped | Cell::NoAccess | Cell::Unknown => None,
    }
}

fn character(axis: &Axis, cell: Cell) -> char {
    match cell {
        Cell::Unmapped => UNMAPPED,
        Cell::NoAccess => NO_ACCESS,
        Cell::Unknown => UNKNOWN,
        Cell::Rate(rate) => {
            let level = (1..LEVELS.len()).find(|level| f64::from(rate) <= bound(axis, *level));
            LEVELS[level.unwrap_or(LEVELS.len()) - 1]
        }
    }
}

/// The highest rate of a level, from 1 on.
fn bound(axis: &Axis, level: usize) -> f64 {
    let (from, to) = axis.range;
    let share = level as f64 / LEVELS.len() as f64;
    match axis.spread {
        Spread::Linear => from + (to - from) * share,
        Spread::Log => from * (to / from).powf(share),
    }
}

fn short(count: f64) -> String {
    Quantity::Count.tick(count)
}

/// Times above the columns in which they begin.
fn times(grid: &Grid, label: usize) -> String {
    let mut line = " ".repeat(label + 2);
    let mut next = 0;
    for (column, group) in grid.groups().enumerate() {
        let at = column * grid.wide;
        if at < next {
            continue;
        }
        let missing = label + 2 + at - line.chars().count();
        line += &" ".repeat(missing);
        line += &time(grid.starts_ns[group.start]);
        next = at + TIME_STEP;
    }
    line
}

#[cfg(test)]
mod tests {
    use tiermem_trace::recording::{Recording, RegionRange, Sample, Selection, Slice};

    use super::*;
    use crate::heatmap::gather;
    use crate::heatmap::tests::{look, recording};

    fn fields(recording: &Recording, regions: Range<usize>) -> Vec<Field> {
        let windows: Vec<RegionRange> =
            regions.map(|region| RegionRange::whole(recording, region, None)).collect();
        let slices: Vec<usize> = (0..recording.head.slices.len()).collect();
        gather(recording, &Selection::default(), &windows, &slices, &[AccessClass::Accesses]).unwrap()
    }

    fn region_map(recording: &Recording, region: usize, columns: usize) -> String {
        text_map(&look(recording), &fields(recording, region..region + 1)[0], columns)
    }

    /// What stands between the bars of each row.
    fn cells(text: &str) -> Vec<&str> {
        text.lines().filter_map(|line| Some(line.split_once('|')?.1.split_once('|')?.0)).collect()
    }

    /// A recording of one region of ten granules in so many slices of a second, with these accesses.
    fn of(slices: usize, accesses: &[(u32, u64, f32)]) -> Recording {
        let mut recording = recording();
        recording.head.slices = (0..slices as u64)
            .map(|at| Slice { start_ns: at * 1_000_000_000, end_ns: (at + 1) * 1_000_000_000 })
            .collect();
        recording.head.regions.swap(0, 1);
        recording.head.regions[0].last_slice = slices as u32 - 1;
        let sample = |&(slice, granule, weight): &(u32, u64, f32)| Sample {
            slice,
            offset: granule * 4096,
            weight,
            ..recording.samples[0]
        };
        recording.samples = accesses.iter().map(sample).collect();
        recording
    }

    #[test]
    fn a_hotspot_moves_from_the_upper_left_to_the_lower_right() {
        let recording = recording();
        let text = region_map(&recording, 0, 44);
        let rows = cells(&text);
        // 257 granules in 29 rows of 9; slices take four columns each, as there is no room for five.
        assert_eq!((rows.len(), rows[0].len()), (29, 32));
        assert_eq!(rows[0], format!("@@@@{}", ":".repeat(28)));
        assert_eq!(rows[10], format!("::::::::@@@@@@@@{}", ":".repeat(16)));
        assert_eq!(rows[28], format!("{}@@@@", ":".repeat(28)));
        assert!(text.starts_with("<weights> & more: accesses per second and"), "{text}");
        assert!(
            text.contains("\n   0 KiB |@") && text.contains("\n  36 KiB |@") && text.contains(". none"),
            "{text}"
        );
        assert!(text.contains("A row is 36 KiB; a character"), "{text}");
        let absolute = Look { absolute: true, ..look(&recording) };
        let text = text_map(&absolute, &fields(&recording, 0..1)[0], 80);
        assert!(text.contains("\n0x10000000 |@") && text.contains("\n0x10009000 |@"), "{text}");
    }

    #[test]
    fn each_character_has_its_rates() {
        let accesses: Vec<(u32, u64, f32)> = (0..9).map(|at| (0, at, 2f32.powi(at as i32))).collect();
        let text = region_map(&of(1, &accesses), 0, 80);
        assert_eq!(cells(&text), [":", ":", "-", "=", "+", "*", "%", "#", "@", "."].map(|it| it.repeat(10)));
        assert!(text.contains(": <= 2   - <= 4   = <= 8   + <= 16   * <= 32   % <= 64"), "{text}");
        assert!(text.contains("@ <= 256") && !text.contains("not mapped") && !text.contains('?'), "{text}");
    }

    #[test]
    fn a_rate_is_per_second_and_the_hottest_slice_of_a_column_shows() {
        let mut long = of(3, &[(0, 0, 8.0), (1, 0, 8.0), (2, 0, 4.0)]);
        long.head.slices[1].end_ns += 1_000_000_000;
        let first = |recording: &Recording| cells(&region_map(recording, 0, 80))[0].to_owned();
        // Eight in two seconds are four in one.
        assert_eq!(first(&long), format!("{}{}", "@".repeat(10), "+".repeat(20)));
        let mut accesses: Vec<(u32, u64, f32)> = (0..600).map(|slice| (slice, 0, 1.0)).collect();
        accesses[599].2 = 100.0;
        let text = region_map(&of(600, &accesses), 0, 80);
        let rows = cells(&text);
        assert!(rows[0].ends_with(":@") && rows[0].matches('@').count() == 1, "{text}");
        assert!(text.contains("a column is 9 slices"), "{text}");
    }

    #[test]
    fn what_is_not_known_or_not_there_is_neither_idle_nor_hot() {
        let mut recording = of(4, &[(2, 0, 8.0), (2, 1, 8.0), (2, 2, 9.0)]);
        recording.head.regions[0].first_slice = 1;
        let wide = |four: [&str; 4]| four.map(|it| it.repeat(10)).concat();
        assert_eq!(cells(&region_map(&recording, 0, 80))[9], wide([" ", ".", ".", "."]));
        assert_eq!(cells(&region_map(&recording, 0, 80))[2], wide([" ", ".", "@", "."]));
        // Looked at as a whole.
        recording.samples.truncate(1);
        recording.samples[0].bytes = 40960;
        for text in [
            region_map(&recording, 0, 80),
            text_map_of_regions(&look(&recording), &fields(&recording, 0..1), 80),
        ] {
            assert!(cells(&text).iter().all(|row| *row == wide([" ", ".", "?", "."])), "{text}");
            assert!(text.contains("? accessed; which parts is not known") && !text.contains("<="), "{text}");
        }
    }

    #[test]
    fn it_is_no_wider_than_the_terminal() {
        let accesses: Vec<(u32, u64, f32)> =
            (0..600).map(|slice| (slice, u64::from(slice) % 10, 1.0)).collect();
        for recording in [recording(), of(600, &accesses), of(1, &[])] {
            for columns in [60, 80, 81, 133, 300] {
                let several = text_map_of_regions(&look(&recording), &fields(&recording, 0..2), columns);
                for text in [region_map(&recording, 0, columns), several] {
                    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
                    assert!(widest <= columns, "{widest} of {columns}\n{text}");
                }
            }
        }
        // However narrow it is there is a map.
        assert!(cells(&region_map(&recording(), 0, 1)).iter().all(|row| row.len() >= 8));
    }

    #[test]
    fn regions_have_a_row_each_with_size_and_share() {
        let recording = recording();
        let text = text_map_of_regions(&look(&recording), &fields(&recording, 0..2), 80);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains('|')).collect();
        assert!(lines[0].starts_with("<weights> & more |@") && lines[0].ends_with("1 MiB  99.1%"), "{text}");
        // Its samples are larger than granules.
        assert!(
            lines[1].starts_with("heap             |????") && lines[1].ends_with("40 KiB 0.894%"),
            "{text}"
        );
        assert_eq!(text_map_of_regions(&look(&recording), &[], 80), "");
    }
}
