//! Volume in an object store: S3 or a compatible one, or a directory.
//!
//! **Objects.** Below a prefix are a manifest (JSON: which volume, its size, the size of its chunks,
//! its writer) and one object for each chunk of the volume that was ever written, named by its
//! number (`docs/block-objects.md` draws them). A chunk is 4 MiB unless another size is chosen when
//! the volume is created. Its object begins with a header that identifies its put: the writer, and
//! the writer's sequence number. Where there is no object, or it ends early, the chunk is zeroes.
//! Objects of chunks are never removed: a chunk that is freed becomes an object with a header alone.
//!
//! **Reads** get exactly the requested bytes, no matter what else is in flight.
//!
//! **Writes** change a chunk as a whole: it is got, changed and put, unless all of it is written. A chunk
//! has one put at a time, and all changes that arrive meanwhile are in the next one. A write is answered
//! when its put is, and then it is durable; a flush waits only for the look at the manifest below. A put
//! replaces exactly the object that was expected there (`If-Match` with its ETag, `If-None-Match: *`
//! where there was none), or fails. An ETag may be a checksum of the contents, which recurs when contents
//! do; headers make each put's contents unique. A removed object could also be created and removed again
//! unseen, and S3 removes without conditions as this client uses it; so nothing is removed.
//!
//! When a condition does not hold, the header of the present object decides. Ours, and this very put (its
//! answer was lost, and it was sent again): the put is done. Ours, and an earlier put that seemed to have
//! failed: the change is made on that object. Another writer's: an error, which reports the other writer.
//!
//! **Writers.** A process that opens the volume to write puts its own random name into the manifest,
//! under a condition, and is the writer from then on. A store that ignores conditions is detected then,
//! and refused. The writer looks at the manifest before it answers a flush, before a put when the last
//! look is longer ago than [`ObjectsOptions::trust`], and every [`ObjectsOptions::look_every`]. If it
//! finds another name there, all further requests to it fail, and a new session begins. So:
//!
//! - A flush that succeeds was requested while its writer was still the only one: no two writers' flushes interleave.
//! - An older writer never overwrites a newer writer's put, nor the other way round: the second one's condition fails,
//!   and it gets an error.
//! - An older writer may change chunks that the newer one has not put yet, as long as it does not know of it: by puts
//!   that begin at most `trust` after its last look and take long to arrive. None of them are in a flush of its own
//!   that succeeds.
//! - It answers reads for at most `look_every` while the store can be reached, otherwise until it can be reached again.
//!
//! A directory has no conditions, so there a lock on it excludes other writers, and readers
//! while one writes; on this machine, and on others as far as the file system carries locks. A
//! process that ignores locks is noticed when a chunk is got to be changed, and not otherwise.
//!
//! **State.** The manifest counts changes: the count is increased before the first put that
//! follows a query of the volume's state. So the same count means that nothing was put in between.
//!
//! **Outages.** The client repeats requests that were refused temporarily or did not
//! arrive. Each request ends in an error when its time ([`ObjectsOptions::patience`])
//! is over. That loses nothing else, and the next request is tried anew.
//!
//! A thread of its own runs the client. This side submits requests to it and takes completions.

mod access;
mod chunk;
mod fence;
mod label;
mod layout;
mod manifest;
mod place;
mod put_order;
mod trims;
mod worker;

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::block::completion_queue::{CompletionReceiver, CompletionSender, completion_queue};
use object_store::ObjectStore;
use object_store::path::Path;
use tiermem_base::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use self::place::ObjectsPlace;

use self::access::Objects;
use self::chunk::Chunks;
use self::fence::{Fence, Standing};
use self::layout::{Id, Shape};
use self::worker::{Ask, Worker};
use super::{Backing, BackingError, Completion, Identity, OpenError, Request, StoreLabel, Waker};

/// The size of chunks, unless told otherwise.
const CHUNK_BYTES: u64 = 4 << 20;

