//! Who made anonymous memory: the C library for a thread (its stack, its arena of small allocations), or a thread for itself.
//!
//! The kernel puts mappings side by side as they come, and makes one of neighbours that are alike. With several threads that goes
//! otherwise in each run. So regions end where the memory of another thread begins, and stacks and arenas have names of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use tiermem_sys::perf::NewMapping;

use super::maps::MapLine;
use super::naming::THREAD_STACK;

/// Size and alignment of the C library's arenas; what is not in use of one cannot be accessed.
const ARENA_BYTES: u64 = 64 << 20;
const ARENA: &str = "[anon:malloc arena]";
/// Smaller mappings are a part of the neighbours that they have: libraries make many.
const LARGE_BYTES: u64 = 4 << 20;
/// A thread's own data lies at the end of its stack.
const THREAD_DATA_BYTES: u64 = 4096;

/// What is known of it.
#[derive(Debug, Default)]
pub(in crate::capture) struct Origins {
    arenas: BTreeSet<u64>,
    /// What has their shape only.
    no_arenas: BTreeSet<u64>,
    /// Start and end.
    stacks: BTreeMap<u64, u64>,
    no_stacks: BTreeSet<(u64, u64)>,
    /// The thread that made the mapping that begins there.
    threads: BTreeMap<u64, u32>,
}

impl Origins {
    /// Takes in that a thread has made a mapping.
    pub fn mapped(&mut self, new: NewMapping) {
        if new.is_writable && new.bytes >= LARGE_BYTES && new.bytes < u64::MAX {
            self.threads.insert(new.address, new.thread);
        }
    }

    /// Forgets all, as the process has begun another program.
    pub fn begin_anew(&mut self) {
        *self = Origins::default();
    }

    /// Gives stacks of threads and arenas their names. All lines are in the order of addresses. Returns where the memory of a thread
    /// begins, and whose it is; before the first of them in a stretch of memory it is not known.
    pub fn tell(&mut self, pid: u32, lines: &mut [MapLine]) -> BTreeMap<u64, u32> {
        self.find_arenas(pid, lines);
        self.find_stacks(pid, lines);
        for line in lines.iter_mut().filter(|line| is_plain(line)) {
            let arena = self.arenas.range(..=line.start).next_back();
            if arena.is_some_and(|start| line.end <= start + ARENA_BYTES) {
                line.path = Some(ARENA.to_owned());
            }
            let stack = self.stacks.range(..=line.start).next_back();
            if stack.is_some_and(|(_, end)| line.end <= *end) {
                line.path = Some(format!("[{THREAD_STACK}]"));
            }
        }
        self.owners(lines)
    }

    /// An arena begins at a multiple of its size, and what is not in use of it cannot be accessed. So do heaps of other runtimes; an arena
    /// begins with a pointer into itself, or into the first part of the same arena.
    fn find_arenas(&mut self, pid: u32, lines: &[MapLine]) {
        let starts: BTreeSet<u64> =
            lines.iter().filter(|line| is_plain(line)).map(|line| line.start).collect();
        self.arenas.retain(|start| starts.contains(start));
        let mut new = Vec::new();
        let mut start = None;
        for (line, before) in lines.iter().zip(std::iter::once(None).chain(lines.iter().map(Some))) {
            let goes_on = before.is_some_and(|before| before.end == line.start);
            if is_plain(line) {
                if line.start.is_multiple_of(ARENA_BYTES) {
                    start = Some(line.start);
                } else if !goes_on {
                    start = None;
                }
                continue;
            }
            let is_rest = is_guard(line) && goes_on && line.end.is_multiple_of(ARENA_BYTES);
            new.extend(start.take().filter(|start| is_rest && line.end == start + ARENA_BYTES));
        }
        new.retain(|start| !self.arenas.contains(start) && !self.no_arenas.contains(start));
        if new.is_empty() {
            return;
        }
        // Where that cannot be read, the shape has to do.
        let memory = File::open(format!("/proc/{pid}/mem")).ok();
        for start in new {
            let points_to = memory.as_ref().and_then(|memory| word_at(memory, start));
            match points_to.is_none_or(|to| starts.contains(&(to - to % ARENA_BYTES))) {
                true => drop(self.arenas.insert(start)),
                false => drop(self.no_arenas.insert(start)),
            }
        }
    }

