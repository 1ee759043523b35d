//! Client of the agent: the side of the process that observes or places the program's memory.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::sockopt;

use super::protocol::{Advice, Call, Policy, REPLY_BYTES, Reply, Request};
use super::runs::Draw;

/// How long an agent may take for one request: splitting many gigabytes takes tens of milliseconds, and a program that is
/// stopped (SIGSTOP) does not answer at all.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why an agent did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The kernel refused.
    #[error("the kernel refused: {0}")]
    Refused(io::Error),
    /// The program has gone, has begun another one, or is stopped.
    #[error("the agent in the program does not answer: {0}")]
    Lost(io::Error),
}

/// Why a program's memory was not locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The program may not lock so much.
    #[error(
        "cannot lock {bytes} bytes at {address:#x} of process {pid}: it may lock {left_bytes} more; start it with a higher limit \
         (ulimit -l, RLIMIT_MEMLOCK) or with CAP_IPC_LOCK"
    )]
    Limit {
        /// The process.
        pid: u32,
        /// The first address.
        address: u64,
        /// Bytes that were to be locked.
        bytes: u64,
        /// Bytes that it may still lock.
        left_bytes: u64,
    },
    /// The kernel refused for another reason: a part of the range is not mapped, or memory is used up.
    #[error("cannot lock {bytes} bytes at {address:#x} of process {pid}: {source}")]
    Agent {
        /// The process.
        pid: u32,
        /// The first address.
        address: u64,
        /// Bytes that were to be locked.
        bytes: u64,
        /// Its error.
        source: AgentError,
    },
}

/// Where agents connect to.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    name: String,
}

