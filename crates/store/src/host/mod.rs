//! State of one shard's server beside keys and values: clients, settings, counters, slow requests, snapshots.

mod latencies;
mod persistence;
mod queue;
mod redact;
mod session;
mod slowlog;
mod stop;
mod timing;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;

pub use latencies::{Event, Latencies};
pub use persistence::Persistence;
pub use queue::{QUEUED_BYTES, Transaction};
pub use redact::{REDACTED, is_secret};
pub use session::Session;
pub use slowlog::Slowlog;
pub use timing::{Timeline, Timing};

use crate::clients::{Clients, Peer, RecentBuffers};
use crate::engine::{Engine, EngineStats};
use crate::settings::Settings;
use crate::shards::Placement;
use crate::shards::mailboxes::Mailboxes;
use crate::shards::shard_stats::Figures;
use crate::stats::{CommandStatistics, ServerStats};
use crate::store_time::WallClock;

/// State of one shard's server that commands report or change.
#[derive(Debug, Default)]
pub struct Host {
    /// Counters.
    pub stats: ServerStats,
    /// The counters, the server's and the engine's, when `CONFIG RESETSTAT` was last called.
    pub stats_base: Box<(ServerStats, EngineStats)>,
    /// Statistics of commands since the start or the last `CONFIG RESETSTAT`.
    pub command_statistics: CommandStatistics,
    /// Settings that `CONFIG SET` changes; change them through [`Host::change_settings`].
    pub settings: Settings,
    /// Told of changed settings.
    pub settings_watcher: SettingsWatcher,
    /// The file that the server was configured with, for `CONFIG REWRITE`.
    pub config_file: Option<PathBuf>,
    /// The address listened on, empty without one.
    pub bind: String,
    /// Whether listening beyond this machine without a password is refused.
    pub protected_mode: bool,
    /// The TCP port, 0 without one.
    pub tcp_port: u16,
    /// The port for TLS, 0 without one.
    pub tls_port: u16,
    /// The unix socket's path, empty without one.
    pub unix_socket: String,
    /// The longest reply to one request, in bytes; pinned values do not count.
    pub reply_bytes_max: usize,
    /// It could be longer if clients had read their replies.
    pub replies_are_short: bool,
    /// A reply for which there is no room then may wait for it: its request is put off, and nothing of it was done.
    pub may_wait_for_room: bool,
    /// What the reply that was put off last needs at least, in bytes.
    pub needed_reply_bytes: usize,
    /// Bytes that the transaction of the present client may hold.
    pub queue_bytes_max: usize,
    /// The other shards, if there are any.
    pub mailboxes: Option<Mailboxes>,
    /// Connected clients.
    pub clients: Clients,
    /// The most that one of them has held lately.
    pub recent_buffers: RecentBuffers,
    /// Slow requests and latencies.
    pub timing: Timing,
    /// When the store had served how many requests.
    pub timeline: Timeline,
    /// When the server started: the [store's time](crate::store_time) in microseconds, as all that ends in `us` or `_s` here.
    pub started_us: u64,
    /// The store's time of the present batch.
    pub now_us: u64,
    /// To tell it in the wall clock's time.
    pub wall_clock: WallClock,
    /// Requests per second lately.
    pub ops_per_sec: u64,
    /// Bytes per second lately that came from sockets ...
    pub input_bytes_per_sec: u64,
    /// ... and that went to them.
    pub output_bytes_per_sec: u64,
    /// The most that tiers and buffers were seen to take.
    pub used_bytes_peak: u64,
    /// Forty hexadecimal digits that tell one run of the server from another.
    pub run_id: String,
    /// Snapshots, and the wish to stop.
    pub persistence: Persistence,
    /// Memory for values that are put together, kept between commands.
    pub scratch: Vec<u8>,
}

impl Host {
    /// The state of a client that has just connected.
    pub fn new_session(&self, id: u64) -> Session {
        Session { id, authenticated: self.settings.users.are_open(), ..Session::default() }
    }

    /// Registers a client and makes its session.
    pub fn welcome(&mut self, id: u64, peer: Peer) -> Session {
        let slot = self.clients.enter(id, peer, self.now_us);
        Session { slot, ..self.new_session(id) }
    }

    /// Applies the settings to all observers.
    /// [`Context::refresh`](crate::command::Context::refresh) must be called after it.
    pub fn observe(&mut self) {
        let settings = &self.settings;
        self.timing.slowlog.slower_than_us = settings.slowlog_slower_than_us;
        self.timing.slowlog.entries_max = settings.slowlog_entries_max;
        self.timing.slowlog.forget_surplus();
        self.timing.latencies.threshold_ms = settings.latency_threshold_ms;
        self.timing.latencies.histograms = settings.latency_tracking;
        self.timing.update();
        self.clients.set_guarded(settings.users.guard_default());
        self.clients.set_notify_flags(settings.notify);
        self.clients.set_tracked_keys_max(settings.tracked_keys_max);
        let output_total_bytes_max = self.output_total_bytes_max();
        self.clients.output_mut().set_total_bytes_max(output_total_bytes_max);
    }