    /// A thread's stack begins behind memory that cannot be accessed, and ends with the thread's data, which begins with its own address.
    fn find_stacks(&mut self, pid: u32, lines: &[MapLine]) {
        let guarded: BTreeMap<u64, u64> = lines
            .windows(2)
            .filter(|pair| is_guard(&pair[0]) && is_plain(&pair[1]) && pair[0].end == pair[1].start)
            .map(|pair| (pair[1].start, pair[1].end))
            .collect();
        self.stacks.retain(|start, _| guarded.contains_key(start));
        let new =
            guarded.into_iter().filter(|it| !self.stacks.contains_key(&it.0) && !self.no_stacks.contains(it));
        let new: Vec<(u64, u64)> = new.collect();
        if new.is_empty() || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count) < 2 {
            return;
        }
        let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return };
        for (start, end) in new {
            match has_thread_data(&memory, end) {
                true => drop(self.stacks.insert(start, end)),
                false => drop(self.no_stacks.insert((start, end))),
            }
        }
    }

    fn owners(&mut self, lines: &[MapLine]) -> BTreeMap<u64, u32> {
        let mut owners = BTreeMap::new();
        if self.threads.is_empty() {
            return owners;
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for line in lines.iter().filter(|line| is_plain(line)) {
            match runs.last_mut().filter(|last| last.1 == line.start) {
                Some(last) => last.1 = line.end,
                None => runs.push((line.start, line.end)),
            }
        }
        self.threads.retain(|at, _| {
            let after = runs.partition_point(|run| run.1 <= *at);
            runs.get(after).is_some_and(|run| run.0 <= *at)
        });
        for (start, end) in runs {
            let (mut from, mut thread) = (start, None);
            for (&at, &other) in self.threads.range(start..end) {
                // What is small belongs to what it lies beside.
                let is_large = at == start || (at - from >= LARGE_BYTES && end - at >= LARGE_BYTES);
                if is_large && thread != Some(other) {
                    owners.insert(at, other);
                    from = at;
                }
                thread = Some(other);
            }
        }
        owners
    }
}

/// Anonymous memory without a name, which can be written.
fn is_plain(line: &MapLine) -> bool {
    line.path.is_none() && line.inode == 0 && line.permissions == "rw-p"
}

fn is_guard(line: &MapLine) -> bool {
    line.path.is_none() && line.permissions == "---p"
}

fn word_at(memory: &File, address: u64) -> Option<u64> {
    let mut word = [0; 8];
    memory.read_exact_at(&mut word, address).ok()?;
    Some(u64::from_le_bytes(word))
}

/// Whether a thread's data lies before this address: its first and its third word are its own address.
fn has_thread_data(memory: &File, end: u64) -> bool {
    let mut page = [0; THREAD_DATA_BYTES as usize];
    let from = end - THREAD_DATA_BYTES;
    if memory.read_exact_at(&mut page, from).is_err() {
        return false;
    }
    let (words, _) = page.as_chunks::<8>();
    let word = |at: usize| words.get(at).map(|word| u64::from_le_bytes(*word));
    (0..words.len()).any(|at| {
        let own = Some(from + 8 * at as u64);
        word(at) == own && word(at + 2) == own
    })
}

#[cfg(test)]
mod tests {
    use super::super::maps;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn plain(start: u64, end: u64) -> MapLine {
        MapLine { start: start * MIB, end: end * MIB, permissions: "rw-p".to_owned(), ..MapLine::default() }
    }

    fn made(thread: u32, address: u64, bytes: u64) -> NewMapping {
        NewMapping { thread, address: address * MIB, bytes: bytes * MIB, is_writable: true }
    }

    fn owners(told: &[NewMapping], lines: &mut [MapLine]) -> Vec<(u64, u32)> {
        let mut origins = Origins::default();
        told.iter().for_each(|new| origins.mapped(*new));
        origins.tell(std::process::id(), lines).into_iter().map(|(at, thread)| (at / MIB, thread)).collect()
    }

