//! Names of the shard's parts: only the shard drives its machines, none of its parts is visible to all, and the store and the
//! simulator drive it by the same functions.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most functions of a type, and of a type that is a part of another.
const FUNCTIONS_MAX: usize = 40;
const PART_FUNCTIONS_MAX: usize = 20;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")
}

fn sources(under: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(under).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Source files of a folder by their paths below `crates`.
fn read(under: &Path) -> BTreeMap<String, String> {
    let mut found = Vec::new();
    sources(under, &mut found);
    let named = |path: PathBuf| {
        let name = path.strip_prefix(crates()).unwrap().to_string_lossy().replace('\\', "/");
        (name, std::fs::read_to_string(path).unwrap())
    };
    found.into_iter().map(named).collect()
}

/// Whether a text has this word, and not only as a part of a longer one; comments do not count.
fn has_word(text: &str, word: &str) -> bool {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.into_iter().any(|line| {
        line.match_indices(word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let behind = line[at + word.len()..].chars().next();
            !before.is_some_and(is_part) && !behind.is_some_and(is_part)
        })
    })
}

/// The paths that a tree of a `use` names: `a::{b, c::{self, D as E}}` is `a::b`, `a::c` and `a::c::D as E`.
fn paths(tree: &str) -> Vec<String> {
    let Some((prefix, group)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let mut depth = 0;
    let parts = group.split(|letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        letter == ',' && depth == 0
    });
    let parts = parts.map(str::trim).filter(|part| !part.is_empty()).flat_map(paths);
    let joined = |part: String| match part.strip_prefix("self") {
        Some(alias) => format!("{}{alias}", prefix.trim().trim_end_matches("::")),
        None => format!("{}{part}", prefix.trim()),
    };
    parts.map(joined).collect()
}

/// Whether a file names `word` from this module of `policy`, however it imports it.
fn names(text: &str, module: &str, word: &str) -> bool {
    let (module, full) = (format!("tiermem_policy::{module}"), format!("tiermem_policy::{module}::{word}"));
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let trees =
        code.split(';').filter_map(|part| part.rsplit_once("use ")).map(|(_, tree)| tree.replace('\n', " "));
    let mut imported = trees.flat_map(|tree| paths(&tree));
    let by_path = |path: String| {
        let (path, alias) =
            path.split_once(" as ").unwrap_or((&path, path.rsplit("::").next().unwrap_or_default()));
        let path = path.trim();
        path == full
            || path == format!("{module}::*")
            || path == module && has_word(&code, &format!("{}::{word}", alias.trim()))
    };
    has_word(&code, &full) || imported.any(by_path)
}

#[test]
fn every_way_of_importing_is_seen() {
    let seen = [
        "use tiermem_policy::ladder::Ladder;",
        "use tiermem_policy::ladder::{Loc, Ladder};",
        "use tiermem_policy::{\n    index::Index,\n    ladder::{self, Loc},\n};\nfn f(_: ladder::Ladder) {}",
        "use tiermem_policy::{ladder::{Loc, Ladder as Tiers}, Id};",
        "use tiermem_policy::ladder as tiers; fn f(_: tiers::Ladder) {}",
        "use tiermem_policy::ladder::*;",
        "fn f(_: &tiermem_policy::ladder::Ladder) {}",
    ];
    let unseen = [
        "use tiermem_policy::ladder::LadderConfig;",
        "use tiermem_policy::{ladder::{self, Loc}, Id}; fn f(_: ladder::LadderConfig) {}",
        "// use tiermem_policy::ladder::Ladder;",
        "use tiermem_store::ladder::Ladder;",
    ];
    assert!(seen.iter().all(|text| names(text, "ladder", "Ladder")));
    assert!(!unseen.iter().any(|text| names(text, "ladder", "Ladder")));
}

/// Files of other crates that name `word` from this module of `policy`.
fn importers(module: &str, word: &str) -> Vec<String> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(crates()).unwrap() {
        let under = entry.unwrap().path().join("src");
        if under.is_dir() && !under.starts_with(crates().join("policy")) {
            all.extend(read(&under));
        }
    }
    all.into_iter().filter(|(_, text)| names(text, module, word)).map(|(name, _)| name).collect()
}

