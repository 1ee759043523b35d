//! Tests with a small recording that has everything in it, and the properties of all views.

use tiermem_base::Op;
use tiermem_trace::recording::{
    Head, Level, Mode, Process, Recording, Region, RegionKind, RegionRange, Sample, Slice, Source,
};

use super::*;

/// Two regions and eight slices; the first region is accessed every fourth granule, by a hotspot that moves.
pub fn recording() -> Recording {
    let region = |name: &str, start, bytes, kind| Region {
        name: name.to_owned(),
        start,
        bytes,
        kind,
        ..Region::default()
    };
    let second = 1_000_000_000;
    let head = Head {
        version: Head::VERSION,
        granule_bytes: 4096,
        slices: (0..8).map(|at| Slice { start_ns: at * second, end_ns: (at + 1) * second }).collect(),
        sources: vec![Source { name: "refs".to_owned(), tells_level: true, ..Source::default() }],
        regions: vec![
            region("<weights> & more", 0x1000_0000, 4096 * 256 + 100, RegionKind::File),
            region("heap", 0x9000_0000, 4096 * 10, RegionKind::Heap),
            region("cold", 0xf000_0000, 4096, RegionKind::Anonymous),
        ],
        ..Head::default()
    };
    let mut samples = Vec::new();
    for slice in 0..8u32 {
        for granule in 0..64u64 {
            let is_hot = granule / 8 == u64::from(slice);
            samples.push(Sample {
                slice,
                offset: granule * 4 * 4096,
                bytes: 4096,
                resident: 4096,
                weight: if is_hot { 90.0 } else { 1.0 },
                op: if granule % 2 == 0 { Op::Load } else { Op::Store },
                level: if is_hot { Level::Remote } else { Level::Local },
                mode: Mode::User,
                node: 0,
                ..Sample::default()
            });
        }
        samples.push(Sample {
            region: 1,
            offset: 100,
            bytes: 20_000,
            resident: 20_000,
            weight: 7.0,
            slice,
            ..samples[0]
        });
    }
    Recording { head, samples }
}

pub fn look(recording: &Recording) -> Look<'_> {
    Look {
        recording,
        selection: Selection::default(),
        show: Show::Accesses,
        scale: ScaleChoice::Auto,
        columns: Columns::Square,
        theme: Theme::LIGHT,
        absolute: false,
    }
}

fn fields(recording: &Recording) -> Vec<Field> {
    let windows: Vec<RegionRange> =
        (0..2).map(|region| RegionRange::whole(recording, region, None)).collect();
    let slices: Vec<usize> = (0..recording.head.slices.len()).collect();
    gather(recording, &Selection::default(), &windows, &slices, &AccessClass::ALL).unwrap()
}

