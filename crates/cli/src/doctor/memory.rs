//! Doctor rows on memory placement: nodes, ways to move pages between them, page sizes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tiermem_base::Bytes;
use tiermem_sys::kernel_probes;
use tiermem_sys::numa::{NodeInfo, Policy, Topology};

use super::facts::Facts;
use super::{Row, State};

const CXL_DEVICES: &str = "/sys/bus/cxl/devices";
const TIERS: &str = "/sys/devices/virtual/memory_tiering";
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// One for each.
pub fn rows(facts: &Facts) -> Vec<Row> {
    let topology = Topology::read();
    let with_memory = topology.with_memory();
    let kernel = "a kernel with CONFIG_NUMA; in a container, a profile that allows the call";
    let moved = kernel_probes::move_pages().map_err(|error| error.to_string());
    let bound = match with_memory.first() {
        Some(&node) => kernel_probes::bind(node).map_err(|error| error.to_string()),
        None => Err("no node is known".to_owned()),
    };
    let move_row =
        Row::tried("move_pages", "run --plan: pages moved while the program runs", moved.as_ref(), kernel);
    vec![
        nodes(&topology),
        cxl(Path::new(CXL_DEVICES)),
        memory_tiers(Path::new(TIERS)),
        move_row,
        Row::tried("mbind", "numa tiers of the store, run: memory from a node", bound.as_ref(), kernel),
        interleave(&with_memory, facts.privileges.is_root),
        huge_pages(facts.huge_pages.as_deref()),
    ]
}

fn nodes(topology: &Topology) -> Row {
    let (item, purpose) = ("NUMA nodes", "run, plan and numa tiers: kinds of memory that are really there");
    let places: Vec<&NodeInfo> = topology.places.iter().filter(|place| place.bytes > 0).collect();
    let told: Vec<String> = places.iter().map(|place| node(place)).collect();
    match places.len() {
        0 => Row::lacking(
            item,
            State::Unknown,
            purpose,
            "the kernel tells of none",
            "a kernel with CONFIG_NUMA",
        ),
        1 => Row::lacking(
            item,
            State::Limited,
            purpose,
            told.join("; "),
            "a second socket, or CXL memory brought online; emulated tiers of the store need none",
        ),
        _ => Row::yes(item, purpose, told.join("; ")),
    }
}

fn node(place: &NodeInfo) -> String {
    let cpus = match place.cpus.as_slice() {
        [] => "no CPUs".to_owned(),
        [cpu] => format!("CPU {cpu}"),
        cpus => format!("CPUs {}", ranges(cpus)),
    };
    format!("node {}: {}, {cpus}", place.number, Bytes(place.bytes))
}

/// Ascending numbers as `0-3,8`.
fn ranges(numbers: &[u32]) -> String {
    let parts = numbers.chunk_by(|one, next| one + 1 == *next);
    let text = parts.map(|part| match part {
        [first, .., last] => format!("{first}-{last}"),
        _ => part.iter().map(u32::to_string).collect(),
    });
    text.collect::<Vec<_>>().join(",")
}

/// The names in a folder, in order; none if the folder does not exist.
fn names(folder: &Path) -> Option<Vec<String>> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Some(names)
}

fn cxl(devices: &Path) -> Row {
    let (item, purpose) = ("CXL memory", "a far tier of real memory");
    let lacking = |state, found: &str, advice| Row::lacking(item, state, purpose, found, advice);
    let Some(names) = names(devices) else {
        return lacking(
            State::No,
            "the kernel has no CXL bus",
            "a kernel with CONFIG_CXL_BUS, a processor with CXL, and a device",
        );
    };
    let with = |prefix: &str| -> Vec<&str> {
        let is_one = |name: &&str| name.strip_prefix(prefix).is_some_and(|rest| rest.parse::<u32>().is_ok());
        names.iter().map(String::as_str).filter(is_one).collect()
    };
    let (memory, regions) = (with("mem"), with("region"));
    match (memory.is_empty(), regions.is_empty()) {
        (true, _) => lacking(State::No, "the bus has no memory device", "a CXL memory device (type 3)"),
        (false, true) => lacking(
            State::Limited,
            &format!("{} without a region", memory.join(", ")),
            "make a region of it (cxl create-region), and bring that online as a node (daxctl)",
        ),
        _ => Row::yes(item, purpose, format!("{}; {}", memory.join(", "), regions.join(", "))),
    }
}

