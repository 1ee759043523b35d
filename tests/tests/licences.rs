//! Licences of all built crates: `deny.toml` must allow each. cargo-deny checks this
//! too, and more, but is not installed everywhere; this needs nothing but cargo.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn allowed() -> BTreeSet<String> {
    let deny = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let deny: toml::Table = deny.parse().unwrap();
    deny["licenses"]["allow"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// Whether the allowed licences satisfy an SPDX expression: one of the terms joined by `OR`,
/// all of those joined by `AND`. `OR` binds less tightly. Old crates write `/` for `OR`.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let (result, rest) = either(&words, allowed);
    assert!(rest.is_empty(), "{expression:?} is no SPDX expression");
    result
}

fn either<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    let (mut result, mut rest) = all(words, allowed);
    while let ["OR", after @ ..] = rest {
        let (other, after) = all(after, allowed);
        (result, rest) = (result || other, after);
    }
    (result, rest)
}

fn all<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    let (mut result, mut rest) = one(words, allowed);
    while let ["AND", after @ ..] = rest {
        let (other, after) = one(after, allowed);
        (result, rest) = (result && other, after);
    }
    (result, rest)
}

fn one<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    match words {
        ["(", inner @ ..] => {
            let (result, rest) = either(inner, allowed);
            (result, rest.strip_prefix(&[")"]).expect("a bracket is closed"))
        }
        [name, "WITH", exception, rest @ ..] => (allowed.contains(&format!("{name} WITH {exception}")), rest),
        [name, rest @ ..] => (allowed.contains(*name), rest),
        [] => panic!("a licence is missing"),
    }
}

#[test]
fn expressions_are_understood() {
    let allowed = BTreeSet::from(["MIT", "Zlib", "A WITH b"].map(str::to_owned));
    for expression in ["MIT", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "(GPL-3.0 OR MIT) AND Zlib", "A WITH b"] {
        assert!(satisfied(expression, &allowed), "{expression}");
    }
    for expression in
        ["GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR X)", "A", "A WITH c", "GPL-3.0 OR X AND MIT"]
    {
        assert!(!satisfied(expression, &allowed), "{expression}");
    }
}

#[test]
fn every_licence_is_allowed() {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", host])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50);
    let allowed = allowed();
    for package in packages {
        let (name, licence) = (&package["name"], package["license"].as_str());
        let licence = licence.unwrap_or_else(|| panic!("{name} says nothing about its licence"));
        assert!(satisfied(licence, &allowed), "{name}: {licence} is not among the licences in deny.toml");
    }
}
