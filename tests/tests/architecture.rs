//! Architecture test: the allowed dependencies between crates are written here once, and compared
//! with cargo's metadata. Also that unsafe code stays in its crates, and that files stay readable.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// For each room, the rooms that it may know.
const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("sys", &["base"]),
    ("trace", &["base"]),
    ("policy", &["base"]),
    ("model", &["base", "policy"]),
    ("sim", &["base", "policy", "model", "trace"]),
    ("report", &["base", "model", "trace"]),
    ("tier", &["base", "sys"]),
    ("live", &["base", "sys"]),
    ("store", &["base", "sys", "policy", "model", "tier", "live"]),
    ("block", &["base", "sys", "policy", "model", "tier", "live"]),
    // Files of other people's programs, which need nothing of ours to be read.
    ("stacks", &[]),
    ("place", &["base", "sys", "policy", "model", "trace", "stacks"]),
    ("pager", &["base", "sys", "policy", "model", "trace", "place"]),
    (
        "cli",
        &[
            "base", "sys", "policy", "model", "trace", "sim", "report", "tier", "live", "store", "block",
            "place", "pager",
        ],
    ),
    ("py", &["base", "policy", "model", "trace", "sim", "report"]),
    ("bench-compare", &["base", "sys", "policy", "model", "trace", "sim", "cli"]),
    ("tests", &["base", "sys", "policy", "model", "trace", "sim", "tier", "store", "block"]),
    // Programs to be traced know nothing of what traces them.
    ("workloads", &[]),
];
/// Rooms that may hold unsafe code.
const UNSAFE_ROOMS: &[&str] = &["sys"];
const LINES_MAX: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, files);
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
}

#[test]
fn arrows_point_downward() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut seen = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap().strip_prefix("tiermem-").unwrap();
        let Some(may_know) = allowed.get(name) else { panic!("room {name} has no place in the design") };
        seen.insert(name.to_owned());
        for dependency in package["dependencies"].as_array().unwrap() {
            if let Some(known) = dependency["name"].as_str().unwrap().strip_prefix("tiermem-") {
                assert!(may_know.contains(&known), "{name} must not know {known}");
            }
        }
    }
    assert!(seen.contains("policy") && seen.contains("store"));
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let room = entry.unwrap();
        if UNSAFE_ROOMS.iter().any(|name| room.file_name() == *name) {
            continue;
        }
        let top = ["lib.rs", "main.rs"].map(|file| room.path().join("src").join(file));
        let top = top.iter().find(|file| file.exists()).expect("a crate has a top file");
        let text = std::fs::read_to_string(top).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{} forbids unsafe code", top.display());
    }
}

#[test]
fn files_hold_one_idea() {
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    assert!(files.len() > 30);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.display();
        assert!(text.lines().count() <= LINES_MAX, "{name} has grown past one idea");
        assert!(text.starts_with("//!"), "{name} says what it is for");
        // Spelled apart, so that this file does not name them.
        for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")] {
            assert!(!text.contains(word), "{name} leaves a {word} behind");
        }
    }
}

/// Only the cleaner decides when the block cache writes back: its drivers use the machine and not its parts.
#[test]
fn the_parts_of_the_block_cleaner_stay_in_policy() {
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    let is_policy = |file: &PathBuf| file.starts_with(root().join("crates/policy"));
    let (inside, outside): (Vec<_>, Vec<_>) = files.into_iter().partition(is_policy);
    let names = |file: &PathBuf, word: &str| {
        let text = std::fs::read_to_string(file).unwrap();
        text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
    };
    // Spelled apart, so that this file does not name them.
    for word in [concat!("Epo", "chs"), concat!("Cold", "Watch")] {
        assert!(inside.iter().any(|file| names(file, word)), "{word} is there");
        for file in &outside {
            assert!(!names(file, word), "{} speaks of {word}", file.display());
        }
    }
    for file in outside {
        let text = std::fs::read_to_string(&file).unwrap();
        for path in
            [concat!("extents::", "cleaning"), concat!("extents::", "epochs"), concat!("cleaner::", "epochs")]
        {
            assert!(!text.contains(path), "{} reaches into {path}", file.display());
        }
    }
}
