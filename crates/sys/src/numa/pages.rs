//! NUMA nodes of a process's pages, and moving pages between nodes.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use rustix::io::Errno;

/// Pages of one call: the kernel holds locks of the process while it works on them.
const BATCH_PAGES: usize = 4096;
/// Flag of `linux/mempolicy.h`: pages that only this process has.
const MPOL_MF_MOVE: libc::c_int = 2;
/// The status of a page that the kernel has told nothing about.
const UNKNOWN: i32 = i32::MIN;

/// The node of each of these pages of a process, as the kernel tells it: the node's number, or an error number below zero (-2,
/// ENOENT, for a page that is not in memory; -14, EFAULT, for one that is not mapped or has no page of its own).
///
/// # Errors
/// If there is no such process, it belongs to another user (root and CAP_SYS_NICE may look at any), the kernel has no nodes, or
/// the lengths differ. Results until then are in `nodes`.
pub fn nodes_of(pid: u32, addresses: &[u64], nodes: &mut [i32]) -> io::Result<()> {
    if addresses.len() != nodes.len() {
        return Err(Errno::INVAL.into());
    }
    for (addresses, nodes) in addresses.chunks(BATCH_PAGES).zip(nodes.chunks_mut(BATCH_PAGES)) {
        call(pid, addresses, None, nodes, 0)?;
    }
    Ok(())
}

/// Moves pages of a process to a node. `status` has then for each the node where it lies, or an error number below zero: those of
/// [`nodes_of`], -13 (EACCES) for pages that other processes have too, -16 (EBUSY) for pages that are in use in a way that keeps
/// them where they are. Returns how many lie on the node now.
///
/// # Errors
/// Those of [`nodes_of`], `EINVAL` also while the process ends, `ENOMEM` where the node is full, and if there is no such node or the process
/// may not use it. Results until then are in `status`; the
/// rest is [`i32::MIN`].
pub fn move_to(pid: u32, addresses: &[u64], node: u32, status: &mut [i32]) -> io::Result<usize> {
    let target = i32::try_from(node).map_err(|_| Errno::NODEV)?;
    if addresses.len() != status.len() {
        return Err(Errno::INVAL.into());
    }
    status.fill(UNKNOWN);
    let targets = vec![target; addresses.len().min(BATCH_PAGES)];
    let mut there = 0;
    for (addresses, status) in addresses.chunks(BATCH_PAGES).zip(status.chunks_mut(BATCH_PAGES)) {
        move_batch(pid, addresses, &targets, status)?;
        there += status.iter().filter(|&&status| status == target).count();
    }
    Ok(there)
}

/// Where some page could not be moved the kernel stops, and says neither which nor what became of those around it. So it is
/// asked again, as long as that moves any.
fn move_batch(pid: u32, addresses: &[u64], targets: &[i32], status: &mut [i32]) -> io::Result<()> {
    let target = targets.first().copied().unwrap_or_default();
    let mut left: Vec<usize> = (0..addresses.len()).collect();
    while !left.is_empty() {
        let asked: Vec<u64> = left.iter().map(|&at| addresses[at]).collect();
        let mut said = vec![UNKNOWN; asked.len()];
        let is_complete = call(pid, &asked, Some(&targets[..asked.len()]), &mut said, MPOL_MF_MOVE)?;
        if !is_complete {
            let mut now = vec![UNKNOWN; asked.len()];
            call(pid, &asked, None, &mut now, 0)?;
            for (said, now) in said.iter_mut().zip(now) {
                // On another node still, it may be its turn later.
                if *said == UNKNOWN && (now == target || now < 0) {
                    *said = now;
                }
            }
        }
        let before = left.len();
        left = left
            .into_iter()
            .zip(said)
            .filter_map(|(at, said)| {
                status[at] = said;
                (said == UNKNOWN).then_some(at)
            })
            .collect();
        if left.len() == before {
            left.iter().for_each(|&at| status[at] = -Errno::BUSY.raw_os_error());
            break;
        }
    }
    Ok(())
}

