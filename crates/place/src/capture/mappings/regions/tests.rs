//! Regions of mappings that come, grow, join and go.

use super::super::maps;
use super::*;
use proptest::prelude::*;

/// The regions in the order of addresses, and for each number the place of its region among them.
fn finish(mut regions: Regions) -> (Vec<Region>, Vec<u32>) {
    let numbered = regions.numbered();
    let mut order: Vec<_> = numbered.iter().filter(|it| it.within.is_none()).collect();
    order.sort_by_key(|it| it.region.start);
    let place = |number: u32| {
        let number = whole(&regions.known, number);
        order.iter().position(|it| it.number == number).map_or(u32::MAX, |at| at as u32)
    };
    let places = (0..regions.known.len() as u32).map(place).collect();
    (order.into_iter().map(|it| it.region.clone()).collect(), places)
}

fn regions(updates: &[&str]) -> Regions {
    let mut regions = Regions::default();
    for (slice, text) in updates.iter().enumerate() {
        regions.update(&maps::parse(text).unwrap(), &BTreeMap::new(), slice as u32);
        regions.numbered();
    }
    regions
}

#[test]
fn granules_are_one_region_and_what_cannot_be_accessed_is_none() {
    let text = "10000-20000 rw-p 00000000 00:00 0 \n20000-30000 rw-p 00000000 00:00 0 \n\
                30000-40000 ---p 00000000 00:00 0 \n40000-50000 rw-p 00000000 00:00 0 [heap]\n";
    let regions = regions(&[text]);
    assert_eq!(regions.find(0x1ffff), regions.find(0x20000));
    assert_eq!((regions.find(0x30000), regions.find(0x9000)), (None, None));
    let (regions, _) = finish(regions);
    let shape: Vec<_> = regions.iter().map(|it| (it.name.as_str(), it.start, it.bytes)).collect();
    assert_eq!(shape, [("anon 1", 0x10000, 0x20000), ("heap", 0x40000, 0x10000)]);
}

/// The sizes of the regions that are named, by name, after mappings with owners.
fn owned(updates: &[(&str, &[(u64, u32)])]) -> Vec<(String, u64)> {
    let mut regions = Regions::default();
    for (slice, (text, owners)) in updates.iter().enumerate() {
        let owners = owners.iter().copied().collect();
        regions.update(&maps::parse(text).unwrap(), &owners, slice as u32);
        regions.numbered();
    }
    finish(regions).0.into_iter().map(|it| (it.name, it.bytes)).collect()
}

#[test]
fn memory_of_another_thread_is_another_region() {
    let one = "10000-60000 rw-p 0 00:00 0 \n";
    let names = [("anon 2".to_owned(), 0x20000), ("anon 1".to_owned(), 0x30000)];
    assert_eq!(owned(&[(one, &[(0x10000, 2), (0x30000, 1)])]), names);
    // Where the memory of one has been, and a part of it is another's by now.
    let [two, all] = [&[(0x10000, 2), (0x30000, 1)][..], &[(0x10000, 1)]];
    assert_eq!(
        owned(&[(one, all), (one, two)]),
        [("anon 1".to_owned(), 0x50000), ("anon 2".to_owned(), 0x20000)]
    );
    // What is there alone stays what it is, whoever maps it again.
    assert_eq!(owned(&[(one, all), (one, &[(0x10000, 2)])]), [("anon 1".to_owned(), 0x50000)]);
}

#[test]
fn names_go_by_time_and_size_and_not_by_address() {
    let first = "10000-20000 rw-p 0 00:00 0 \n40000-80000 rw-p 0 00:00 0 \n";
    let with_more = format!("{first}90000-99000 rw-p 0 00:00 0 \n");
    let names =
        |texts: &[&str]| -> Vec<String> { finish(regions(texts)).0.into_iter().map(|it| it.name).collect() };
    assert_eq!(names(&[first, &with_more]), ["anon 2", "anon 1", "anon 3"]);
    let moved = "10000-50000 rw-p 0 00:00 0 \n70000-80000 rw-p 0 00:00 0 \n";
    assert_eq!(names(&[moved]), ["anon 1", "anon 2"]);
    // A region that grows keeps its name.
    let grown = "10000-20000 rw-p 0 00:00 0 \n40000-f0000 rw-p 0 00:00 0 \n";
    assert_eq!(
        names(&["10000-20000 rw-p 0 00:00 0 \n40000-48000 rw-p 0 00:00 0 \n", grown]),
        ["anon 1", "anon 2"]
    );
}

