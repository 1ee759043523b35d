//! Configuration of the store, from a file or from flags, and its checks.

mod flash;
mod memory;
mod policy;
mod tenant;
mod tier;
mod user;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tiermem_base::{Bytes, Nanos, TierKind, TierSpec};
use tiermem_live::address;
use tiermem_live::config::{self as file, Reader};
use tiermem_live::tls::TlsFiles;

pub use flash::FlashTier;
pub use memory::{PROCESS_BYTES, SHARD_BYTES, check_memory, check_memory_against};
pub use policy::PolicySection;
pub use tenant::{TenantConfig, TenantsSection};
pub use user::UserConfig;

use crate::tiers::pages_bytes;
use tiermem_policy::ladder::{LadderConfig, PINNED_SHARE};

use crate::command::Live;
use crate::engine::{AHEAD_BYTES, EngineConfig};
use crate::server::{ServerConfig, TlsConfig};
use crate::settings::{Maxmemory, Settings};
use crate::shards::SHARDS_MAX;
use crate::snapshot::Load;

/// Why a configuration cannot be used.
pub type ConfigError = file::ConfigError<Misfit>;

/// Errors of a configuration that only the store reports.
#[derive(Debug, thiserror::Error)]
pub enum Misfit {
    /// There is no tier at all.
    #[error("no tier is configured: give at least one, for example --tier dram=512MiB")]
    NoTier,
    /// More tiers than a ladder can have.
    #[error("{given} tiers are configured, and there can be {most}: leave some out")]
    TooManyTiers {
        /// How many.
        given: usize,
        /// How many there may be.
        most: usize,
    },
    /// The tiers together need more memory than this process may use.
    #[error(
        "the tiers need {needed} ({tiers} and {process} for the program and its buffers), but {limit_source} allows {limit}: \
         make the tiers smaller, or raise the limit"
    )]
    Memory {
        /// Capacities together.
        tiers: Bytes,
        /// What the program and its buffers take.
        process: Bytes,
        /// Both, and the flash tier's buffers.
        needed: Bytes,
        /// What is allowed.
        limit: Bytes,
        /// The source of the limit.
        limit_source: String,
    },
}

/// The whole configuration. Unknown keys are errors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// The longest value (`max_value`). Default 16 MiB.
    pub max_value: Bytes,
    /// Threads that each own a part of the keys. Default 1.
    pub shards: u32,
    /// The cores that these threads are kept on, in turn. Default: they go where the system puts them.
    pub pin_cores: Vec<usize>,
    /// Where the items of memory are written when the store stops and when a client asks, and read from when it starts.
    /// Default nowhere.
    pub snapshot: Option<PathBuf>,
    /// Which snapshots are loaded: `clean` (default; what an orderly stop wrote, once), `always` (any, though what was deleted
    /// or overwritten behind it comes back) or `never`.
    pub snapshot_load: Option<String>,
    /// Sockets and limits.
    pub server: ServerSection,
    /// Admission, promotion, demotion and eviction.
    pub policy: PolicySection,
    /// Parameters of `CONFIG SET` without a place in another section, by name.
    pub config: BTreeMap<String, toml::Value>,
    /// How tenants are identified. Default: there are none.
    pub tenants: TenantsSection,
    /// Tenants that are declared beforehand.
    #[serde(rename = "tenant")]
    pub declared_tenants: Vec<TenantConfig>,
    /// Users beside `default`, or what that one may do.
    #[serde(rename = "user")]
    pub declared_users: Vec<UserConfig>,
    /// Tiers, the fastest first. Default: 512 MiB of DRAM and 2 GiB of emulated CXL memory.
    #[serde(rename = "tier")]
    pub tiers: Vec<TierSpec>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            max_value: Bytes(16 << 20),
            shards: 1,
            pin_cores: Vec::new(),
            snapshot: None,
            snapshot_load: None,
            server: ServerSection::default(),
            policy: PolicySection::default(),
            config: BTreeMap::new(),
            tenants: TenantsSection::default(),
            declared_tenants: Vec::new(),
            declared_users: Vec::new(),
            tiers: tier::default_tiers(),
        }
    }
}

