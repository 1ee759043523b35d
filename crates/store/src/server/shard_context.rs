//! Context of a shard: state shared by all of its connections.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::ServerConfig;
use super::activity::activity;
use super::clock::Clock;
use super::latency::{Latency, summarize};
use super::memory_limit::{KnownLimit, MemorySize};
use super::request_budget::{Budget, READ_BYTES};
use super::shard_pipes::Links;
use super::snapshot::Snapshot;
use tiermem_policy::reply_line::Piece;
use tiermem_policy::reply_room::Standing;
use tiermem_policy::shard_memory::Member;

use crate::clients::{LargestBuffers, Slot};
use crate::command::{Flags, Mode, settle_idle};
use crate::engine::{Engine, LossReport};
use crate::flash::Moment;
use crate::host::{Host, Persistence, Session};
use crate::resp::{Limits, Parser, Progress};
use crate::shards::Placement;
use crate::shards::mailboxes::{Mailboxes, Message};
use crate::shards::reply_turns::ReplyTurns;
use crate::shards::shard_stats::Figures;
use crate::stats::ServerStats;
use crate::store_time::WallClock;

/// A value may exceed the engine's limit by this much before it is skipped instead
/// of read: a value a little over the limit is refused by the command itself.
const BULK_SLACK_BYTES: usize = 1024;

/// Ticks, of 100 ms each, between two writings of what the flash tier has half filled, and between two looks for lost parts of tiers.
const SECOND_TICKS: u64 = 10;

/// A shard, borrowed by one connection at a time for as long as its socket gives it work.
pub(super) type Shard = RefCell<Core>;

/// The shard's state.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) engine: Engine,
    pub(super) host: Host,
    pub(super) clock: Clock,
    pub(super) latency: Latency,
    pub(super) budget: Budget,
    /// Memory on its way to and from other shards.
    pub(super) member: Member,
    memory_size: MemorySize,
    /// What is read goes here first; only an unfinished request is copied out.
    pub(super) input: Vec<u8>,
    /// Lent to the connection at work for its replies.
    pub(super) replies: Vec<u8>,
    pub(super) limits: Limits,
    pub(super) reply_bytes_max: usize,
    /// The longest reply with one value.
    pub(super) value_reply_bytes: usize,
    /// Replies that wait for room, of all shards.
    pub(super) reply_turns: Arc<ReplyTurns>,
    /// When the clock was last read within the present batch.
    pub(super) run_start: Instant,
    started: Instant,
    /// When the last snapshot was taken, and what had been counted then.
    last_snapshot: (Instant, ServerStats),
    next_client_id: u64,
    ticks: u64,
    /// A tick has left expired items.
    pub(super) expiry_is_late: Rc<Notify>,
    /// Replies that had been refused by the last tick.
    pub(super) known_refused: u64,
    /// Bytes of replies that other shards know to wait here.
    pub(super) shared_reply_bytes: usize,
    /// The `timeout` that waiting connections know of.
    known_timeout_ms: u64,
}

