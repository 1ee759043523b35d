//! What a process is: its name, its program and its arguments.

use std::fs;
use std::path::Path;

use tiermem_trace::recording::Executable;

use super::super::build_id;

/// What a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::capture) struct Identity {
    /// As the system has it: the beginning of its program's name, if it gave itself no other.
    pub name: String,
    /// Its program and the arguments.
    pub command: Vec<String>,
    /// Its program's file.
    pub executable: Executable,
}

impl Identity {
    /// Of a process; what cannot be read is empty.
    pub fn of(pid: u32) -> Self {
        let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let words = read("cmdline");
        let command = words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        let mut command: Vec<String> = command.collect();
        // Each word ends with a zero.
        command.pop();
        let name = String::from_utf8_lossy(&read("comm")).trim_end().to_owned();
        let path = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let path = path.to_string_lossy().into_owned();
        let build_id = build_id::of_path(Some(&path));
        Identity { name, command, executable: Executable { path, build_id } }
    }
}

/// Whether a process is traced by one of this process's threads, as agents are from their birth on.
pub(super) fn is_agent(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).map_or("0", str::trim);
    tracer != "0" && Path::new("/proc/self/task").join(tracer).exists()
}