fn memory_tiers(folder: &Path) -> Row {
    let (item, purpose) = ("memory tiers", "which nodes the kernel itself holds for faster");
    let tiers: BTreeMap<u32, String> = names(folder)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|name| {
            let nodes = fs::read_to_string(folder.join(&name).join("nodelist")).ok()?;
            Some((name.strip_prefix("memory_tier")?.parse().ok()?, nodes.trim().to_owned()))
        })
        .collect();
    let told: Vec<String> = tiers.iter().map(|(tier, nodes)| format!("tier {tier}: nodes {nodes}")).collect();
    match tiers.len() {
        0 => Row::lacking(
            item,
            State::No,
            purpose,
            "",
            "Linux 6.1 or newer with CONFIG_NUMA and CONFIG_MIGRATION",
        ),
        1 => Row::lacking(
            item,
            State::Limited,
            purpose,
            told.join("; "),
            "memory of a second kind, such as CXL memory",
        ),
        _ => Row::yes(item, purpose, told.join("; ")),
    }
}

fn interleave(nodes: &[u32], is_root: bool) -> Row {
    let (item, purpose) =
        ("weighted interleave", "run --place weighted=3:1: bandwidth of several nodes at once");
    let lacking = |state, found: String, advice| Row::lacking(item, state, purpose, found, advice);
    if nodes.is_empty() {
        return lacking(State::Unknown, "no node is known".to_owned(), "a kernel with CONFIG_NUMA");
    }
    match Policy::WeightedInterleave(nodes.to_vec()).check() {
        Err(error) => lacking(State::No, error.to_string(), "Linux 6.9 or newer"),
        Ok(()) if !Path::new(WEIGHTS).is_dir() => {
            lacking(State::Limited, format!("no weights ({WEIGHTS})"), "a kernel with CONFIG_SYSFS")
        }
        Ok(()) if !is_root => lacking(
            State::Limited,
            "only root may set the weights, which are the machine's".to_owned(),
            "run as root",
        ),
        Ok(()) if nodes.len() == 1 => {
            Row::yes(item, purpose, "the kernel has it; with one node it makes no difference")
        }
        Ok(()) => Row::yes(item, purpose, ""),
    }
}

fn huge_pages(chosen: Option<&str>) -> Row {
    let (item, purpose) = ("huge pages", "the store: fewer misses of the address cache");
    match chosen {
        Some("never") => Row::lacking(
            item,
            State::No,
            purpose,
            "never",
            "set /sys/kernel/mm/transparent_hugepage/enabled to madvise, which only those who ask get",
        ),
        Some(chosen) => Row::yes(item, purpose, chosen),
        None => Row::lacking(
            item,
            State::No,
            purpose,
            "the kernel has none",
            "a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_told_with_their_processors() {
        let place = |number, bytes, cpus: &[u32]| NodeInfo {
            number,
            bytes,
            cpus: cpus.to_vec(),
            ..NodeInfo::default()
        };
        let one = place(0, 1 << 30, &[0, 1, 2, 8]);
        let far = place(2, 512 << 20, &[]);
        let only_cpus = place(3, 0, &[4]);
        let of =
            |places: &[&NodeInfo]| nodes(&Topology { places: places.iter().copied().cloned().collect() });
        let two = of(&[&one, &far, &only_cpus]);
        assert_eq!(two.state, State::Yes);
        assert_eq!(two.found, "node 0: 1GiB, CPUs 0-2,8; node 2: 512MiB, no CPUs");
        assert_eq!((of(&[&one, &only_cpus]).state, of(&[]).state), (State::Limited, State::Unknown));
    }

    #[test]
    fn cxl_memory_is_memory_with_a_region() {
        let folder = tempfile::tempdir().unwrap();
        let devices = folder.path().join("devices");
        assert_eq!(cxl(&devices).state, State::No);
        for (name, state) in [("root0", State::No), ("mem0", State::Limited), ("region0", State::Yes)] {
            fs::create_dir_all(devices.join(name)).unwrap();
            assert_eq!(cxl(&devices).state, state, "{name}");
        }
        assert_eq!(cxl(&devices).found, "mem0; region0");
    }

    #[test]
    fn tiers_have_nodes() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(memory_tiers(folder.path()).state, State::No);
        for (tier, nodes, state) in [(22, "1\n", State::Limited), (4, "0,2\n", State::Yes)] {
            let tier = folder.path().join(format!("memory_tier{tier}"));
            fs::create_dir_all(&tier).unwrap();
            fs::write(tier.join("nodelist"), nodes).unwrap();
            assert_eq!(memory_tiers(folder.path()).state, state);
        }
        assert_eq!(memory_tiers(folder.path()).found, "tier 4: nodes 0,2; tier 22: nodes 1");
    }

    #[test]
    fn huge_pages_are_there_for_those_who_ask() {
        let state = |chosen| huge_pages(chosen).state;
        assert_eq!(
            (state(Some("madvise")), state(Some("never")), state(None)),
            (State::Yes, State::No, State::No)
        );
    }
}
