//! Names of regions, and their kinds of memory.

use std::collections::{BTreeMap, BTreeSet};

use tiermem_trace::recording::{Region, RegionKind};

use super::maps::MapLine;

/// The kernel's name for a thread's stack, which it gave until Linux 4.5; from then on only [`super::origins`] gives it.
pub(in crate::capture) const THREAD_STACK: &str = "stack:thread";

/// What kind of memory a mapping is.
pub(in crate::capture) fn kind(line: &MapLine) -> RegionKind {
    match (line.file(), line.kernel_name()) {
        (Some(_), _) => RegionKind::File,
        (None, Some("heap")) => RegionKind::Heap,
        (None, Some(name)) if name == "stack" || name.starts_with("stack:") => RegionKind::Stack,
        (None, Some(name)) if given_name(name).is_some() => RegionKind::Anonymous,
        (None, None) if line.shared_name().is_some() => RegionKind::Anonymous,
        (None, None) if line.path.as_deref().is_none_or(|path| path == "//anon") => RegionKind::Anonymous,
        (None, _) => RegionKind::Special,
    }
}

/// The region of a mapping that was there in these slices, without its name and its build-id.
pub(in crate::capture) fn region(line: &MapLine, first_slice: u32, last_slice: u32) -> Region {
    Region {
        name: String::new(),
        process: 0,
        kind: kind(line),
        path: line.file().map(str::to_owned),
        build_id: None,
        file_offset: if line.file().is_some() { line.offset } else { 0 },
        permissions: line.permissions.clone(),
        start: line.start,
        bytes: line.end - line.start,
        first_slice,
        last_slice,
    }
}

/// A program's own name for some of its memory (`PR_SET_VMA_ANON_NAME`).
fn given_name(kernel_name: &str) -> Option<&str> {
    ["anon:", "anon_shmem:"].iter().find_map(|prefix| kernel_name.strip_prefix(prefix)).map(str::trim)
}

/// Gives regions unique names.
#[derive(Debug, Default)]
pub(in crate::capture) struct Names {
    /// Files with mapped code: programs and libraries, whose parts have names of their own.
    programs: BTreeSet<String>,
    /// Names in use, and the last number given to those with the same beginning.
    taken: BTreeMap<String, u32>,
    anonymous: u32,
    shared: u32,
}

impl Names {
    /// Takes in which files are programs; before any of these mappings gets its name.
    pub fn learn<'a>(&mut self, lines: impl Iterator<Item = &'a MapLine>) {
        let programs = lines.filter(|line| line.is_code()).filter_map(MapLine::file).map(str::to_owned);
        self.programs.extend(programs);
    }

    /// None yet, for regions among these.
    pub fn among<'a>(lines: impl Iterator<Item = &'a MapLine>) -> Self {
        let mut names = Names::default();
        names.learn(lines);
        names
    }

    /// A name for the region of a mapping. `before` is the mapping below it in memory.
    pub fn name(&mut self, line: &MapLine, before: Option<&MapLine>) -> String {
        let name = self.wanted(line, before.filter(|before| before.end == line.start));
        let mut number = self.taken.get(&name).copied().unwrap_or(0);
        loop {
            number += 1;
            let numbered = if number == 1 { name.clone() } else { format!("{name} #{number}") };
            if !self.taken.contains_key(&numbered) {
                self.taken.insert(name, number);
                self.taken.entry(numbered.clone()).or_insert(1);
                return numbered;
            }
        }
    }

    fn wanted(&mut self, line: &MapLine, before: Option<&MapLine>) -> String {
        let path = line.path.as_deref().unwrap_or_default();
        let kernel_name = line.kernel_name();
        match kind(line) {
            RegionKind::File => self.of_file(line),
            RegionKind::Heap => "heap".to_owned(),
            RegionKind::Stack if kernel_name == Some(THREAD_STACK) => "thread stack".to_owned(),
            RegionKind::Stack => "stack".to_owned(),
            RegionKind::Special => kernel_name.unwrap_or(path).to_owned(),
            RegionKind::Anonymous => match (kernel_name.and_then(given_name), before) {
                (Some(name), _) if !name.is_empty() => name.to_owned(),
                (None, _) if line.shared_name().is_some() => self.of_shared(line),
                // What a program's or a library's file does not hold of its data lies behind the data that it does.
                (_, Some(before)) if before.is_writable() && self.is_program(before) => {
                    format!("{} bss", base(before))
                }
                _ => {
                    self.anonymous += 1;
                    format!("anon {}", self.anonymous)
                }
            },
        }
    }

    /// Shared memory that is no file's: by its key, or numbered.
    fn of_shared(&mut self, line: &MapLine) -> String {
        match line
            .shared_name()
            .and_then(|name| name.strip_prefix('/'))
            .filter(|name| name.starts_with("SYSV"))
        {
            Some(segment) => segment.to_owned(),
            None => {
                self.shared += 1;
                format!("shared {}", self.shared)
            }
        }
    }

    fn is_program(&self, line: &MapLine) -> bool {
        line.file().is_some_and(|file| self.programs.contains(file))
    }

    /// `model.gguf`, or of a program or a library which part of it: `libc.so.6 text`.
    fn of_file(&self, line: &MapLine) -> String {
        match base(line) {
            base if !self.is_program(line) => base.to_owned(),
            base if line.is_code() => format!("{base} text"),
            base if line.is_writable() => format!("{base} data"),
            base => format!("{base} rodata"),
        }
    }
}

