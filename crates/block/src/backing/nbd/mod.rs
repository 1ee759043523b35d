//! NBD backing store: a volume on another NBD server.
//!
//! One thread owns the connection ([`client`]); this side submits requests to it and takes completions.
//! When the connection breaks, the thread opens another and sends unanswered requests again: reads and
//! writes may be repeated, since no other request in flight touches the same bytes. Writes that the server
//! answered but did not make durable may be lost then, so a new session begins. TLS is not supported yet.

mod client;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use tiermem_tier::block::completion_queue::{CompletionReceiver, CompletionSender, completion_queue};

use self::client::Client;
use crate::nbd::NbdUri;
use crate::nbd::wire::TransmissionFlags;
use crate::nbd_socket::Link;
use tiermem_tier::backing::{
    Aligning, Backing, BackingError, Completion, Identity, OpenError, Request, StoreLabel, Waker, label_file,
    read_label_file, write_label_file,
};

/// Options of a store on another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdOptions {
    /// Whether writes are refused even if the server allows them.
    pub read_only: bool,
    /// Requests that the server is given at once.
    pub depth: usize,
    /// Time that requests wait for a connection before they fail.
    pub timeout: Duration,
    /// Time limit of one attempt to connect and to negotiate.
    pub attempt: Duration,
    /// The longest pause between two attempts; the pauses double up to it.
    pub pause_max: Duration,
    /// Folder for the label, for which the protocol has no place.
    pub state_dir: Option<PathBuf>,
}

impl Default for NbdOptions {
    fn default() -> Self {
        NbdOptions {
            read_only: false,
            depth: 64,
            timeout: Duration::from_secs(30),
            attempt: Duration::from_secs(5),
            pause_max: Duration::from_secs(2),
            state_dir: None,
        }
    }
}

/// Another NBD server as a store.
pub type NbdBacking = Aligning<NbdUnits>;

/// Wakes the thread.
struct Bell {
    event: OwnedFd,
    /// It was rung and not heard. So a batch of requests costs one system call.
    rung: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // It can only fail when the counter is full, and then it rings.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// To be called before the queue is looked at.
    fn heard(&self) {
        if self.rung.load(Ordering::Acquire) {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
            self.rung.store(false, Ordering::Release);
        }
    }
}

/// Another server, asked in multiples of its least block.
pub struct NbdUnits {
    /// `None` only while it is dropped.
    queue: Option<Sender<Request>>,
    bell: Arc<Bell>,
    completion_receiver: CompletionReceiver<Completion>,
    completion_sender: CompletionSender<Completion>,
    session: Arc<AtomicU64>,
    size_bytes: u64,
    unit_bytes: u64,
    read_only: bool,
    uri: NbdUri,
    words: &'static str,
    label_file: Option<PathBuf>,
    thread: Option<JoinHandle<()>>,
}

impl NbdUnits {
    /// Connects once; later breaks are repaired automatically.
    ///
    /// # Errors
    /// When no server answers there, or the export cannot be used as a store.
    pub fn connect(uri: &NbdUri, options: NbdOptions) -> Result<NbdBacking, OpenError> {
        let units = Self::open(uri, options)?;
        let unit_bytes = units.unit_bytes;
        Ok(Aligning::new(units, unit_bytes, false))
    }

    fn open(uri: &NbdUri, options: NbdOptions) -> Result<Self, OpenError> {
        let failed = |why: String| OpenError::Unusable { place: uri.to_string(), why };
        let link = Link::connect(uri, options.attempt).map_err(failed)?;
        let rules = *link.rules();
        let (size_bytes, unit_bytes) = (rules.size_bytes, u64::from(rules.block.minimum.max(1)));
        if !size_bytes.is_multiple_of(unit_bytes) {
            let why = format!(
                "its {size_bytes} bytes are not a multiple of its minimum block of {unit_bytes}, so the last ones cannot be reached"
            );
            return Err(failed(why));
        }
        let bell = Arc::new(Bell {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(std::io::Error::from)?,
            rung: AtomicBool::new(false),
        });
        let (completion_sender, completion_receiver) = completion_queue();
        let (queue, requests) = channel();
        let session = Arc::new(AtomicU64::new(0));
        let read_only = options.read_only || rules.flags.contains(TransmissionFlags::READ_ONLY);
        let label_file = options.state_dir.as_deref().map(|folder| label_file(folder, &uri.to_string()));
        let client = Client::new(
            uri.clone(),
            options,
            link,
            requests,
            bell.clone(),
            completion_sender.clone(),
            session.clone(),
        );
        let thread =
            std::thread::Builder::new().name("backing-nbd".to_owned()).spawn(move || client.run())?;
        Ok(NbdUnits {
            queue: Some(queue),
            bell,
            completion_receiver,
            completion_sender,
            session,
            size_bytes,
            unit_bytes,
            read_only,
            uri: uri.clone(),
            label_file,
            words: if rules.flags.contains(TransmissionFlags::SEND_FLUSH) {
                ""
            } else {
                ", which has no flush"
            },
            thread: Some(thread),
        })
    }
}

impl Backing for NbdUnits {
    fn submit(&mut self, request: Request) {
        self.completion_receiver.in_flight += 1;
        if let Some(Err(lost)) = self.queue.as_ref().map(|queue| queue.send(request)) {
            let error = BackingError::Failed("the store's thread has ended".to_owned());
            self.completion_sender.put([lost.0.done(Err(error), self.session.load(Ordering::Acquire))]);
        }
        self.bell.ring();
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.completion_receiver.completed(out);
    }

    fn in_flight(&self) -> usize {
        self.completion_receiver.in_flight
    }

    fn notify(&mut self, waker: Waker) {
        self.completion_receiver.notify(waker);
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn session(&self) -> u64 {
        self.session.load(Ordering::Acquire)
    }

    /// The protocol has no word for what others do to the volume.
    fn identity(&mut self) -> Identity {
        Identity { which: Some(format!("{}, {} bytes", self.uri, self.size_bytes)), version: None }
    }

    fn label(&mut self) -> Result<StoreLabel, BackingError> {
        read_label_file(self.label_file.as_deref()).map_err(|error| BackingError::Failed(error.to_string()))
    }

    fn set_label(&mut self, text: &str) -> Result<(), BackingError> {
        if self.read_only {
            return Err(BackingError::ReadOnly);
        }
        write_label_file(self.label_file.as_deref(), text)
            .map_err(|error| BackingError::Failed(error.to_string()))
    }

    fn describe(&self) -> String {
        format!("the NBD server {}{}", self.uri, self.words)
    }
}

impl Drop for NbdUnits {
    /// Requests in flight may have been done or not.
    fn drop(&mut self) {
        self.queue = None;
        self.bell.rung.store(false, Ordering::Release);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
