//! Writing of a snapshot: the shard gathers items, a separate thread computes
//! checksums and writes, and the file gets its name when all of it is on the disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tiermem_sys::disk;

use super::format::{HEADER_BYTES, Header, Taken, block_header, end};
use crate::engine::{Engine, Gathered, Gathering};

/// Blocks that may wait for the disk. Each may be a longest value, as may the one that is gathered, the one that found no
/// room and the one being written.
const WAITING_MAX: usize = 1;

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot {} was not written: {source}", path.display())]
pub struct SaveError {
    path: PathBuf,
    source: io::Error,
}

/// A snapshot that is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Items in it.
    pub items: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Duration in milliseconds.
    pub took_ms: u64,
}

/// The next step of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another step.
    Go,
    /// Another step, when the disk has caught up.
    Wait,
    /// [`Saving::finish`].
    Finish,
}

#[derive(Debug)]
enum Message {
    Block(Vec<u8>, u32),
    End,
}

/// A snapshot being written.
#[derive(Debug)]
pub struct Saving {
    path: PathBuf,
    /// Until all is gathered.
    gathering: Option<Gathering>,
    /// What the writer had no room for.
    waiting: Option<Message>,
    to_writer: SyncSender<Message>,
    writer: JoinHandle<io::Result<(u64, u64)>>,
    started: Instant,
}

impl Saving {
    /// Begins a snapshot of what `engine` holds in memory.
    ///
    /// # Errors
    /// When there can be no file at `path`.
    pub fn begin(engine: &mut Engine, path: &Path, taken: Taken) -> Result<Self, SaveError> {
        Self::begin_to(engine, path, taken, true)
    }

    /// The same; whether its file takes its place when it is complete is in `places`.
    fn begin_to(engine: &mut Engine, path: &Path, taken: Taken, places: bool) -> Result<Self, SaveError> {
        let error = |source| SaveError { path: path.to_owned(), source };
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let header = Header { unix_ms, session: engine.kept().session(), taken };
        let new = new_path(path);
        let file = create(&new).map_err(error)?;
        let (to_writer, blocks) = sync_channel(WAITING_MAX);
        let target = path.to_owned();
        let writer = std::thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(move || {
                let written = write(file, header, &blocks).and_then(|written| {
                    if places {
                        put_in_place(&new, &target)?;
                    }
                    Ok(written)
                });
                if written.is_err() {
                    // An incomplete file is useless.
                    let _ = fs::remove_file(&new);
                }
                written
            })
            .map_err(error)?;
        let gathering = Some(Gathering::begin(engine));
        Ok(Saving {
            path: path.to_owned(),
            gathering,
            waiting: None,
            to_writer,
            writer,
            started: Instant::now(),
        })
    }

    /// Continues for about ten microseconds, and never waits for the disk.
    pub fn step(&mut self, engine: &mut Engine) -> Step {
        if let Some(message) = self.waiting.take() {
            match self.to_writer.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Full(message)) => {
                    self.waiting = Some(message);
                    return Step::Wait;
                }
                // The writer has failed, and will say why.
                Err(TrySendError::Disconnected(_)) => self.stop(engine),
            }
            return Step::Go;
        }
        let Some(gathering) = &mut self.gathering else {
            return if self.writer.is_finished() { Step::Finish } else { Step::Wait };
        };
        match gathering.go_on(engine) {
            Gathered::Block(bytes, items) => self.waiting = Some(Message::Block(bytes, items)),
            Gathered::NotYet => {}
            Gathered::All => {
                self.stop(engine);
                self.waiting = Some(Message::End);
            }
        }
        Step::Go
    }

    fn stop(&mut self, engine: &mut Engine) {
        if let Some(gathering) = self.gathering.take() {
            gathering.end(engine);
        }
    }

    /// Since when it is being written.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The result. Waits for the disk unless [`Self::step`] has
    /// returned [`Step::Finish`]; items not gathered yet are given up.
    ///
    /// # Errors
    /// When it was not written, or given up.
    pub fn finish(mut self, engine: &mut Engine) -> Result<Saved, SaveError> {
        self.stop(engine);
        let Saving { path, to_writer, writer, started, .. } = self;
        drop(to_writer);
        let written = writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer failed")));
        let (items, bytes) = written.map_err(|source| SaveError { path, source })?;
        Ok(Saved { items, bytes, took_ms: started.elapsed().as_millis() as u64 })
    }

    /// Writes a snapshot at once, and waits for it.
    ///
    /// # Errors
    /// When it was not written.
    pub fn run(engine: &mut Engine, path: &Path, taken: Taken) -> Result<Saved, SaveError> {
        Saving::begin(engine, path, taken)?.run_to_end(engine)
    }

    /// Writes a snapshot of a stop at once, and waits for it; it does not take its place.
    ///
    /// # Errors
    /// When it was not written.
    pub fn run_unplaced(engine: &mut Engine, path: &Path) -> Result<Unplaced, SaveError> {
        let saved = Saving::begin_to(engine, path, Taken::Stopped, false)?.run_to_end(engine)?;
        Ok(Unplaced { path: path.to_owned(), saved, is_placed: false })
    }

    fn run_to_end(mut self, engine: &mut Engine) -> Result<Saved, SaveError> {
        loop {
            match self.step(engine) {
                Step::Go => {}
                Step::Wait => std::thread::sleep(std::time::Duration::from_micros(200)),
                Step::Finish => return self.finish(engine),
            }
        }
    }
}