/// The last word of a path.
fn base(line: &MapLine) -> &str {
    let file = line.file().unwrap_or_default();
    file.rsplit('/').next().filter(|base| !base.is_empty()).unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::super::maps;
    use super::*;

    fn named(text: &str) -> Vec<(String, RegionKind)> {
        let lines = maps::parse(text).unwrap();
        let mut names = Names::among(lines.iter());
        let before = std::iter::once(None).chain(lines.iter().map(Some));
        lines.iter().zip(before).map(|(line, before)| (names.name(line, before), kind(line))).collect()
    }

    #[test]
    fn what_is_called_alike_is_numbered_around_names_that_are_given() {
        let text = "\
10000-11000 rw-p 0 00:00 0 [anon:a]
20000-21000 rw-p 0 00:00 0 [anon:a #2]
30000-31000 rw-p 0 00:00 0 [anon:a]
40000-41000 rw-p 0 00:00 0 [anon:a]
50000-51000 rw-p 0 00:00 0 [anon:a #2]
";
        let named = named(text);
        let names: BTreeSet<_> = named.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "a #2", "a #3", "a #4", "a #2 #2"].into());
    }

    #[test]
    fn regions_have_the_names_that_people_use() {
        let text = "\
10000-20000 r--p 0 00:01 7 /lib/libc.so.6
20000-30000 r-xp 10000 00:01 7 /lib/libc.so.6
30000-31000 r--p 20000 00:01 7 /lib/libc.so.6
31000-32000 rw-p 21000 00:01 7 /lib/libc.so.6
32000-33000 rw-p 0 00:00 0 
40000-50000 r--s 0 00:01 9 /srv/model.gguf (deleted)
50000-51000 rw-p 0 00:01 11 /srv/table
51000-52000 rw-p 0 00:00 0 
60000-61000 rw-p 0 00:00 0 
70000-71000 rw-p 0 00:00 0 [heap]
80000-81000 rw-p 0 00:00 0 [stack]
90000-91000 rw-p 0 00:00 0 [anon: arena]
92000-93000 rw-s 0 00:01 4 [anon_shmem:pool]
a0000-a1000 r-xp 0 00:00 0 [vdso]
a1000-a2000 rw-s 0 00:0e 3 anon_inode:[perf_event]
b0000-c0000 r--s 0 00:01 10 /tmp/model.gguf
d0000-d1000 rw-p 0 00:00 0 //anon
e0000-e1000 rw-s 0 00:01 5 /dev/zero (deleted)
e1000-e2000 rw-s 0 00:01 6 /dev/zero (deleted)
e3000-e4000 rw-s 0 00:01 7 /SYSV0000002a (deleted)
e5000-e6000 rw-s 0 00:01 8 /memfd:arena (deleted)
f0000-f1000 rw-p 0 00:00 0 [stack:thread]
f2000-f3000 rw-p 0 00:00 0 [stack:thread]
f4000-f5000 rw-p 0 00:00 0 [anon:malloc arena]
";
        let (file, anonymous) = (RegionKind::File, RegionKind::Anonymous);
        let wanted = [
            ("libc.so.6 rodata", file),
            ("libc.so.6 text", file),
            ("libc.so.6 rodata #2", file),
            ("libc.so.6 data", file),
            ("libc.so.6 bss", anonymous),
            ("model.gguf", file),
            ("table", file),
            ("anon 1", anonymous),
            ("anon 2", anonymous),
            ("heap", RegionKind::Heap),
            ("stack", RegionKind::Stack),
            ("arena", anonymous),
            ("pool", anonymous),
            ("vdso", RegionKind::Special),
            ("anon_inode:[perf_event]", RegionKind::Special),
            ("model.gguf #2", file),
            ("anon 3", anonymous),
            ("shared 1", anonymous),
            ("shared 2", anonymous),
            ("SYSV0000002a", anonymous),
            ("memfd:arena", file),
            ("thread stack", RegionKind::Stack),
            ("thread stack #2", RegionKind::Stack),
            ("malloc arena", anonymous),
        ];
        let named = named(text);
        assert_eq!(named.iter().map(|(name, kind)| (name.as_str(), *kind)).collect::<Vec<_>>(), wanted);
    }
}
