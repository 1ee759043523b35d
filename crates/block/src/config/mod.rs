//! Configuration of the block cache, from a file or from flags, and its checks.

mod cache;
mod export;
mod http;
mod tiers;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tiermem_base::TierSpec;
use tiermem_live::config::{self as file, Reader};
use tiermem_live::tls::TlsFiles;
use tiermem_policy::evict::Named;
use tiermem_policy::extents::pairing::Accepted;
use tiermem_policy::extents::{Fill, MIB_PRICE_NS, Observation, Sizing};

use crate::backing::BackingSpec;
use crate::engine::{EngineConfig, VolumeConfig};
use crate::nbd::Address;
use crate::server::{ServerConfig, TlsConfig};

pub use cache::{CacheSection, FillName, SizingName};
pub use export::{ExportMode, ExportSection};
pub use http::HttpAddress;
pub use tiers::{CachePlace, CacheTiers};

/// Why a configuration cannot be used.
pub type ConfigError = file::ConfigError<Misfit>;

/// Errors of a configuration that only the block cache reports.
#[derive(Debug, thiserror::Error)]
pub enum Misfit {
    /// There is no cache.
    #[error(
        "no cache is configured: give a file or block device and a size, for example --cache /srv/cache:16GiB"
    )]
    NoCache,
    /// There is nothing to export.
    #[error("no export is configured: give at least one, for example --export disk=/srv/disk.img")]
    NoExport,
    /// Two exports have one name.
    #[error("two exports are named `{0}`: give each a name of its own")]
    SameName(String),
    /// An export's quota is more than there is, or a name too long.
    #[error("export `{name}`: {problem}")]
    Export {
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
}

/// The whole configuration. Unknown keys are errors.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlockConfig {
    /// Where NBD clients connect: `unix:PATH` or `HOST:PORT`. Default `127.0.0.1:10809`.
    pub listen: Vec<Address>,
    /// The address of the live page and `/metrics`. Default `127.0.0.1:7381`.
    pub http: Option<HttpAddress>,
    /// Names by which requests to that address may call the server, beside addresses and localhost, where it is on this machine.
    /// Commands need an address or localhost all the same. Default none.
    pub http_hosts: Vec<String>,
    /// Whether commands are accepted there. Default: only where the address is on this machine
    /// (127.0.0.1 and the like), since every client that reaches the port may send them.
    pub http_control: Option<bool>,
    /// The cache.
    pub cache: Option<CacheSection>,
    /// Tiers that the cache may name.
    #[serde(rename = "tier")]
    pub tiers: Vec<TierSpec>,
    /// Volumes.
    #[serde(rename = "export")]
    pub exports: Vec<ExportSection>,
    /// TLS; without it clients speak plainly.
    pub tls: Option<TlsSection>,
}

/// TLS for NBD clients.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSection {
    /// The certificate, with those up to its root (PEM).
    pub cert: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
    /// Clients must show a certificate signed by one of these (PEM).
    pub client_ca: Option<PathBuf>,
    /// Whether clients that do not ask for TLS are refused. Default true.
    #[serde(default = "yes")]
    pub required: bool,
}

fn yes() -> bool {
    true
}

