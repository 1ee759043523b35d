//! Object store in memory with the failures of real ones.
#![allow(clippy::unwrap_used, dead_code)] // Helpers of tests are tests; each test uses some of them.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Behaviour of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Works,
    /// It answers with errors.
    Fails,
    /// It does not answer.
    Hangs,
    /// Puts of chunks do not end, until it is better.
    HoldsPuts,
    /// It puts, and answers with an error.
    LosesAnswers,
    /// It gets each put twice, as when a client that had no answer sends it again.
    HearsTwice,
    /// It takes no notice of conditions.
    Heedless,
}

/// The store. Its clones are the same.
#[derive(Clone, Debug)]
pub struct Shelf {
    pub inner: InMemory,
    shared: Arc<Mutex<Shared>>,
    better: Arc<tokio::sync::Notify>,
}

#[derive(Debug)]
struct Shared {
    mood: Mood,
    /// Names of what was put, in order.
    puts: Vec<String>,
    /// Gets of chunks: the manifest is looked at by the clock.
    gets: usize,
    /// What is put as soon as a get has failed.
    growth: Option<(String, Vec<u8>)>,
}

impl Shelf {
    pub fn new() -> Self {
        let shared = Shared { mood: Mood::Works, puts: Vec::new(), gets: 0, growth: None };
        Shelf { inner: InMemory::new(), shared: Arc::new(Mutex::new(shared)), better: Arc::default() }
    }

    pub fn set(&self, mood: Mood) {
        self.shared.lock().unwrap().mood = mood;
        self.better.notify_waiters();
    }

    fn mood(&self) -> Mood {
        self.shared.lock().unwrap().mood
    }

    /// Number of puts of chunks that have begun.
    pub fn chunk_puts(&self) -> usize {
        self.shared.lock().unwrap().puts.iter().filter(|name| name.contains("chunks/")).count()
    }

    pub fn chunk_gets(&self) -> usize {
        self.shared.lock().unwrap().gets
    }

    /// An object's bytes.
    pub fn object(&self, name: &str) -> Option<Vec<u8>> {
        let work = async { self.inner.get(&Path::from(name)).await?.bytes().await };
        futures_now(work).ok().map(Vec::from)
    }

    /// Puts an object as another client would.
    pub fn place(&self, name: &str, bytes: &[u8]) {
        futures_now(self.inner.put(&Path::from(name), bytes.to_vec().into())).unwrap();
    }

    /// Puts an object as soon as a get has failed for what the store has until then.
    pub fn place_after_failed_get(&self, name: &str, bytes: &[u8]) {
        self.shared.lock().unwrap().growth = Some((name.to_owned(), bytes.to_vec()));
    }

    pub fn remove(&self, name: &str) {
        futures_now(self.inner.delete(&Path::from(name))).unwrap();
    }

    async fn trouble(&self) -> Result<()> {
        match self.mood() {
            Mood::Fails => Err(error("it fails")),
            Mood::Hangs => std::future::pending().await,
            _ => Ok(()),
        }
    }
}

/// Memory never blocks, so any runtime will do.
fn futures_now<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn error(words: &str) -> object_store::Error {
    object_store::Error::Generic { store: "shelf", source: words.into() }
}

impl fmt::Display for Shelf {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("shelf")
    }
}

#[async_trait]
impl ObjectStore for Shelf {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.shared.lock().unwrap().puts.push(location.to_string());
        self.trouble().await?;
        let is_chunk = location.as_ref().contains("chunks/");
        loop {
            let better = self.better.notified();
            if !is_chunk || self.mood() != Mood::HoldsPuts {
                break;
            }
            better.await;
        }
        let put = |options| self.inner.put_opts(location, payload.clone(), options);
        match self.mood() {
            Mood::LosesAnswers if is_chunk => {
                put(options).await?;
                Err(error("the answer is lost"))
            }
            Mood::HearsTwice => {
                put(options.clone()).await?;
                put(options).await
            }
            Mood::Heedless => put(PutOptions { mode: PutMode::Overwrite, ..options }).await,
            _ => put(options).await,
        }
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(error("no parts"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.shared.lock().unwrap().gets += usize::from(location.as_ref().contains("chunks/"));
        self.trouble().await?;
        let got = self.inner.get_opts(location, options).await;
        let growth = if got.is_err() { self.shared.lock().unwrap().growth.take() } else { None };
        if let Some((name, bytes)) = growth {
            self.inner.put(&Path::from(name), bytes.into()).await?;
        }
        got
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        futures_util::stream::iter([Err(error("nothing is to be removed"))]).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.trouble().await?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(error("nothing is to be copied"))
    }
}
