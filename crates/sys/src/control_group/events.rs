//! Event counters of a group: what has happened to it.

use super::error::GroupError;
use super::files;
use super::group::Group;
use super::version::Version;

const ATTEMPTED: &str = "read the events of";

/// How often things have happened to a group since it was made; none where the version or the kernel does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// It was over its high mark and slowed down.
    pub high: Option<u64>,
    /// It came to its limit.
    pub limit: u64,
    /// It found nothing to reclaim there.
    pub out_of_memory: Option<u64>,
    /// A process was killed for that.
    pub killed: Option<u64>,
    /// Processes wait for memory at this moment (version 1).
    pub waits_now: Option<bool>,
}

impl Group {
    /// Reads the event counters; version 2 includes those of groups below.
    ///
    /// # Errors
    /// The system's error.
    pub fn events(&self) -> Result<Events, GroupError> {
        let table = |name| {
            let file = self.file(name);
            files::table(&file, &files::read(ATTEMPTED, &file)?)
        };
        match self.version() {
            Version::One => {
                // Where swap is limited to nothing, it is the limit of both together that is met first. (Linux 6.18 does not count
                // that one.)
                let limit = self.failures("memory.failcnt")? + self.failures("memory.memsw.failcnt")?;
                let control = table("memory.oom_control")?;
                Ok(Events {
                    limit,
                    killed: control.get("oom_kill").copied(),
                    waits_now: control.get("under_oom").map(|waits| *waits == 1),
                    ..Events::default()
                })
            }
            Version::Two => {
                let events = table("memory.events")?;
                let get = |name| events.get(name).copied();
                Ok(Events {
                    high: get("high"),
                    limit: get("max").unwrap_or(0),
                    out_of_memory: get("oom"),
                    killed: get("oom_kill"),
                    waits_now: None,
                })
            }
        }
    }

    /// How often a limit was met, by the file of its counter; 0 where there is no such limit.
    fn failures(&self, name: &str) -> Result<u64, GroupError> {
        let file = self.file(name);
        if !file.exists() {
            return Ok(0);
        }
        let text = files::read(ATTEMPTED, &file)?;
        text.parse().map_err(|_| GroupError::form(&file, &text, "a number"))
    }
}