    #[test]
    fn memory_of_another_thread_begins_a_region_in_whatever_order_it_is_told() {
        // Three blocks of one thread and one of another, told as the kernel made them one.
        let told = [made(1, 96, 32), made(1, 64, 64), made(2, 56, 72), made(1, 40, 88)];
        let mut lines = [plain(40, 128)];
        let found = [(40, 1), (56, 2), (64, 1)];
        assert_eq!(owners(&told, &mut lines), found);
        let mut backward = told;
        backward.reverse();
        // The recorder's own divisions do not matter.
        assert_eq!(owners(&backward, &mut [plain(40, 60), plain(60, 128)]), found);
        // What one thread has made is one, and what is small belongs to its neighbour.
        assert_eq!(owners(&[made(1, 96, 32), made(1, 40, 88)], &mut lines), [(40, 1)]);
        assert_eq!(owners(&[made(1, 43, 85), made(2, 40, 88)], &mut lines), [(40, 2)]);
        // Nothing is told of memory that cannot be written, or that has gone.
        let reserve = NewMapping { is_writable: false, ..made(3, 64, 32) };
        assert_eq!(owners(&[reserve, made(4, 200, 64)], &mut lines), []);
    }

    #[test]
    fn an_arena_is_known_by_its_shape_and_as_long_as_it_is_there() {
        let mut origins = Origins::default();
        let text = "7ff940000000-7ff940021000 rw-p 0 00:00 0 \n7ff940021000-7ff944000000 ---p 0 00:00 0 \n\
                    7ff944000000-7ff944800000 rw-p 0 00:00 0 \n7ff944800000-7ff944801000 ---p 0 00:00 0 \n";
        let mut lines = maps::parse(text).unwrap();
        origins.tell(u32::MAX, &mut lines);
        let names: Vec<_> = lines.iter().map(|line| line.path.as_deref()).collect();
        assert_eq!(names, [Some(ARENA), None, None, None]);
        // Used up, it has no part that cannot be accessed.
        let mut full = maps::parse("7ff940000000-7ff944000000 rw-p 0 00:00 0 \n").unwrap();
        origins.tell(u32::MAX, &mut full);
        assert_eq!(full[0].path.as_deref(), Some(ARENA));
        let mut other = maps::parse("7ff948000000-7ff94c000000 rw-p 0 00:00 0 \n").unwrap();
        origins.tell(u32::MAX, &mut other);
        assert_eq!(other[0].path, None);
    }

    #[test]
    fn what_has_the_shape_of_an_arena_and_no_head_is_none() {
        // Of this process: a heap that is full of ones, and an arena's head.
        let bytes = 2 * ARENA_BYTES as usize;
        let mut heap = vec![1_u8; bytes];
        let at = (heap.as_ptr().addr() as u64).next_multiple_of(ARENA_BYTES);
        let text = format!(
            "{at:x}-{:x} rw-p 0 00:00 0 \n{:x}-{:x} ---p 0 00:00 0 \n",
            at + 0x21000,
            at + 0x21000,
            at + ARENA_BYTES
        );
        let offset = (at - heap.as_ptr().addr() as u64) as usize;
        for (head, name) in [(0x0101_0101_0101_0101, None), (at + 0x30, Some(ARENA))] {
            heap[offset..offset + 8].copy_from_slice(&u64::to_le_bytes(head));
            let mut lines = maps::parse(&text).unwrap();
            Origins::default().tell(std::process::id(), &mut lines);
            assert_eq!(lines[0].path.as_deref(), name);
        }
    }

    #[test]
    fn the_stack_of_a_thread_is_told_from_memory_between_guards() {
        let own = std::fs::read_to_string("/proc/self/maps");
        let mut before = maps::parse(&own.unwrap()).unwrap();
        Origins::default().tell(std::process::id(), &mut before);
        let on_stack = 0_u8;
        let address = std::ptr::from_ref(&on_stack).addr() as u64;
        let line = before.iter().find(|line| line.start <= address && address < line.end).unwrap();
        // Tests run in threads of their own.
        if cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
            assert_eq!(line.path.as_deref(), Some("[stack:thread]"));
        }
        // A page behind a guard whose end has no thread's data.
        let mut origins = Origins::default();
        let heap = vec![0_u8; 64 << 10];
        let start = (heap.as_ptr().addr() as u64).next_multiple_of(4096);
        let guard =
            MapLine { start: start - 4096, end: start, permissions: "---p".to_owned(), ..MapLine::default() };
        let mut lines = [
            guard,
            MapLine { start, end: start + 8192, permissions: "rw-p".to_owned(), ..MapLine::default() },
        ];
        origins.tell(std::process::id(), &mut lines);
        assert_eq!(lines[1].path, None);
    }
}
