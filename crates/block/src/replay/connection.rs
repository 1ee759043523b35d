//! Connection of a replay, and the requests of the workers that use it.

use std::io;
use std::time::Instant;

use super::layout::Span;
use crate::nbd::client::{Event, ReplyError};
use crate::nbd::wire::{CommandFlags, PAYLOAD_BYTES_PORTABLE};
use crate::nbd::{Command, Request};
use crate::nbd_socket::{COPIED_BYTES_MAX, Link};

/// The longest part of a request that is sent at once, which bounds what a worker's buffer holds.
const PART_BYTES_MAX: u64 = 1 << 20;

/// A worker and its request.
#[derive(Debug)]
pub(super) struct Worker {
    pub span: Span,
    /// When it was to be sent, in a timed replay.
    pub due: Option<Instant>,
    pub sent: Instant,
    /// Whether it counts in the figures.
    pub measured: bool,
    /// The number of the write.
    pub version: u32,
    /// The connection's number.
    pub line: usize,
    /// Bytes of its parts that are done, and of the part under way.
    pub done: u64,
    pub part: u64,
    /// The part under way.
    pub buffer: Vec<u8>,
    /// Whether the buffer is not sent yet.
    pub sending: bool,
    /// The part's reply, and when it was there.
    pub answer: Option<(Result<(), String>, Instant)>,
    /// The server's own words on why it refuses.
    words: Option<String>,
}

impl Worker {
    pub fn idle(now: Instant) -> Self {
        let span =
            Span { export: 0, volume: 0, offset: 0, bytes: 0, write: false, widened: false, wrapped: false };
        Worker {
            span,
            due: None,
            sent: now,
            measured: false,
            version: 0,
            line: 0,
            done: 0,
            part: 0,
            buffer: Vec::new(),
            sending: false,
            answer: None,
            words: None,
        }
    }

    /// The volume's byte at which the part under way begins.
    pub fn part_offset(&self) -> u64 {
        self.span.offset + self.done
    }
}

/// A connection.
pub(super) struct Line {
    pub link: Link,
    pub export: usize,
    /// Requests that it has to do.
    pub load: usize,
    /// The longest part of a request.
    part_max: u64,
    /// The worker that data are arriving for, and the position in its buffer.
    data: (usize, usize),
}

/// Why a connection is given up.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the server speaks nonsense: {0}")]
    Reply(#[from] ReplyError),
}

impl Line {
    pub fn new(link: Link, export: usize) -> Self {
        let block = link.rules().block;
        let least = u64::from(block.minimum.max(1)).max(super::SECTOR_BYTES);
        let payload_max = u64::from(block.payload_max.min(PAYLOAD_BYTES_PORTABLE)).min(PART_BYTES_MAX);
        Line { link, export, load: 0, part_max: (payload_max / least * least).max(least), data: (0, 0) }
    }

    /// The length of the next part of a request that is done but for `left` bytes.
    pub fn part_bytes(&self, left: u64) -> u64 {
        left.min(self.part_max)
    }

    /// Queues the current part of the worker with this number; a write's bytes are in its buffer.
    ///
    /// # Errors
    /// When the export does not take such a request; as a message for users.
    pub fn issue(&mut self, number: usize, worker: &mut Worker) -> Result<(), String> {
        let command = if worker.span.write { Command::Write } else { Command::Read };
        let (flags, offset) = (CommandFlags::none(), worker.part_offset());
        let request =
            Request { cookie: number as u64, command, flags, offset, len_bytes: worker.part as u32 };
        let header = self.link.transmission.issue(request).map_err(|error| error.to_string())?;
        self.link.put(&header);
        if worker.span.write {
            if worker.buffer.len() <= COPIED_BYTES_MAX {
                self.link.put(&worker.buffer);
            } else {
                self.link.put_payload(number, 0, worker.buffer.len());
                worker.sending = true;
            }
        }
        Ok(())
    }

    /// Sends as much as can be sent now. Appends the workers with a part that was answered before all of it was sent.
    pub fn send(&mut self, workers: &mut [Worker], answered: &mut Vec<usize>) -> Result<(), Broken> {
        let mut sent = Vec::new();
        self.link.send(|number| &workers[number].buffer[..], |number| sent.push(number))?;
        for number in sent {
            workers[number].sending = false;
            if workers[number].answer.is_some() {
                answered.push(number);
            }
        }
        Ok(())
    }

    /// Reads what has arrived. Appends the workers with a part that is done.
    pub fn receive(&mut self, workers: &mut [Worker], answered: &mut Vec<usize>) -> Result<(), Broken> {
        // Data that are longer than what is read at once come in several steps; else one step takes all there is.
        while self.step(workers, answered)? && self.link.transmission.payload_left() > 0 {}
        Ok(())
    }

    /// Returns `false` when nothing more can be read now.
    fn step(&mut self, workers: &mut [Worker], answered: &mut Vec<usize>) -> Result<bool, Broken> {
        let (link, data) = (&mut self.link, &mut self.data);
        let left = link.transmission.payload_left() as usize;
        if left > 0 && link.is_drained() {
            let (number, at) = *data;
            let read = link.read_data(&mut workers[number].buffer[at..at + left])?;
            data.1 += read.unwrap_or(0);
            if link.transmission.payload_left() > 0 {
                return Ok(read.is_some());
            }
        }
        // Where the last data went past the machine, it has the reply's end to tell and needs nothing for that.
        link.receive(left == 0, |transmission, input| {
            loop {
                let payload = transmission.payload(input);
                if !payload.is_empty() {
                    workers[data.0].buffer[data.1..data.1 + payload.len()].copy_from_slice(payload);
                    data.1 += payload.len();
                }
                // The machine knows what is under way: each cookie is a worker's number, each offset lies in its part.
                match transmission.next(input)? {
                    None => return Ok(()),
                    Some(Event::Data { cookie, offset, .. }) => {
                        let number = cookie as usize;
                        *data = (number, (offset - workers[number].part_offset()) as usize);
                    }
                    Some(Event::Hole { cookie, offset, len_bytes }) => {
                        let worker = &mut workers[cookie as usize];
                        let at = (offset - worker.part_offset()) as usize;
                        worker.buffer[at..at + len_bytes as usize].fill(0);
                    }
                    Some(Event::Error { cookie, error, message, .. }) if !message.is_empty() => {
                        let words = format!("{error} ({})", message.escape_debug());
                        workers[cookie as usize].words = Some(words);
                    }
                    Some(Event::Error { .. } | Event::Extent { .. }) => {}
                    Some(Event::Done { cookie, result }) => {
                        let worker = &mut workers[cookie as usize];
                        let words = worker.words.take();
                        let result = result.map_err(|error| words.unwrap_or_else(|| error.to_string()));
                        worker.answer = Some((result, Instant::now()));
                        if !worker.sending {
                            answered.push(cookie as usize);
                        }
                    }
                }
            }
        })
    }

    /// Says goodbye; whether it arrives is not asked.
    pub fn leave(&mut self, workers: &[Worker]) {
        let (command, flags) = (Command::Disconnect, CommandFlags::none());
        let goodbye = Request { cookie: 0, command, flags, offset: 0, len_bytes: 0 };
        if let Ok(header) = self.link.transmission.issue(goodbye) {
            self.link.put(&header);
            let _ = self.link.send(|number| &workers[number].buffer[..], |_| ());
        }
    }
}