/// Options of opening a volume of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectsOptions {
    /// Whether writes are refused.
    pub read_only: bool,
    /// If there is no volume, one of this size is made. If there is one, it must have this size.
    pub create_bytes: Option<u64>,
    /// The size of the chunks of a volume that is made: a power of two. If there is one, it must have this.
    pub chunk_bytes: Option<u64>,
    /// Time limit of a request with its repetitions, beside a second for each MiB.
    pub patience: Duration,
    /// Puts that begin longer after a look at the manifest wait for another one.
    pub trust: Duration,
    /// Time between looks at the manifest when nothing else requires one.
    pub look_every: Duration,
}

impl Default for ObjectsOptions {
    fn default() -> Self {
        ObjectsOptions {
            read_only: false,
            create_bytes: None,
            chunk_bytes: None,
            patience: Duration::from_secs(30),
            trust: Duration::from_secs(5),
            look_every: Duration::from_secs(10),
        }
    }
}

/// An open volume of objects.
pub struct ObjectsBacking {
    /// `None` only while it is dropped.
    queue: Option<UnboundedSender<Ask>>,
    completion_receiver: CompletionReceiver<Completion>,
    completion_sender: CompletionSender<Completion>,
    standing: Arc<Standing>,
    shape: Shape,
    volume: Id,
    read_only: bool,
    words: String,
    thread: Option<JoinHandle<()>>,
    /// Held until the thread has ended.
    _lock: Option<File>,
}

impl ObjectsBacking {
    /// Opens the volume below a prefix of a store that heeds conditions; `place` says to people where that is.
    ///
    /// # Errors
    /// When there is none and none is to be made, when it cannot be worked with, or the store cannot be reached.
    pub fn open(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        place: &str,
        options: ObjectsOptions,
    ) -> Result<Self, OpenError> {
        let prefix = Path::parse(prefix)
            .map_err(|error| OpenError::Unusable { place: place.to_owned(), why: error.to_string() })?;
        let objects = Objects { store, prefix, conditional: true, patience: options.patience };
        Self::start(objects, place, options, None)
    }

    /// Opens a volume that no other process writes while the lock is held.
    fn open_locked(
        store: Arc<dyn ObjectStore>,
        place: &str,
        options: ObjectsOptions,
        lock: File,
    ) -> Result<Self, OpenError> {
        let patience = options.patience;
        let objects = Objects { store, prefix: Path::default(), conditional: false, patience };
        Self::start(objects, place, options, Some(lock))
    }

    fn start(
        objects: Objects,
        place: &str,
        options: ObjectsOptions,
        lock: Option<File>,
    ) -> Result<Self, OpenError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (completion_sender, completion_receiver) = completion_queue();
        let (queue, asks) = unbounded_channel();
        let (opened, when_opened) = channel();
        let standing = Arc::new(Standing::default());
        let (for_worker, from_worker) = (standing.clone(), completion_sender.clone());
        let conditional = objects.conditional;
        let work = move || {
            let chunks = runtime.block_on(find_or_make(objects, &options, for_worker.clone()));
            let chunks = match chunks {
                Ok(chunks) => chunks,
                Err(why) => return drop(opened.send(Err(why))),
            };
            if opened.send(Ok((chunks.shape, chunks.volume))).is_ok() {
                runtime.block_on(Worker::new(chunks, for_worker, &options, from_worker).run(asks));
            }
            end(runtime, conditional);
        };
        let thread = std::thread::Builder::new().name("backing-objects".to_owned()).spawn(work)?;
        let failed = |why: String| OpenError::Unusable { place: place.to_owned(), why };
        let ended = || Err("its thread has ended".to_owned());
        let (shape, volume) = when_opened.recv().unwrap_or_else(|_| ended()).map_err(failed)?;
        Ok(ObjectsBacking {
            queue: Some(queue),
            completion_receiver,
            completion_sender,
            standing,
            shape,
            volume,
            read_only: options.read_only,
            words: format!("objects of {} in {place}", Bytes(shape.chunk_bytes)),
            thread: Some(thread),
            _lock: lock,
        })
    }

    fn ask(&self, ask: Ask) -> Option<Ask> {
        self.queue.as_ref()?.send(ask).err().map(|lost| lost.0)
    }
}

