//! Statistics of all shards, as each has last published them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;
use serde::Serialize;
use tiermem_policy::shard_memory::Share;

use super::Placement;
use crate::clients::LargestBuffers;
use crate::engine::{DATABASES, EngineStats};
use crate::stats::{Activity, CommandStatistics, ServerStats};

/// One shard's figures.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The engine's.
    pub engine: EngineStats,
    /// The engine's when `CONFIG RESETSTAT` was last called.
    pub engine_base: EngineStats,
    /// The server's.
    pub server: ServerStats,
    /// The server's when `CONFIG RESETSTAT` was last called.
    pub server_base: ServerStats,
    /// Keys per database.
    pub keys: [u64; DATABASES as usize],
    /// Age of the items that leave each memory tier lately, since their last
    /// use, in milliseconds; `None`: none leaves. Of one shard: sums have none.
    pub tail_ages_ms: Vec<Option<u64>>,
    /// Requests per second lately.
    pub ops_per_sec: u64,
    /// Bytes per second lately that came from sockets ...
    pub input_bytes_per_sec: u64,
    /// ... and that went to them.
    pub output_bytes_per_sec: u64,
    /// The most that one client has held lately.
    pub largest_buffers: LargestBuffers,
    /// Figures of snapshots; `None`: there are none.
    pub saves: Option<SaveFigures>,
}

/// State of snapshots, of one shard or of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SaveFigures {
    /// Values that were written since the last one.
    pub changes: u64,
    /// Since when one is being written in the background, in Unix seconds.
    pub running_since_s: Option<u64>,
    /// When the last one was written, in Unix seconds.
    pub last_save_s: u64,
    /// Whether the last one failed.
    pub last_failed: bool,
    /// Duration of the last one in the background, in seconds.
    pub last_background_s: Option<u64>,
    /// Number of snapshots written.
    pub saves: u64,
}

impl SaveFigures {
    /// With another shard's: a snapshot is written when every shard has written its part, and has failed when one has.
    fn and(self, other: SaveFigures) -> SaveFigures {
        let since_s = [self.running_since_s, other.running_since_s];
        SaveFigures {
            changes: self.changes + other.changes,
            running_since_s: since_s.into_iter().flatten().min(),
            last_save_s: self.last_save_s.min(other.last_save_s),
            last_failed: self.last_failed || other.last_failed,
            last_background_s: self.last_background_s.max(other.last_background_s),
            saves: self.saves.min(other.saves),
        }
    }
}

impl Figures {
    /// Bytes of tiers and buffers.
    pub fn used_bytes(&self) -> u64 {
        let tiers: u64 = self.engine.tiers.iter().map(|tier| tier.used_bytes).sum();
        tiers + self.server.request_buffer_bytes + self.server.reply_buffer_bytes
    }

    /// Adds another shard's.
    pub fn add(&mut self, other: &Figures) {
        self.engine.add(&other.engine);
        self.engine_base.add(&other.engine_base);
        self.server.add(&other.server);
        self.server_base.add(&other.server_base);
        self.keys.iter_mut().zip(other.keys).for_each(|(sum, keys)| *sum += keys);
        self.ops_per_sec += other.ops_per_sec;
        self.input_bytes_per_sec += other.input_bytes_per_sec;
        self.output_bytes_per_sec += other.output_bytes_per_sec;
        self.largest_buffers = self.largest_buffers.max(other.largest_buffers);
        self.saves = match (self.saves, other.saves) {
            (Some(own), Some(other)) => Some(own.and(other)),
            (own, other) => own.or(other),
        };
    }
}

/// A shard's service times since the start, and in the last period.
pub type Times = (Histogram<u64>, Histogram<u64>);

#[derive(Debug, Default)]
struct Shown {
    figures: Figures,
    /// Statistics of commands, as of the last request for them ([`super::mailboxes::Message::Show`]).
    commands: CommandStatistics,
    times: Option<Times>,
    activity: Activity,
}

/// Published figures of every shard, for the others. Access waits for
/// at most the time of a copy, and no request for a key comes here.
#[derive(Debug)]
pub struct ShardStats(Box<[Mutex<Shown>]>);

