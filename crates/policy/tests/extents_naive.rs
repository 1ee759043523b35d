//! The block cache against naive twins of the published algorithms, written as they stand in the text: a table for each size,
//! lists that are vectors. Hits, allocations and cached extents must be the same after every request.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

mod extents_world;

use std::collections::BTreeMap;

use extents_world::{KIB, World};
use proptest::prelude::*;
use tiermem_policy::extents::*;

#[derive(Clone, Debug, PartialEq)]
struct Group {
    size: u64,
    /// Places, each with the address of its block.
    places: Vec<Option<u64>>,
}

/// Intervals by their ends, or blocks by address and size.
type Pairs = Vec<(u64, u64)>;

/// Yang 2024, sections 2.2.2 to 2.2.4, for one volume.
struct Naive {
    /// B_1 to B_n, ascending.
    sizes: Vec<u64>,
    group_bytes: u64,
    groups_max: usize,
    /// H_B for each size: address to group and place.
    tables: BTreeMap<u64, BTreeMap<u64, (usize, usize)>>,
    groups: Vec<Option<Group>>,
    /// Heads first.
    group_list: Vec<usize>,
    block_list: Vec<(u64, u64)>,
}

impl Naive {
    fn new(sizes: &[u64], capacity_bytes: u64) -> Self {
        let group_bytes = *sizes.last().unwrap();
        let groups_max = (capacity_bytes / group_bytes) as usize;
        let tables = sizes.iter().map(|&size| (size, BTreeMap::new())).collect();
        let (groups, group_list, block_list) = (vec![None; groups_max], Vec::new(), Vec::new());
        Naive { sizes: sizes.to_vec(), group_bytes, groups_max, tables, groups, group_list, block_list }
    }

    /// Algorithm 1, with the end that it must mean. Also the blocks that were found.
    fn missing(&self, offset: u64, bytes: u64) -> (Pairs, Pairs) {
        let smallest = self.sizes[0];
        let (mut intervals, mut found) = (Pairs::new(), Pairs::new());
        let (mut begin, end) = (offset / smallest * smallest, (offset + bytes).next_multiple_of(smallest));
        while begin < end {
            let holder =
                self.sizes.iter().find(|&&size| self.tables[&size].contains_key(&(begin / size * size)));
            if let Some(&size) = holder {
                found.push((begin / size * size, size));
                begin = begin / size * size + size;
                continue;
            }
            match intervals.last_mut() {
                Some(last) if last.1 == begin => last.1 += smallest,
                _ => intervals.push((begin, begin + smallest)),
            }
            begin += smallest;
        }
        (intervals, found)
    }

    fn promote_group(&mut self, group: usize) {
        self.group_list.retain(|&other| other != group);
        self.group_list.insert(0, group);
    }

    fn promote(&mut self, block: (u64, u64)) {
        self.block_list.retain(|&other| other != block);
        self.block_list.insert(0, block);
        let group = self.tables[&block.1][&block.0].0;
        self.promote_group(group);
    }

    fn remove(&mut self, (address, size): (u64, u64)) -> (usize, usize) {
        self.block_list.retain(|&other| other != (address, size));
        let (group, place) = self.tables.get_mut(&size).unwrap().remove(&address).unwrap();
        self.groups[group].as_mut().unwrap().places[place] = None;
        (group, place)
    }

    fn allocate(&mut self, address: u64, size: u64) {
        let is_open = |group: &Option<Group>| {
            group.as_ref().is_some_and(|group| group.size == size && group.places.contains(&None))
        };
        let (group, place) = if let Some(group) = self.groups.iter().position(is_open) {
            (group, self.groups[group].as_ref().unwrap().places.iter().position(Option::is_none).unwrap())
        } else if self.group_list.len() < self.groups_max {
            (self.open(size), 0)
        } else if let Some(&tail) = self.block_list.last().filter(|tail| tail.1 == size) {
            self.remove(tail)
        } else {
            let tail = *self.group_list.last().unwrap();
            for address in self.groups[tail].clone().unwrap().places.into_iter().flatten() {
                self.remove((address, self.groups[tail].as_ref().unwrap().size));
            }
            self.groups[tail] = None;
            self.group_list.pop();
            (self.open(size), 0)
        };
        self.tables.get_mut(&size).unwrap().insert(address, (group, place));
        self.groups[group].as_mut().unwrap().places[place] = Some(address);
        self.promote((address, size));
    }

    fn open(&mut self, size: u64) -> usize {
        let group = self.groups.iter().position(Option::is_none).unwrap();
        self.groups[group] = Some(Group { size, places: vec![None; (self.group_bytes / size) as usize] });
        group
    }

    /// Whether it was a hit.
    fn request(&mut self, offset: u64, bytes: u64) -> bool {
        let (intervals, found) = self.missing(offset, bytes);
        for &block in &found {
            self.promote(block);
        }
        // Algorithm 2, with the break that it must mean.
        for &(mut begin, end) in &intervals {
            while begin != end {
                let fits = |&&size: &&u64| begin.is_multiple_of(size) && size <= end - begin;
                let size = *self.sizes.iter().rev().find(fits).unwrap();
                self.allocate(begin, size);
                begin += size;
            }
        }
        let still_there = |block: &(u64, u64)| self.tables[&block.1].contains_key(&block.0);
        assert!(found.iter().all(still_there), "the test's caches are large enough");
        intervals.is_empty()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn as_published(
        sizes in prop_oneof![
            Just(vec![32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB]),
            Just(vec![32 * KIB, 256 * KIB]),
            Just(vec![64 * KIB]),
            Just(vec![4 * KIB, 8 * KIB, 128 * KIB]),
        ],
        groups in 12u64..20,
        // At most two groups' worth, so that the blocks of one request never drive each other out.
        requests in prop::collection::vec((0u64..16384, 1u64..128, any::<bool>()), 1..200),
    ) {
        let capacity = groups * sizes.last().unwrap();
        let config = Config { fill: Fill::Whole, sizing: Sizing::Request, shares: 1 };
        let mut world = World::new(&sizes, capacity, config);
        let mut naive = Naive::new(&sizes, capacity);
        for (sector, sectors, write) in requests {
            let (offset, bytes) = (sector * 512, sectors * 512);
            let write = write.then_some(Mode::WriteBack);
            let hit = world.request(Request { volume: Volume(0), offset, bytes, write, bypass: false });
            prop_assert_eq!(hit, naive.request(offset, bytes));
            let blocks: Vec<u64> = sizes.iter().map(|size| naive.tables[size].len() as u64).collect();
            prop_assert_eq!(world.cache.map().blocks(), &blocks);
            // Whole blocks are filled, so what is valid is what is cached.
            let mut cached = Vec::new();
            world.cache.visit(Volume(0), 0..32 << 20, |part, _| {
                cached.extend((part.offset..part.offset + part.bytes).step_by(4096));
            });
            let mut expected: Vec<u64> = naive.block_list.iter()
                .flat_map(|&(address, size)| (address..address + size).step_by(4096))
                .collect();
            expected.sort_unstable();
            prop_assert!(cached == expected);
        }
    }
}
