//! Configuration file: one for all commands, of which each reads its own sections.
//!
//! Tiers are described once, in `[[tier]]` tables, and every command that knows tiers reads the same file. Sections of
//! other commands are skipped; a key that no command knows is an error, so that a misspelt key is not skipped silently.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tiermem_base::TierSpec;
use tiermem_base::tier::{TierError, check_list};
use toml::de::{DeTable, Deserializer, Error};

/// The command that reads the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// `tiermem store serve`.
    Store,
    /// `tiermem block serve`.
    Block,
    /// Commands that need only the tiers: simulators and planners.
    Tiers,
}

/// The section that all read.
const TIERS: &str = "tier";
const STORE: &[&str] = &[
    TIERS,
    "max_value",
    "shards",
    "pin_cores",
    "snapshot",
    "snapshot_load",
    "server",
    "policy",
    "config",
    "tenants",
    "tenant",
    "user",
];
const BLOCK: &[&str] = &[TIERS, "listen", "http", "http_control", "http_hosts", "cache", "export", "tls"];

impl Reader {
    /// The top-level keys that it reads.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Reader::Store => STORE,
            Reader::Block => BLOCK,
            Reader::Tiers => &[TIERS],
        }
    }

    /// Whether it leaves this top-level key to another command.
    fn passes_over(self, key: &str) -> bool {
        !self.keys().contains(&key)
            && [Reader::Store, Reader::Block].iter().any(|other| other.keys().contains(&key))
    }
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no TOML, has an unknown key, or a value that cannot be.
    #[error("the configuration {} is not valid: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, and in which line.
        source: Box<Error>,
    },
    /// Its tiers do not go together.
    #[error("the configuration {} is not valid: {source}", path.display())]
    Tiers {
        /// The file.
        path: PathBuf,
        /// What is wrong with which of them.
        source: TierError,
    },
    /// It describes no tier.
    #[error(
        "the configuration {} describes no tier: give at least one, for example\n[[tier]]\nkind = \"dram\"\ncapacity = \"512MiB\"",
        .0.display()
    )]
    NoTier(PathBuf),
}

/// Why a server's configuration cannot be used: what all servers have to say, and what one alone has (`P`).
#[derive(Debug, thiserror::Error)]
pub enum ConfigError<P: std::error::Error + 'static> {
    /// The file cannot be read, or does not say what it should.
    #[error(transparent)]
    File(#[from] FileError),
    /// A tier asks for what this server has not.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// A value that is out of range.
    #[error("{key}: {problem}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// What only this server asks of its configuration.
    #[error(transparent)]
    Server(P),
}

impl<P: std::error::Error> ConfigError<P> {
    /// The same of tiers that a file describes: an error that names it.
    #[must_use]
    pub fn of_tiers_in(self, file: Option<&Path>) -> Self {
        match (self, file) {
            (ConfigError::Tier(source), Some(path)) => {
                ConfigError::File(FileError::Tiers { path: path.to_owned(), source })
            }
            (error, _) => error,
        }
    }
}

/// Reads the sections of one command.
///
/// # Errors
/// When the file cannot be read or does not say what it should.
pub fn read<T: DeserializeOwned>(path: &Path, reader: Reader) -> Result<T, FileError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    parse(&text, reader).map_err(|source| FileError::Parse { path: path.to_owned(), source })
}

/// The same from the text of a file.
///
/// # Errors
/// When it does not say what it should; the error shows the line.
pub fn parse<T: DeserializeOwned>(text: &str, reader: Reader) -> Result<T, Box<Error>> {
    let mut sections = DeTable::parse(text)?;
    let whole = std::mem::take(sections.get_mut());
    *sections.get_mut() = whole.into_iter().filter(|(key, _)| !reader.passes_over(key.get_ref())).collect();
    T::deserialize(Deserializer::from(sections)).map_err(|mut error| {
        error.set_input(Some(text));
        Box::new(error)
    })
}

/// The tiers of a file, fastest first.
///
/// # Errors
/// When the file cannot be read, describes no tier, or describes tiers that cannot be.
pub fn read_tiers(path: &Path) -> Result<Vec<TierSpec>, FileError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sections {
        #[serde(default, rename = "tier")]
        tiers: Vec<TierSpec>,
    }
    let Sections { tiers } = read(path, Reader::Tiers)?;
    if tiers.is_empty() {
        return Err(FileError::NoTier(path.to_owned()));
    }
    check_list(&tiers).map_err(|source| FileError::Tiers { path: path.to_owned(), source })?;
    Ok(tiers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "shards = 1\n[server]\nlisten = 1\n[cache]\npath = \"c\"\n[[tier]]\nkind = \"dram\"\ncapacity = \"1GiB\"\n";

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tiermem-config-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn refusal(name: &str, text: &str) -> String {
        let path = file(name, text);
        let error = read_tiers(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains(&path.display().to_string()), "{error}");
        error
    }

    #[test]
    fn what_others_read_is_passed_over() {
        let path = file("whole", FILE);
        let tiers = read_tiers(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(tiers, ["dram=1GiB".parse().unwrap()]);
        let store: toml::Table = parse(FILE, Reader::Store).unwrap();
        assert_eq!(store.keys().collect::<Vec<_>>(), ["server", "shards", "tier"]);
        let block: toml::Table = parse(FILE, Reader::Block).unwrap();
        assert_eq!(block.keys().collect::<Vec<_>>(), ["cache", "tier"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_file_line_and_key() {
        for (name, text, parts) in [
            ("unknown", "\n[[teir]]\nkind = \"dram\"", ["line 2", "unknown field `teir`"]),
            ("toml", "tier = ", ["line 1", ""]),
            ("none", "[server]\n", ["describes no tier", "[[tier]]"]),
            ("empty", "", ["describes no tier", ""]),
            ("key", "[[tier]]\nkind = \"dram\"\nspeed = 1", ["line 3", "unknown field `speed`"]),
            ("value", "[[tier]]\nkind = \"dram\"\ncapacity = \"much\"", ["line 3", "is not a size"]),
            (
                "contradiction",
                "shards = 1\n\n[[tier]]\nname = \"a\"\nkind = \"dram\"\nprice_per_gb = 1\nprice_each = 1",
                ["line 3", "tier \"a\": price_per_gb: contradicts price_each"],
            ),
            (
                "names",
                "[[tier]]\nkind = \"dram\"\n[[tier]]\nkind = \"dram\"",
                ["tier \"dram\": name: another", ""],
            ),
        ] {
            let error = refusal(name, text);
            assert!(parts.iter().all(|part| error.contains(part)), "{name}: {error}");
        }
        let absent = read_tiers(Path::new("/nowhere/tiers.toml")).unwrap_err().to_string();
        assert!(absent.starts_with("cannot read the configuration /nowhere/tiers.toml: "), "{absent}");
    }
}