impl Core {
    pub(super) fn new(
        config: &ServerConfig,
        engine: Engine,
        tcp_port: u16,
        woken: Arc<AtomicBool>,
        mailboxes: Option<Mailboxes>,
        known_limit: KnownLimit,
    ) -> Self {
        let clock = Clock::new(config.start, woken);
        let value_bytes_max = engine.value_bytes_max();
        let placement = mailboxes.as_ref().map_or_else(Placement::default, |mailboxes| mailboxes.placement);
        let mut host = Host {
            settings: config.settings.clone(),
            config_file: config.config_file.clone(),
            bind: config.listen.map_or_else(String::new, |address| address.ip().to_string()),
            protected_mode: config.protected_mode,
            tcp_port,
            unix_socket: config.unix_socket.as_ref().map_or_else(String::new, |it| it.display().to_string()),
            started_us: clock.store_us(),
            now_us: clock.store_us(),
            wall_clock: WallClock::beside(config.start),
            run_id: run_id(clock.store_us()),
            mailboxes,
            persistence: Persistence {
                path: config.snapshot_of(placement.own, placement.shards),
                last_save_s: clock.store_us() / 1_000_000,
                ..Persistence::default()
            },
            ..Host::default()
        };
        host.observe();
        let reply_turns =
            host.mailboxes.as_ref().map(|mailboxes| Arc::clone(&mailboxes.reply_turns)).unwrap_or_default();
        if let Some(mailboxes) = host.mailboxes.clone() {
            host.clients.set_relay(mailboxes);
            host.timing.slowlog.number_for(placement);
        }
        let request_bytes_max = config.request_bytes_max.max(value_bytes_max + (1 << 20));
        let started = Instant::now();
        Core {
            budget: Budget::new(host.request_buffer_bytes()),
            member: Member::new(placement.own),
            memory_size: MemorySize::new(
                config.settings.maxmemory,
                &engine,
                config.beside_tiers_bytes,
                (known_limit, placement.own == 0),
            ),
            engine,
            host,
            clock,
            latency: Latency::new(),
            input: vec![0; READ_BYTES],
            replies: Vec::new(),
            limits: Limits {
                bulk_bytes_max: value_bytes_max + BULK_SLACK_BYTES,
                // Places in a request are counted in 32 bits.
                request_bytes_max: request_bytes_max.min(u32::MAX as usize - READ_BYTES),
                unauthenticated: false,
            },
            // One longest value with its length line always fits.
            reply_bytes_max: config.reply_bytes_max.max(value_bytes_max + 64),
            value_reply_bytes: value_bytes_max + 64,
            reply_turns,
            run_start: started,
            started,
            last_snapshot: (started, ServerStats::default()),
            next_client_id: 0,
            ticks: 0,
            expiry_is_late: Rc::default(),
            known_refused: 0,
            shared_reply_bytes: 0,
            known_timeout_ms: config.settings.timeout_ms,
        }
    }

    /// A number for the next client, which no shard uses twice.
    pub(super) fn next_client_id(&mut self) -> u64 {
        self.next_client_id += 1;
        let Placement { own, shards } = self.host.placement();
        (self.next_client_id - 1) * shards as u64 + own as u64 + 1
    }

    /// Pipes for a client that is at home here, if there are other shards.
    pub(super) fn links_for(&self, slot: Slot) -> Option<Links> {
        let client_info = self.host.clients.registry().client_info(slot);
        let mailboxes = self.host.mailboxes.as_ref().filter(|_| client_info.home.is_none())?;
        Some(Links::new(mailboxes.clone(), client_info.peer.clone(), client_info.id))
    }

    /// Gets ready for a batch of requests, of which each may put such a piece of its reply together.
    #[inline]
    pub(super) fn begin_batch(&mut self, piece: Piece) {
        self.pass_time_on();
        self.engine.between_requests().lost_parts().begin();
        self.host.timing.begin_run();
        self.host.may_wait_for_room = true;
        self.grant_replies(self.reply_turns.standing(piece));
    }

    /// Makes the batch's effects as durable as configured. `None`: a part of a tier was lost while values were copied from it, perhaps into
    /// the replies, which must not leave.
    #[inline]
    pub(super) fn commit(&mut self) -> Option<Moment> {
        let promised = self.engine.commit();
        let may_leave = !self.engine.between_requests().lost_parts().may_be_in_replies();
        self.host.stats.clients_dropped += u64::from(!may_leave);
        may_leave.then_some(promised)
    }

    /// The engine, for values that are sent from where they lie: those that were lost are known to be.
    #[inline]
    pub(super) fn engine_without_lost(&mut self) -> &Engine {
        self.engine.between_requests().lost_parts().begin();
        &self.engine
    }

