//! The side of the one who takes care of a program.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tiermem_base::Bytes;
use tiermem_sys::control_group::{Group, Limit};

use super::answer::{Answer, Status};
use super::request::{Change, Request};
use crate::machine;
use crate::steer;

/// A request has at most so many bytes.
const LINE_BYTES: usize = 4096;
/// Clients that are served at a time; one more is sent away.
const CLIENTS_MAX: usize = 16;
/// A client has so long to send its request, and to take its answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);
/// How long a change waits for the one who carries it out, who looks many times a second.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The memory of a pool, as far as it bounds a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolMemory {
    /// On the local node, which stays as it is.
    pub local_bytes: u64,
    /// That the other node has.
    pub node_bytes: u64,
}

/// The socket of a run or an attachment. It is removed with this value; changes that are under way are stopped.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    listener: UnixListener,
    shared: Arc<Shared>,
    changes: Receiver<Asked>,
    /// Of changes that were taken and are not published yet.
    taken: Vec<Sender<()>>,
}

/// A change, and who waits until it is done.
type Asked = (Change, Sender<()>);

#[derive(Debug)]
struct Shared {
    /// The group whose limit is changed; `None`: steering alone holds the size.
    group: Option<Group>,
    pool: Option<PoolMemory>,
    status: Mutex<Status>,
    changes: Mutex<Sender<Asked>>,
    /// One change at a time.
    changing: Mutex<()>,
    is_over: AtomicBool,
    clients: AtomicUsize,
}

impl Control {
    /// Listens at a path, where nothing is or a socket that is left over. `pool`: memory of two nodes, if the
    /// program has that.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn listen(path: &Path, group: Option<Group>, pool: Option<PoolMemory>) -> io::Result<Self> {
        // Of one who was killed; names do not come back while somebody has them.
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let (sender, changes) = mpsc::channel();
        let shared = Shared {
            group,
            pool,
            status: Mutex::default(),
            changes: Mutex::new(sender),
            changing: Mutex::new(()),
            is_over: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
        };
        let (path, shared) = (path.to_owned(), Arc::new(shared));
        Ok(Control { path, listener, shared, changes, taken: Vec::new() })
    }

    /// Says how it is now. Changes that were taken before are done with that.
    pub fn publish(&mut self, status: Status) {
        *locked(&self.shared.status) = status;
        for done in self.taken.drain(..) {
            // Who has asked may have gone.
            let _ = done.send(());
        }
    }

    /// Lets clients in, and takes the changes that they ask for.
    pub fn changes(&mut self) -> Vec<Change> {
        while let Ok((client, _)) = self.listener.accept() {
            serve(client, &self.shared);
        }
        let asked: Vec<Asked> = self.changes.try_iter().collect();
        let (changes, done): (Vec<Change>, Vec<Sender<()>>) = asked.into_iter().unzip();
        self.taken.extend(done);
        changes
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        let _ = fs::remove_file(&self.path);
        // Nobody waits any more, and no limit is changed from here on.
        self.taken.clear();
        while self.changes.try_recv().is_ok() {}
        drop(locked(&self.shared.changing));
    }
}

/// Has a thread serve a client, which may be as slow as it likes.
fn serve(client: UnixStream, shared: &Arc<Shared>) {
    let is_served = shared.clients.fetch_add(1, Relaxed) < CLIENTS_MAX;
    let of_thread = shared.clone();
    let work = move || {
        let text = match answer(&client, &of_thread) {
            Ok(answer) => serde_json::to_string(&answer).unwrap_or_default(),
            // It sent nothing in time, or has gone.
            Err(_) => String::new(),
        };
        let _ = client.set_write_timeout(Some(CLIENT_PATIENCE));
        let _ = (&client).write_all(format!("{text}\n").as_bytes());
        of_thread.clients.fetch_sub(1, Relaxed);
    };
    if !is_served || thread::Builder::new().name("control".to_owned()).spawn(work).is_err() {
        // Its connection ends without an answer.
        shared.clients.fetch_sub(1, Relaxed);
    }
}

fn answer(client: &UnixStream, shared: &Shared) -> io::Result<Answer> {
    let line = match read_line(client)? {
        Some(line) => line,
        None => return Ok(Answer::Error(format!("a request has at most {LINE_BYTES} bytes"))),
    };
    Ok(match String::from_utf8_lossy(&line).parse() {
        Ok(Request::Status) => Answer::Status(locked(&shared.status).clone()),
        Ok(Request::Set(change)) => match set(change, shared) {
            Ok(()) => Answer::Status(locked(&shared.status).clone()),
            Err(error) => Answer::Error(error),
        },
        Err(error) => Answer::Error(error.to_string()),
    })
}

