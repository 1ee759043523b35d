//! Served file: a file or block device with requests done by other threads; shared by io_uring and the pool of threads.

use std::sync::Arc;

use super::completion_queue::{CompletionReceiver, CompletionSender};
use super::file::BlockFile;
use super::{BlockError, BlockIo, Completion, OpenError, Request, Waker};

/// The workers. Dropping them waits for requests in flight.
pub trait Workers: Send {
    /// Description of the workers, with direct I/O and through the page cache.
    const WORDS: [&'static str; 2];

    /// Takes requests that the device can do; answers those that it cannot.
    fn take(&mut self, requests: &mut dyn Iterator<Item = Request>, refuse: &mut dyn FnMut(Completion));
}

/// A file or block device, and the workers that do its requests.
pub struct ServedFile<W> {
    // Dropped before what they work with.
    workers: W,
    file: Arc<BlockFile>,
    completion_sender: CompletionSender,
    completion_receiver: CompletionReceiver,
}

impl<W: Workers> ServedFile<W> {
    pub(super) fn new(
        file: Arc<BlockFile>,
        workers: W,
        (completion_sender, completion_receiver): (CompletionSender, CompletionReceiver),
    ) -> Self {
        ServedFile { workers, file, completion_sender, completion_receiver }
    }

    fn queue(&mut self, requests: &mut dyn Iterator<Item = Request>) {
        let ServedFile { workers, file, completion_sender, completion_receiver } = self;
        let mut checked = requests.filter_map(|request| {
            completion_receiver.in_flight += 1;
            match request.check(file.capacity_bytes()) {
                Ok(()) => Some(request),
                Err(error) => {
                    completion_sender.put([request.done(Err(error))]);
                    None
                }
            }
        });
        workers.take(&mut checked, &mut |refused| completion_sender.put([refused]));
    }
}

impl<W: Workers> BlockIo for ServedFile<W> {
    fn submit(&mut self, request: Request) {
        self.queue(&mut std::iter::once(request));
    }

    fn submit_all(&mut self, requests: &mut Vec<Request>) {
        self.queue(&mut requests.drain(..));
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.completion_receiver.completed(out);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        self.completion_receiver.wait(out);
    }

    fn in_flight(&self) -> usize {
        self.completion_receiver.in_flight
    }

    fn notify(&mut self, waker: Waker) {
        self.completion_receiver.notify(waker);
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.file.write_at(offset, bytes)
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        self.file.read_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.file.sync()
    }

    fn capacity_bytes(&self) -> u64 {
        self.file.capacity_bytes()
    }

    fn grow(&mut self, capacity_bytes: u64) -> Result<(), OpenError> {
        self.file.grow(capacity_bytes)
    }

    fn describe(&self) -> &'static str {
        let [direct, cached] = W::WORDS;
        if self.file.direct { direct } else { cached }
    }
}
