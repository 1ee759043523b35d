//! What a mapped file has lost while it was mapped: finding it, and mapping the file there again.
//!
//! A file that is shortened takes its pages out of every mapping at once, the last page among them. So [`Mapping::has_lost`] reads one
//! byte of the last page, always the same one: that tells of a shortened file whichever bytes were read before. A bad page of the
//! medium shows when it is read itself ([`Mapping::touch`]). What neither shows, [`Mapping::look`] finds by the file's length and space, and by
//! what the system tells of its changes: a file that was cut within its last page, and one that was shortened and made longer again, whose
//! pages are there and hold zeros. Its space alone may not show that: a write to one of its pages may bring the space of its neighbours.

use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

use super::bus_error::PAGE_BYTES;
use super::changes::Changes;
use super::{MapError, Mapping, map_file};
use crate::disk;

impl Mapping {
    /// Whether bytes of the file were lost since [`Self::take_lost`] was last called: then what was read before this call may be zeros that
    /// never were in the file.
    #[inline]
    pub fn has_lost(&self) -> bool {
        let Some(watch) = &self.watch else { return false };
        // What was read before is read before this.
        compiler_fence(Ordering::SeqCst);
        if let Some(last) = self.file_bytes.checked_sub(1) {
            self.touch_byte(last);
        }
        compiler_fence(Ordering::SeqCst);
        watch.is_lost()
    }

    /// Reads a byte of each page of a range, so that [`Self::has_lost`] knows of those that cannot be read.
    ///
    /// # Panics
    /// When the range does not lie within the mapping.
    #[inline]
    pub fn touch(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a range of the mapping");
        let pages = offset / PAGE_BYTES..(offset + len).div_ceil(PAGE_BYTES);
        pages.for_each(|page| self.touch_byte((page * PAGE_BYTES).max(offset)));
    }

    #[inline]
    fn touch_byte(&self, offset: usize) {
        debug_assert!(offset < self.len, "a byte of the mapping");
        // SAFETY: the byte lies within the mapping, which is readable; where its page is gone, zeros take its place.
        unsafe { self.start.as_ptr().add(offset).read_volatile() };
    }

    /// Asks the system for the file's length, space and changes: [`Self::has_lost`] knows what they tell. Now and then is enough, for what no
    /// access shows.
    pub fn look(&mut self) {
        let (Some(watch), Some(Ok(about))) = (&self.watch, self.file.as_ref().map(|file| file.metadata()))
        else {
            return;
        };
        if !about.is_file() {
            return;
        }
        let bytes = about.len().min(self.file_bytes as u64);
        // A file that has all of its space never has less of it, unless it was shortened or a hole was made in it.
        let has_all = disk::held_bytes(&about) >= bytes;
        // Of a file that is shorter still, only the end is known to be lost.
        let was_changed = self.changes.as_ref().is_some_and(Changes::take);
        let was_longer_again = was_changed && about.len() >= self.len as u64;
        if self.had_all_space && !has_all || was_longer_again {
            watch.note_tail(0);
        } else if bytes < self.file_bytes as u64 {
            watch.note_tail(bytes as usize / PAGE_BYTES * PAGE_BYTES);
        }
        self.had_all_space = has_all;
    }

    /// What was lost since the last call, in order. It reads as zeros, or as what is written there from now on; it is not the file's until
    /// [`Self::put_back`].
    pub fn take_lost(&mut self) -> Vec<Range<usize>> {
        let lost = self.watch.as_ref().map(|watch| watch.take_lost()).unwrap_or_default();
        if let Some(last) = lost.last().filter(|last| last.end == self.len) {
            self.file_bytes = self.file_bytes.min(last.start);
        }
        lost
    }

    /// What was changed until now was changed by this process, and nothing is lost by it.
    pub fn forget_changes(&self) {
        self.changes.as_ref().map(Changes::take);
    }

