//! Configuration section of an export.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tiermem_base::Bytes;
use tiermem_policy::extents::Mode;
use tiermem_policy::extents::pairing::Accepted;

use super::{ConfigError, Misfit};
use crate::backing::BackingSpec;
use crate::engine::VolumeConfig;
use crate::nbd::wire::STRING_BYTES_MAX;

/// Where an export's writes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExportMode {
    /// Into the cache, and to the store later.
    #[default]
    WriteBack,
    /// Into both.
    WriteThrough,
    /// To the store.
    WriteAround,
    /// Nowhere: they are refused.
    ReadOnly,
}

impl ExportMode {
    const NAMES: [(&'static str, ExportMode); 4] = [
        ("write-back", ExportMode::WriteBack),
        ("write-through", ExportMode::WriteThrough),
        ("write-around", ExportMode::WriteAround),
        ("read-only", ExportMode::ReadOnly),
    ];
}

impl fmt::Display for ExportMode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.into_iter().find(|(_, mode)| mode == self).map(|(name, _)| name);
        out.write_str(name.unwrap_or_default())
    }
}

impl FromStr for ExportMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.into_iter().find(|(name, _)| *name == text).map(|(_, mode)| mode);
        found.ok_or_else(|| {
            format!("`{text}` is not a mode; there are write-back, write-through, write-around and read-only")
        })
    }
}

/// When a client is told that its write is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcknowledgeName {
    /// When it is planned: a crash may lose it until a flush.
    #[default]
    Buffered,
    /// When it survives a crash, as if each write had FUA.
    Durable,
}

/// `[[export]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportSection {
    /// The name that clients ask for.
    pub name: String,
    /// Where the volume lives: see [`BackingSpec`].
    pub backing: String,
    /// Words for people.
    #[serde(default)]
    pub description: String,
    /// Where writes go. Default write-back.
    #[serde(default)]
    pub mode: ExportMode,
    /// When a write is done: `buffered` (default), where a flush makes it durable, or `durable`.
    #[serde(default)]
    pub acknowledge: AcknowledgeName,
    /// Its quota of the cache.
    pub quota: Option<Bytes>,
    /// What the operator accepts at this start if cache and store are no pair.
    #[serde(skip)]
    pub accepted: Accepted,
}

impl FromStr for ExportSection {
    type Err = String;

    /// `NAME=BACKING`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, backing) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not NAME=BACKING, as in disk=/srv/disk.img"))?;
        backing.parse::<BackingSpec>().map_err(|error| error.to_string())?;
        Ok(ExportSection {
            name: name.to_owned(),
            backing: backing.to_owned(),
            description: String::new(),
            mode: ExportMode::default(),
            acknowledge: AcknowledgeName::default(),
            quota: None,
            accepted: Accepted::Nothing,
        })
    }
}

impl ExportSection {
    fn problem(&self, problem: impl ToString) -> ConfigError {
        ConfigError::Server(Misfit::Export { name: self.name.clone(), problem: problem.to_string() })
    }

    /// Where the volume lives.
    ///
    /// # Errors
    /// When the text names no store.
    pub fn backing(&self) -> Result<BackingSpec, ConfigError> {
        self.backing.parse().map_err(|error| self.problem(error))
    }

    pub(super) fn validate(&self, cache_bytes: u64) -> Result<(), ConfigError> {
        for text in [&self.name, &self.description] {
            if text.len() > STRING_BYTES_MAX {
                return Err(
                    self.problem(format!("names and descriptions have at most {STRING_BYTES_MAX} bytes"))
                );
            }
        }
        if let Some(quota) = self.quota
            && quota.0 > cache_bytes
        {
            return Err(self
                .problem(format!("the quota {quota} is more than the cache has ({})", Bytes(cache_bytes))));
        }
        self.backing().map(drop)
    }

    /// How the engine offers it, with space of this share.
    pub(super) fn volume(&self, share: u16) -> VolumeConfig {
        VolumeConfig {
            name: self.name.clone(),
            description: self.description.clone(),
            mode: match self.mode {
                ExportMode::WriteBack => Mode::WriteBack,
                ExportMode::WriteThrough => Mode::WriteThrough,
                // Of a volume that takes no writes it makes no difference.
                ExportMode::WriteAround | ExportMode::ReadOnly => Mode::WriteAround,
            },
            read_only: self.mode == ExportMode::ReadOnly,
            share,
            quota_bytes: self.quota.map(|quota| quota.0),
            acknowledges_durably: self.acknowledge == AcknowledgeName::Durable,
            accepted: self.accepted,
        }
    }
}
