//! Miss registers (MSHR): lines on their way from flash, and the requests that wait for each (Kroft, ISCA 1981).

use tiermem_policy::prefetch::Why;

/// No request.
pub const NONE: u32 = u32::MAX;

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// When the host wanted to send it.
    pub arrival_ns: u64,
    /// When it was on its way to the device, and when it had come.
    pub sent_ns: u64,
    /// When the device took it.
    pub accepted_ns: u64,
    /// The part of the time before that which the link took.
    pub link_ns: u64,
    /// The window that it belongs to.
    pub window: u32,
    /// Whether it writes.
    pub write: bool,
}

/// A line on its way.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// The page, by its number in the table of pages.
    pub place: u32,
    /// Why it was sent for.
    pub why: Why,
    /// Requests that wait for it.
    pub waiting: u32,
    head: u32,
    tail: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    waiting: Waiting,
    next: u32,
}

/// All lines on their way.
#[derive(Clone, Debug, Default)]
pub struct Flights {
    flights: Vec<Flight>,
    free_flights: Vec<u32>,
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    /// Lines on their way, by the reason.
    count: [usize; 3],
}

impl Flights {
    /// Lines on their way for requests.
    #[inline]
    pub fn demanded(&self) -> usize {
        self.count[Why::Demand as usize]
    }

    /// Lines on their way that no request had asked for when they were sent for.
    #[inline]
    pub fn early(&self) -> usize {
        self.count[Why::Prefetch as usize] + self.count[Why::Hint as usize]
    }

    /// A line was sent for.
    pub fn begin(&mut self, place: u32, why: Why) -> u32 {
        self.count[why as usize] += 1;
        let flight = Flight { place, why, waiting: 0, head: NONE, tail: NONE };
        match self.free_flights.pop() {
            Some(id) => {
                self.flights[id as usize] = flight;
                id
            }
            None => {
                self.flights.push(flight);
                (self.flights.len() - 1) as u32
            }
        }
    }

    /// A line that is on its way.
    #[inline]
    pub fn at(&self, id: u32) -> &Flight {
        &self.flights[id as usize]
    }

    /// A request waits for the line.
    #[inline]
    pub fn wait(&mut self, id: u32, waiting: Waiting) {
        let node = Node { waiting, next: NONE };
        let at = match self.free_nodes.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        let flight = &mut self.flights[id as usize];
        match flight.tail {
            NONE => flight.head = at,
            tail => self.nodes[tail as usize].next = at,
        }
        flight.tail = at;
        flight.waiting += 1;
    }

    /// The next request that waits for the line, in the order in which they came.
    #[inline]
    pub fn next_waiting(&mut self, id: u32) -> Option<Waiting> {
        let flight = &mut self.flights[id as usize];
        let at = flight.head;
        if at == NONE {
            return None;
        }
        let Node { waiting, next } = self.nodes[at as usize];
        flight.head = next;
        flight.waiting -= 1;
        if next == NONE {
            flight.tail = NONE;
        }
        self.free_nodes.push(at);
        Some(waiting)
    }

    /// The line has come, and no request waits any more.
    pub fn end(&mut self, id: u32) {
        debug_assert_eq!(self.flights[id as usize].waiting, 0, "a request is lost");
        self.count[self.flights[id as usize].why as usize] -= 1;
        self.free_flights.push(id);
    }
}
