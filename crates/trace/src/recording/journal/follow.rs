//! Follower of a journal that is being written: it takes in each frame once it is whole, and keeps a bounded part.
//!
//! It reads the file alone. Its recorder knows nothing of it and never waits for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::frame::check_header;
use super::kept::Limits;
use super::read::{Frames, Standing, length};
use super::{FRAME_HEADER_BYTES, HEADER_BYTES};
use crate::TraceError;
use crate::recording::Recording;

/// A journal, and how far it has been read.
#[derive(Debug)]
pub struct Follower {
    file: File,
    /// Where the next frame begins; 0 before the header.
    offset: u64,
    frames: Frames,
}

impl Follower {
    /// Follows the journal at `path`; `None` if there is a recording in its final form, or something else.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path, limits: Limits) -> Result<Option<Self>, TraceError> {
        if !super::is_one(path) {
            return Ok(None);
        }
        let file = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
        Ok(Some(Follower::of(file, limits)))
    }

    pub(super) fn of(file: File, limits: Limits) -> Self {
        Follower { file, offset: 0, frames: Frames::within(limits) }
    }

    /// The journal, of which one can ask with a lock whether its recorder lives.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Takes in what has been appended; whether there was a whole frame.
    ///
    /// # Errors
    /// If it cannot be read, or is a journal of another version.
    pub fn read(&mut self) -> Result<bool, String> {
        let cannot = |error: io::Error| format!("this journal cannot be read: {error}");
        let mut is_new = false;
        if self.offset == 0 {
            let mut header = [0; HEADER_BYTES];
            if self.fill(&mut header, 0).map_err(cannot)? < HEADER_BYTES {
                return Ok(false);
            }
            check_header(&header)?;
            self.offset = HEADER_BYTES as u64;
        }
        let mut body = Vec::new();
        while !self.has_ended() {
            let mut header = [0; FRAME_HEADER_BYTES];
            if self.fill(&mut header, self.offset).map_err(cannot)? < FRAME_HEADER_BYTES {
                break;
            }
            let start = self.offset + FRAME_HEADER_BYTES as u64;
            let end = start.saturating_add(u64::from(length(header)));
            // A part of a frame is left for later. A damaged length asks for no room that the file does not fill.
            if self.file.metadata().map_err(cannot)?.len() < end {
                break;
            }
            body.resize(length(header) as usize, 0);
            if self.fill(&mut body, start).map_err(cannot)? < body.len() {
                break;
            }
            if self.frames.take(header, &body).is_none() {
                break;
            }
            (self.offset, is_new) = (end, true);
        }
        Ok(is_new)
    }

    /// Whether nothing will come any more: the recording is complete, or the journal is damaged.
    pub fn has_ended(&self) -> bool {
        self.frames.is_complete() || self.frames.is_damaged()
    }

    /// Whether the recording has come to its end.
    pub fn is_complete(&self) -> bool {
        self.frames.is_complete()
    }

    /// Bytes of the journal that were read.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Slices so far.
    pub fn slices(&self) -> u32 {
        self.frames.kept().count()
    }

    /// When the last of them ends, in nanoseconds from the recording's start.
    pub fn end_ns(&self) -> u64 {
        self.frames.kept().slices().last().map_or(0, |slice| slice.end_ns)
    }

    /// How many slices of the recording one of [`Self::recording`] has.
    pub fn together(&self) -> u32 {
        self.frames.kept().together()
    }

    /// The recording so far, within the limits.
    ///
    /// # Errors
    /// If there is no slice yet.
    pub fn recording(&self) -> Result<Recording, String> {
        self.frames.recording(Standing::Growing)
    }

    /// The last slice alone, in the granules that were recorded.
    ///
    /// # Errors
    /// If there is no slice yet.
    pub fn newest(&self) -> Result<Recording, String> {
        self.frames.newest()
    }

    /// Fills as much of `buffer` as there are bytes for.
    fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}
