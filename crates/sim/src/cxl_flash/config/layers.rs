//! Layers of a configuration: each later one replaces the keys that it names.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::Config;
use super::presets::PRESETS;

/// Why there is no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A key cannot have this value, alone or with the others.
    #[error("{key}: {why}")]
    Key {
        /// The key, with its section.
        key: String,
        /// Why not, and what could be.
        why: String,
    },
    /// A file does not say what a device can be.
    #[error("{}, line {line}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// The problem there.
        why: String,
    },
    /// There is no such preset.
    #[error("there is no preset {0:?}; the presets are {list}", list = PRESETS.map(|preset| preset.name).join(", "))]
    Preset(String),
}

impl ConfigError {
    /// The error of a key's value.
    pub fn key(key: impl Into<String>, why: impl Into<String>) -> Self {
        ConfigError::Key { key: key.into(), why: why.into() }
    }
}

/// Short names of keys that are often varied.
const SHORT: [(&str, &str); 10] = [
    ("cache", "cache.size"),
    ("capacity", "flash.capacity"),
    ("line", "cache.line"),
    ("mshr", "mshr.enabled"),
    ("policy", "cache.policy"),
    ("prefetch", "prefetch.kind"),
    ("technology", "flash.technology"),
    ("ways", "cache.ways"),
    ("window", "cache.window"),
    ("write_log", "flash.write_log"),
];

/// Keys of `[price]` as they were, and what they are now.
const OLD_PRICES: [(&str, &str); 2] =
    [("dram_per_gb", "dram.price_per_gb"), ("flash_per_gb", "flash.price_per_gb")];

/// The layers so far.
#[derive(Clone, Debug)]
pub struct Layers(Table);

impl Default for Layers {
    fn default() -> Self {
        // A configuration is a tree of tables: it has a form in TOML.
        Layers(Table::try_from(Config::default()).unwrap_or_default())
    }
}

impl Layers {
    /// Lays a preset over it.
    pub fn preset(&mut self, name: &str) -> Result<(), ConfigError> {
        let preset = PRESETS.iter().find(|preset| preset.name == name);
        let preset = preset.ok_or_else(|| ConfigError::Preset(name.to_owned()))?;
        self.text(Path::new(name), preset.text)
    }

    /// Lays the text of a file over it; `path` stands in errors.
    pub fn text(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        // Read as a whole configuration first: that finds unknown keys and wrong types, with their lines.
        let table = toml::from_str::<Config>(text).and_then(|_| toml::from_str::<Table>(text));
        let table = table.map_err(|error| {
            let span = error.span().unwrap_or_default();
            let start = span.start.min(text.len());
            let line = 1 + text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count();
            let written = text.lines().nth(line - 1).unwrap_or_default().trim();
            let why =
                replaced(written).unwrap_or_else(|| error.message().lines().collect::<Vec<_>>().join(" "));
            ConfigError::File { path: path.to_owned(), line, why }
        })?;
        lay(&mut self.0, table);
        Ok(())
    }

    /// Sets one key, such as `cache.size` or short `cache`; `parallelism` stands for channels and ways, as `8x4`.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        if key == "parallelism" {
            let parts = value.split_once('x');
            let (channels, ways) = parts.ok_or_else(|| {
                ConfigError::key(key, format!("{value:?} is not channels x ways, such as 8x4"))
            })?;
            self.set("flash.channels", channels)?;
            return self.set("flash.ways", ways);
        }
        if let Some((_, new)) = OLD_PRICES.iter().find(|(old, _)| key.strip_prefix("price.") == Some(*old)) {
            return Err(ConfigError::key(key, format!("is written price.{new}={value} now")));
        }
        let full = SHORT.iter().find(|(short, _)| *short == key).map_or(key, |(_, full)| full);
        let mut at = &mut self.0;
        let mut parts = full.split('.').peekable();
        while let Some(part) = parts.next() {
            let unknown = || ConfigError::key(key, "there is no such key; docs/cxl-flash.md lists them");
            let place = at.get_mut(part).ok_or_else(unknown)?;
            match (place, parts.peek()) {
                (Value::Table(table), Some(_)) => at = table,
                (Value::Table(_), None) | (_, Some(_)) => return Err(unknown()),
                (place, None) => {
                    *place = like(place, value).map_err(|why| ConfigError::key(full, why))?;
                    break;
                }
            }
        }
        // Alone it may be wrong in a way that its type does not show.
        self.config().map(drop).map_err(|error| match error {
            ConfigError::Key { why, .. } => ConfigError::key(full, why),
            error => error,
        })
    }

    /// The configuration that they make.
    pub fn config(&self) -> Result<Config, ConfigError> {
        self.0.clone().try_into().map_err(|error: toml::de::Error| {
            ConfigError::key("configuration", error.message().lines().collect::<Vec<_>>().join(" "))
        })
    }

    /// The configuration as a file that gives the same.
    pub fn to_toml(&self) -> String {
        toml::to_string(&self.0).unwrap_or_default()
    }
}