impl BlockConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or is no configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Ok(file::read(path, Reader::Block)?)
    }

    /// Where to listen.
    pub fn listen(&self) -> Vec<Address> {
        match &self.listen[..] {
            [] => vec![Address::Tcp { host: "127.0.0.1".to_owned(), port: crate::nbd::PORT }],
            listen => listen.to_vec(),
        }
    }

    /// The address of the live page; none for no page.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.unwrap_or_default().0
    }

    /// The cache.
    ///
    /// # Errors
    /// When none is given.
    pub fn cache(&self) -> Result<&CacheSection, ConfigError> {
        self.cache.as_ref().ok_or(ConfigError::Server(Misfit::NoCache))
    }

    /// The cache's tiers, and the assumed cost of requests to the stores behind it.
    ///
    /// # Errors
    /// When there is no cache, or it names tiers that do not exist or that it cannot use.
    pub fn cache_tiers(&self) -> Result<CacheTiers, ConfigError> {
        tiers::resolve(self.cache()?, &self.tiers)
    }

    /// Checks what its parts cannot check by themselves.
    ///
    /// # Errors
    /// When something is missing or contradicts something else.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let cache = self.cache()?;
        let tiers = self.cache_tiers()?;
        cache.validate(tiers.capacity_bytes)?;
        if self.exports.is_empty() {
            return Err(ConfigError::Server(Misfit::NoExport));
        }
        let mut names = HashSet::new();
        for export in &self.exports {
            if !names.insert(&export.name) {
                return Err(ConfigError::Server(Misfit::SameName(export.name.clone())));
            }
            export.validate(tiers.capacity_bytes)?;
        }
        Ok(())
    }

    /// Notes what the operator accepts of an export if its store and the cache are no pair.
    ///
    /// # Errors
    /// When there is no such export, or the opposite was accepted of it.
    pub fn accept(&mut self, name: &str, accepted: Accepted) -> Result<(), ConfigError> {
        let problem = |problem: &str| {
            Err(ConfigError::Server(Misfit::Export { name: name.to_owned(), problem: problem.to_owned() }))
        };
        let Some(export) = self.exports.iter_mut().find(|export| export.name == name) else {
            return problem("there is none of this name, of which something could be accepted");
        };
        if export.accepted != Accepted::Nothing && export.accepted != accepted {
            return problem("give either --accept-store or --accept-loss: what is dirty is written, or lost");
        }
        export.accepted = accepted;
        Ok(())
    }

    /// The server's limits.
    pub fn server_config(&self) -> ServerConfig {
        let tls = self.tls.as_ref().map(|tls| TlsConfig {
            required: tls.required,
            files: TlsFiles {
                cert: tls.cert.clone(),
                key: tls.key.clone(),
                client_ca: tls.client_ca.clone(),
            },
        });
        ServerConfig { tls, ..ServerConfig::default() }
    }

    /// The volumes, in the order of the exports, and where each lives.
    ///
    /// # Errors
    /// As [`ExportSection::backing`].
    pub fn volumes(&self) -> Result<Vec<(VolumeConfig, BackingSpec)>, ConfigError> {
        let mut share = 0;
        let volume = |export: &ExportSection| {
            share += u16::from(export.quota.is_some());
            let own = if export.quota.is_some() { share } else { 0 };
            Ok((export.volume(own), export.backing()?))
        };
        self.exports.iter().map(volume).collect()
    }

    /// The engine's, drawn from `seed` where it draws.
    ///
    /// # Errors
    /// As [`Self::cache`].
    pub fn engine_config(&self, seed: u64) -> Result<EngineConfig, ConfigError> {
        let cache = self.cache()?;
        let tiers = self.cache_tiers()?;
        Ok(EngineConfig {
            sizes_bytes: cache.blocks.iter().map(|size| size.0).collect(),
            group_bytes: cache.group.map(|group| group.0),
            fill: match cache.fill {
                FillName::Units => Fill::Units,
                FillName::Whole => Fill::Whole,
            },
            sizing: match cache.sizing {
                SizingName::Request => Sizing::Request,
                SizingName::Observed => Sizing::Observed(Observation {
                    believed: tiers.request_cost,
                    mib_price_ns: cache.store_price.map_or(MIB_PRICE_NS, |price| price.0),
                }),
            },
            policy: cache.policy.unwrap_or(Named::Lru),
            // Those without a limit share the first; any may be given one while it is served.
            shares: 1 + self.exports.len() as u16,
            memory_bytes: tiers.memory_bytes,
            table_bytes: cache.table_memory.map(|bytes| bytes.0),
            admission: cache.admission(),
            cleaning: cache.cleaning(),
            seed,
            ..EngineConfig::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_it_all() {
        let text = r#"
            listen = ["unix:/run/tiermem.sock", "0.0.0.0:10809"]
            http = "127.0.0.1:7381"
            [cache]
            path = "/srv/cache"
            capacity = "16GiB"
            blocks = ["64KiB", "1MiB"]
            fill = "whole"
            sizing = "request"
            policy = "s3-fifo"
            dirty_age = "5s"
            store_full = "120s"
            [[export]]
            name = "a"
            backing = "/srv/a.img,read-only"
            [[export]]
            name = "b"
            backing = "nbd://store/b"
            mode = "write-through"
            quota = "4GiB"
            acknowledge = "durable"
        "#;
        let config: BlockConfig = toml::from_str(text).unwrap();
        config.validate().unwrap();
        assert_eq!(config.listen().len(), 2);
        let engine = config.engine_config(0).unwrap();
        assert_eq!((engine.sizes_bytes, engine.fill, engine.shares), (vec![65536, 1 << 20], Fill::Whole, 3));
        assert_eq!((engine.policy, engine.cleaning.age_ns), (Named::S3Fifo, 5_000_000_000));
        assert_eq!(engine.cleaning.full_wait_ns, Some(120_000_000_000));
        assert_eq!(config.exports[1].mode, ExportMode::WriteThrough);
        let durably: Vec<bool> =
            config.volumes().unwrap().iter().map(|it| it.0.acknowledges_durably).collect();
        assert_eq!(durably, [false, true]);
    }

    #[test]
    fn what_is_missing_or_twice_is_told() {
        let read = |text: &str| file::parse::<BlockConfig>(text, Reader::Block);
        let wrong = |text: &str| read(text).unwrap().validate().unwrap_err().to_string();
        assert!(wrong("").contains("--cache"));
        let cache = "[cache]\npath = \"c\"\ncapacity = \"1GiB\"\n";
        assert!(wrong(cache).contains("--export"));
        let export = "[[export]]\nname = \"a\"\nbacking = \"x\"\n";
        assert!(wrong(&format!("{cache}{export}{export}")).contains("`a`"));
        assert!(wrong(&format!("{cache}{export}quota = \"2GiB\"")).contains("quota"));
        let dear = |key: &str| read(&format!("{cache}{key}\n{export}")).unwrap();
        let price_ns = |key: &str| match dear(key).engine_config(0).unwrap().sizing {
            Sizing::Observed(by) => by.mib_price_ns,
            other => panic!("{other:?}"),
        };
        assert_eq!(["", "store_price = \"40ms\""].map(price_ns), [1_000_000, 40_000_000]);
        let unused = dear("store_price = \"40ms\"\nsizing = \"request\"").validate().unwrap_err().to_string();
        assert!(unused.contains("store_price: is for sizing"), "{unused}");
        assert!(read("colour = 1").is_err());
        let full = |value: &str| read(&format!("{cache}store_full = {value}\n{export}"));
        let wait = full("\"wait\"").unwrap().engine_config(0).unwrap().cleaning.full_wait_ns;
        assert_eq!(wait, None);
        let wrong = read(&format!("{cache}{export}acknowledge = \"later\"")).unwrap_err().to_string();
        assert!(wrong.contains("buffered") && wrong.contains("durable"), "{wrong}");
        let wrong = full("\"fail\"").unwrap_err().to_string();
        assert!(wrong.contains("\"wait\""), "{wrong}");
        let wrong = read(&format!("{cache}policy = \"belady\"\n{export}")).unwrap_err().to_string();
        assert!(wrong.contains("belady") && wrong.contains("s3-fifo"), "{wrong}");
    }

    #[test]
    fn the_keys_that_others_pass_over_are_those_that_are_read() {
        // The error names them all.
        let error = file::parse::<BlockConfig>("colour = 1", Reader::Block).unwrap_err();
        let (_, expected) = error.message().split_once("expected one of ").unwrap();
        let mut expected: Vec<&str> = expected.split(", ").map(|key| key.trim_matches('`')).collect();
        let mut keys = Reader::Block.keys().to_vec();
        expected.sort_unstable();
        keys.sort_unstable();
        assert_eq!(expected, keys);
    }
}
