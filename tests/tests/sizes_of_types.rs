//! Size of types: no type has more than 40 functions of its own; a larger one is split by the owners of its fields.
//!
//! The test counts the functions of inherent `impl` blocks, public and private, over all files of a
//! crate. It does not count functions of traits and of tests. Two types of one name in different
//! modules are two types. The type of an `impl` is found as the compiler finds it: the module's own
//! type, else an import of that name (through re-exports and aliases), else one of an import with
//! `*`. A type that a macro defines is not seen: its `impl` counts for the module that it is in.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::{Attribute, ImplItem, Item, Type, UseTree};

/// Functions that a type may have.
const FUNCTIONS_MAX: usize = 40;

/// Types with more: how many they may have, and why. Lower the number when one shrinks; strike out the entry when it fits the limit.
const EXCEPTIONS: &[(&str, usize, &str)] = &[];

/// The path of a module, or of what it defines.
type Name = Vec<String>;

/// One module of a crate.
#[derive(Debug, Default)]
struct Module {
    types: BTreeSet<String>,
    /// What it imports, by the name that it has here.
    imports: BTreeMap<String, Name>,
    /// The modules of which it imports everything.
    globs: Vec<Name>,
    /// For each inherent `impl`: the type as it is written, and how many functions it has.
    impls: Vec<(Name, usize)>,
}

type Modules = BTreeMap<Name, Module>;

/// Whether an item is compiled for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|it| it.path().is_ident("cfg")).any(|it| {
        let condition = it.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        let condition: String = condition.split_whitespace().collect();
        condition == "test" || condition.starts_with("all(test")
    })
}

fn path(path: &syn::Path) -> Name {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// Notes what a `use` imports.
fn import(tree: &UseTree, before: &[String], module: &mut Module) {
    let with = |word: String| [before, &[word]].concat();
    match tree {
        UseTree::Path(it) => import(&it.tree, &with(it.ident.to_string()), module),
        UseTree::Group(it) => it.items.iter().for_each(|tree| import(tree, before, module)),
        UseTree::Glob(_) => module.globs.push(before.to_vec()),
        UseTree::Name(it) if it.ident == "self" => {
            module.imports.extend(before.last().map(|name| (name.clone(), before.to_vec())));
        }
        UseTree::Name(it) => drop(module.imports.insert(it.ident.to_string(), with(it.ident.to_string()))),
        UseTree::Rename(it) => drop(module.imports.insert(it.rename.to_string(), with(it.ident.to_string()))),
    }
}

/// Reads the items of a module. What only tests see goes into `tests` where it is another file, and is left out otherwise.
fn read(items: &[Item], at: &[String], modules: &mut Modules, tests: &mut BTreeSet<Name>) {
    let mut module = Module::default();
    for item in items {
        match item {
            Item::Struct(it) => drop(module.types.insert(it.ident.to_string())),
            Item::Enum(it) => drop(module.types.insert(it.ident.to_string())),
            Item::Union(it) => drop(module.types.insert(it.ident.to_string())),
            Item::Trait(it) => drop(module.types.insert(it.ident.to_string())),
            Item::Type(it) => {
                // An alias is a name for another type, as an import is.
                if let Type::Path(of) = &*it.ty {
                    module.imports.insert(it.ident.to_string(), path(&of.path));
                }
            }
            Item::Use(it) if !is_test(&it.attrs) => import(&it.tree, &[], &mut module),
            Item::Mod(it) => {
                let name = [at, &[it.ident.to_string()]].concat();
                match &it.content {
                    _ if is_test(&it.attrs) => drop(tests.insert(name)),
                    Some((_, items)) => read(items, &name, modules, tests),
                    None => (),
                }
            }
            Item::Impl(it) if it.trait_.is_none() && !is_test(&it.attrs) => {
                let Type::Path(of) = &*it.self_ty else { continue };
                let is_counted = |it: &&ImplItem| matches!(it, ImplItem::Fn(it) if !is_test(&it.attrs));
                module.impls.push((path(&of.path), it.items.iter().filter(is_counted).count()));
            }
            _ => (),
        }
    }
    modules.insert(at.to_vec(), module);
}

/// Reads all files of a crate.
fn read_crate(dir: &Path, at: &[String], modules: &mut Modules, tests: &mut BTreeSet<Name>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let mut module = at.to_vec();
        if file.is_dir() {
            module.push(name);
            read_crate(&file, &module, modules, tests);
        } else if file.extension().is_some_and(|extension| extension == "rs") {
            if !["mod", "lib", "main"].contains(&name.as_str()) {
                module.push(name);
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            read(&parsed.items, &module, modules, tests);
        }
    }
}

/// The type that `path`, read in the module `from`, means, by the module that defines it.
fn definition(modules: &Modules, from: &[String], path: &[String], depth: usize) -> Option<Name> {
    let (first, rest) = path.split_first()?;
    let module = modules.get(from)?;
    let within = |other: &[String]| definition(modules, other, rest, depth + 1);
    let child = [from, std::slice::from_ref(first)].concat();
    if depth > 16 {
        return None;
    }
    match first.as_str() {
        "crate" => return within(&[]),
        "self" => return within(from),
        "super" => return within(&from[..from.len().checked_sub(1)?]),
        _ if rest.is_empty() && module.types.contains(first) => return Some(child),
        _ if !rest.is_empty() && modules.contains_key(&child) => return within(&child),
        _ => (),
    }
    if let Some(imported) = module.imports.get(first) {
        // A crate of this name is no module of this one.
        let whole = [imported.as_slice(), rest].concat();
        return (whole != path).then(|| definition(modules, from, &whole, depth + 1)).flatten();
    }
    module.globs.iter().find_map(|glob| {
        let whole = [glob.as_slice(), path].concat();
        definition(modules, from, &whole, depth + 1)
    })
}

/// Number of functions of its own for each type of a crate.
fn functions(modules: &Modules, tests: &BTreeSet<Name>) -> BTreeMap<Name, usize> {
    let mut functions = BTreeMap::new();
    for (at, module) in modules {
        let is_test = |name: &[String]| name.iter().any(|word| word == "tests" || word.ends_with("_tests"));
        if is_test(at) || tests.iter().any(|test| at.starts_with(test)) {
            continue;
        }
        for (of, count) in &module.impls {
            let name = definition(modules, at, of, 0).unwrap_or_else(|| [at.as_slice(), of].concat());
            *functions.entry(name).or_default() += count;
        }
    }
    functions
}

#[test]
fn no_type_has_more_functions_than_one_can_keep_in_mind() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
    let mut problems = Vec::new();
    let mut excepted = BTreeSet::new();
    for room in std::fs::read_dir(crates).unwrap() {
        let room = room.unwrap();
        let (mut modules, mut tests) = Default::default();
        read_crate(&room.path().join("src"), &[], &mut modules, &mut tests);
        for (name, count) in functions(&modules, &tests) {
            let name = format!("{}::{}", room.file_name().display(), name.join("::"));
            let exception = EXCEPTIONS.iter().find(|(of, ..)| *of == name);
            excepted.extend(exception.map(|(of, ..)| *of));
            match exception {
                None if count > FUNCTIONS_MAX => {
                    problems.push(format!("{name} has {count} functions: split it by who owns which fields"));
                }
                Some((_, most, _)) if count > *most => {
                    problems
                        .push(format!("{name} has {count} functions, and {most} was the most it may have"));
                }
                Some(_) if count <= FUNCTIONS_MAX => {
                    problems.push(format!("{name} has {count} functions: strike out its exception"));
                }
                _ => (),
            }
        }
    }
    for (name, _, reason) in EXCEPTIONS {
        if !excepted.contains(name) {
            problems.push(format!("there is no {name}: strike out its exception"));
        }
        if reason.is_empty() {
            problems.push(format!("{name} is an exception without a reason"));
        }
    }
    assert!(problems.is_empty(), "types and their functions:\n  {}", problems.join("\n  "));
}

