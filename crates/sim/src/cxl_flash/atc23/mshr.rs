//! Miss registers (MSHR) of the published simulator: 1024 pages, up to 65 requests each before the device stops.

use std::collections::VecDeque;

const ROWS_MAX: usize = 1024;
const COLUMNS_MAX: usize = 65;

/// A request that waits for its page.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// When the device took it.
    pub since_ns: u64,
    /// Whether it writes.
    pub write: bool,
}

/// A row in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row(pub u32);

impl Row {
    /// No row.
    pub const NONE: Row = Row(u32::MAX);
}

/// The requests that wait for each page.
#[derive(Clone, Debug, Default)]
pub struct Mshr {
    rows: Vec<VecDeque<Waiting>>,
    free: Vec<u32>,
    in_use: usize,
    /// The longest row since that was last forgotten.
    longest: usize,
    full: bool,
}

impl Mshr {
    /// Whether the device must stop taking requests.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Enters a request in `row`, or a new one.
    pub fn insert(&mut self, row: Row, waiting: Waiting) -> Row {
        let row = if row == Row::NONE {
            self.in_use += 1;
            Row(self.free.pop().unwrap_or_else(|| {
                self.rows.push(VecDeque::new());
                (self.rows.len() - 1) as u32
            }))
        } else {
            row
        };
        let requests = &mut self.rows[row.0 as usize];
        requests.push_back(waiting);
        if self.in_use == ROWS_MAX {
            self.full = true;
        } else if requests.len() > self.longest {
            self.longest = requests.len();
            self.full |= self.longest == COLUMNS_MAX;
        }
        row
    }

    /// The first request of a row whose page has come. Also returns whether the device may go on because of it.
    pub fn first(&mut self, row: Row) -> (Option<Waiting>, bool) {
        let requests = &mut self.rows[row.0 as usize];
        let frees = requests.len() == self.longest && self.longest >= COLUMNS_MAX;
        if frees {
            self.full = false;
            self.longest = 0;
        }
        (requests.pop_front(), frees)
    }

    /// The next request of a row.
    pub fn next(&mut self, row: Row) -> Option<Waiting> {
        self.rows[row.0 as usize].pop_front()
    }

    /// Gives an empty row back: whether it was empty, and whether the device may go on because of it.
    pub fn release_if_empty(&mut self, row: Row) -> (bool, bool) {
        if !self.rows[row.0 as usize].is_empty() {
            return (false, false);
        }
        let frees = self.in_use >= ROWS_MAX;
        if frees {
            self.full = false;
        }
        self.in_use -= 1;
        self.free.push(row.0);
        (true, frees)
    }
}