/// A snapshot of a stop that is complete and has not taken its place. Where it never does, dropping it removes it.
#[derive(Debug)]
pub struct Unplaced {
    path: PathBuf,
    saved: Saved,
    is_placed: bool,
}

impl Unplaced {
    /// Puts it in its place.
    ///
    /// # Errors
    /// When that fails; [`Self::withdraw`] then leaves nothing of it that counts.
    pub fn put_in_place(&mut self) -> Result<Saved, SaveError> {
        let error = |source| SaveError { path: self.path.clone(), source };
        fs::rename(new_path(&self.path), &self.path).map_err(error)?;
        self.is_placed = true;
        sync_directory_of(&self.path).map_err(error)?;
        Ok(self.saved)
    }

    /// Makes it, where it is in its place, one that was taken while the store ran, since the store goes on.
    pub fn withdraw(self) {
        if self.is_placed
            && let Err(error) = mark_as_running(&self.path)
        {
            let path = self.path.display();
            tracing::error!(%path, %error, "the snapshot is older than what the store does now, and does not say so");
        }
    }
}

impl Drop for Unplaced {
    fn drop(&mut self) {
        if !self.is_placed {
            // Without its name it is useless.
            let _ = fs::remove_file(new_path(&self.path));
        }
    }
}

fn mark_as_running(path: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    let header = Header::read(&bytes).map_err(io::Error::other)?;
    file.write_all_at(&Header { taken: Taken::Running, ..header }.to_bytes(), 0)?;
    file.sync_all()
}

/// Where a snapshot is written before it takes its name.
fn new_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// The file there, empty and this process's own.
fn create(path: &Path) -> io::Result<File> {
    let file = disk::open(path)?;
    if !disk::lock(&file)? {
        return Err(io::Error::other("another process writes it"));
    }
    file.set_len(0)?;
    Ok(file)
}

fn write(mut file: File, header: Header, blocks: &Receiver<Message>) -> io::Result<(u64, u64)> {
    file.write_all(&header.to_bytes())?;
    let (mut items, mut number) = (0, 0);
    while let Ok(message) = blocks.recv() {
        match message {
            Message::Block(bytes, count) => {
                file.write_all(&block_header(&bytes, count, number))?;
                file.write_all(&bytes)?;
                items += u64::from(count);
                number += 1;
            }
            Message::End => {
                file.write_all(&end(items, number))?;
                file.sync_all()?;
                return Ok((items, file.metadata()?.len()));
            }
        }
    }
    Err(io::Error::other("it was given up"))
}

/// Replaces what has the name, so that after a crash there is the old file or the new one.
fn put_in_place(new: &Path, path: &Path) -> io::Result<()> {
    fs::rename(new, path)?;
    sync_directory_of(path)
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
