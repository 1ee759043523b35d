//! Settings that may change while the server runs: the values behind `CONFIG SET`.
//!
//! A parameter is one field here and one line in `command/config/table.rs`, which gives
//! its name and how its text is read and written. That is enough for `CONFIG GET`,
//! `CONFIG SET`, `CONFIG REWRITE` and the section `[config]` of the configuration file.

use crate::clients::{NotifyFlags, TABLE_KEYS_MAX};
use crate::users::Users;

/// How much is logged, in Redis's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// All there is.
    Debug,
    /// What a developer may want to know.
    Verbose,
    /// What an operator wants to know.
    #[default]
    Notice,
    /// Only what is wrong.
    Warning,
}

impl LogLevel {
    /// All of them with their names.
    pub const ALL: [(LogLevel, &'static str); 4] = [
        (LogLevel::Debug, "debug"),
        (LogLevel::Verbose, "verbose"),
        (LogLevel::Notice, "notice"),
        (LogLevel::Warning, "warning"),
    ];
}

/// What the memory tiers of all shards together may hold (`maxmemory`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maxmemory {
    /// Bytes.
    pub bytes: u64,
    /// What was reserved at the start, which is the most.
    pub most_bytes: u64,
    /// There is a tier of kind dax, whose size is its file's.
    pub has_dax: bool,
}

/// A server's settings. All hold from the next request, connection or tick (100 ms) on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What the memory tiers may hold. Default what they were given at the start.
    pub maxmemory: Maxmemory,
    /// The most connections at a time (`maxclients`). Default 10000.
    pub maxclients: usize,
    /// Idle time in milliseconds after which a client is dropped (`timeout`). Default 0: never.
    pub timeout_ms: u64,
    /// Seconds after which a silent TCP peer is probed, for connections yet to come. Default 300.
    pub tcp_keepalive_s: u64,
    /// Users that may log in, with the password of `requirepass`.
    /// Default: `default` without a password and with all permissions.
    pub users: Users,
    /// Unsent replies of one client, in bytes, from which on it is not read from. Default 1 MiB.
    pub output_bytes_max: usize,
    /// Unsent replies of all clients, in bytes, from which on each is held to 16 KiB, and a single reply to
    /// [`Self::output_bytes_max`] unless its value is pinned. Default 64 MiB.
    pub output_total_bytes_max: usize,
    /// Bytes of unfinished requests over all connections; one more longest request may always come in. Default 64 MiB.
    pub request_buffer_bytes: usize,
    /// Milliseconds in which a client that holds buffer space must send 64 KiB while
    /// other requests wait for space; a slower client is dropped. Default 10 s.
    pub stall_timeout_ms: u64,
    /// How much is logged. Default notice.
    pub log_level: LogLevel,
    /// Requests slower than this come into the slow log, in microseconds; below 0 none (`slowlog-log-slower-than`).
    /// Default 10 ms.
    pub slowlog_slower_than_us: i64,
    /// Entries of the slow log (`slowlog-max-len`). Default 128.
    pub slowlog_entries_max: usize,
    /// Least duration of a latency event that is kept, in milliseconds;
    /// 0: none is kept (`latency-monitor-threshold`). Default 0.
    pub latency_threshold_ms: u64,
    /// Whether each request is timed for its command's histogram (`latency-tracking`). Default no.
    pub latency_tracking: bool,
    /// Which changes of keys are published (`notify-keyspace-events`). Default none.
    pub notify: NotifyFlags,
    /// Keys remembered for tracking clients; 0: as many as fit 16 MiB (`tracking-table-max-keys`). Default a million.
    pub tracked_keys_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            maxmemory: Maxmemory::default(),
            maxclients: 10_000,
            timeout_ms: 0,
            tcp_keepalive_s: 300,
            users: Users::default(),
            output_bytes_max: 1 << 20,
            output_total_bytes_max: 64 << 20,
            request_buffer_bytes: 64 << 20,
            stall_timeout_ms: 10_000,
            log_level: LogLevel::default(),
            slowlog_slower_than_us: 10_000,
            slowlog_entries_max: 128,
            latency_threshold_ms: 0,
            latency_tracking: false,
            notify: NotifyFlags::default(),
            tracked_keys_max: TABLE_KEYS_MAX,
        }
    }
}
