//! Import circles: no two files import each other in a circle, so a reader of
//! any file can read its imports before it, down to files without imports.
//!
//! A module and its own submodules count as one file here: parts of one type lie in
//! both, and Rust lets them see each other. Imports of tests alone do not count.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The files of one crate, by the path of their module: `["ladder", "slots"]`.
type Modules = BTreeMap<Vec<String>, File>;

#[derive(Debug)]
struct File {
    path: PathBuf,
    /// Each name that the file imports, with the path as it is written.
    imports: Vec<Import>,
}

#[derive(Clone, Debug)]
struct Import {
    path: Vec<String>,
    /// The name that it has here; `*` for all names of a module.
    name: String,
    /// Whether others can import it from here.
    hands_on: bool,
}

/// Source text without comments, strings and what only tests see.
fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::new();
    let mut at = 0;
    let starts = |at: usize, what: &str| what.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    while at < chars.len() {
        if starts(at, "//") {
            while at < chars.len() && chars[at] != '\n' {
                at += 1;
            }
        } else if chars[at] == '"' {
            at += 1;
            while at < chars.len() && chars[at] != '"' {
                at += if chars[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if starts(at, "'\"'") || starts(at, "'{'") || starts(at, "'}'") {
            at += 3;
        } else if starts(at, "r#\"") {
            while at < chars.len() && !starts(at, "\"#") {
                at += 1;
            }
            at += 2;
        } else {
            code.push(chars[at]);
            at += 1;
        }
    }
    without_tests(&code)
}

/// Leaves out the item behind each `#[cfg(test)]` and `#[cfg(all(test, ...))]`.
fn without_tests(code: &str) -> String {
    let mut rest = code;
    let mut kept = String::new();
    while let Some(at) = [rest.find("#[cfg(test)]"), rest.find("#[cfg(all(test")].into_iter().flatten().min()
    {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(['{', ';']).unwrap_or(rest.len() - 1);
        if rest.as_bytes()[end] == b';' {
            rest = &rest[end + 1..];
            continue;
        }
        let mut depth = 0;
        let close = rest.char_indices().find(|&(_, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == '}' && depth == 0
        });
        rest = close.map_or("", |(at, _)| &rest[at + 1..]);
    }
    kept + rest
}

/// Imports by `use` statements, and by paths that begin at the crate or above.
fn imports(code: &str) -> Vec<Import> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let before = &rest[..at];
        rest = &rest[at + 4..];
        if before.ends_with(|c: char| is_word(c) || c == '<' || c == '+') {
            continue;
        }
        let Some(end) = rest.find(';') else { break };
        let line = before.rsplit(['\n', ';', '}', '{']).next().unwrap().trim();
        expand(
            &rest[..end].split_whitespace().collect::<Vec<_>>().join(" "),
            &[],
            line.starts_with("pub"),
            &mut found,
        );
        rest = &rest[end..];
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let alone = !code[..at]
                .ends_with(|c: char| is_word(c) || c == ':' || c == '(' && code[..at].ends_with("pub("));
            let path: String = code[at..].chars().take_while(|&c| is_word(c) || c == ':').collect();
            let path: Vec<String> =
                path.split("::").filter(|word| !word.is_empty()).map(str::to_owned).collect();
            if alone && path.len() > 1 {
                found.push(Import { name: path[path.len() - 1].clone(), path, hands_on: false });
            }
        }
    }
    found
}

/// Takes a tree of imports apart: `a::{b, c::*, d as e}`.
fn expand(tree: &str, before: &[String], hands_on: bool, found: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some(open) = tree.find('{') {
        let mut path = before.to_vec();
        path.extend(
            tree[..open].split("::").map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned),
        );
        let (mut depth, mut start) = (0, open + 1);
        for (at, c) in tree.char_indices().skip(open) {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if (c == ',' && depth == 1) || (c == '}' && depth == 0) {
                if !tree[start..at].trim().is_empty() {
                    expand(&tree[start..at], &path, hands_on, found);
                }
                start = at + 1;
            }
        }
        return;
    }
    let (path, name) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
    let mut words = before.to_vec();
    words.extend(path.split("::").map(|word| word.trim().to_owned()));
    if words.len() > 1 && words[words.len() - 1] == "self" {
        words.pop();
    }
    let name = name.unwrap_or(&words[words.len() - 1]).to_owned();
    found.push(Import { path: words, name, hands_on });
}