    /// The number of this shard, and the number of shards.
    pub fn placement(&self) -> Placement {
        self.mailboxes.as_ref().map_or_else(Placement::default, |mailboxes| mailboxes.placement)
    }

    /// Into how many parts memory for requests and replies is divided: with several shards each of them may lie in two, where the
    /// client is at home and where the key is.
    fn buffers(&self) -> usize {
        match self.placement().shards {
            1 => 1,
            shards => 2 * shards,
        }
    }

    /// This shard's part of what replies of all clients together may take.
    pub fn output_total_bytes_max(&self) -> usize {
        self.settings.output_total_bytes_max / self.buffers()
    }

    /// This shard's part of what unfinished requests may take.
    pub fn request_buffer_bytes(&self) -> usize {
        self.settings.request_buffer_bytes / self.buffers()
    }

    /// Counts a client that comes; `false`: there are as many as there may be, and it is not counted.
    pub fn count_in(&mut self) -> bool {
        let most = self.settings.maxclients as u64;
        let one_more = |count: u64| (count < most).then_some(count + 1);
        let fits = match &self.mailboxes {
            None => self.stats.clients_connected < most,
            // One that does not fit must not count even for a moment: it would keep out one that does.
            Some(mailboxes) => {
                mailboxes.clients.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
            }
        };
        self.stats.clients_connected += u64::from(fits);
        fits
    }

    /// Counts a client that goes.
    pub fn count_out(&mut self) {
        self.stats.clients_connected -= 1;
        if let Some(mailboxes) = &self.mailboxes {
            mailboxes.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Replaces the settings and informs the parts that act on them.
    pub fn change_settings(&mut self, settings: Settings) {
        self.settings = settings;
        self.observe();
        if let SettingsWatcher(Some(watcher)) = &self.settings_watcher {
            watcher(&self.settings);
        }
    }

    /// This shard's figures.
    pub fn figures(&self, engine: &Engine) -> Figures {
        let (server_base, engine_base) = (*self.stats_base).clone();
        Figures {
            engine: engine.stats(),
            engine_base,
            server: ServerStats {
                clients_paused: self.clients.pauses().waiting() as u64,
                ..self.stats.clone()
            },
            server_base,
            keys: core::array::from_fn(|db| engine.len(db as u8)),
            ops_per_sec: self.ops_per_sec,
            tail_ages_ms: Vec::new(),
            input_bytes_per_sec: self.input_bytes_per_sec,
            output_bytes_per_sec: self.output_bytes_per_sec,
            largest_buffers: self.recent_buffers.largest(),
            saves: Some(self.persistence.figures(engine.counters().sets)),
        }
    }

    /// Statistics of commands over all shards.
    pub fn all_commands(&self) -> CommandStatistics {
        let mut commands = self.command_statistics.clone();
        if let Some(mailboxes) = &self.mailboxes {
            mailboxes.shard_stats.add_others_commands(mailboxes.placement, &mut commands);
        }
        commands
    }

    /// The figures of all shards, those of the others as they were at most a tick ago.
    pub fn all_figures(&self, engine: &Engine) -> Figures {
        let mut figures = self.figures(engine);
        if let Some(mailboxes) = &self.mailboxes {
            figures.add(&mailboxes.shard_stats.others(mailboxes.placement));
            // This number is of now, so that who has left another shard does not count until that shard shows its figures.
            figures.server.clients_connected = mailboxes.clients.load(Ordering::Relaxed);
        }
        figures
    }

    /// Notes how much tiers and buffers take, should it be more than ever.
    pub fn note_peak(&mut self, figures: &Figures) {
        self.used_bytes_peak = self.used_bytes_peak.max(figures.used_bytes());
    }

    /// Begins the statistics that `INFO` shows anew; `engine` are the engine's now.
    pub fn forget_statistics(&mut self, engine: EngineStats) {
        *self.stats_base = (self.stats.clone(), engine);
        self.command_statistics.begin_anew();
        self.timing.latencies.calls.clear();
    }
}

/// A function called with changed settings.
pub type WatchSettings = dyn Fn(&Settings);

/// The function that a host calls with changed settings.
#[derive(Clone, Default)]
pub struct SettingsWatcher(pub Option<Rc<WatchSettings>>);

impl std::fmt::Debug for SettingsWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SettingsWatcher({})", if self.0.is_some() { "some" } else { "none" })
    }
}
