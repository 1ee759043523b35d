//! Reader of the journal: takes in each slice, and publishes the figures.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tiermem_live::HttpServer;
use tiermem_trace::recording::Follower;
use tokio::sync::watch;

use super::view::View;

/// How often the journal is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Pages ask once a second.
const PUBLISH_EVERY: Duration = Duration::from_millis(500);
/// Figures of large recordings take some time, and are worked out less often then: they take this part of a processor at most.
const PUBLISH_PART: u32 = 50;

pub struct Reader {
    follower: Arc<Mutex<Follower>>,
    output: PathBuf,
    /// As asked for.
    slice: Duration,
    views: watch::Sender<Arc<View>>,
    server: Arc<HttpServer>,
}

impl Reader {
    pub fn new(
        follower: Arc<Mutex<Follower>>,
        output: PathBuf,
        slice: Duration,
        views: watch::Sender<Arc<View>>,
        server: Arc<HttpServer>,
    ) -> Self {
        Reader { follower, output, slice, views, server }
    }

    /// Reads until `stopped` says that the recording has ended.
    pub fn run(self, stopped: &Receiver<()>) {
        let mut next = Instant::now();
        let mut shown = 0;
        loop {
            let is_over = stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Disconnected);
            let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(reason) = follower.read() {
                // The recorder has the same file, and tells what is wrong with it.
                return tracing::debug!(reason, "the journal cannot be followed");
            }
            if follower.slices() > shown && (is_over || Instant::now() >= next) {
                let begun = Instant::now();
                shown = follower.slices();
                let view = View::of(&follower, &self.output, self.slice);
                drop(follower);
                if let Some(view) = view {
                    self.views.send_replace(Arc::new(view));
                    self.server.set_ready(true);
                }
                next = Instant::now() + PUBLISH_EVERY.max(begun.elapsed() * PUBLISH_PART);
            }
            if is_over {
                return;
            }
        }
    }
}
