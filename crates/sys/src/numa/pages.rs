//! On which node pages of a process lie, and moving them to another: `move_pages(2)`.

use std::io;

/// Move pages that only this process has mapped; those that it shares with others stay.
const MPOL_MF_MOVE: libc::c_int = 2;
/// Pages that are handed to the kernel at once: so many it looks at under one lock of the address space.
const BATCH_PAGES: usize = 512;
/// The kernel takes addresses as its own pointers.
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

/// Where a page is, or why it is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAt {
    /// On this node.
    Node(u32),
    /// The error number: `ENOENT` if the page is not in memory, `EFAULT` if nothing is mapped there (or the zero page),
    /// `EACCES` if other processes share it, `EBUSY` if the kernel is at work on it, `ENOMEM` if the node is full.
    Failed(i32),
}

/// Tells for each page, given by an address in it, where it is, in the same order.
///
/// # Errors
/// Not found (`ESRCH`) if the process has gone; permission denied (`EPERM`) if it is somebody else's.
pub fn locate(pid: u32, pages: &[u64], at: &mut Vec<PageAt>) -> io::Result<()> {
    at.clear();
    for batch in pages.chunks(BATCH_PAGES) {
        call(pid, batch, None, at)?;
    }
    Ok(())
}

/// Moves pages to a node, and tells for each where it is then or why it was not moved, in the same order. A page that is part
/// of a huge one takes the whole with it, and `EBUSY` may be told of one that moves: [`locate`] knows.
///
/// # Errors
/// As [`locate`]; also no such device (`ENODEV`) if there is no such node, and permission denied if the process may not use
/// it. Pages of batches before the one that failed have been moved, and `at` tells of those.
pub fn move_to(pid: u32, pages: &[u64], node: u32, at: &mut Vec<PageAt>) -> io::Result<()> {
    at.clear();
    for batch in pages.chunks(BATCH_PAGES) {
        call(pid, batch, Some(node), at)?;
    }
    Ok(())
}

fn call(pid: u32, pages: &[u64], node: Option<u32>, at: &mut Vec<PageAt>) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let node = node.map(libc::c_int::try_from).transpose();
    let node = node.map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    let nodes = node.map(|node| [node; BATCH_PAGES]);
    // The kernel leaves out what it does not come to.
    let mut status = [-libc::EBUSY; BATCH_PAGES];
    // SAFETY: each array has at least as many places as there are pages and outlives the call, which reads the first two and
    // writes the third. The addresses are looked up in the other process, and none of its bytes change.
    let left = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len(),
            pages.as_ptr(),
            nodes.as_ref().map_or(std::ptr::null(), |nodes| nodes.as_ptr()),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    if left < 0 {
        return Err(io::Error::last_os_error());
    }
    at.extend(status[..pages.len()].iter().map(|&status| match u32::try_from(status) {
        Ok(node) => PageAt::Node(node),
        Err(_) => PageAt::Failed(status.saturating_neg()),
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    #[test]
    fn pages_lie_where_the_kernel_says_and_go_there_again() {
        let Some(node) = crate::numa::nodes().first().map(|node| node.number) else { return };
        let mut mapping = Mapping::anonymous(4 << 20).unwrap();
        let start = mapping.bytes().as_ptr().addr() as u64;
        // More than two batches; the last page is never touched, and below the first one nothing can be mapped.
        let pages: Vec<u64> = (0..1024).map(|page| start + page * 4096).chain([0]).collect();
        let last = 1023 * 4096;
        // Huge pages would touch the last one along with its neighbours.
        mapping.bytes_mut()[..1 << 20].fill(1);
        let mut at = Vec::new();
        locate(std::process::id(), &pages, &mut at).unwrap();
        assert_eq!((at.len(), at[0], at[1024]), (1025, PageAt::Node(node), PageAt::Failed(libc::EFAULT)));
        assert!(
            at[last / 4096] == PageAt::Failed(libc::ENOENT) || at[last / 4096] == PageAt::Node(node),
            "{at:?}"
        );
        move_to(std::process::id(), &pages, node, &mut at).unwrap();
        assert_eq!((at[0], at[255]), (PageAt::Node(node), PageAt::Node(node)));
        assert_eq!(mapping.bytes()[(1 << 20) - 1], 1);
    }

    #[test]
    fn what_cannot_be_moved_is_said() {
        let mut at = Vec::new();
        assert!(locate(u32::MAX, &[0], &mut at).is_err());
        assert!(move_to(std::process::id(), &[0], 1023, &mut at).is_err());
        assert!(move_to(std::process::id(), &[0], u32::MAX, &mut at).is_err());
        locate(std::process::id(), &[], &mut at).unwrap();
        assert!(at.is_empty());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(locate(child.id(), &[0], &mut at).is_err());
    }
}
