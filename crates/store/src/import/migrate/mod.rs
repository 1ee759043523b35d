//! Migration: copies another server's keys while it keeps serving.
//!
//! `SCAN` lists the keys a batch at a time. Types, expiries and values are read in pipelines and written to
//! the target before the cursor is saved. So a migration that ends at any point, even by a kill, resumes
//! after the last whole batch; keys copied twice are the same. Redis's cursors survive reconnecting but not
//! a restart of the server, which reorders its keys; then the scan starts from the beginning.
//!
//! A key that changes meanwhile is copied as it is when it is read; a key that changes after that is not copied
//! again. To move clients, let them write to both servers, or run the migration again when fewer keys change.

mod batch;
mod copy;
mod large;
mod source;
mod state;
mod url;
mod verify;

use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use url::RedisUrl;

use super::reply::Reply;
use super::resp_client::Link;
use super::{LoadError, Report, Target};
use source::Source;
use state::State;
use verify::Sample;

/// Keys that one `SCAN` is asked for.
const SCAN_COUNT: u64 = 1000;
/// The first wait before a broken connection is made anew; it doubles each time.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Options of a migration.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server that has the keys.
    pub from: RedisUrl,
    /// The server that gets them.
    pub target: Target,
    /// Only keys that match this glob pattern.
    pub pattern: Option<String>,
    /// Keys per second at most.
    pub keys_per_second: Option<u64>,
    /// Leave keys as they are that the target has already.
    pub if_absent: bool,
    /// File for the progress, from which a migration resumes.
    pub state: Option<PathBuf>,
    /// Number of copied keys to compare at the end.
    pub verify: usize,
    /// Time to try to reach a server that is gone.
    pub patience: Duration,
}

/// Progress of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Keys looked at.
    pub keys: u64,
    /// Keys that the source had when it was last connected to.
    pub keys_in_source: u64,
    /// Why it is waiting before it tries again.
    pub trouble: Option<String>,
}

/// Copies the keys. `progress` is called after each batch.
pub fn migrate(options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Report, LoadError> {
    let start = Instant::now();
    let mut migration = Migration {
        options,
        state: State::begin(options)?,
        links: None,
        reached: false,
        report: Report::default(),
        sample: Sample::of(options.verify),
        progress,
    };
    migration.persist(|migration, links| {
        let done = migration.batch(links)?;
        migration.tell(links.source.keys, None);
        if let Some(rate) = options.keys_per_second {
            let due = Duration::from_secs_f64(migration.report.items as f64 / rate.max(1) as f64);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
        }
        Ok(done.then_some(()))
    })?;
    if options.verify > 0 {
        migration.report.verified = Some(migration.persist(|migration, links| {
            verify::compare(links, migration.sample.keys(), &mut migration.report).map(Some)
        })?);
    }
    migration.state.finish()?;
    migration.report.elapsed = start.elapsed();
    Ok(migration.report)
}

/// Both connections.
struct Links {
    source: Source,
    target: Link,
}

struct Migration<'a> {
    options: &'a Options,
    state: State,
    links: Option<Links>,
    /// Both servers were reached once, so that they exist.
    reached: bool,
    report: Report,
    sample: Sample,
    progress: &'a mut dyn FnMut(Progress),
}

impl Migration<'_> {
    fn tell(&mut self, keys_in_source: u64, trouble: Option<String>) {
        (self.progress)(Progress { keys: self.state.keys(), keys_in_source, trouble });
    }

    /// Does `step` until it says that it is done, over connections that are made anew when they break.
    fn persist<T>(
        &mut self,
        mut step: impl FnMut(&mut Self, &mut Links) -> Result<Option<T>, LoadError>,
    ) -> Result<T, LoadError> {
        let (mut wait, mut failing_since) = (BACKOFF, None);
        loop {
            let result = self.connect().and_then(|mut links| {
                let result = step(self, &mut links);
                if result.is_ok() {
                    self.links = Some(links);
                }
                result
            });
            match result {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => (wait, failing_since) = (BACKOFF, None),
                Err(error) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if !self.reached || !error.is_passing() || since.elapsed() > self.options.patience {
                        return Err(error);
                    }
                    self.tell(0, Some(format!("{error}; trying again")));
                    std::thread::sleep(wait);
                    wait = (wait * 2).min(BACKOFF_MAX);
                    self.report.reconnects += 1;
                }
            }
        }
    }

    fn connect(&mut self) -> Result<Links, LoadError> {
        if let Some(links) = self.links.take() {
            return Ok(links);
        }
        let source = Source::open(&self.options.from)?;
        let target = Link::open(&self.options.target.to, &self.options.target.login)?;
        if self.state.belongs_to(&source.run_id) {
            self.report.restarts += 1;
        }
        self.reached = true;
        Ok(Links { source, target })
    }

    /// Copies the keys that the next `SCAN` names; whether they were the last.
    fn batch(&mut self, links: &mut Links) -> Result<bool, LoadError> {
        let count = self.options.keys_per_second.map_or(SCAN_COUNT, |rate| (rate / 4).clamp(1, SCAN_COUNT));
        let (next, keys) = links.source.scan(self.state.cursor(), self.options.pattern.as_deref(), count)?;
        let batch = copy::copy(links, &keys, self.options, &mut self.state)?;
        batch.copied.iter().for_each(|key| self.sample.offer(key));
        self.report.add(batch.report);
        self.state.advance(next, keys.len() as u64)?;
        Ok(next == 0)
    }
}

/// Error for an unexpected reply.
fn unexpected(link: &Link, command: &'static str, reply: &Reply) -> LoadError {
    LoadError::Unexpected { to: link.to.clone(), command, reply: reply.describe() }
}