/// The keys of `[server]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSection {
    /// The TCP address for clients. Default 127.0.0.1:7379.
    #[serde(deserialize_with = "address::deserialize")]
    pub listen: SocketAddr,
    /// The TCP address of the live page and `/metrics`. Default 127.0.0.1:7380.
    #[serde(deserialize_with = "address::deserialize")]
    pub http: SocketAddr,
    /// Names by which requests to that address may call the store, beside addresses and localhost, where it is on this machine. Default
    /// none.
    pub http_hosts: Vec<String>,
    /// A unix socket for clients. Default none.
    pub unix_socket: Option<PathBuf>,
    /// The TCP address for clients that speak TLS; needs `tls_cert` and `tls_key`. Default none.
    #[serde(deserialize_with = "address::deserialize_some")]
    pub tls_listen: Option<SocketAddr>,
    /// The server's certificate and those up to its root (PEM).
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    pub tls_key: Option<PathBuf>,
    /// Clients must show a certificate signed by one of these (PEM). Default: they need none.
    pub tls_client_ca: Option<PathBuf>,
    /// The password clients must give. Default none.
    pub requirepass: Option<String>,
    /// Whether listening beyond this machine without a password is refused. Default true.
    pub protected_mode: bool,
    /// The most clients at a time. Default 10000.
    pub maxclients: usize,
    /// Idle time after which clients are dropped. Default: never.
    pub timeout: Option<Nanos>,
    /// Unsent replies from which on a client is not read from. Default 1 MiB.
    pub output_buffer: Bytes,
    /// Unfinished requests of all clients together. Default 64 MiB.
    pub request_buffer: Bytes,
    /// Bytes of memory tiers that replies under way may pin, all clients together. Default a sixteenth of the tiers.
    pub pinned: Option<Bytes>,
}

impl Default for ServerSection {
    fn default() -> Self {
        let settings = Settings::default();
        ServerSection {
            listen: SocketAddr::from(([127, 0, 0, 1], 7379)),
            http: SocketAddr::from(([127, 0, 0, 1], 7380)),
            http_hosts: Vec::new(),
            unix_socket: None,
            tls_listen: None,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            requirepass: None,
            protected_mode: true,
            maxclients: settings.maxclients,
            timeout: None,
            output_buffer: Bytes(settings.output_bytes_max as u64),
            request_buffer: Bytes(settings.request_buffer_bytes as u64),
            pinned: None,
        }
    }
}

impl ServerSection {
    fn tls(&self) -> Result<Option<TlsConfig>, ConfigError> {
        let files =
            (self.tls_listen, self.tls_cert.clone(), self.tls_key.clone(), self.tls_client_ca.clone());
        match files {
            (None, None, None, None) => Ok(None),
            (Some(listen), Some(cert), Some(key), client_ca) => {
                Ok(Some(TlsConfig { listen, files: TlsFiles { cert, key, client_ca } }))
            }
            _ => Err(ConfigError::Value {
                key: "server.tls_listen",
                problem:
                    "TLS needs an address, a certificate and its key: give tls_listen, tls_cert and tls_key \
                          (--tls-listen, --tls-cert, --tls-key)"
                        .to_owned(),
            }),
        }
    }
}

