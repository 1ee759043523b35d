//! Requests for one chunk: reading bytes of it, fetching all of it before a change, and the put itself.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::Mutex;

use super::access::{Expected, Objects, Trouble};
use super::fence::Fence;
use super::layout::{ChunkRange, HEADER_BYTES, Header, Id, Shape, chunk_name};
use crate::backing::BackingError;

/// Where chunks are, and of which volume. Its clones share everything.
#[derive(Clone)]
pub(super) struct Chunks {
    pub objects: Arc<Objects>,
    pub volume: Id,
    pub shape: Shape,
    /// The writer and its right to write; `None` where only reading is allowed.
    pub writer: Option<(Id, Arc<Mutex<Fence>>)>,
}

/// A chunk as it is stored.
pub(super) struct Stored {
    pub expected: Expected,
    pub header: Option<Header>,
    /// The whole object with its header, where that was wanted and there is one.
    pub object: Bytes,
}

/// How a put ended.
pub(super) enum PutEnd {
    /// The object is there; this is its place in the order of things, and itself.
    Done(Expected, Bytes),
    /// What is there is ours, of a put that seemed to have failed: it is to be changed, not what was expected.
    Again,
    /// It was not done, or that is unknown.
    Failed(BackingError),
    /// Another writer has changed the chunk.
    Conflict(BackingError),
}

impl Chunks {
    /// The bytes of a part that the chunk's object has; the others are zeroes.
    pub async fn read(&self, part: ChunkRange) -> Result<Bytes, BackingError> {
        let range = (HEADER_BYTES + part.from) as u64..(HEADER_BYTES + part.to) as u64;
        let path = self.objects.path(&chunk_name(part.chunk));
        let got = self.objects.get(&path, Some(range), (part.to - part.from) as u64).await;
        got.map(|got| got.map(|got| got.bytes).unwrap_or_default()).map_err(Trouble::told)
    }

    /// A chunk's object, whole or its header alone.
    pub async fn stored(&self, chunk: u64, whole: bool) -> Result<Stored, BackingError> {
        let path = self.objects.path(&chunk_name(chunk));
        let chunk_bytes = self.shape.bytes_of(chunk) as u64;
        let header_bytes = HEADER_BYTES as u64;
        let (range, bytes_max) =
            if whole { (None, header_bytes + chunk_bytes) } else { (Some(0..header_bytes), header_bytes) };
        let Some(got) = self.objects.get(&path, range, bytes_max).await.map_err(Trouble::told)? else {
            return Ok(Stored { expected: Expected::Absent, header: None, object: Bytes::new() });
        };
        let header = if whole {
            Header::read_whole(&got.bytes, self.volume, chunk, chunk_bytes)
        } else {
            Header::read(&got.bytes, self.volume, chunk)
        };
        // What is damaged is not made good by a new checksum.
        let header = header.map_err(|damage| {
            BackingError::Failed(format!(
                "{path} cannot be changed: {damage}; restore it, or remove it to have zeroes"
            ))
        })?;
        let object = if whole { got.bytes } else { Bytes::new() };
        Ok(Stored { expected: Expected::Object(got.version), header: Some(header), object })
    }

    /// Puts a chunk's object, sealed as put number `put`, in the place of what is expected there.
    pub async fn put(&self, chunk: u64, put: u64, object: Bytes, expected: Expected) -> PutEnd {
        let Some((writer, fence)) = &self.writer else { return PutEnd::Failed(BackingError::ReadOnly) };
        if let Err(error) = fence.lock().await.permit().await {
            return PutEnd::Failed(error);
        }
        let path = self.objects.path(&chunk_name(chunk));
        match self.objects.put(&path, object.clone(), &expected).await {
            Ok(version) => return PutEnd::Done(Expected::Object(version), object),
            Err(Trouble::Failed(error)) => return PutEnd::Failed(error),
            Err(Trouble::Condition) => {}
        }
        match self.stored(chunk, false).await {
            // The store got it twice, as the first answer was lost.
            Ok(Stored { expected, header: Some(header), .. })
                if header.writer == *writer && header.put == put =>
            {
                PutEnd::Done(expected, object)
            }
            Ok(Stored { header: Some(header), .. }) if header.writer == *writer => PutEnd::Again,
            Ok(found) if found.expected == expected => PutEnd::Failed(BackingError::Failed(format!(
                "cannot put {path}: the store refuses it for now"
            ))),
            Ok(_) => self.conflict(chunk).await,
            Err(error) => PutEnd::Failed(error),
        }
    }

    /// The outcome when a chunk is not in the state of our last put.
    pub async fn conflict(&self, chunk: u64) -> PutEnd {
        if let Some((_, fence)) = &self.writer
            && let Err(error) = fence.lock().await.look(Instant::now()).await
        {
            return PutEnd::Conflict(error);
        }
        let path = self.objects.path(&chunk_name(chunk));
        let words = format!("{path} was changed by somebody else, who also writes to the volume: stop that");
        tracing::error!("{words}");
        PutEnd::Conflict(BackingError::Failed(words))
    }
}