/// Result of [`functions`] for files given by their modules' paths.
fn counted(files: &[(&str, &str)]) -> Vec<(String, usize)> {
    let (mut modules, mut tests) = Default::default();
    for (at, text) in files {
        let at: Name = at.split("::").filter(|word| !word.is_empty()).map(str::to_owned).collect();
        read(&syn::parse_file(text).unwrap().items, &at, &mut modules, &mut tests);
    }
    functions(&modules, &tests).into_iter().map(|(name, count)| (name.join("::"), count)).collect()
}

#[test]
fn functions_of_a_type_are_counted_over_all_files() {
    let found = counted(&[
        ("", "pub use deep::inner::Big as Large; mod deep; mod other;"),
        ("deep", "pub mod inner; mod more;"),
        ("deep::inner", "pub struct Big<T>(T); impl<T> Big<T> { pub fn a() {} fn b() {} const C: u8 = 0; }"),
        (
            "deep::more",
            "use super::inner::*; impl Big<u8> { fn c() {} } type Alias = Big<i8>; impl Alias { fn f() {} }",
        ),
        (
            "other",
            "use crate::Large; impl Large<u16> { fn d() {} } impl crate::deep::inner::Big<u32> { fn e() {} }",
        ),
    ]);
    assert_eq!(found, [("deep::inner::Big".to_owned(), 6)]);
}

#[test]
fn types_of_one_name_in_two_modules_are_two_types() {
    let found = counted(&[
        ("a", "struct Part; impl Part { fn x() {} } mod within { struct Part; impl Part { fn z() {} } }"),
        ("b", "enum Part {} impl Part { fn x() {} fn y() {} }"),
    ]);
    let expected = [("a::Part", 1), ("a::within::Part", 1), ("b::Part", 2)];
    assert_eq!(found, expected.map(|(name, count)| (name.to_owned(), count)));
}

#[test]
fn functions_of_traits_and_tests_do_not_count() {
    let found = counted(&[
        (
            "a",
            "struct It; impl Default for It { fn default() -> It { It } } impl It { #[cfg(test)] fn x() {} fn y() {} }
             #[cfg(test)] impl It { fn z() {} } #[cfg(all(test, unix))] mod inline { impl super::It { fn a() {} } }
             #[cfg(test)] mod forged; mod tests;",
        ),
        ("a::forged", "impl super::It { fn b() {} }"),
        ("a::tests", "use super::It; impl It { fn c() {} }"),
    ]);
    assert_eq!(found, [("a::It".to_owned(), 1)]);
}
