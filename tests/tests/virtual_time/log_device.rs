//! Cache device in virtual time with a prompt log and a slow table: the log is full
//! now and then, and operations that wait for a durable record wait for no time.

use tiermem_block::journal::{LOG_BYTES_MIN, Layout, LayoutConfig};
use tiermem_tier::block::{
    BlockError, BlockIo, Completion, MemoryDisk, Request, Simulated, Simulation, Waker,
};

/// The parts of a device, each as slow as it is.
pub struct LogDevice {
    /// Superblock and log, and all syncs.
    log: Simulated<MemoryDisk>,
    /// Images of pages, without which no space of the log is freed.
    table: Simulated<MemoryDisk>,
    data: Simulated<MemoryDisk>,
    table_at: u64,
    data_at: u64,
}

impl LogDevice {
    /// For a cache of these block sizes, with the smallest log. A request for data
    /// takes the first number of nanoseconds, one for a page of the table the second.
    pub fn new(
        disk: MemoryDisk,
        simulation: &Simulation,
        block_bytes: &[u64],
        (data_ns, page_ns): (u64, u64),
    ) -> Self {
        let part = |latency_ns| Simulated::steady(disk.clone(), simulation, latency_ns);
        let (log, table, data) = (part(0), part(page_ns), part(data_ns));
        let config = LayoutConfig {
            block_bytes: block_bytes.to_vec(),
            group_bytes: None,
            log_bytes: Some(LOG_BYTES_MIN),
        };
        let Layout { table_at, data_at, .. } = Layout::plan(data.capacity_bytes(), &config).unwrap();
        LogDevice { log, table, data, table_at, data_at }
    }

    fn parts(&mut self) -> [&mut Simulated<MemoryDisk>; 3] {
        [&mut self.log, &mut self.table, &mut self.data]
    }
}

impl BlockIo for LogDevice {
    fn submit(&mut self, request: Request) {
        let part = match request.offset {
            at if at >= self.data_at => &mut self.data,
            at if at >= self.table_at => &mut self.table,
            _ => &mut self.log,
        };
        BlockIo::submit(part, request);
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        self.parts().into_iter().for_each(|part| part.completed(out));
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        // The first part with requests in flight is waited for: at the
        // start of a cache the order of completions does not matter.
        if let Some(part) = self.parts().into_iter().find(|part| part.in_flight() > 0) {
            part.wait(out);
        }
    }

    fn in_flight(&self) -> usize {
        self.log.in_flight() + self.table.in_flight() + self.data.in_flight()
    }

    fn notify(&mut self, _: Waker) {}

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.log.write_at(offset, bytes)
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        self.log.read_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        BlockIo::sync(&mut self.log)
    }

    fn capacity_bytes(&self) -> u64 {
        self.data.capacity_bytes()
    }
}