/// The advisor reads the ladder, and `sampling_cost` measures one of its own.
#[test]
fn ladder_index_and_log_are_driven_by_the_shard_alone() {
    let of_ladder = importers("ladder", "Ladder");
    let is_allowed =
        |name: &String| name.starts_with("model/src/advisor/") || name == "store/src/server/sampling_cost.rs";
    assert!(of_ladder.len() > 1 && of_ladder.iter().all(is_allowed), "{of_ladder:?}");
    assert_eq!(importers("index", "Index"), [""; 0]);
    assert_eq!(importers("log", "Log"), [""; 0]);
}

/// The order of flushes and the looks at the cold end are the cleaner's own.
#[test]
fn epochs_and_looks_at_the_cold_end_are_driven_by_the_cleaner_alone() {
    // Spelled apart, as tests/architecture.rs lets no file outside of policy name them.
    for word in [concat!("Epo", "chs"), concat!("Cold", "Watch"), "Cleaning"] {
        for module in [
            "extents",
            "extents::cleaner",
            concat!("extents::cleaner", "::epochs"),
            "extents::cleaner::watermarks",
        ] {
            assert_eq!(importers(module, word), [""; 0]);
        }
    }
}

/// Functions of each type in `policy/src/shard`, over all its files.
fn functions() -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for text in read(&crates().join("policy/src/shard")).values() {
        let mut of: Option<String> = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("impl ") {
                let name = rest.split([' ', '<', '{']).next().unwrap_or_default();
                of = (!rest.contains(" for ")).then(|| name.to_owned());
            } else if line == "}" {
                of = None;
            } else if let Some(of) = &of
                && has_word(line, "fn")
                && line.starts_with("    ")
                && !line.starts_with("     ")
            {
                *counts.entry(of.clone()).or_insert(0) += 1;
            }
        }
    }
    counts
}

#[test]
fn a_shard_and_its_parts_are_small() {
    let counts = functions();
    let parts = ["Contents", "UnderWay", "Admission", "Device", "Item", "LogState"];
    let log_parts = ["LogWork", "Appender", "Fillings", "Emptying", "Restarts", "Checkpoints"];
    for part in parts.into_iter().chain(log_parts) {
        assert!((3..=PART_FUNCTIONS_MAX).contains(&counts[part]), "{part} has {} functions", counts[part]);
    }
    for type_ in ["Shard", "Memory"] {
        assert!((10..=FUNCTIONS_MAX).contains(&counts[type_]), "{type_} has {} functions", counts[type_]);
    }
}

/// A caller that has the shard gets values, copies and read access: only the shard changes the ladder and the index.
#[test]
fn nobody_is_lent_the_ladder_or_the_index() {
    for (name, text) in read(&crates().join("policy/src/shard")) {
        for line in text.lines().filter(|line| line.trim_start().starts_with("pub fn ")) {
            let returned = line.split("->").nth(1).unwrap_or_default();
            assert!(!returned.contains("&mut"), "{name}: {line}");
            assert!(!has_word(line, "Index"), "{name}: {line}");
        }
    }
}

/// Functions of the shard that one of its two drivers alone calls, and why the other has no use for them.
const ONE_DRIVER: [(&str, &str); 39] = [
    ("Shard::idle", NO_IDLE_TIME),
    ("Shard::expiry", NO_IDLE_TIME),
    ("Expiry::piece", NO_IDLE_TIME),
    ("Expiry::parts_due", PARTS),
    ("Expiry::late_ms", NO_IDLE_TIME),
    ("Item::set_parts_expire_at_ms", PARTS),
    ("Item::change_unused", PARTS),
    ("Shard::restore", RESTART),
    ("LogState::put", RESTART),
    ("LogState::remove", RESTART),
    ("LogState::clear", RESTART),
    ("LogState::settle", RESTART),
    ("LogState::set_journal", RESTART),
    ("LogState::items", RESTART),
    ("Device::write_out", RESTART),
    ("Shard::replace", COMMAND),
    ("Shard::unpin", COMMAND),
    ("Shard::clear", COMMAND),
    ("Device::clear", COMMAND),
    ("Item::pin", COMMAND),
    ("Item::set_expires_at_ms", COMMAND),
    ("Item::change_in_place", COMMAND),
    ("Memory::keys", "what is read of the index, by the functions of `Keys` below"),
    ("Keys::entries", "SCAN, and snapshots"),
    ("Keys::all", "a walk for one database's keys, and for items that were lost"),
    ("Keys::place_below", "items that are taken up beside a log that has them"),
    ("LogWork::away", "SCAN reads items of the log by their place"),
    ("LogWork::filling_of", "SCAN reads items of the log by their place"),
    ("Away::is_same", "a look-up whose read is under way is asked for again"),
    ("Device::give_up", DEVICE),
    ("Device::note_lost", DEVICE),
    ("Checkpoints::is_awaited", DEVICE),
    ("Checkpoints::is_blank", DEVICE),
    ("Keys::foresee_segment", PREFETCH),
    ("Keys::foresee_entry", PREFETCH),
    ("Keys::foresee_item", PREFETCH),
    ("Memory::item_bytes", FIGURES),
    ("Keys::items_below", FIGURES),
    ("LogWork::sunk", FIGURES),
];
const NO_IDLE_TIME: &str = "a trace has no time without requests";
const PARTS: &str = "items of a trace have no parts that expire";
const RESTART: &str = "the simulator is never started again";
const COMMAND: &str = "a command that no trace has";
const DEVICE: &str = "the simulator's device does not fail, and is not closed";
const PREFETCH: &str = "it hides the time that memory takes";
const FIGURES: &str = "a figure that a server shows of itself";