    /// Maps the file there again: the caller has made sure that it has these bytes. They are as the file has them.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When the range is not one of whole pages of the mapping.
    pub fn put_back(&mut self, lost: &Range<usize>) -> Result<(), MapError> {
        let is_whole = |at: usize| at.is_multiple_of(PAGE_BYTES) || at == self.len;
        assert!(
            lost.end <= self.len && is_whole(lost.start) && is_whole(lost.end),
            "whole pages of the mapping"
        );
        let Some(file) = &self.file else { return Ok(()) };
        // SAFETY: the range lies within the mapping.
        let start = unsafe { self.start.as_ptr().add(lost.start) };
        // With the flags that this file is known to take: the kernel takes the old pages away before it refuses others, and what another
        // thread maps there meanwhile would be mapped over by a second try.
        let place = (file, lost.start as u64);
        // SAFETY: the pages are this mapping's own, and `&mut self` excludes references into it.
        unsafe { map_file(Some(start), lost.len(), place, self.flags) }
            .map_err(|source| MapError { bytes: lost.len(), source })?;
        if lost.end == self.len {
            self.file_bytes = self.len;
        }
        // Its space is compared with this from now on.
        self.forget_changes();
        self.look();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::mm::MapFlags;

    use super::*;
    use crate::forked::{fork_and, status_of};

    const PAGES: usize = 8;
    const LEN: usize = PAGES * PAGE_BYTES;

    /// A file whose pages hold their numbers from 1 on, mapped; and another handle of it.
    fn mapped(name: &str) -> (Mapping, File) {
        let path = std::env::temp_dir().join(format!("tiermem-lost-{name}-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let other = File::options().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        disk::reserve(&file, LEN as u64).unwrap();
        let mut mapping = Mapping::file(file, LEN).unwrap();
        mapping.bytes_mut().chunks_mut(PAGE_BYTES).zip(1..).for_each(|(page, number)| page.fill(number));
        assert!(!mapping.has_lost() && mapping.take_lost().is_empty());
        (mapping, other)
    }

    fn taken(mapping: &mut Mapping) -> Vec<(usize, usize)> {
        mapping.take_lost().into_iter().map(|lost| (lost.start, lost.end)).collect()
    }

    fn first_bytes(mapping: &Mapping) -> Vec<u8> {
        mapping.bytes().chunks(PAGE_BYTES).map(|page| page[0]).collect()
    }

    fn died_of(status: libc::c_int, signal: libc::c_int) -> bool {
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == signal
    }

    #[test]
    fn an_access_behind_the_end_of_a_shortened_file_returns_and_is_known() {
        let (mut mapping, file) = mapped("shortened");
        let status = status_of(fork_and(|| {
            file.set_len(3 * PAGE_BYTES as u64).is_ok()
                && mapping.bytes()[5 * PAGE_BYTES] == 0
                && mapping.has_lost()
                && mapping.bytes()[2 * PAGE_BYTES] == 3
        }));
        assert_eq!(status, 0, "the child lives, and finds what is left");
        // Here nothing was read of what is gone.
        assert!(mapping.has_lost());
        assert_eq!(taken(&mut mapping), [(3 * PAGE_BYTES, LEN)]);
        assert!(!mapping.has_lost() && mapping.take_lost().is_empty(), "it is told once");
        assert_eq!(first_bytes(&mapping), [1, 2, 3, 0, 0, 0, 0, 0]);
        mapping.bytes_mut()[6 * PAGE_BYTES] = 9;
        assert!(!mapping.has_lost(), "it is memory");
        // Shorter still, while the rest is not back.
        file.set_len(PAGE_BYTES as u64).unwrap();
        assert!(mapping.has_lost());
        assert_eq!(taken(&mut mapping), [(PAGE_BYTES, LEN)]);
        disk::reserve(&file, LEN as u64).unwrap();
        mapping.put_back(&(PAGE_BYTES..LEN)).unwrap();
        assert_eq!(first_bytes(&mapping), [1, 0, 0, 0, 0, 0, 0, 0]);
        mapping.bytes_mut()[7 * PAGE_BYTES] = 5;
        let mut byte = [0];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, 7 * PAGE_BYTES as u64).unwrap();
        assert_eq!(byte, [5], "the file has it again");
        assert!(!mapping.has_lost());
        file.set_len(PAGE_BYTES as u64).unwrap();
        file.set_len(LEN as u64).unwrap();
        mapping.look();
        assert_eq!(taken(&mut mapping), [(0, LEN)], "its space is known again");
        // Not to all of its length this time.
        disk::reserve(&file, LEN as u64).unwrap();
        mapping.put_back(&(0..LEN)).unwrap();
        file.set_len(PAGE_BYTES as u64).unwrap();
        file.set_len(5 * PAGE_BYTES as u64).unwrap();
        mapping.look();
        assert_eq!(taken(&mut mapping), [(0, LEN)]);
        disk::reserve(&file, LEN as u64).unwrap();
        mapping.put_back(&(0..LEN)).unwrap();
        // In the middle of a page: the kernel has put zeros there.
        file.set_len(2 * PAGE_BYTES as u64 + 10).unwrap();
        assert!(mapping.has_lost() && mapping.bytes()[2 * PAGE_BYTES + 10] == 0);
        assert_eq!(taken(&mut mapping), [(2 * PAGE_BYTES, LEN)]);
    }

    #[test]
    fn a_bad_page_is_lost_alone_and_too_many_are_the_whole_range() {
        let (mut mapping, _file) = mapped("pages");
        let start = mapping.bytes().as_ptr().addr();
        let fail = |mapping: &Mapping, page: usize| {
            // As the handler does, for an access that the device cannot serve though the file has the page.
            let watch = mapping.watch.as_ref().unwrap();
            assert!(watch.replace(start + page * PAGE_BYTES + 77));
        };
        [4, 1, 4].into_iter().for_each(|page| fail(&mapping, page));
        assert!(mapping.has_lost());
        let page = |number: usize| (number * PAGE_BYTES, (number + 1) * PAGE_BYTES);
        assert_eq!(taken(&mut mapping), [page(1), page(4)]);
        assert_eq!(first_bytes(&mapping), [1, 0, 3, 4, 0, 6, 7, 8]);
        mapping.put_back(&(PAGE_BYTES..2 * PAGE_BYTES)).unwrap();
        assert_eq!(first_bytes(&mapping), [1, 2, 3, 4, 0, 6, 7, 8]);
        (0..70).for_each(|_| fail(&mapping, 2));
        assert_eq!(taken(&mut mapping), [(0, LEN)]);
        let watch = mapping.watch.as_ref().unwrap();
        assert!(!watch.replace(start + LEN) && !watch.replace(start - 1));
    }

    #[test]
    fn what_no_access_shows_the_length_and_the_space_do() {
        let (mut mapping, file) = mapped("unseen");
        file.set_len(LEN as u64 - 10).unwrap();
        assert!(!mapping.has_lost());
        mapping.look();
        assert!(mapping.has_lost());
        assert_eq!(taken(&mut mapping), [((PAGES - 1) * PAGE_BYTES, LEN)]);
        disk::reserve(&file, LEN as u64).unwrap();
        mapping.put_back(&((PAGES - 1) * PAGE_BYTES..LEN)).unwrap();
        mapping.look();
        assert!(!mapping.has_lost());
        // Shortened and made longer again before anybody has looked.
        file.set_len(PAGE_BYTES as u64).unwrap();
        file.set_len(LEN as u64).unwrap();
        assert!(!mapping.has_lost());
        mapping.look();
        assert_eq!(taken(&mut mapping), [(0, LEN)]);
        disk::reserve(&file, LEN as u64).unwrap();
        mapping.put_back(&(0..LEN)).unwrap();
        // The same, and what is written meanwhile brings all of its space back.
        file.set_len(PAGE_BYTES as u64).unwrap();
        file.set_len(LEN as u64).unwrap();
        mapping.bytes_mut().fill(1);
        mapping.look();
        assert_eq!(taken(&mut mapping), [(0, LEN)]);
        mapping.bytes_mut().fill(2);
        mapping.look();
        assert!(!mapping.has_lost(), "what is written here is no change by others");
    }

    #[test]
    fn any_other_bus_error_ends_the_process_as_before() {
        let (mapping, file) = mapped("others");
        file.set_len(0).unwrap();
        // SAFETY: a new mapping at an address that the kernel chooses, of a file without that page.
        let unwatched = unsafe { map_file(None, PAGE_BYTES, (&file, 0), MapFlags::SHARED) }.unwrap();
        // SAFETY: the page is mapped; the read ends the child.
        let read = || unsafe { unwatched.as_ptr().read_volatile() == 0 };
        assert!(died_of(status_of(fork_and(read)), libc::SIGBUS));
        assert_eq!(status_of(fork_and(|| mapping.bytes()[0] == 0)), 0, "what is watched is another thing");
        // The standard library's action makes way for the default one, and the second signal meets that.
        let sent = || {
            // SAFETY: sends the child itself a signal.
            (0..3).all(|_| unsafe { libc::raise(libc::SIGBUS) } == 0)
        };
        assert!(died_of(status_of(fork_and(sent)), libc::SIGBUS));
        drop(mapping);
        let (other, _file) = mapped("again");
        assert!(!other.has_lost(), "a watch that has ended tells the next one nothing");
    }
}
