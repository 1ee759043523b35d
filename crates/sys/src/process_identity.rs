//! Identity of a process: its number and the time of its start. A number alone may pass to another process.

use std::fs;

/// A process on this boot of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// When it was started: ticks of the kernel since the machine was.
    pub start_ticks: u64,
}

impl ProcessIdentity {
    /// This process.
    ///
    /// # Errors
    /// If `/proc` does not tell.
    pub fn own() -> std::io::Result<Self> {
        ProcessIdentity::of(std::process::id()).ok_or_else(|| std::io::ErrorKind::Unsupported.into())
    }

    /// The process that has this number now. `None`: there is none, or it has ended and nobody has taken that in yet.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        parse(&stat).map(|start_ticks| ProcessIdentity { pid, start_ticks })
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        ProcessIdentity::of(self.pid) == Some(self)
    }
}

/// The start from `PID (name) state parent ...`: field 22. The name may have any characters.
fn parse(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace();
    let state = fields.next()?;
    let has_ended = matches!(state, "Z" | "X" | "x");
    fields.nth(18)?.parse().ok().filter(|_| !has_ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_until_it_ends() {
        let own = ProcessIdentity::own().unwrap();
        assert!(own.is_alive() && own.start_ticks > 0);
        assert!(!ProcessIdentity { start_ticks: own.start_ticks + 1, ..own }.is_alive());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        assert!(identity.is_alive());
        child.kill().unwrap();
        // Its end need not have been taken in.
        while identity.is_alive() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!identity.is_alive());
    }

    #[test]
    fn names_may_have_brackets() {
        let fields = (0..30).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(parse(&format!("7 (a) b) S {fields}")), Some(18));
        assert_eq!(parse(&format!("7 (a) Z {fields}")), None);
        assert_eq!(parse("7 (a"), None);
    }
}
