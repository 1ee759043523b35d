//! Server under measurement: started on a free port and one core, observed through `/proc`, ended when dropped.

use std::ffi::OsStr;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::Common;

/// Tries until a server must accept connections.
const START_TRIES: u32 = 200;
const START_PAUSE: Duration = Duration::from_millis(50);
/// Clock ticks per second in `/proc`: a constant of Linux's interface to programs.
const TICKS_PER_S: f64 = 100.0;

/// Kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis,
    Tiermem,
}

impl Kind {
    /// Both, in the order of the columns.
    pub const BOTH: [Kind; 2] = [Kind::Redis, Kind::Tiermem];
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: u16,
    command: String,
}

/// Processor time of a process since its start, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuTime {
    pub user_s: f64,
    pub system_s: f64,
}

impl CpuTime {
    /// Both parts together.
    pub fn total_s(self) -> f64 {
        self.user_s + self.system_s
    }

    /// The time since `before`.
    pub fn since(self, before: CpuTime) -> CpuTime {
        CpuTime { user_s: self.user_s - before.user_s, system_s: self.system_s - before.system_s }
    }
}

impl Server {
    /// Starts a server and waits until it accepts connections.
    pub fn start(kind: Kind, common: &Common) -> Result<Self> {
        match kind {
            Kind::Redis => {
                let port = free_port()?;
                let arguments = ["--save", "", "--appendonly", "no", "--port", &port.to_string()];
                Server::start_program(port, common.server_core, &common.redis, arguments)
            }
            Kind::Tiermem => Server::start_tiermem(common, &["--tier", &format!("dram={}", common.dram)]),
        }
    }

    /// Starts a tiermem with the tiers of `flags`, and waits until it accepts connections.
    pub fn start_tiermem(common: &Common, flags: &[&str]) -> Result<Self> {
        let port = free_port()?;
        let (listen, http) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", free_port()?));
        let arguments = ["store", "serve", "--listen", &listen, "--http", &http];
        let arguments = arguments.iter().chain(flags);
        Server::start_program(port, common.server_core, &common.tiermem(), arguments)
    }

    /// Starts any server that listens on `port`, and waits until it accepts connections.
    pub fn start_program(
        port: u16,
        core: usize,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self> {
        Server::start_when(port, core, program, arguments, || TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    /// Starts any server that listens on the socket at `path`, and waits until it accepts connections.
    pub fn start_at(
        path: &Path,
        core: usize,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self> {
        Server::start_when(0, core, program, arguments, || UnixStream::connect(path).is_ok())
    }

    fn start_when(
        port: u16,
        core: usize,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        accepts: impl Fn() -> bool,
    ) -> Result<Self> {
        let mut command = pinned(core, program);
        command.args(arguments).env("RUST_LOG", "warn").stdin(Stdio::null()).stdout(Stdio::null());
        let shown = shown(&command);
        let child = command.spawn().with_context(|| format!("start {shown}"))?;
        // Owned from here on, so that it ends in any case.
        let mut server = Server { child, port, command: shown };
        for _ in 0..START_TRIES {
            if accepts() {
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                bail!("{} ended with {status} before it served", server.command);
            }
            sleep(START_PAUSE);
        }
        bail!("{} does not accept connections", server.command)
    }

    /// The port it listens on; 0 where it listens on a socket in the file system.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// The command that started it.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// The processor time it has used.
    pub fn cpu_time(&self) -> Result<CpuTime> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        parse_stat(&text).with_context(|| format!("{path} is not understood"))
    }

    /// Bytes resident in memory.
    pub fn resident_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let kib = text.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        Ok(kib.with_context(|| format!("{path} has no VmRSS"))? * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that runs `program` on one core; the process number stays that of `program`.
pub fn pinned(core: usize, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(program);
    command
}

/// A command as one would type it, the program without its folder.
pub fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    for word in command.get_args() {
        let word =
            Path::new(word).is_absolute().then(|| Path::new(word).file_name()).flatten().unwrap_or(word);
        let word = word.to_string_lossy();
        words.push(if word.is_empty() { "''".to_owned() } else { word.into_owned() });
    }
    words.join(" ")
}

/// A free port.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("find a free port")?;
    Ok(listener.local_addr()?.port())
}

/// Fields 14 and 15, counted behind the name in brackets, which may hold blanks.
fn parse_stat(text: &str) -> Option<CpuTime> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_S);
    Some(CpuTime { user_s: seconds()?, system_s: seconds()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let text = "42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 125 0 0 20 0 1 0";
        let time = parse_stat(text).unwrap();
        assert_eq!(time, CpuTime { user_s: 2.5, system_s: 1.25 });
        assert_eq!(time.since(CpuTime { user_s: 0.5, system_s: 0.25 }).total_s(), 3.0);
        assert!(parse_stat("42 (x) S 1").is_none());
    }

    #[test]
    fn commands_are_shown_as_one_types_them() {
        let mut command = pinned(1, Path::new("/opt/redis/redis-server"));
        command.args(["--save", "", "--port", "7"]);
        assert_eq!(shown(&command), "taskset -c 1 redis-server --save '' --port 7");
    }
}