    /// Puts the time since the last run's end into the slow log and the latencies, if it is above a threshold, and
    /// begins the next run. The run's last request, which is the last one in `requests`, represents all of them.
    #[cold]
    #[inline(never)]
    pub(super) fn note_run(&mut self, session: &Session, requests: &[u8]) {
        let now = self.clock.batch_end();
        let ns = now.saturating_duration_since(self.run_start).as_nanos() as u64;
        self.run_start = now;
        let matters = self.host.timing.end_run(ns);
        let Some(spec) = session.command.filter(|_| matters) else { return };
        if session.mode.has(Mode::GUEST) && spec.keys.0 == 0 && spec.name != "scan" {
            // Something about the session, or about all shards, which is noted where its client is at home.
            return;
        }
        let (us, now_s) = (ns / 1000, self.host.now_us / 1_000_000);
        self.host.timing.latencies.note_command(spec, us, now_s);
        if spec.flags.contains(Flags::SKIP_SLOWLOG) {
            return;
        }
        let client_info = self.host.clients.registry().client_info(session.slot);
        let (address, name) = (client_info.peer.address(), client_info.name.clone());
        let (mut parser, mut at) = (Parser::default(), 0);
        while matches!(parser.parse(&requests[at..], &self.limits), Ok(Progress::Complete)) {
            if at + parser.consumed() == requests.len() {
                self.host.timing.slowlog.note(us, now_s, parser.args(&requests[at..]), address, &name);
                return;
            }
            at += parser.consumed();
            parser.reset();
        }
    }

    /// Begins the next run without putting the last one anywhere.
    pub(super) fn pass_run(&mut self) {
        self.run_start = self.clock.batch_end();
        self.host.timing.end_run(0);
    }

    /// Tells the engine and the commands the time of the last clock reading.
    #[inline]
    fn pass_time_on(&mut self) {
        let now_us = self.clock.store_us();
        self.host.now_us = now_us;
        self.engine.set_clock_us(now_us);
    }

    /// Reads the clock outside of requests.
    pub(super) fn read_clock(&mut self) -> Instant {
        let now = self.clock.synchronize();
        self.pass_time_on();
        now
    }

    /// Does what is due without a request; every 100 ms.
    pub(super) fn tick(&mut self) {
        let now = self.read_clock();
        self.host.clients.end_pause(self.host.now_us);
        self.memory_size.tick(self.host.settings.maxmemory, &mut self.engine, tiermem_sys::memory::limit);
        self.drop_stalled();
        self.grant_replies(Standing::First);
        self.tick_reply_turns();
        if self.engine.between_requests().tick() {
            self.expiry_is_late.notify_one();
        }
        self.drop_robbed();
        self.ticks += 1;
        if self.ticks.is_multiple_of(SECOND_TICKS) {
            self.engine.flash().tick();
            self.look_for_losses();
            self.host.recent_buffers.note(LargestBuffers::of(&self.host.clients));
        }
        self.engine.commit();
        settle_idle(&mut self.engine, &mut self.host.clients);
        self.host.stats.clients_dropped += self.host.clients.output_mut().take_dropped();
        let now_s = self.host.now_us / 1_000_000;
        self.host.timeline.note(self.engine.requests(), now_s);
        let work_us = self.clock.since_reading().as_micros() as u64;
        self.host.timing.latencies.note("expire-cycle", work_us, now_s);
        self.note_buffers();
        if let Some(mailboxes) = &self.host.mailboxes {
            let now_ns = self.started.elapsed().as_nanos() as u64;
            let shown = |tier| mailboxes.shard_stats.shares_of(tier);
            let tell = |to, word| mailboxes.send(to, Message::Memory(word));
            self.member.tick(now_ns, &mut self.engine.memory_mut(), shown, tell);
            self.show(self.host.figures(&self.engine));
        }
        let settings = &self.host.settings;
        self.budget.set_limit(self.host.request_buffer_bytes());
        self.budget.find_stalled(now, Duration::from_millis(settings.stall_timeout_ms));
        if self.known_timeout_ms != settings.timeout_ms {
            self.known_timeout_ms = settings.timeout_ms;
            // A client that waits for its next request has set its timer, or none, by the old setting.
            self.host.clients.output().wake_all();
        }
    }

    /// Looks for lost parts of tiers, and says what was lost.
    pub(super) fn look_for_losses(&mut self) {
        self.engine.between_requests().lost_parts().look();
        self.tell_losses();
    }