/// All modules of a crate that lie in files of their own.
fn modules(dir: &Path, path: &[String], modules: &mut Modules) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let mut module = path.to_vec();
        if file.is_dir() {
            module.push(name);
            self::modules(&file, &module, modules);
        } else if file.extension().is_some_and(|extension| extension == "rs") {
            if !["mod", "lib", "main"].contains(&name.as_str()) {
                module.push(name);
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let tests = module.iter().any(|word| word == "tests" || word.ends_with("_tests"));
            let imports = if tests { Vec::new() } else { imports(&code(&text)) };
            modules.insert(module, File { path: file, imports });
        }
    }
}

/// The module that defines what `path`, read in `from`, means; nothing where it is not of this crate.
fn definer(modules: &Modules, from: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
    let mut at: Vec<String> = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => from.to_vec(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        word => {
            let child = [from, &[word.to_owned()]].concat();
            if !modules.contains_key(&child) || depth > 8 {
                return None;
            }
            child
        }
    };
    for (index, word) in path.iter().enumerate().skip(1) {
        if word == "super" {
            at.pop();
            continue;
        }
        let child = [at.as_slice(), std::slice::from_ref(word)].concat();
        if modules.contains_key(&child) {
            at = child;
            continue;
        }
        // Not a module: a name that the module defines, or hands on.
        let handed = modules.get(&at)?.imports.iter().filter(|it| it.hands_on || from.starts_with(&at));
        let handed = handed.filter(|it| it.name == *word).find_map(|it| {
            let whole = [it.path.as_slice(), &path[index + 1..]].concat();
            (depth < 8).then(|| definer(modules, &at, &whole, depth + 1)).flatten()
        });
        return Some(handed.unwrap_or(at));
    }
    Some(at)
}

/// Imports of a crate's files, and the imported names; a module and its submodules import nothing from each other.
type Arrows = BTreeMap<Vec<String>, BTreeMap<Vec<String>, BTreeSet<String>>>;

fn arrows(modules: &Modules) -> Arrows {
    let mut arrows = Arrows::new();
    for (module, file) in modules {
        let from = arrows.entry(module.clone()).or_default();
        for import in &file.imports {
            let Some(other) = definer(modules, module, &import.path, 0) else { continue };
            if !other.starts_with(module) && !module.starts_with(&other) {
                from.entry(other).or_default().insert(import.path[import.path.len() - 1].clone());
            }
        }
    }
    arrows
}

/// Everything that can be reached from `from`.
fn reach(arrows: &Arrows, from: &[String]) -> BTreeSet<Vec<String>> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<Vec<String>> = vec![from.to_vec()];
    while let Some(module) = open.pop() {
        for next in arrows.get(&module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    reached
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
    let mut circles = Vec::new();
    for room in std::fs::read_dir(crates).unwrap() {
        let mut modules = Modules::new();
        self::modules(&room.unwrap().path().join("src"), &[], &mut modules);
        let arrows = arrows(&modules);
        let reached: BTreeMap<_, _> = arrows.keys().map(|module| (module, reach(&arrows, module))).collect();
        let mut told = BTreeSet::new();
        for (module, beyond) in &reached {
            if !beyond.contains(*module) || told.contains(*module) {
                continue;
            }
            let circle: Vec<_> = beyond
                .iter()
                .filter(|other| reached.get(*other).is_some_and(|back| back.contains(*module)))
                .collect();
            let path = |module: &[String]| modules[module].path.display().to_string();
            for from in &circle {
                for (to, names) in arrows[*from].iter().filter(|(to, _)| circle.contains(to)) {
                    let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                    circles.push(format!("{} imports {}: {names}", path(from), path(to)));
                }
            }
            told.extend(circle.into_iter().cloned());
        }
    }
    assert!(circles.is_empty(), "files import each other in a circle:\n  {}", circles.join("\n  "));
}