#[test]
fn the_hottest_changes_when_another_is_half_as_hot_again() {
    let mut regions = regions(&["10000-20000 rw-p 0 00:00 0 \n40000-80000 rw-p 0 00:00 0 \n"]);
    let closer = |name: &str| Closer { name: name.to_owned(), granule_bytes: 4096 };
    assert_eq!(regions.choose(&closer("hottest"), None, false), [0; 0]);
    regions.heat(0, 10.0);
    regions.heat(1, 14.0);
    assert_eq!(regions.choose(&closer("hottest"), None, false), [1]);
    assert_eq!(regions.choose(&closer("hottest"), Some(0), false), [0]);
    regions.cool();
    regions.heat(1, 4.0);
    assert_eq!(regions.choose(&closer("hottest"), Some(0), false), [1]);
    assert_eq!(
        (regions.choose(&closer("anon"), None, false), regions.choose(&closer("anon 1"), None, false)),
        (vec![0, 1], vec![1])
    );
    regions.update(&maps::parse("10000-20000 rw-p 0 00:00 0 \n").unwrap(), &BTreeMap::new(), 1);
    assert_eq!(
        (regions.choose(&closer("anon 1"), None, false), regions.choose(&closer("anon 1"), None, true)),
        (vec![], vec![1])
    );
    let coarse = Closer { granule_bytes: 0x10000, ..closer("hottest") };
    regions.heat(0, 99.0);
    assert_eq!(regions.choose(&coarse, None, true), [1]);
    assert_eq!(regions.names(), ["anon 2", "anon 1"]);
}

#[test]
fn a_region_that_grows_either_way_stays_itself_and_two_that_meet_become_one() {
    let regions = regions(&[
        "20000-30000 rw-p 0 00:00 0 \n50000-60000 rw-p 0 00:00 0 \n",
        "10000-30000 rw-p 0 00:00 0 \n50000-68000 rw-p 0 00:00 0 \n",
        "10000-68000 rw-p 0 00:00 0 \n",
    ]);
    let (regions, places) = finish(regions);
    assert_eq!(regions.len(), 1);
    assert_eq!((regions[0].start, regions[0].bytes), (0x10000, 0x58000));
    assert_eq!((regions[0].first_slice, regions[0].last_slice), (0, 2));
    assert_eq!(places, [0, 0]);
}

#[test]
fn a_region_with_a_hole_is_one_and_what_lies_in_the_hole_is_another() {
    let whole = "10000-60000 rw-p 0 00:00 0 \n";
    let parts = "10000-20000 rw-p 0 00:00 0 \n50000-60000 rw-p 0 00:00 0 \n";
    let filled = "10000-20000 rw-p 0 00:00 0 \n30000-40000 r--p 0 00:00 0 \n50000-60000 rw-p 0 00:00 0 \n";
    let regions = regions(&[whole, parts, filled, filled, whole, parts, whole]);
    let (regions, places) = finish(regions);
    assert_eq!(
        regions.iter().map(|it| (it.start, it.bytes)).collect::<Vec<_>>(),
        [(0x10000, 0x50000), (0x30000, 0x10000)]
    );
    assert_eq!(places, [0, 1]);
    let mut regions = self::regions(&[whole, filled]);
    assert_eq!(
        [0x1f000, 0x2f000, 0x3f000, 0x4f000, 0x5f000].map(|at| regions.find(at)),
        [Some(0), None, Some(1), None, Some(0)]
    );
    let mut parts = Vec::new();
    regions.overlapping(0, u64::MAX, &mut parts);
    assert_eq!(parts, [(0, 0x10000, 0x20000), (1, 0x30000, 0x40000), (0, 0x50000, 0x60000)]);
    assert_eq!(regions.planned().len(), 2);
}