impl ShardStats {
    pub(super) fn of(shards: usize) -> Self {
        ShardStats((0..shards).map(|_| Mutex::default()).collect())
    }

    /// Figures are whole at any moment, so those of a thread that has panicked are as good as others.
    fn lock(&self, shard: usize) -> MutexGuard<'_, Shown> {
        self.0[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a shard's figures.
    pub fn show(&self, shard: usize, figures: Figures) {
        self.lock(shard).figures = figures;
    }

    /// Shows what was called at a shard.
    pub fn show_commands(&self, shard: usize, commands: CommandStatistics) {
        self.lock(shard).commands = commands;
    }

    /// Shows a shard's service times.
    pub fn show_times(&self, shard: usize, times: Times) {
        self.lock(shard).times = Some(times);
    }

    /// Shows what runs at a shard, and for whom.
    pub fn show_activity(&self, shard: usize, activity: Activity) {
        self.lock(shard).activity = activity;
    }

    /// Each shard's figures.
    pub fn each(&self) -> impl Iterator<Item = Figures> {
        (0..self.0.len()).map(|shard| self.lock(shard).figures.clone())
    }

    /// Each shard's share of a tier. `None`: a shard has not published figures yet.
    pub fn shares_of(&self, tier: usize) -> Option<Vec<Share>> {
        let share = |shard| {
            let figures = &self.lock(shard).figures;
            let capacity_bytes = figures.engine.tiers.get(tier)?.capacity_bytes;
            Some(Share { capacity_bytes, tail_age_ms: *figures.tail_ages_ms.get(tier)? })
        };
        (0..self.0.len()).map(share).collect()
    }

    /// The figures of all other shards together.
    pub fn others(&self, placement: Placement) -> Figures {
        let mut sum = Figures::default();
        for shard in (0..placement.shards).filter(|shard| *shard != placement.own) {
            sum.add(&self.lock(shard).figures);
        }
        sum
    }

    /// Adds what was called at all other shards.
    pub fn add_others_commands(&self, placement: Placement, sum: &mut CommandStatistics) {
        for shard in (0..placement.shards).filter(|shard| *shard != placement.own) {
            sum.add(&self.lock(shard).commands);
        }
    }

    /// Adds what runs at all other shards.
    pub fn add_others_activity(&self, placement: Placement, sum: &mut Activity) {
        for shard in (0..placement.shards).filter(|shard| *shard != placement.own) {
            let activity = self.lock(shard).activity.clone();
            sum.add(activity);
        }
    }

    /// The service times of all other shards.
    pub fn others_times(&self, placement: Placement) -> Vec<Times> {
        let others = (0..placement.shards).filter(|shard| *shard != placement.own);
        others.filter_map(|shard| self.lock(shard).times.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_what_all_shards_have_made_of_it() {
        let idle = SaveFigures { changes: 3, last_save_s: 90, saves: 2, ..SaveFigures::default() };
        let at_work = SaveFigures {
            changes: 4,
            running_since_s: Some(100),
            last_save_s: 80,
            last_failed: true,
            last_background_s: Some(7),
            saves: 1,
        };
        let figures = |saves| Figures { saves, ..Figures::default() };
        for (one, other) in [(idle, at_work), (at_work, idle)] {
            // One that has shown nothing yet changes nothing.
            let mut sum = figures(None);
            sum.add(&figures(Some(one)));
            sum.add(&figures(None));
            assert_eq!(sum.saves, Some(one));
            sum.add(&figures(Some(other)));
            assert_eq!(sum.saves, Some(SaveFigures { changes: 7, ..at_work }));
        }
    }

    #[test]
    fn what_was_called_stays_when_other_figures_are_shown_anew() {
        let shard_stats = ShardStats::of(2);
        let mut commands = CommandStatistics::default();
        commands.note_error("ERR");
        shard_stats.show_commands(1, commands);
        shard_stats.show(1, Figures { ops_per_sec: 5, ..Figures::default() });
        let mut sum = CommandStatistics::default();
        shard_stats.add_others_commands(Placement { own: 0, shards: 2 }, &mut sum);
        assert_eq!(sum.errors().collect::<Vec<_>>(), [("ERR", 1)]);
    }
}
