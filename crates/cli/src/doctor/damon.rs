//! State of DAMON, the kernel's monitor of accesses, without writing to any of its files.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const ADMIN: &str = "/sys/kernel/mm/damon/admin/kdamonds";
/// The names of the kernel's functions, its modules' too.
const SYMBOLS: &str = "/proc/kallsyms";

/// Its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// The kernel has none.
    Missing,
    /// They may not be read.
    Hidden(String),
    /// This number of monitors exist, made by another program.
    Monitors(u64),
}

/// Facts about DAMON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damon {
    /// Its files in sysfs.
    pub files: Files,
    /// Whether it can watch the addresses of a process, if that is known.
    pub watches_virtual: Option<bool>,
    /// Whether it can watch physical addresses, if that is known.
    pub watches_physical: Option<bool>,
}

impl Damon {
    /// Of this kernel.
    pub fn read() -> Self {
        Damon::below(Path::new(ADMIN), Path::new(SYMBOLS))
    }

    fn below(admin: &Path, symbols: &Path) -> Self {
        let files = match fs::read_to_string(admin.join("nr_kdamonds")) {
            Ok(text) => match text.trim().parse() {
                Ok(count) => Files::Monitors(count),
                Err(_) => Files::Hidden("nr_kdamonds has no number".to_owned()),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Files::Missing,
            Err(error) => Files::Hidden(error.to_string()),
        };
        // A context lists what there is; without one, the names of functions tell it.
        let listed = fs::read_to_string(admin.join("0/contexts/0/avail_operations")).ok();
        let (watches_virtual, watches_physical) = match (&files, listed) {
            (Files::Missing, _) => (Some(false), Some(false)),
            (_, Some(listed)) => {
                let has = |name| Some(listed.split_whitespace().any(|word| word == name));
                (has("vaddr"), has("paddr"))
            }
            (_, None) => by_symbols(&fs::read_to_string(symbols).unwrap_or_default()),
        };
        Damon { files, watches_virtual, watches_physical }
    }
}

fn by_symbols(symbols: &str) -> (Option<bool>, Option<bool>) {
    if symbols.contains(" damon_") {
        (Some(symbols.contains(" damon_va_")), Some(symbols.contains(" damon_pa_")))
    } else {
        (None, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitors_and_operations_are_read_where_they_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let (admin, symbols) = (folder.path().join("kdamonds"), folder.path().join("kallsyms"));
        let missing =
            Damon { files: Files::Missing, watches_virtual: Some(false), watches_physical: Some(false) };
        assert_eq!(Damon::below(&admin, &symbols), missing);

        fs::create_dir_all(admin.join("0/contexts/0")).unwrap();
        fs::write(admin.join("nr_kdamonds"), "0\n").unwrap();
        let none = Damon { files: Files::Monitors(0), watches_virtual: None, watches_physical: None };
        assert_eq!(Damon::below(&admin, &symbols), none);
        fs::write(&symbols, "0 t damon_start\n0 t damon_va_init\n").unwrap();
        let known = Damon { watches_virtual: Some(true), watches_physical: Some(false), ..none };
        assert_eq!(Damon::below(&admin, &symbols), known);

        fs::write(admin.join("nr_kdamonds"), "1\n").unwrap();
        fs::write(admin.join("0/contexts/0/avail_operations"), "fvaddr\npaddr\n").unwrap();
        let listed =
            Damon { files: Files::Monitors(1), watches_virtual: Some(false), watches_physical: Some(true) };
        assert_eq!(Damon::below(&admin, &symbols), listed);
    }
}