/// What stands before the call of a function of each type: the shard's parts are reached through it by one way each.
const RECEIVERS: [(&str, &[&str]); 10] = [
    ("Shard", &["shard"]),
    ("Device", &["shard.device()"]),
    ("Expiry", &["shard.expiry()"]),
    ("Item", &["shard.item()"]),
    ("Memory", &["shard.memory()"]),
    ("Keys", &["shard.memory().keys()"]),
    ("LogWork", &["work", "log", "shard.log()?"]),
    ("Checkpoints", &["checkpoints()"]),
    ("LogState", &["state"]),
    ("Away", &["asked", "below"]),
];

/// Public functions of types in `policy/src/shard`, as `Type::function`.
fn public_functions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for text in read(&crates().join("policy/src/shard")).values() {
        let mut of = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("impl") {
                let rest = rest.trim_start_matches(|letter| letter != ' ').trim_start();
                of = rest.split([' ', '<', '{']).next().unwrap_or_default();
            } else if let Some(rest) = line.trim_start().strip_prefix("pub fn ") {
                let name = rest.split(['(', '<']).next().unwrap_or_default();
                found.push((of.to_owned(), name.to_owned()));
            }
        }
    }
    found
}

/// The code of a crate without its tests and comments, in which calls stand on one line: `shard.item(id)\n.pin()` is
/// `shard.item().pin()`.
fn code_of(name: &str) -> String {
    let mut code = String::new();
    for (path, text) in read(&crates().join(name).join("src")) {
        if path.contains("test") {
            continue;
        }
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()) {
            if !line.starts_with('.') {
                code.push('\n');
            }
            code.push_str(line);
        }
    }
    let mut parts = code.split("shard.item(");
    let mut joined = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        joined.push_str("shard.item(");
        joined.push_str(&part[part.find(')').unwrap_or(0)..]);
    }
    joined
}

/// Whether code calls a function of a type of the shard.
fn calls(code: &str, type_: &str, function: &str) -> bool {
    let receivers =
        RECEIVERS.iter().find(|(name, _)| *name == type_).map_or(&[][..], |(_, receivers)| receivers);
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let is_called = |call: String| {
        code.match_indices(&call).any(|(at, _)| !code[..at].chars().next_back().is_some_and(is_part))
    };
    is_called(format!("{type_}::{function}("))
        || receivers.iter().any(|receiver| is_called(format!("{receiver}.{function}(")))
}

#[test]
fn both_drivers_call_the_functions_of_the_shard_but_for_those_that_are_listed() {
    let (live, simulated) = (code_of("store"), code_of("sim"));
    let mut of_one = Vec::new();
    for (type_, function) in public_functions() {
        let name = format!("{type_}::{function}");
        match (calls(&live, &type_, &function), calls(&simulated, &type_, &function)) {
            (true, true) => {}
            (false, false) => panic!("neither driver calls {name}, or by a way that RECEIVERS does not know"),
            _ => of_one.push(name),
        }
    }
    let unlisted: Vec<_> =
        of_one.iter().filter(|name| ONE_DRIVER.iter().all(|(listed, _)| listed != name)).collect();
    assert!(unlisted.is_empty(), "one driver alone calls {unlisted:?}");
    let outdated: Vec<_> =
        ONE_DRIVER.iter().filter(|(listed, _)| of_one.iter().all(|name| name != listed)).collect();
    assert!(outdated.is_empty(), "both drivers call these, or they are gone: {outdated:?}");
    assert!(ONE_DRIVER.iter().all(|(_, reason)| !reason.is_empty()));
}