impl Listener {
    /// Opens a socket with a unique name.
    pub fn open() -> io::Result<Self> {
        let mut number = 0;
        loop {
            let name = format!("tiermem-{}-{number}", std::process::id());
            let address = SocketAddr::from_abstract_name(name.as_bytes())?;
            match UnixListener::bind_addr(&address) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    return Ok(Listener { listener, name });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && number < 10_000 => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The value for [`super::SOCKET_VARIABLE`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The agents that have connected since the last call.
    pub fn accept(&self) -> Vec<Agent> {
        let mut agents = Vec::new();
        while let Ok((stream, _)) = self.listener.accept() {
            let pid = sockopt::socket_peercred(stream.as_fd()).ok();
            let patient = stream
                .set_nonblocking(false)
                .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
                .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
            if let (Some(credentials), Ok(())) = (pid, patient) {
                let pid = credentials.pid.as_raw_nonzero().get().unsigned_abs();
                agents.push(Agent { stream, pid, spent: Spent::default() });
            }
        }
        agents
    }
}

/// The cost of an agent to its program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Requests.
    pub requests: u64,
    /// Processor time.
    pub cpu: Duration,
}

/// An agent within a program.
#[derive(Debug)]
pub struct Agent {
    stream: UnixStream,
    pid: u32,
    spent: Spent,
}

impl Agent {
    /// A client of a socket whose other end is [`super::serve`]d by this process itself.
    pub fn of(stream: UnixStream) -> Self {
        Agent { stream, pid: std::process::id(), spent: Spent::default() }
    }

    /// The process that it is in.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The cost so far.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Makes every granule of a range a mapping of its own, so that what the kernel tells of mappings it tells of
    /// granules. Granules are counted from `origin`. Returns how many were set apart, half of all.
    pub fn split(
        &mut self,
        address: u64,
        bytes: u64,
        granule_bytes: u64,
        origin: u64,
    ) -> Result<u64, AgentError> {
        self.call(Call::Split, address, bytes, granule_bytes, origin)
    }

    /// Makes a mapping of each run that is drawn of a range, and of what lies between; what was split before is not any more.
    /// Returns how many runs there are; what is not mapped has none.
    pub fn mark(&mut self, address: u64, bytes: u64, draw: Draw) -> Result<u64, AgentError> {
        self.ask(Request {
            call: Call::Mark as u64,
            address,
            bytes,
            detail: draw.granule_bytes,
            nodes: draw.origin,
            run_bytes: draw.run_bytes,
            seed: draw.seed,
        })
    }

    /// Lets the kernel make one mapping of them again.
    pub fn join(&mut self, address: u64, bytes: u64) -> Result<(), AgentError> {
        self.call(Call::Join, address, bytes, 0, 0).map(drop)
    }

    /// Has the kernel remember which pages of a range are written ([`crate::page_scan`] asks for them).
    pub fn watch_writes(&mut self, address: u64, bytes: u64) -> Result<(), AgentError> {
        self.call(Call::WatchWrites, address, bytes, 0, 0).map(drop)
    }

    /// Gives advice about a range.
    pub fn advise(&mut self, address: u64, bytes: u64, advice: Advice) -> Result<(), AgentError> {
        self.call(Call::Advise, address, bytes, advice as u64, 0).map(drop)
    }

    /// Says from which nodes (one bit each) a range takes pages that it has not touched yet.
    pub fn bind(&mut self, address: u64, bytes: u64, policy: Policy, nodes: u64) -> Result<(), AgentError> {
        self.call(Call::Bind, address, bytes, policy as u64, nodes).map(drop)
    }

    /// Brings a range of whole pages into memory and keeps it there, until it is unlocked or this value is dropped. What is locked
    /// already, by the program or before, is left alone. Returns how many bytes were locked: all that was not yet, or none.
    ///
    /// # Errors
    /// If the program may not lock so much ([`LockError::Limit`] says how much), or the kernel refuses.
    pub fn lock(&mut self, address: u64, bytes: u64) -> Result<u64, LockError> {
        let request = Request { call: Call::Lock as u64, address, bytes, ..Request::default() };
        let pid = self.pid;
        let failed = |source| LockError::Agent { pid, address, bytes, source };
        let reply = self.exchange(request).map_err(failed)?;
        match outcome(reply) {
            Err(AgentError::Refused(_)) if reply.count < bytes => {
                Err(LockError::Limit { pid, address, bytes, left_bytes: reply.count })
            }
            other => other.map_err(failed),
        }
    }

    /// Undoes it, for what of the range was locked by [`Agent::lock`]. Returns how many bytes that were.
    ///
    /// # Errors
    /// If the agent has gone.
    pub fn unlock(&mut self, address: u64, bytes: u64) -> Result<u64, AgentError> {
        self.call(Call::Unlock, address, bytes, 0, 0)
    }

    fn call(
        &mut self,
        call: Call,
        address: u64,
        bytes: u64,
        detail: u64,
        nodes: u64,
    ) -> Result<u64, AgentError> {
        self.ask(Request { call: call as u64, address, bytes, detail, nodes, ..Request::default() })
    }

    fn ask(&mut self, request: Request) -> Result<u64, AgentError> {
        outcome(self.exchange(request)?)
    }

    fn exchange(&mut self, request: Request) -> Result<Reply, AgentError> {
        let mut reply = [0; REPLY_BYTES];
        self.stream.write_all(&request.to_bytes()).map_err(AgentError::Lost)?;
        self.stream.read_exact(&mut reply).map_err(AgentError::Lost)?;
        let reply = Reply::of(&reply);
        self.spent.requests += 1;
        self.spent.cpu += Duration::from_nanos(reply.cpu_ns);
        Ok(reply)
    }
}

/// The count in a reply.
fn outcome(reply: Reply) -> Result<u64, AgentError> {
    match i32::try_from(reply.errno) {
        Ok(0) => Ok(reply.count),
        Ok(errno) => Err(AgentError::Refused(io::Error::from_raw_os_error(errno))),
        Err(_) => Err(AgentError::Lost(io::Error::other("it answers with no reply of an agent's"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    /// An agent within this very process.
    fn own() -> Agent {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || super::super::serve(theirs));
        Agent::of(ours)
    }

    fn mappings_within(start: u64, end: u64) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let bounds = |line: &str| {
            let (range, _) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
        };
        maps.lines().filter_map(bounds).filter(|(from, to)| *from < end && *to > start).count()
    }

    #[test]
    fn a_range_is_split_into_granules_and_joined_again() {
        let mut mapping = Mapping::anonymous(16 << 20).unwrap();
        mapping.bytes_mut().fill(7);
        let (start, bytes) = (mapping.bytes().as_ptr().addr() as u64, mapping.bytes().len() as u64);
        let mut agent = own();
        let apart = agent.split(start, bytes, 1 << 20, start).unwrap();
        assert_eq!(apart, 8);
        assert_eq!(mappings_within(start, start + bytes), 16);
        // Again, and parts of it, and from an origin behind it: the same granules.
        assert_eq!(agent.split(start, bytes, 1 << 20, start).unwrap(), apart);
        assert_eq!(agent.split(start + (5 << 19), 1 << 20, 1 << 20, start).unwrap(), 1);
        assert_eq!(agent.split(start, bytes, 1 << 20, start + (64 << 20)).unwrap(), apart);
        assert_eq!(mappings_within(start, start + bytes), 16);
        agent.join(start, bytes).unwrap();
        assert!(mappings_within(start, start + bytes) <= 3);
        assert!(mapping.bytes().iter().all(|byte| *byte == 7));
        assert_eq!(agent.spent().requests, 5);
    }

    #[test]
    fn what_is_not_mapped_is_passed_over() {
        let mut agent = own();
        agent.join(0, 4096).unwrap();
        assert_eq!(agent.split(0, 1 << 16, 4096, 0).unwrap(), 0);
    }

    #[test]
    fn runs_are_set_apart_and_drawn_anew() {
        let mut mapping = Mapping::anonymous(16 << 20).unwrap();
        mapping.bytes_mut().fill(7);
        let (start, bytes) = (mapping.bytes().as_ptr().addr() as u64, mapping.bytes().len() as u64);
        let mut agent = own();
        for seed in 0..5 {
            let draw = Draw { granule_bytes: 1 << 20, origin: start, run_bytes: 64 << 10, seed };
            assert_eq!(agent.mark(start, bytes, draw).unwrap(), 16);
            // Each run, and what is between them; runs of neighbours may touch.
            let mappings = mappings_within(start, start + bytes);
            assert!((17..=33).contains(&mappings), "{mappings}");
        }
        agent.join(start, bytes).unwrap();
        assert!(mappings_within(start, start + bytes) <= 3);
        assert!(mapping.bytes().iter().all(|byte| *byte == 7));
        let nonsense = Draw { granule_bytes: 1 << 20, origin: start, run_bytes: 100, seed: 0 };
        assert!(matches!(agent.mark(start, bytes, nonsense), Err(AgentError::Refused(_))));
        // Nothing is mapped there.
        let draw = Draw { granule_bytes: 1 << 20, origin: 0, run_bytes: 64 << 10, seed: 0 };
        assert_eq!(agent.mark(0, 2 << 20, draw).unwrap(), 0);
    }

    #[test]
    fn wrong_requests_are_refused_and_do_no_harm() {
        let mut agent = own();
        assert!(matches!(agent.split(0, 1 << 20, 100, 0), Err(AgentError::Refused(_))));
        assert!(matches!(agent.split(u64::MAX - 10, 1 << 20, 4096, 0), Err(AgentError::Refused(_))));
        assert!(matches!(agent.bind(4096, 4096, Policy::Bind, 1 << 63), Err(AgentError::Refused(_))));
        assert!(matches!(agent.call(Call::Advise, 0, 4096, 4, 0), Err(AgentError::Refused(_))));
        assert!(matches!(agent.advise(0, 4096, Advice::SmallPages), Err(AgentError::Refused(_))));
    }

    #[test]
    fn memory_is_locked_by_request_and_only_that_is_unlocked() {
        let mapping = Mapping::anonymous(16 << 12).unwrap();
        let (start, page) = (mapping.bytes().as_ptr().addr() as u64, 4096);
        let is_there = || {
            let map = crate::pagemap::PageMap::open(std::process::id()).unwrap();
            (0..16).filter(|at| map.page(start / page + at) != crate::pagemap::PageEntry::Absent).count()
        };
        let mut agent = own();
        let locked = agent.lock(start + 2 * page, 4 * page);
        if let Err(error @ LockError::Limit { .. }) = &locked {
            return eprintln!("not run: {error}");
        }
        assert_eq!((locked.unwrap(), is_there() >= 4), (4 * page, true));
        assert_eq!(agent.lock(start, 6 * page).unwrap(), 2 * page, "what is locked is not locked again");
        // The program's own lock stays.
        // SAFETY: locking changes no contents.
        assert_eq!(unsafe { libc::mlock(mapping.bytes()[10 * 4096..].as_ptr().cast(), 4096) }, 0);
        assert_eq!(agent.lock(start + 9 * page, 3 * page).unwrap(), 2 * page);
        assert_eq!(agent.unlock(start + 5 * page, 11 * page).unwrap(), 3 * page);
        assert_eq!(agent.unlock(start + 5 * page, 11 * page).unwrap(), 0);
        let unmapped = agent.lock(4096, 4096).unwrap_err();
        assert!(matches!(unmapped, LockError::Agent { source: AgentError::Refused(_), .. }), "{unmapped}");
        assert!(agent.lock(start + 1, 4096).is_err() && agent.lock(u64::MAX - 4095, 8192).is_err());
        let locked_here = || {
            let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let of = |text: &str| u64::from_str_radix(text, 16).unwrap();
            let mut within = false;
            let mut bytes = 0;
            for line in smaps.lines() {
                match line.split(' ').next().unwrap().split_once('-') {
                    Some((from, to)) if line.starts_with(|c: char| c.is_ascii_hexdigit()) => {
                        within = of(from) < start + 16 * page && of(to) > start;
                    }
                    _ if within && line.starts_with("Locked:") => {
                        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
                        bytes += kib << 10;
                    }
                    _ => {}
                }
            }
            bytes
        };
        assert_eq!(locked_here(), 6 * page, "five of the agent's, one of the program's");
        // It goes with the client that asked for it.
        drop(agent);
        while locked_here() != page {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_limit_is_told_with_what_is_left() {
        let error = LockError::Limit { pid: 7, address: 4096, bytes: 8192, left_bytes: 4096 }.to_string();
        assert!(error.contains("may lock 4096 more") && error.contains("ulimit -l"), "{error}");
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mapping = Mapping::anonymous(4 << 12).unwrap();
        let start = mapping.bytes().as_ptr().addr() as u64;
        let reply = Reply { errno: libc::ENOMEM as u64, count: 4096, cpu_ns: 0 };
        let server = std::thread::spawn(move || {
            let mut theirs = theirs;
            theirs.read_exact(&mut [0; super::super::protocol::REQUEST_BYTES]).unwrap();
            theirs.write_all(&reply.to_bytes()).unwrap();
        });
        let refused = Agent::of(ours).lock(start, 4 << 12).unwrap_err();
        server.join().unwrap();
        assert!(matches!(refused, LockError::Limit { left_bytes: 4096, bytes: 16384, .. }), "{refused}");
    }

    #[test]
    fn an_agent_that_has_gone_is_lost() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(matches!(Agent::of(ours).join(0, 4096), Err(AgentError::Lost(_))));
    }

    #[test]
    fn agents_find_the_listener_by_its_name() {
        let listener = Listener::open().unwrap();
        assert!(listener.accept().is_empty());
        let address = SocketAddr::from_abstract_name(listener.name().as_bytes()).unwrap();
        let stream = UnixStream::connect_addr(&address).unwrap();
        std::thread::spawn(move || super::super::serve(stream));
        let mut agents = listener.accept();
        assert_eq!(agents.len(), 1);
        assert_eq!(agents[0].pid(), std::process::id());
        assert!(agents[0].advise(0, 4096, Advice::SmallPages).is_err());
    }
}
