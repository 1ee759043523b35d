//! Protocol of the agent's socket: requests and replies of fixed size, one at a time, in the machine's byte order.

/// A call that the agent makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Call {
    /// Makes mappings of their own of granules of a range: `detail` bytes each, counted from the address `nodes`.
    Split = 1,
    /// Undoes it.
    Join = 2,
    /// Has writes to a range watched.
    WatchWrites = 3,
    /// `madvise`; `detail` is the advice.
    Advise = 4,
    /// `mbind`; `detail` is the policy, `nodes` the mask.
    Bind = 5,
    /// Makes mappings of their own of runs in granules of a range, which are drawn as `detail` (a granule's bytes), `nodes` (their
    /// origin), `run_bytes` and `seed` say, and of nothing else in it.
    Mark = 6,
    /// `mlock` of what of a range is not locked yet. A refusal's count says how many bytes may still be locked.
    Lock = 7,
    /// `munlock` of what the agent has locked of a range.
    Unlock = 8,
}

impl Call {
    const ALL: [Call; 8] = [
        Call::Split,
        Call::Join,
        Call::WatchWrites,
        Call::Advise,
        Call::Bind,
        Call::Mark,
        Call::Lock,
        Call::Unlock,
    ];

    pub(super) fn from_code(code: u64) -> Option<Call> {
        Call::ALL.into_iter().find(|call| *call as u64 == code)
    }
}

/// Advice about a range of memory that a process can only give itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Advice {
    /// Huge pages may be used here.
    HugePages = 14,
    /// No new huge pages here.
    SmallPages = 15,
}

impl Advice {
    pub(super) fn from_code(code: u64) -> Option<Advice> {
        [Advice::HugePages, Advice::SmallPages].into_iter().find(|advice| *advice as u64 == code)
    }
}

/// The nodes from which a range takes its pages that it has not touched yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Policy {
    /// As the process does.
    Default = 0,
    /// From these if they have room (the first of them, on kernels before 5.15).
    Preferred = 5,
    /// From these alone.
    Bind = 2,
    /// From each in turn.
    Interleave = 3,
}

impl Policy {
    pub(super) fn from_code(code: u64) -> Option<Policy> {
        [Policy::Default, Policy::Preferred, Policy::Bind, Policy::Interleave]
            .into_iter()
            .find(|policy| *policy as u64 == code)
    }
}

/// A request: seven numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub call: u64,
    pub address: u64,
    pub bytes: u64,
    pub detail: u64,
    pub nodes: u64,
    pub run_bytes: u64,
    pub seed: u64,
}

/// The reply to a request: the system's error or 0, a count (with an error only where the call says so), and the processor time
/// that it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    pub errno: u64,
    pub count: u64,
    pub cpu_ns: u64,
}

pub(super) const REQUEST_BYTES: usize = 56;
pub(super) const REPLY_BYTES: usize = 24;

fn numbers<const N: usize, const BYTES: usize>(bytes: &[u8; BYTES]) -> [u64; N] {
    let (whole, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|at| whole.get(at).map_or(0, |number| u64::from_ne_bytes(*number)))
}

fn bytes<const N: usize, const BYTES: usize>(numbers: [u64; N]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (part, number) in bytes.chunks_mut(8).zip(numbers) {
        part.copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

impl Request {
    pub fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        bytes([self.call, self.address, self.bytes, self.detail, self.nodes, self.run_bytes, self.seed])
    }

    pub fn of(bytes: &[u8; REQUEST_BYTES]) -> Self {
        let [call, address, bytes, detail, nodes, run_bytes, seed] = numbers(bytes);
        Request { call, address, bytes, detail, nodes, run_bytes, seed }
    }
}

impl Reply {
    pub fn to_bytes(self) -> [u8; REPLY_BYTES] {
        bytes([self.errno, self.count, self.cpu_ns])
    }

    pub fn of(bytes: &[u8; REPLY_BYTES]) -> Self {
        let [errno, count, cpu_ns] = numbers(bytes);
        Reply { errno, count, cpu_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_socket() {
        let request = Request {
            call: 5,
            address: u64::MAX,
            bytes: 4096,
            detail: 2,
            nodes: 3,
            run_bytes: 9,
            seed: 1 << 63,
        };
        assert_eq!(Request::of(&request.to_bytes()), request);
        let reply = Reply { errno: 22, count: 7, cpu_ns: 1 };
        assert_eq!(Reply::of(&reply.to_bytes()), reply);
        assert_eq!((Call::from_code(3), Call::from_code(0)), (Some(Call::WatchWrites), None));
    }
}