/// A single call. Returns whether the kernel has been through all pages.
fn call(
    pid: u32,
    addresses: &[u64],
    targets: Option<&[i32]>,
    status: &mut [i32],
    flags: libc::c_int,
) -> io::Result<bool> {
    let fits = addresses.len() == status.len() && targets.is_none_or(|targets| targets.len() == status.len());
    // To the kernel 0 means this process.
    let pid = libc::pid_t::try_from(pid).ok().filter(|&pid| pid > 0 && fits).ok_or(Errno::INVAL)?;
    let targets = targets.map_or(std::ptr::null(), <[i32]>::as_ptr);
    // SAFETY: each of the arrays has as many entries as the call is told (or there are no targets, which the call allows) and
    // outlives it. Addresses are those of the other process; moving its pages changes no contents.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            addresses.len(),
            addresses.as_ptr(),
            targets,
            status.as_mut_ptr(),
            flags,
        )
    };
    match result {
        0 => Ok(true),
        1.. => Ok(false),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes that a process has in memory, by node. A page that several mappings share counts for each.
///
/// # Errors
/// If there is no such process, it belongs to another user, or the kernel has no nodes.
pub fn held(pid: u32) -> io::Result<BTreeMap<u32, u64>> {
    Ok(held_in(&fs::read_to_string(format!("/proc/{pid}/numa_maps"))?))
}

/// Lines such as `7f00 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4`.
fn held_in(text: &str) -> BTreeMap<u32, u64> {
    let mut held = BTreeMap::new();
    for line in text.lines() {
        let fields = || line.split(' ').filter_map(|field| field.split_once('='));
        let size =
            fields().find(|(name, _)| *name == "kernelpagesize_kB").and_then(|(_, kib)| kib.parse().ok());
        let page_bytes: u64 = size.map_or(4096, |kib: u64| kib.saturating_mul(1024));
        for (name, pages) in fields() {
            let node = name.strip_prefix('N').and_then(|node| node.parse::<u32>().ok());
            if let (Some(node), Ok(pages)) = (node, pages.parse::<u64>()) {
                let bytes: &mut u64 = held.entry(node).or_default();
                *bytes = bytes.saturating_add(pages.saturating_mul(page_bytes));
            }
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use crate::numa::nodes;

    #[test]
    fn numbers_of_pages_are_read() {
        let text = "55d0 default file=/bin/N9=1 mapped=3 N0=2 N1=1 kernelpagesize_kB=4\n\
                    7f00 bind:1 anon=1 dirty=1 N1=2 kernelpagesize_kB=2048\n\
                    7f10 default\n";
        assert_eq!(held_in(text), BTreeMap::from([(0, 8192), (1, 4096 + (4 << 20))]));
        assert!(held_in("").is_empty());
    }

    #[test]
    fn pages_are_found_and_moved() {
        let Some(node) = nodes().first().map(|node| node.number) else { return };
        let own = std::process::id();
        let pages = 3 * BATCH_PAGES / 2;
        let mut mapping = Mapping::anonymous(pages * 4096).unwrap();
        mapping.bytes_mut()[..pages * 2048].fill(1);
        let start = mapping.bytes().as_ptr().addr() as u64;
        let addresses: Vec<u64> = (0..pages as u64).map(|page| start + page * 4096).collect();
        let mut found = vec![UNKNOWN; pages];
        nodes_of(own, &addresses, &mut found).unwrap();
        assert!(found[..pages / 2].iter().all(|&at| nodes().iter().any(|node| node.number as i32 == at)));
        // A huge page may reach beyond what was written.
        assert!(found[pages - 1] < 0, "{}", found[pages - 1]);

        let mut status = vec![0; pages];
        let there = move_to(own, &addresses, node, &mut status).unwrap();
        assert!(there >= pages / 2 && status[..pages / 2].iter().all(|&at| at == node as i32));
        assert!(status[pages - 1] < 0);
        nodes_of(own, &addresses, &mut found).unwrap();
        assert!(found[..pages / 2].iter().all(|&at| at == node as i32));
        assert_eq!(mapping.bytes()[pages * 2048 - 1], 1);
        if let Ok(held) = held(own) {
            assert!(held.values().sum::<u64>() >= pages as u64 * 2048, "{held:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let own = std::process::id();
        let mut one = [0];
        assert!(nodes_of(own, &[0, 4096], &mut one).is_err(), "lengths differ");
        assert!(move_to(own, &[], 0, &mut one).is_err(), "lengths differ");
        if nodes().is_empty() {
            return;
        }
        assert!(nodes_of(u32::MAX, &[0], &mut one).is_err() && nodes_of(0, &[0], &mut one).is_err());
        assert!(
            move_to(own, &[0], 1000, &mut one).is_err() && move_to(own, &[0], u32::MAX, &mut one).is_err()
        );
        assert_eq!(move_to(own, &[], 0, &mut []).unwrap(), 0);
        // Nothing is mapped there.
        nodes_of(own, &[4096], &mut one).unwrap();
        assert!(one[0] < 0);
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(nodes_of(child.id(), &[4096], &mut one).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(nodes_of(child.id(), &[4096], &mut one).is_err() && held(child.id()).is_err());
    }
}