/// The present form of a line in the old form, from before prices were those of tiers.
fn replaced(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    let (_, new) = OLD_PRICES.iter().find(|(old, _)| *old == key.trim())?;
    Some(format!("`{line}` is written `{new} = {}` now, in [price] as before", value.trim()))
}

fn lay(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            // A price is one thing: by the gigabyte or for all, it replaces the one before with all its keys.
            (Some(Value::Table(base)), Value::Table(over)) if key == "price" => base.extend(over),
            (Some(Value::Table(base)), Value::Table(over)) => lay(base, over),
            // Some keys take a number or a word: the word's type stays, so that either can be laid over it.
            (Some(Value::String(base)), Value::Integer(over)) => *base = over.to_string(),
            // A number without a point is still one that may have it.
            (Some(Value::Float(base)), Value::Integer(over)) => *base = over as f64,
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// The text as a value of the type that stands there already.
fn like(before: &Value, text: &str) -> Result<Value, String> {
    let wrong = |wanted: &str| format!("{text:?} is not {wanted}");
    match before {
        Value::Integer(_) => text.parse().map(Value::Integer).map_err(|_| wrong("a whole number")),
        Value::Float(_) => text.parse().map(Value::Float).map_err(|_| wrong("a number")),
        Value::Boolean(_) => match text {
            "true" | "on" | "1" => Ok(Value::Boolean(true)),
            "false" | "off" | "0" => Ok(Value::Boolean(false)),
            _ => Err(wrong("on or off")),
        },
        _ => Ok(Value::String(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_base::tier::{Amount, Per};

    fn with(text: &str) -> Result<Config, ConfigError> {
        let mut layers = Layers::default();
        layers.text(Path::new("device.toml"), text)?;
        let config = layers.config()?;
        config.device().map(|_| config)
    }

    #[test]
    fn a_price_is_that_of_a_tier() {
        let config =
            with("[price]\ndram.price_per_gb = 4\nflash = { price_each = 99.0, source = \"an offer\" }")
                .unwrap();
        assert_eq!(config.price.dram.amount, Amount::PerGb(4.0));
        assert_eq!((config.price.flash.amount, config.price.flash.per), (Amount::Each(99.0), Per::Once));
        let mut layers = Layers::default();
        layers.set("price.flash.price_per_gb", "0.05").unwrap();
        assert_eq!(layers.config().unwrap().price.flash.amount, Amount::PerGb(0.05));
        // What is printed is read as the same.
        let printed = layers.to_toml();
        assert_eq!(with(&printed), layers.config(), "{printed}");
    }

    #[test]
    fn prices_as_they_were_written_are_answered_with_the_line_that_replaces_theirs() {
        let error = with("seed = 1\n[price]\ndram_per_gb = 4.5").unwrap_err().to_string();
        assert!(
            error.contains(
                "device.toml, line 3: `dram_per_gb = 4.5` is written `dram.price_per_gb = 4.5` now"
            ),
            "{error}"
        );
        with("seed = 1\n[price]\ndram.price_per_gb = 4.5").unwrap();
        let mut layers = Layers::default();
        let error = layers.set("price.flash_per_gb", "0.05").unwrap_err().to_string();
        assert!(error.contains("is written price.flash.price_per_gb=0.05 now"), "{error}");
    }

    #[test]
    fn prices_that_cannot_be_compared_are_refused() {
        for (text, part) in [
            ("[price]\ndram = { price_each = 300.0 }", "price.dram.price_each: "),
            ("[price]\nflash = { price_per_gb = 0.1, per = \"month\" }", "price.flash: is not paid as"),
            ("[price]\nflash = { price_per_gb = 0.1, currency = \"EUR\" }", "price.flash: is not paid as"),
            ("[price]\nflash = { price_per_gb = -1.0 }", "price_per_gb: -1"),
            ("[price]\ntape.price_per_gb = 1", "unknown field `tape`"),
        ] {
            let error = with(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
