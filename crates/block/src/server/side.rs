//! What the event loop does beside serving clients: it publishes figures, and runs errands for other threads.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, spawn_local, yield_now};
use tokio::time::{MissedTickBehavior, interval};

use super::seats::Core;
use super::stats::ServerStats;
use crate::disks::Disks;

/// Errands that wait to be taken.
const ERRANDS_MAX: usize = 64;

/// How far an errand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is to be run again as soon as requests have had their turn.
    Again,
    /// It is to be run again when the disks have done something.
    Waits,
    /// It is done.
    Done,
}

/// Something to be done with the disks between two requests; it must not take long. It is run until it is done, or until the server
/// stops, when it is dropped.
pub type Errand<D> = Box<dyn FnMut(&mut D) -> Progress + Send>;

/// The server takes no errands: it has stopped, or there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrandError {
    /// It does not serve any more.
    #[error("the server is stopping")]
    Stopping,
    /// There are too many.
    #[error("the server has more commands to do than it takes at a time: try again later")]
    Busy,
}

/// Hands errands to a server, from any thread.
pub struct Errands<D>(mpsc::Sender<Errand<D>>);

impl<D> Clone for Errands<D> {
    fn clone(&self) -> Self {
        Errands(self.0.clone())
    }
}

impl<D> fmt::Debug for Errands<D> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Errands")
    }
}

impl<D> Errands<D> {
    /// Has something done. Before the server runs it waits for that.
    ///
    /// # Errors
    /// When it takes no more, or none any more.
    pub fn send(&self, errand: Errand<D>) -> Result<(), ErrandError> {
        self.0.try_send(errand).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ErrandError::Busy,
            mpsc::error::TrySendError::Closed(_) => ErrandError::Stopping,
        })
    }
}

/// Told figures.
pub(super) type Publish<D> = Box<dyn FnMut(&D, &ServerStats)>;

/// What a server does beside serving.
pub(super) struct Side<D> {
    errands: mpsc::Receiver<Errand<D>>,
    publish: Option<(Duration, Publish<D>)>,
}

impl<D> fmt::Debug for Side<D> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Side").field("publishes", &self.publish.is_some()).finish_non_exhaustive()
    }
}

impl<D> Side<D> {
    pub(super) fn new() -> (Self, Errands<D>) {
        let (send, errands) = mpsc::channel(ERRANDS_MAX);
        (Side { errands, publish: None }, Errands(send))
    }

    pub(super) fn publish(&mut self, every: Duration, publish: Publish<D>) {
        self.publish = Some((every, publish));
    }
}

impl<D: Disks + 'static> Side<D> {
    /// Begins all of it. `progressed` tells that the disks have done something.
    pub(super) fn start(
        self,
        core: &Rc<RefCell<Core<D>>>,
        stats: &Arc<ServerStats>,
        progressed: Rc<Notify>,
    ) -> Vec<JoinHandle<()>> {
        let Side { errands, publish } = self;
        let mut tasks = vec![spawn_local(run_errands(Rc::clone(core), errands, progressed))];
        if let Some((every, publish)) = publish {
            tasks.push(spawn_local(publish_often(Rc::clone(core), Arc::clone(stats), every, publish)));
        }
        tasks
    }
}

async fn publish_often<D: Disks>(
    core: Rc<RefCell<Core<D>>>,
    stats: Arc<ServerStats>,
    every: Duration,
    mut publish: Publish<D>,
) {
    let mut ticks = interval(every);
    // After a stall one publication says all that many would.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        publish(&core.borrow().disks, &stats);
    }
}

async fn run_errands<D: Disks>(
    core: Rc<RefCell<Core<D>>>,
    mut errands: mpsc::Receiver<Errand<D>>,
    progressed: Rc<Notify>,
) {
    let mut waiting: Vec<Errand<D>> = Vec::new();
    // Whether there is anybody left who may hand in more.
    let mut open = true;
    loop {
        tokio::select! {
            errand = errands.recv(), if open => match errand {
                Some(errand) => waiting.push(errand),
                None => open = false,
            },
            () = progressed.notified(), if !waiting.is_empty() => {}
            else => return,
        }
        while run_all(&core, &mut waiting) {
            yield_now().await;
        }
    }
}

/// Runs each of the errands once; whether some want to be run again soon.
fn run_all<D: Disks>(core: &RefCell<Core<D>>, waiting: &mut Vec<Errand<D>>) -> bool {
    let mut core = core.borrow_mut();
    let mut again = false;
    waiting.retain_mut(|errand| {
        let progress = errand(&mut core.disks);
        again |= progress == Progress::Again;
        progress != Progress::Done
    });
    // What they have begun goes on from here.
    core.collect(None);
    again
}
