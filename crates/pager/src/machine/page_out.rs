//! Help for a group that does not shrink: its pages are used faster than the kernel finds some that are not, and advice asks nobody.

use tiermem_place::capture::mappings::maps;
use tiermem_sys::control_group::{Group, all_processes};
use tiermem_sys::mapping::Pages;
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::process_advice::ProcessAdvice;

/// Advised at a time. Twice, as a page is written first, and stays if it is used meanwhile; clean, it leaves at once.
const PART_BYTES: u64 = 4 << 20;
const TIMES: usize = 2;

/// Goes over the private memory of a group's processes, again and again.
#[derive(Debug, Default)]
pub struct PageOut {
    /// What was advised last: a process and the end of the part.
    last: (u32, u64),
}

impl PageOut {
    /// Pages so many bytes out, from where it ended the last time. Without the rights that takes (CAP_SYS_NICE), it does nothing.
    pub fn go_on(&mut self, group: &Group, mut bytes: u64) {
        let mut processes = all_processes(group).unwrap_or_default();
        // Those behind the last one come first.
        let first = processes.partition_point(|pid| *pid < self.last.0);
        processes.rotate_left(first);
        for pid in processes {
            let Ok(process) = PidFd::open(pid) else { continue };
            let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            let lines = maps::parse(&text).unwrap_or_default();
            let from = if pid == self.last.0 { self.last.1 } else { 0 };
            for line in lines.iter().filter(|line| line.is_private_memory() && line.end > from) {
                let mut start = line.start.max(from);
                while start < line.end {
                    let end = line.end.min(start + PART_BYTES);
                    let Ok(part) = Pages::of_other_process(start, end - start) else { break };
                    for _ in 0..TIMES {
                        if process.advise(&[part], ProcessAdvice::PageOut, |_, _| {}).is_err() {
                            return;
                        }
                    }
                    (self.last, start) = ((pid, end), end);
                    bytes = bytes.saturating_sub(part.bytes());
                    if bytes == 0 {
                        return;
                    }
                }
            }
        }
        self.last = (0, 0);
    }
}