impl StoreConfig {
    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Ok(file::read(path, Reader::Store)?)
    }

    /// Checks everything that can be checked without touching the machine.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let value = |key, problem: &str| Err(ConfigError::Value { key, problem: problem.to_owned() });
        if !(1..=SHARDS_MAX as u32).contains(&self.shards) {
            return value("shards", "must be between 1 and 256");
        }
        if self.shards > 1 && self.tiers.iter().any(|tier| tier.kind == TierKind::Dax) {
            return value(
                "shards",
                "a tier of kind dax serves one shard: leave shards at 1, or the tier out",
            );
        }
        if !(1024..=512 << 20).contains(&self.max_value.0) {
            return value("max_value", "must lie between 1KiB and 512MiB");
        }
        if self.server.maxclients == 0 {
            return value("server.maxclients", "must be at least 1");
        }
        if self.server.output_buffer.0 < 16 << 10 {
            return value("server.output_buffer", "must be at least 16KiB");
        }
        if self.pinned_share() > 0.5 {
            return value("server.pinned", "must be at most half of the memory tiers");
        }
        if self.server.requirepass.as_ref().is_some_and(String::is_empty) {
            return value("server.requirepass", "is empty: leave it out to ask for no password");
        }
        self.server.tls()?;
        self.snapshot_load()?;
        tier::validate(&self.tiers)?;
        self.tenancy()?;
        if self.shards > 1 {
            let tiers = self.shard_tiers();
            // What may be pinned is a part of all tiers.
            let server = ServerSection { pinned: None, ..self.server.clone() };
            let one = StoreConfig { shards: 1, tiers, declared_tenants: Vec::new(), server, ..self.clone() };
            return one.validate();
        }
        self.ladder().map(|_| ())
    }

    /// The tiers of one of the shards: an equal part of each.
    fn shard_tiers(&self) -> Vec<TierSpec> {
        let shards = u64::from(self.shards.max(1));
        self.tiers.iter().map(|tier| tier.clone().divided(shards)).collect()
    }

    /// The snapshots to load.
    ///
    /// # Errors
    /// When the value is not one of its words, or there is no snapshot path that it could apply to.
    pub fn snapshot_load(&self) -> Result<Load, ConfigError> {
        let error = |problem| ConfigError::Value { key: "snapshot_load", problem };
        match (&self.snapshot_load, &self.snapshot) {
            (None, _) => Ok(Load::default()),
            (Some(_), None) => {
                Err(error("says what to load, but not from where: give snapshot as well".to_owned()))
            }
            (Some(word), Some(_)) => word.parse().map_err(error),
        }
    }

    fn ladder(&self) -> Result<LadderConfig, ConfigError> {
        let capacities: Vec<Bytes> = self.memory_tiers().map(|tier| Bytes(pages_bytes(tier))).collect();
        Ok(LadderConfig { ahead_bytes: AHEAD_BYTES, ..self.ladder_over(&capacities)? })
    }

    /// The ladder as `[policy]` and `[config]` set it, over memory tiers of these capacities, the fastest first. Nothing is prefaulted:
    /// there may be no memory to prefault, as in a simulation.
    ///
    /// # Errors
    /// When a value is out of range, or two do not go together.
    pub fn ladder_over(&self, capacities: &[Bytes]) -> Result<LadderConfig, ConfigError> {
        let mut ladder = self.policy.ladder(capacities)?;
        let live = self.live_over(&ladder)?;
        ladder.tune(live.policy);
        let tenants = live.division.tells_apart;
        let checked = LadderConfig { tenants, ..ladder.clone() }.check_orders();
        checked.map_err(|problem| ConfigError::Value { key: "policy.order", problem })?;
        Ok(ladder)
    }

    /// The settings that can change later, as the file has them, `[config]` included.
    fn live(&self) -> Result<Live, ConfigError> {
        self.live_over(&self.ladder()?)
    }

    fn live_over(&self, ladder: &LadderConfig) -> Result<Live, ConfigError> {
        let section = &self.server;
        let most_bytes = self.memory_tiers().filter(|tier| tier.kind != TierKind::Dax).map(pages_bytes).sum();
        let has_dax = self.tiers.iter().any(|tier| tier.kind == TierKind::Dax);
        let server = Settings {
            maxmemory: Maxmemory { bytes: most_bytes, most_bytes, has_dax },
            maxclients: section.maxclients,
            timeout_ms: section.timeout.map_or(0, |timeout| timeout.0.div_ceil(1_000_000)),
            users: self.users()?,
            output_bytes_max: section.output_buffer.0 as usize,
            request_buffer_bytes: section.request_buffer.0 as usize,
            ..Settings::default()
        };
        let mut live = Live { server, policy: ladder.tuning(), division: self.division()?, flash_bytes: 0 };
        let error = |problem| ConfigError::Value { key: "config", problem };
        for (name, value) in &self.config {
            let text = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Boolean(flag) => if *flag { "yes" } else { "no" }.to_owned(),
                toml::Value::Integer(_) | toml::Value::Float(_) => value.to_string(),
                _ => return Err(error(format!("{name} must be a text, a number, true or false"))),
            };
            live.set_from_file(name, &text).map_err(error)?;
        }
        live.check().map_err(|(name, problem)| error(format!("{name}: {problem}")))?;
        Ok(live)
    }

    fn memory_tiers(&self) -> impl Iterator<Item = &TierSpec> {
        self.tiers.iter().filter(|tier| tier.kind != TierKind::Flash)
    }

    /// The part of each memory tier that replies under way may pin.
    fn pinned_share(&self) -> f64 {
        let tiers_bytes: u64 = self.memory_tiers().map(pages_bytes).sum();
        self.server.pinned.map_or(PINNED_SHARE, |pinned| pinned.0 as f64 / tiers_bytes.max(1) as f64)
    }

    /// The flash tier below the others, if there is one.
    pub fn flash_tier(&self) -> Result<Option<FlashTier>, ConfigError> {
        let flash = self.tiers.iter().find(|tier| tier.kind == TierKind::Flash);
        Ok(flash.map(FlashTier::of).transpose()?)
    }

    /// The engine configuration of one shard; `seed` is for its hash.
    pub fn engine_config(&self, seed: u64) -> Result<EngineConfig, ConfigError> {
        if self.shards > 1 {
            let one = StoreConfig { shards: 1, tiers: self.shard_tiers(), ..self.clone() };
            // Shards give each other memory, down to a part of what they begin with. Tenants' shares are of all of it.
            let tenancy = self.tenancy()?;
            let one = StoreConfig { declared_tenants: Vec::new(), ..one };
            let pinned_share = self.pinned_share();
            return Ok(EngineConfig {
                growth: self.shards,
                tenancy,
                pinned_share,
                ..one.engine_config(seed)?
            });
        }
        let tiers = self.memory_tiers().cloned().collect();
        let ladder = self.ladder()?;
        Ok(EngineConfig {
            ladder,
            value_bytes_max: self.max_value.0 as usize,
            tenancy: self.tenancy()?,
            seed,
            pinned_share: self.pinned_share(),
            ..EngineConfig::new(tiers)
        })
    }

    /// The server configuration; `config_file` is the file that it was read from.
    pub fn server_config(&self, config_file: Option<PathBuf>) -> Result<ServerConfig, ConfigError> {
        let section = &self.server;
        Ok(ServerConfig {
            listen: Some(section.listen),
            tls: section.tls()?,
            unix_socket: section.unix_socket.clone(),
            protected_mode: section.protected_mode,
            config_file,
            snapshot: self.snapshot.clone(),
            settings: self.live()?.server,
            pin_cores: self.pin_cores.clone(),
            beside_tiers_bytes: memory::beside_tiers_bytes(&self.tiers, self.shards),
            ..ServerConfig::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LogLevel;
    use tiermem_policy::ladder::Eviction;

    fn read(text: &str) -> Result<StoreConfig, String> {
        let config: StoreConfig = file::parse(text, Reader::Store).map_err(|error| error.to_string())?;
        config.validate().map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn the_empty_file_is_the_default() {
        let config = read("").unwrap();
        assert_eq!(config.tiers.len(), 2);
        assert_eq!(config.server.listen.port(), 7379);
        let settings = config.server_config(None).unwrap().settings;
        let most_bytes = (512 << 20) + (2 << 30);
        let maxmemory = Maxmemory { bytes: most_bytes, most_bytes, has_dax: false };
        assert_eq!(settings, Settings { maxmemory, ..Settings::default() });
    }

    #[test]
    fn a_full_file_is_understood() {
        let config = read(
            r#"
            max_value = "1MiB"
            [server]
            listen = "127.0.0.1:1"
            unix_socket = "s"
            requirepass = "p"
            timeout = "30s"
            [config]
            loglevel = "debug"
            maxmemory-policy = "noeviction"
            [[tier]]
            name = "dram"
            kind = "dram"
            capacity = "64MiB"
            price_per_gb = 4.875
            [[tier]]
            name = "cxl"
            kind = "emulated"
            capacity = "1GiB"
            read_latency = "250ns"
            write_latency = "300ns"
            bandwidth = "20GB/s"
            bandwidth_share = 0.5
            "#,
        )
        .unwrap();
        assert_eq!(config.tiers[1].curve().unwrap().read.bandwidth_gb_per_s, 10.0);
        let settings = config.server_config(None).unwrap().settings;
        assert_eq!((settings.timeout_ms, settings.log_level), (30_000, LogLevel::Debug));
        assert_eq!(config.engine_config(0).unwrap().ladder.eviction, Eviction::Forbidden);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("colour = 1", "unknown field `colour`"),
            ("[server]\nport = 1", "unknown field `port`"),
            ("shards = 0", "between 1 and 256"),
            (
                "[policy]\norder = \"s3-fifo\"\n[tenants]\nby = \"prefix\"",
                "s3-fifo does not work with tenants",
            ),
            (
                "shards = 64\ntier = [{name = \"a\", kind = \"dram\", capacity = \"1MiB\"}]",
                "16KiB is too small",
            ),
            (
                "shards = 2\n[[tier]]\nname = \"a\"\nkind = \"dax\"\npath = \"x\"\ncapacity = \"1GiB\"",
                "serves one shard",
            ),
            ("snapshot_load = \"always\"", "give snapshot as well"),
            ("snapshot = \"s\"\nsnapshot_load = \"often\"", "none of clean, always, never"),
            ("[config]\ncolour = 1", "there is no parameter \"colour\""),
            ("[config]\nport = 1", "port cannot be set here"),
            ("[config]\nmaxclients = 1", "maxclients has its place in [server]"),
            ("[server]\npinned = \"2GiB\"", "must be at most half of the memory tiers"),
            ("[config]\nstall-timeout-ms = 0", "must be between 1 and"),
            ("[server]\ntls_listen = \"127.0.0.1:1\"", "give tls_listen, tls_cert and tls_key"),
            ("max_value = \"1GiB\"", "between 1KiB and 512MiB"),
            ("max_value = \"lots\"", "is not a size"),
            ("[tenants]\nby = \"colour\"", "none of none, database, prefix, user"),
            ("[[user]]\nname = \"a\"", "missing field `rules`"),
            ("[[user]]\nname = \"a\"\nrules = \"on +nonsense\"", "ACL CAT"),
            (
                "user = [{name = \"a\", rules = \"~x:*\"}, {name = \"b\", rules = \"~x:*\"}]\n[tenants]\nby = \"user\"",
                "would both own",
            ),
            ("[[tenant]]\nname = \"a\"\nshare = \"1MiB\"", "are not told apart"),
            (
                "[tenants]\nby = \"prefix\"\n[[tenant]]\nname = \"a\"\nshare = \"3GiB\"",
                "shares of 3GiB are more than the 2.50GiB",
            ),
            ("tier = []", "no tier is configured"),
            ("[[tier]]\nname = \"a\"\nkind = \"dram\"", "capacity: is missing"),
            ("[[tier]]\nname = \"a\"\nkind = \"dram\"\ncapacity = \"10%\"", "known to simulators alone"),
            ("[[tier]]\nname = \"a\"\nkind = \"dram\"\ncapacity = \"64KiB\"", "64KiB is too small"),
            ("[[tier]]\nname = \"a\"\nkind = \"paper\"\ncapacity = \"1GiB\"", "unknown variant `paper`"),
            (
                "[[tier]]\nname = \"a\"\nkind = \"remote\"\ncapacity = \"1GiB\"",
                "emulated and flash, and not remote yet",
            ),
            ("[[tier]]\nname = \"a\"\nkind = \"compressed\"\ncapacity = \"1GiB\"", "and not compressed yet"),
            ("[[tier]]\nname = \"a\"\nkind = \"numa\"\ncapacity = \"1GiB\"", "has a node"),
            ("[[tier]]\nname = \"a\"\nkind = \"dax\"\ncapacity = \"1GiB\"", "has a path"),
            (
                "[[tier]]\nname = \"a\"\nkind = \"dram\"\nnode = 1\ncapacity = \"1GiB\"",
                "and no other, has a node",
            ),
            ("[[tier]]\nname = \"a\"\nkind = \"emulated\"\ncapacity = \"1GiB\"", "tier 0 must be"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_keys_that_others_pass_over_are_those_that_are_read() {
        // The error names them all.
        let error = file::parse::<StoreConfig>("colour = 1", Reader::Store).unwrap_err();
        let (_, expected) = error.message().split_once("expected one of ").unwrap();
        let mut expected: Vec<&str> = expected.split(", ").map(|key| key.trim_matches('`')).collect();
        let mut keys = Reader::Store.keys().to_vec();
        expected.sort_unstable();
        keys.sort_unstable();
        assert_eq!(expected, keys);
    }
}
