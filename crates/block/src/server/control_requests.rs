//! Control requests: what the event loop does beside serving clients.
//! It publishes figures, and runs requests of other threads.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, spawn_local, yield_now};
use tokio::time::{MissedTickBehavior, interval};

use super::connections::Core;
use super::stats::ServerStats;
use crate::disks::Disks;

/// Control requests that wait to be taken.
const CONTROL_REQUESTS_MAX: usize = 64;

/// Progress of a control request.
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
pub type ControlRequest<D> = Box<dyn FnMut(&mut D) -> Progress + Send>;

/// The server takes no control requests: it has stopped, or there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlQueueError {
    /// It does not serve any more.
    #[error("the server is stopping")]
    Stopping,
    /// There are too many.
    #[error("the server has more commands to do than it takes at a time: try again later")]
    Busy,
}

/// Hands control requests to a server, from any thread.
pub struct ControlQueue<D>(mpsc::Sender<ControlRequest<D>>);

impl<D> Clone for ControlQueue<D> {
    fn clone(&self) -> Self {
        ControlQueue(self.0.clone())
    }
}

impl<D> fmt::Debug for ControlQueue<D> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ControlQueue")
    }
}

impl<D> ControlQueue<D> {
    /// Queues a control request. It waits there until the server runs.
    ///
    /// # Errors
    /// When the queue is full, or closed.
    pub fn send(&self, control_request: ControlRequest<D>) -> Result<(), ControlQueueError> {
        self.0.try_send(control_request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ControlQueueError::Busy,
            mpsc::error::TrySendError::Closed(_) => ControlQueueError::Stopping,
        })
    }
}

/// Told figures.
pub(super) type Publish<D> = Box<dyn FnMut(&D, &ServerStats)>;

/// What a server does beside serving.
pub(super) struct ControlRequests<D> {
    control_requests: mpsc::Receiver<ControlRequest<D>>,
    publish: Option<(Duration, Publish<D>)>,
}

impl<D> fmt::Debug for ControlRequests<D> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ControlRequests")
            .field("publishes", &self.publish.is_some())
            .finish_non_exhaustive()
    }
}

impl<D> ControlRequests<D> {
    pub(super) fn new() -> (Self, ControlQueue<D>) {
        let (send, control_requests) = mpsc::channel(CONTROL_REQUESTS_MAX);
        (ControlRequests { control_requests, publish: None }, ControlQueue(send))
    }

    pub(super) fn publish(&mut self, every: Duration, publish: Publish<D>) {
        self.publish = Some((every, publish));
    }
}

impl<D: Disks + 'static> ControlRequests<D> {
    /// Starts all of it. `progressed` signals that the disks have made progress.
    pub(super) fn start(
        self,
        core: &Rc<RefCell<Core<D>>>,
        stats: &Arc<ServerStats>,
        progressed: Rc<Notify>,
    ) -> Vec<JoinHandle<()>> {
        let ControlRequests { control_requests, publish } = self;
        let mut tasks =
            vec![spawn_local(run_control_requests(Rc::clone(core), control_requests, progressed))];
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

async fn run_control_requests<D: Disks>(
    core: Rc<RefCell<Core<D>>>,
    mut control_requests: mpsc::Receiver<ControlRequest<D>>,
    progressed: Rc<Notify>,
) {
    let mut waiting: Vec<ControlRequest<D>> = Vec::new();
    // Whether any sender of requests is left.
    let mut open = true;
    loop {
        tokio::select! {
            control_request = control_requests.recv(), if open => match control_request {
                Some(control_request) => waiting.push(control_request),
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

/// Runs each of the control requests once; whether some want to be run again soon.
fn run_all<D: Disks>(core: &RefCell<Core<D>>, waiting: &mut Vec<ControlRequest<D>>) -> bool {
    let mut core = core.borrow_mut();
    let mut again = false;
    waiting.retain_mut(|control_request| {
        let progress = control_request(&mut core.disks);
        again |= progress == Progress::Again;
        progress != Progress::Done
    });
    // Operations that they have started continue from here.
    core.collect(None);
    again
}
