//! Fencing: checks that this process is still the volume's writer, before puts, before a flush is acknowledged, and
//! periodically.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use object_store::UpdateVersion;

use super::access::{Expected, Objects, Seen, Trouble};
use super::layout::{Id, MANIFEST};
use super::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::backing::BackingError;

/// Attempts to say in the manifest that the volume is being changed, where the store refuses that for no reason to be seen.
const MARKS_MAX: usize = 3;

/// What all may look at. Once lost, a volume stays lost until it is opened anew.
#[derive(Debug, Default)]
pub(super) struct Standing {
    lost: AtomicBool,
    session: AtomicU64,
}

impl Standing {
    pub fn session(&self) -> u64 {
        self.session.load(Ordering::Acquire)
    }

    /// The answer to everything, when another one writes.
    pub fn refusal(&self) -> Option<BackingError> {
        self.lost.load(Ordering::Acquire).then(superseded)
    }

    fn lose(&self) -> BackingError {
        if !self.lost.swap(true, Ordering::AcqRel) {
            // What was put since the other one came was never flushed, and must not be taken for safe.
            self.session.fetch_add(1, Ordering::AcqRel);
            tracing::error!(
                "another server has opened the volume to write: nothing is read or written here any more"
            );
        }
        superseded()
    }
}

fn superseded() -> BackingError {
    BackingError::Failed(
        "another server has opened the volume to write since; stop one of the two, then start this one again"
            .to_owned(),
    )
}

/// The manifest as we know it. Its user sees to it that one thing is done with it at a time.
pub(super) struct Fence {
    objects: Arc<Objects>,
    standing: Arc<Standing>,
    manifest: Manifest,
    version: UpdateVersion,
    me: Id,
    /// Since the state of the volume was last told, the manifest says that it is being changed.
    marked: bool,
    /// When the last look at the manifest that found us there began.
    looked: Instant,
    /// A put is not begun when that is longer ago.
    trust: Duration,
}

impl Fence {
    pub fn new(
        objects: Arc<Objects>,
        standing: Arc<Standing>,
        (manifest, version): (Manifest, UpdateVersion),
        me: Id,
        trust: Duration,
    ) -> Self {
        Fence { objects, standing, manifest, version, me, marked: false, looked: Instant::now(), trust }
    }

    /// To be had before a put of a chunk begins.
    pub async fn permit(&mut self) -> Result<(), BackingError> {
        if let Some(refusal) = self.standing.refusal() {
            return Err(refusal);
        }
        if !self.marked {
            return self.mark().await;
        }
        let Some(since) = Instant::now().checked_sub(self.trust) else { return Ok(()) };
        self.look(since).await
    }

    /// Ensures that this process was the writer at some moment after `since`.
    pub async fn look(&mut self, since: Instant) -> Result<(), BackingError> {
        if let Some(refusal) = self.standing.refusal() {
            return Err(refusal);
        }
        // Where the store heeds no conditions a lock keeps others away.
        if self.looked >= since || !self.objects.conditional {
            return Ok(());
        }
        let begun = Instant::now();
        let path = self.objects.path(MANIFEST);
        match self.objects.look_again(&path, &self.version, MANIFEST_BYTES_MAX).await {
            Ok(Seen::AsBefore) => {}
            Ok(Seen::Gone) => return Err(BackingError::Failed(format!("{path} was removed: restore it"))),
            Ok(Seen::Changed(got)) => {
                let manifest = Manifest::decode(&got.bytes);
                let manifest = manifest.map_err(|error| BackingError::Failed(error.to_string()))?;
                if manifest.writer != Some(self.me) || manifest.volume != self.manifest.volume {
                    return Err(self.standing.lose());
                }
                // Our own, put by a request with a lost answer.
                (self.manifest, self.version) = (manifest, got.version);
            }
            Err(trouble) => return Err(trouble.told()),
        }
        self.looked = begun;
        Ok(())
    }

    /// Says in the manifest that the volume is being changed.
    async fn mark(&mut self) -> Result<(), BackingError> {
        let path = self.objects.path(MANIFEST);
        for _ in 0..MARKS_MAX {
            let begun = Instant::now();
            let mut manifest = self.manifest.clone();
            manifest.changes = manifest.changes.saturating_add(1);
            let text = manifest.encode().map_err(Trouble::told)?;
            match self.objects.put(&path, text, &Expected::Object(self.version.clone())).await {
                Ok(version) => {
                    (self.manifest, self.version) = (manifest, version);
                    (self.marked, self.looked) = (true, begun);
                    return Ok(());
                }
                // Another writer's, which the next look reports, or our own with a lost answer.
                Err(Trouble::Condition) => {
                    let told = self.manifest.changes;
                    self.look(Instant::now()).await?;
                    if self.manifest.changes > told {
                        self.marked = true;
                        return Ok(());
                    }
                }
                Err(trouble) => return Err(trouble.told()),
            }
        }
        Err(BackingError::Failed(format!("cannot put {path}: the store refuses it again and again")))
    }

    /// The volume's state. No put may be in flight at this moment; any later put makes it another state.
    pub async fn state(&mut self) -> Result<u64, BackingError> {
        self.look(Instant::now()).await?;
        self.marked = false;
        Ok(self.manifest.changes)
    }
}