/// The line without its end; `None` if it is too long.
fn read_line(mut client: &UnixStream) -> io::Result<Option<Vec<u8>>> {
    client.set_nonblocking(false)?;
    let until = Instant::now() + CLIENT_PATIENCE;
    let (mut line, mut part) = (Vec::new(), [0; 512]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // No time at all would mean for ever.
        client.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let count = client.read(&mut part)?;
        let end = part[..count].iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&part[..end.unwrap_or(count)]);
        if line.len() > LINE_BYTES {
            return Ok(None);
        }
        if end.is_some() || count == 0 {
            return Ok(Some(line));
        }
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

fn set(change: Change, shared: &Shared) -> Result<(), String> {
    let Ok(_one) = shared.changing.try_lock() else {
        return Err("another change is under way; try again when it is done".to_owned());
    };
    if shared.is_over.load(Relaxed) {
        return Err(OVER.to_owned());
    }
    if shared.group.is_none() && change.evict == Some(None) {
        return Err("evict=kernel takes a group that is limited, and a process is attached to; name a policy, such as evict=clock, or \
                    attach to its group: --cgroup PATH"
            .to_owned());
    }
    if shared.pool.is_some() && change.evict == Some(None) {
        return Err("evict=kernel takes a program without a pool: the kernel does not know which node a page belongs to; name a policy, such \
                    as evict=lfu-da"
            .to_owned());
    }
    if change.asks_for_steering() {
        steer::can_steer()
            .map_err(|error| format!("{error}; steering takes CAP_PERFMON and CAP_SYS_NICE"))?;
    }
    if let Some(dram_bytes) = change.dram_bytes {
        machine::check_dram(dram_bytes).map_err(|error| error.to_string())?;
        if let Some(PoolMemory { local_bytes, node_bytes }) = shared.pool {
            let (least, most) = (local_bytes + machine::POOL_PART_BYTES_MIN, local_bytes + node_bytes);
            if !(least..=most).contains(&dram_bytes) {
                let (least, most) = (Bytes(least), Bytes(most));
                return Err(format!(
                    "the program has a pool, whose local memory stays as it is; with that of the other node it is from {least} to {most}"
                ));
            }
        }
    }
    set_limits(change, shared)?;
    let (sender, done) = mpsc::channel();
    locked(&shared.changes).send((change, sender)).map_err(|_| OVER.to_owned())?;
    let until = Instant::now() + TAKEN_WITHIN;
    while !shared.is_over.load(Relaxed) && Instant::now() < until {
        match done.recv_timeout(LOOK_EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            other => return other.map_err(|_| OVER.to_owned()),
        }
    }
    Err(OVER.to_owned())
}

/// Sets the limits of the group, as far as they are to be others.
fn set_limits(change: Change, shared: &Shared) -> Result<(), String> {
    let Some(group) = &shared.group else {
        return match change.flash_bytes {
            Some(_) => Err("flash= takes a group that is limited, and a process is attached to; attach to its group: --cgroup PATH"
                .to_owned()),
            None => Ok(()),
        };
    };
    if change.dram_bytes.is_none() && change.flash_bytes.is_none() {
        return Ok(());
    }
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let memory = group.memory_limit().map_err(|error| told(&error))?;
    let swap = group.swap_limit().map_err(|error| told(&error))?;
    if let Some(bytes) = change.flash_bytes {
        machine::check_flash(bytes, group).map_err(|error| told(&error))?;
    }
    let limits =
        (change.dram_bytes.map_or(memory, Limit::Bytes), change.flash_bytes.map_or(swap, Limit::Bytes));
    machine::change_limits(group, limits, &|| shared.is_over.load(Relaxed)).map_err(|error| told(&error))
}

const OVER: &str = "the program has ended";

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{AskError, ask};

    /// A socket whose owner looks until the value is dropped.
    fn with_owner(test: impl FnOnce(&Path)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1-1.sock");
        let mut control = Control::listen(&path, None, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let is_over = AtomicBool::new(false);
        let mut status = Status { dram_bytes: 7, ..Status::default() };
        // As a run does, before a client is let in.
        control.publish(status.clone());
        thread::scope(|scope| {
            // Also where the test fails, or the failure would never be told.
            let _over = Over(&is_over);
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    for change in control.changes() {
                        status.dram_bytes = change.dram_bytes.unwrap_or(status.dram_bytes);
                    }
                    control.publish(status.clone());
                    thread::sleep(Duration::from_millis(1));
                }
                drop(control);
            });
            test(&path);
        });
        assert!(!path.exists());
    }

    /// Ends the owner.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    fn refused(path: &Path, line: &str) -> String {
        match ask(path, line).unwrap_err() {
            AskError::Refused(said) => said,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn questions_are_answered_and_changes_are_carried_out() {
        with_owner(|path| {
            assert_eq!(ask(path, "status").unwrap().dram_bytes, 7);
            assert_eq!(ask(path, "set dram=32MiB").unwrap().dram_bytes, 32 << 20);
            assert_eq!(ask(path, "status").unwrap().dram_bytes, 32 << 20);
            assert!(refused(path, "set dram=1KiB").contains("16MiB"));
            assert!(refused(path, "set evict=kernel").contains("--cgroup"));
            assert!(refused(path, "go away").contains("send `status`"));
        });
    }

    #[test]
    fn clients_that_stall_flood_or_vanish_disturb_nobody() {
        with_owner(|path| {
            let stalled: Vec<_> = (0..CLIENTS_MAX / 2).map(|_| UnixStream::connect(path).unwrap()).collect();
            let mut flood = UnixStream::connect(path).unwrap();
            // It is told so, or cut off in the middle.
            let _ = flood.write_all(&vec![b'x'; 1 << 20]);
            drop(UnixStream::connect(path).unwrap());
            let mut half = UnixStream::connect(path).unwrap();
            half.write_all(b"set dram=64MiB\n").unwrap();
            drop(half);
            let mut broken = UnixStream::connect(path).unwrap();
            broken.write_all(b"\xff\xfe\0\n").unwrap();
            let begun = Instant::now();
            while ask(path, "status").map_or(0, |status| status.dram_bytes) != 64 << 20 {
                assert!(begun.elapsed() < Duration::from_secs(60));
            }
            drop(stalled);
        });
    }

    #[test]
    fn more_clients_than_there_is_room_for_are_sent_away_until_there_is() {
        with_owner(|path| {
            let stalled: Vec<_> = (0..2 * CLIENTS_MAX).map(|_| UnixStream::connect(path).unwrap()).collect();
            let begun = Instant::now();
            while ask(path, "status").is_ok() {
                assert!(begun.elapsed() < Duration::from_secs(60));
            }
            drop(stalled);
            while ask(path, "status").is_err() {
                assert!(begun.elapsed() < Duration::from_secs(60));
            }
        });
    }
}
