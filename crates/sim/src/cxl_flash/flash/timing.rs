//! Timing of a flash back end: the memory itself, by technology, and the channel that carries commands and data.

/// A kind of flash memory by its name in the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technology {
    /// Ultra-low latency, a fast variant of SLC.
    Ull,
    /// One bit a cell.
    Slc,
    /// Two bits.
    Mlc,
    /// Three bits.
    Tlc,
}

/// The latencies that a technology promises (Yang 2023, Table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Time to read a page into the die's register.
    pub read_ns: u64,
    /// Time to program a page.
    pub program_ns: u64,
    /// Time to erase a block.
    pub erase_ns: u64,
    /// Times that a block may be erased.
    pub endurance_cycles: u32,
}

impl Technology {
    /// Each of them once.
    pub const ALL: [Technology; 4] = [Technology::Ull, Technology::Slc, Technology::Mlc, Technology::Tlc];

    /// The name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Technology::Ull => "ull",
            Technology::Slc => "slc",
            Technology::Mlc => "mlc",
            Technology::Tlc => "tlc",
        }
    }

    /// Its promise.
    pub fn promise(self) -> Promise {
        let (read_us, program_us, erase_us, endurance_cycles) = match self {
            Technology::Ull => (3, 100, 1000, 100_000),
            Technology::Slc => (25, 200, 1500, 100_000),
            Technology::Mlc => (50, 600, 3000, 10_000),
            Technology::Tlc => (75, 900, 4500, 3_000),
        };
        Promise {
            read_ns: read_us * 1000,
            program_ns: program_us * 1000,
            erase_ns: erase_us * 1000,
            endurance_cycles,
        }
    }
}

impl std::str::FromStr for Technology {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Technology::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("there is no flash technology {text:?}; they are ull, slc, mlc, tlc"))
    }
}

/// All times that the scheduler reckons with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The latencies of the memory itself.
    pub memory: Promise,
    /// Time on the channel of one byte of data.
    pub transfer_ns_per_byte: f64,
    /// Whether reads go before programs that came earlier.
    pub read_priority: bool,
    /// Whether a program gives way to reads.
    pub suspend_program: Option<Suspension>,
    /// Whether an erase gives way to reads and programs.
    pub suspend_erase: Option<Suspension>,
}

/// How an operation is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// Time until the die is free for something else.
    pub stop_ns: u64,
    /// It is not worth while when less than this is left to do.
    pub least_left_ns: u64,
}

/// The time for which the channel carries a command and its addresses for the first plane, and for each further one. These are
/// the cycles of ONFI's NV-DDR2 interface with the values that MQSim uses (Tavakkol 2018).
#[derive(Clone, Copy, Debug)]
struct CommandTime {
    first_ns: u64,
    more_ns: u64,
}

const READ: CommandTime = CommandTime { first_ns: 290, more_ns: 650 };
const PROGRAM: CommandTime = CommandTime { first_ns: 361, more_ns: 816 };
const ERASE: CommandTime = CommandTime { first_ns: 220, more_ns: 700 };
/// The command that interrupts.
const SUSPEND_COMMAND_NS: u64 = 95;
/// From the end of a read in the die until its ready line says so.
const READY_NS: u64 = 20;

/// An operation of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read a page.
    Read,
    /// Program a page.
    Program,
    /// Erase a block.
    Erase,
}

impl Timing {
    /// The time for which the channel carries the command for `planes` planes, without data.
    pub fn command_ns(&self, operation: Operation, planes: usize) -> u64 {
        let time = match operation {
            Operation::Read => READ,
            Operation::Program => PROGRAM,
            Operation::Erase => ERASE,
        };
        time.first_ns + (planes as u64).saturating_sub(1) * time.more_ns
    }

    /// How long the die works, until it says that it is ready.
    pub fn memory_ns(&self, operation: Operation) -> u64 {
        match operation {
            Operation::Read => self.memory.read_ns + READY_NS,
            Operation::Program => self.memory.program_ns,
            Operation::Erase => self.memory.erase_ns,
        }
    }

    /// How long the channel carries so much data.
    pub fn transfer_ns(&self, bytes: u32) -> u64 {
        (f64::from(bytes) * self.transfer_ns_per_byte).round() as u64
    }

    /// How this operation is interrupted, if it can be.
    pub fn suspension(&self, operation: Operation) -> Option<Suspension> {
        match operation {
            Operation::Read => None,
            Operation::Program => self.suspend_program,
            Operation::Erase => self.suspend_erase,
        }
    }

    /// How long interrupting takes, its command included.
    pub fn suspend_ns(&self, suspension: Suspension) -> u64 {
        SUSPEND_COMMAND_NS + suspension.stop_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn technologies_are_read_back() {
        for one in Technology::ALL {
            assert_eq!(one.name().parse(), Ok(one));
        }
        assert!("qlc".parse::<Technology>().unwrap_err().contains("ull, slc"));
    }

    #[test]
    fn technologies_promise_what_the_table_says() {
        // Yang 2023, Table 1: microseconds to read, program and erase, and how often.
        let table = [
            (Technology::Ull, [3, 100, 1000], 100_000),
            (Technology::Slc, [25, 200, 1500], 100_000),
            (Technology::Mlc, [50, 600, 3000], 10_000),
            (Technology::Tlc, [75, 900, 4500], 3000),
        ];
        for (technology, us, endurance_cycles) in table {
            let promise = technology.promise();
            assert_eq!([promise.read_ns, promise.program_ns, promise.erase_ns], us.map(|us| us * 1000));
            assert_eq!(promise.endurance_cycles, endurance_cycles);
        }
    }
}