/// Puts into a directory must end before its lock does; puts over a network are protected by their conditions.
fn end(runtime: Runtime, conditional: bool) {
    if conditional {
        runtime.shutdown_background();
    }
}

fn missing() -> String {
    "there is no volume; make one by giving its size, as in `,size=10GiB`".to_owned()
}

async fn find_or_make(
    objects: Objects,
    options: &ObjectsOptions,
    standing: Arc<Standing>,
) -> Result<Chunks, String> {
    let found = match manifest::find(&objects).await? {
        Some(found) => found,
        None => {
            let size_bytes = options.create_bytes.filter(|_| !options.read_only).ok_or_else(missing)?;
            let shape = Shape { size_bytes, chunk_bytes: options.chunk_bytes.unwrap_or(CHUNK_BYTES) };
            manifest::create(&objects, shape).await?;
            manifest::find(&objects).await?.ok_or("the manifest was removed as soon as it was made")?
        }
    };
    let (shape, volume) = (found.0.shape(), found.0.volume);
    let wanted =
        [("size", options.create_bytes, shape.size_bytes), ("chunk", options.chunk_bytes, shape.chunk_bytes)];
    for (option, wanted, is) in wanted {
        if wanted.is_some_and(|wanted| wanted != is) {
            return Err(format!(
                "there is a volume already, with {option}={is}: leave that option out, or name another place"
            ));
        }
    }
    let objects = Arc::new(objects);
    if options.read_only {
        return Ok(Chunks { objects, volume, shape, writer: None });
    }
    let me = Id::random().ok_or("the system gives no random bytes")?;
    let found = manifest::take_over(&objects, found.0, found.1, me).await?;
    let fence = Fence::new(objects.clone(), standing, found, me, options.trust);
    let writer = Some((me, Arc::new(Mutex::new(fence))));
    Ok(Chunks { objects, volume, shape, writer })
}

/// A volume in a known state. One that is not known is like no other.
fn identity_of(volume: Id, changes: Option<u64>) -> Identity {
    let version = match changes {
        Some(changes) => Some(format!("{changes} changes")),
        None => Id::random().map(|id| format!("not known ({id})")),
    };
    Identity { which: Some(format!("objects of volume {volume}")), version }
}

impl Backing for ObjectsBacking {
    fn submit(&mut self, request: Request) {
        self.completion_receiver.in_flight += 1;
        if let Some(Ask::Request(lost)) = self.ask(Ask::Request(request)) {
            let error = BackingError::Failed("the store's thread has ended".to_owned());
            self.completion_sender.put([lost.done(Err(error), self.standing.session())]);
        }
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
        self.shape.size_bytes
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn session(&self) -> u64 {
        self.standing.session()
    }

    /// The version is the count of the manifest; if that cannot be had, it is one that never comes again.
    fn identity(&mut self) -> Identity {
        let (answer, answered) = channel();
        self.ask(Ask::Identity(answer));
        answered.recv().unwrap_or_else(|_| identity_of(self.volume, None))
    }

    fn label(&mut self) -> Result<StoreLabel, BackingError> {
        let (answer, answered) = channel();
        self.ask(Ask::Label(answer));
        answered
            .recv()
            .unwrap_or_else(|_| Err(BackingError::Failed("the store's thread has ended".to_owned())))
    }

    fn set_label(&mut self, text: &str) -> Result<(), BackingError> {
        if self.read_only {
            return Err(BackingError::ReadOnly);
        }
        let (answer, answered) = channel();
        self.ask(Ask::SetLabel(text.to_owned(), answer));
        answered
            .recv()
            .unwrap_or_else(|_| Err(BackingError::Failed("the store's thread has ended".to_owned())))
    }

    fn describe(&self) -> String {
        self.words.clone()
    }
}

impl Drop for ObjectsBacking {
    /// Requests in flight may have been done or not.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