fn texts(scene: &Scene) -> String {
    let texts = scene.items.iter().filter_map(|item| match item {
        scene::Item::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join(" ")
}

#[test]
fn every_view_says_what_it_shows_and_stays_within_the_picture() {
    let recording = recording();
    let fields = fields(&recording);
    for show in [Show::Accesses, Show::ShareRemote] {
        for columns in [Columns::Square, Columns::Given(4), Columns::Given(1), Columns::Given(100_000)] {
            let look = Look { show, columns, ..look(&recording) };
            let scenes = [
                map(&look, &fields[0]),
                map_of_slices(&look, &fields[0]),
                map_of_regions(&look, &fields),
                scatter(&look, &fields[0]),
                autocorrelation(&look, &fields[0]),
                path(&look, &fields[0]),
                working_set(&look, &fields),
            ];
            for scene in scenes {
                assert!(texts(&scene).contains("all 8 slices, 0 s to 8 s"), "{}", scene.title);
                for item in &scene.items {
                    let (x, y) = match item {
                        scene::Item::Text { at, .. } => *at,
                        scene::Item::Cells { area, .. } | scene::Item::Frame { area, .. } => {
                            (area[0] + area[2], area[1] + area[3])
                        }
                        _ => continue,
                    };
                    assert!(
                        (0.0..=scene.width).contains(&x) && (0.0..=scene.height).contains(&y),
                        "{item:?}"
                    );
                }
                let drawn = svg(&scene);
                assert!(!drawn.contains("NaN") && !drawn.contains("inf\"") && !drawn.contains("<weights>"));
                assert!(png(&scene).len() > 1000);
            }
        }
    }
    let looks = look(&recording);
    let drawn = texts(&map(&looks, &fields[0]));
    assert!(drawn.contains("white is never accessed") && drawn.contains("accesses per granule"), "{drawn}");
    let drawn = texts(&autocorrelation(&looks, &fields[0]));
    assert!(drawn.contains("period 4 granules = 16 KiB"), "{drawn}");
    assert!(texts(&map_of_slices(&looks, &fields[0])).contains("slice 7"));
}

#[test]
fn page_table_and_picture_count_the_bytes_that_were_in_memory() {
    let mut recording = recording();
    recording.samples.iter_mut().filter(|it| it.region == 0).for_each(|it| it.resident = 1024);
    let fields = fields(&recording);
    // The first region has 64 granules of 1 KiB each, the second one 20,000 bytes.
    assert_eq!(fields[0].touched.bytes(), 64 << 10);
    assert_eq!(fields[1].touched.bytes(), 20_000);
    let drawn = texts(&working_set(&look(&recording), &fields));
    assert!(drawn.contains("all in 83.5 KiB"), "{drawn}");
    let regions: Vec<PageRegion> = fields.into_iter().map(|field| PageRegion { field }).collect();
    let html = page(&look(&recording), "app.rec", &regions, 0);
    assert!(html.contains("83.5 KiB were touched in all") && html.contains("<td>64 KiB</td>"), "{html}");
}

#[test]
fn heat_that_is_not_known_is_called_so() {
    let mut recording = recording();
    let known = texts(&map(&look(&recording), &fields(&recording)[0]));
    assert!(!known.contains("not known"), "{known}");
    recording.samples.retain(|it| it.region == 0 && it.offset == 0);
    recording.samples.iter_mut().for_each(|it| it.bytes = 4096 * 256);
    let fields = fields(&recording);
    assert!(texts(&map(&look(&recording), &fields[0])).contains("which parts are hot is not known"));
    let regions: Vec<PageRegion> = fields.into_iter().map(|field| PageRegion { field }).collect();
    let html = page(&look(&recording), "app.rec", &regions, 0);
    assert!(html.contains("Which memory is hot is not known") && html.contains("\"unknown\":true"));
    assert!(html.contains("100% of the accesses went to mappings"), "{html}");
}

#[test]
fn shares_are_of_accesses_of_which_the_level_is_known() {
    let recording = recording();
    let fields = fields(&recording);
    let shares = fields[0].values(Show::ShareRemote, 0..8);
    assert!((shares[0] - 90.0 / 97.0).abs() < 1e-6 && shares[1].is_nan());
    assert_eq!(fields[0].values(Show::ShareRemote, 1..2)[0], 0.0);
    assert_eq!(fields[0].values(Show::Accesses, 0..8)[0], 97.0);
}

#[test]
fn recordings_without_anything_are_drawn_too() {
    let recording =
        Recording { head: Head { regions: vec![Region::default()], ..Head::default() }, samples: vec![] };
    let window = RegionRange::whole(&recording, 0, None);
    let fields = gather(&recording, &Selection::default(), &[window], &[], &AccessClass::ALL).unwrap();
    let look = look(&recording);
    for scene in [
        map(&look, &fields[0]),
        map_of_slices(&look, &fields[0]),
        map_of_regions(&look, &[]),
        scatter(&look, &fields[0]),
        autocorrelation(&look, &fields[0]),
        path(&look, &fields[0]),
        working_set(&look, &fields),
        working_set(&look, &[]),
    ] {
        assert!(!svg(&scene).contains("NaN"));
        png(&scene);
    }
    assert!(page(&look, "nothing", &[], 0).ends_with("</html>"));
}

#[test]
fn the_page_has_the_lives_of_processes_where_there_are_several() {
    let mut recording = recording();
    let process = |name: &str, begun_s: u64, is_observed| Process {
        name: name.to_owned(),
        command: vec![format!("./{name}"), "<all>".to_owned()],
        begun_ns: begun_s * 1_000_000_000,
        ended_ns: Some(6_000_000_000),
        is_observed,
        ..Process::default()
    };
    let html = |recording: &Recording| {
        let regions = fields(recording).into_iter().map(|field| PageRegion { field }).collect::<Vec<_>>();
        page(&look(recording), "make.rec", &regions, 0)
    };
    recording.head.processes = vec![process("make", 0, true)];
    assert!(!html(&recording).contains("<h2>Processes"));
    recording.head.processes.extend([process("cc1", 2, true), process("as", 3, false)]);
    recording.head.regions[1].process = 1;
    let html = html(&recording);
    assert!(html.contains("<h2>Processes") && html.contains("./cc1 &lt;all&gt;") && !html.contains("./as "));
    assert!(
        html.contains("--from:25.0%;--of:50.0%")
            && html.contains("1 process ended too soon to be looked at.")
    );
}

#[test]
fn the_page_needs_nothing_else_and_names_cannot_break_out() {
    let recording = recording();
    let regions: Vec<PageRegion> = fields(&recording).into_iter().map(|field| PageRegion { field }).collect();
    let html = page(&look(&recording), "a</script><b>.parquet", &regions, 3);
    for outside in ["http://", "https://", "url(", "@import", " src=", "</script><b>", "<weights>"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("Nine tenths of the accesses") && html.contains("3 colder regions have"));
    assert!(html.len() < 100_000, "{}", html.len());
}