#[test]
fn a_region_with_a_hole_that_grows_together_with_an_older_one_stays_whole() {
    let mut regions = regions(&[
        "10000-20000 rw-p 0 00:00 0 \n30000-60000 rw-p 0 00:00 0 \n",
        "10000-40000 rw-p 0 00:00 0 \n50000-60000 rw-p 0 00:00 0 \n",
    ]);
    assert_eq!([0x15000, 0x55000].map(|at| regions.find(at)), [Some(0), Some(0)]);
    assert_eq!(regions.mapped(0), [(0x10000, 0x40000), (0x50000, 0x60000)]);
    assert_eq!(regions.planned().len(), 1);
}

#[test]
fn regions_are_planned_in_the_order_of_addresses() {
    // Memory is given out downward.
    let above = "50000-60000 rw-p 0 00:00 0 \n";
    let both = "20000-30000 rw-p 0 00:00 0 \n50000-60000 rw-p 0 00:00 0 \n";
    let starts: Vec<u64> = regions(&[above, both]).planned().into_iter().map(|(_, start, _)| start).collect();
    assert_eq!(starts, [0x20000, 0x50000]);
}

#[test]
fn a_file_that_was_replaced_does_not_lend_its_build_id() {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let build_ids = |suffix: &str| {
        let text = format!("10000-20000 r-xp 00000000 08:01 7 {program}{suffix}\n");
        let mut regions = regions(&[&text]);
        let planned = regions.planned()[0].2.build_id.clone();
        let (recorded, _) = finish(regions);
        assert_eq!(recorded[0].path.as_deref(), Some(program));
        (planned, recorded[0].build_id.clone())
    };
    let known = build_id::of_path(Some(program));
    assert_eq!(build_ids(""), (known.clone(), known));
    assert_eq!(build_ids(" (deleted)"), (None, None));
}

#[test]
fn what_lies_where_another_was_is_another() {
    let regions = regions(&[
        "10000-20000 r--s 00000000 08:01 7 /tmp/a file\n",
        "10000-20000 r--s 00000000 08:01 8 /tmp/b\n",
    ]);
    assert_eq!(regions.find(0x10000), Some(1));
    let (regions, _) = finish(regions);
    assert_eq!(regions.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["a file", "b"]);
}

/// Mappings that do not overlap, of three kinds: each page of 64 is of one kind or not mapped.
fn mapped(pages: &[u8]) -> Vec<MapLine> {
    let lines = pages.iter().enumerate().filter(|(_, what)| **what < 3).map(|(at, what)| {
        let path = [None, Some("[heap]"), Some("/a")][usize::from(*what)].map(str::to_owned);
        let (start, end) = ((at as u64 + 1) << 12, (at as u64 + 2) << 12);
        MapLine { start, end, offset: start, permissions: "rw-p".to_owned(), path, ..MapLine::default() }
    });
    lines.collect()
}

proptest! {
    /// Under any mapping, unmapping and growth: mapped memory lies
    /// in exactly one region, which has room for it in the end.
    #[test]
    fn all_that_is_mapped_has_a_region(updates in prop::collection::vec(prop::collection::vec(0u8..5, 64), 1..12)) {
        let mut regions = Regions::default();
        let mut seen: Vec<(u64, u32)> = Vec::new();
        for (slice, pages) in updates.iter().enumerate() {
            let lines = mapped(pages);
            regions.update(&lines, &BTreeMap::new(), slice as u32);
            for line in &lines {
                let region = regions.find(line.start);
                prop_assert!(region.is_some());
                seen.extend(region.map(|region| (line.start, region)));
            }
            let mut parts = Vec::new();
            regions.overlapping(0, u64::MAX, &mut parts);
            prop_assert_eq!(parts.iter().map(|(_, from, to)| to - from).sum::<u64>(), (lines.len() as u64) << 12);
            regions.numbered();
        }
        let (regions, places) = finish(regions);
        for (address, region) in seen {
            let region = &regions[places[region as usize] as usize];
            prop_assert!(region.start <= address && address < region.start + region.bytes);
        }
    }
}