    /// Says what was lost of tiers, and what to do about it.
    pub(super) fn tell_losses(&mut self) {
        for LossReport { tier, items, missing } in self.engine.between_requests().lost_parts().take_reports()
        {
            let tiers = self.engine.stats().tiers;
            let tier = tiers.get(usize::from(tier)).map_or("", |tier| &tier.name);
            match missing {
                None if items > 0 => tracing::error!(
                    tier,
                    items,
                    "a part of the tier's file or device was lost, and the items there: who has shortened the file? is the medium bad?"
                ),
                None => tracing::info!(tier, "the tier has all of its file again"),
                Some((missing, why)) => tracing::error!(
                    tier, %missing, why,
                    "the tier's file or device cannot hold what was lost, the tier is smaller: make room on the disk, it is tried again"
                ),
            }
        }
    }

    /// All figures of all shards now. Recent ones begin anew.
    pub(super) fn snapshot(&mut self) -> Snapshot {
        let now = self.clock.synchronize();
        let now_us = self.clock.store_us();
        self.note_buffers();
        let stats = self.host.stats.clone();
        let (then, before) = core::mem::replace(&mut self.last_snapshot, (now, stats.clone()));
        let passed = now.saturating_duration_since(then).as_secs_f64().max(1e-3);
        let per_sec = |now: u64, before: u64| ((now - before) as f64 / passed) as u64;
        self.host.ops_per_sec = per_sec(stats.commands_processed, before.commands_processed);
        self.host.input_bytes_per_sec = per_sec(stats.net_input_bytes, before.net_input_bytes);
        self.host.output_bytes_per_sec = per_sec(stats.net_output_bytes, before.net_output_bytes);
        let times = self.latency.end_period();
        let mut activity = activity(&self.host, now_us);
        let mut others = Vec::new();
        if let Some(mailboxes) = &self.host.mailboxes {
            let (shard_stats, placement) = (&mailboxes.shard_stats, mailboxes.placement);
            shard_stats.show_times(placement.own, times.clone());
            shard_stats.show_activity(placement.own, activity.clone());
            others = shard_stats.others_times(placement);
            shard_stats.add_others_activity(placement, &mut activity);
        }
        let (latency, latency_recent) = summarize(times, others);
        let figures = self.host.all_figures(&self.engine);
        self.host.note_peak(&figures);
        Snapshot {
            unix_ms: self.host.wall_clock.unix_ms(now_us / 1000),
            uptime_ms: now_us.saturating_sub(self.host.started_us) / 1000,
            requests_per_sec: figures.ops_per_sec,
            engine: figures.engine,
            server: figures.server,
            latency,
            latency_recent,
            activity,
            now_s: now_us / 1_000_000,
            saves: figures.saves.filter(|_| self.host.persistence.path.is_some()),
        }
    }

    /// Shows all figures as they are now to other shards, those of commands among them.
    pub(super) fn show_all(&mut self) {
        self.note_buffers();
        self.show(self.host.figures(&self.engine));
        if let Some(mailboxes) = &self.host.mailboxes {
            mailboxes
                .shard_stats
                .show_commands(mailboxes.placement.own, self.host.command_statistics.clone());
        }
    }

    fn show(&self, figures: Figures) {
        if let Some(mailboxes) = &self.host.mailboxes {
            let tail_ages_ms = self.member.tail_ages_ms().to_vec();
            mailboxes.shard_stats.show(mailboxes.placement.own, Figures { tail_ages_ms, ..figures });
        }
    }

    /// Brings the figures of buffers up to date.
    pub(super) fn note_buffers(&mut self) {
        let stats = &mut self.host.stats;
        stats.request_buffer_bytes = self.budget.held_bytes() as u64;
        stats.reply_buffer_bytes =
            (self.host.clients.output().waiting_bytes() + self.engine.copied_bytes()) as u64;
        stats.clients_waiting_for_buffer = self.budget.waiting() as u64;
    }
}

/// Forty hexadecimal digits from the time and the process: different for each run, and no secret.
fn run_id(now_us: u64) -> String {
    let seed = now_us ^ (u64::from(std::process::id()) << 48);
    let word = |round: u64| (seed ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    format!("{:016x}{:016x}{:08x}", word(1), word(2), word(3) as u32)
}
