//! Who drives what: the machines that a shard is made of are driven by the shard alone, and none of its parts is everybody's.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Functions of a type, and of those that are parts of another.
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

/// Files of other crates that name `word` from this module of `policy`.
fn importers(module: &str, word: &str) -> Vec<String> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(crates()).unwrap() {
        let under = entry.unwrap().path().join("src");
        if under.is_dir() && !under.starts_with(crates().join("policy")) {
            all.extend(read(&under));
        }
    }
    let imports = |text: &str| {
        let uses = text.split(';').filter(|part| part.contains(&format!("tiermem_policy::{module}::")));
        uses.map(|part| &part[part.rfind("use ").unwrap_or(0)..]).any(|part| has_word(part, word))
    };
    all.into_iter().filter(|(_, text)| imports(text)).map(|(name, _)| name).collect()
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

/// Who has the shard in hand gets values, copies and what can be read: the ladder and the index are changed by it alone.
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
