//! Choice of regions by name: the same words in every command.

use super::RegionKind;

/// What a name can mean, for messages.
pub const NAME_WORDS: &str = "a region's name, `heap`, `stack` or `anon` (all of that kind), the end of a file's path, `largest` or `hottest`";

/// A region that can be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its name; empty if it has none yet.
    pub name: &'a str,
    /// Its kind.
    pub kind: RegionKind,
    /// The mapped file.
    pub path: Option<&'a str>,
    /// Its size.
    pub bytes: u64,
    /// How often it was accessed.
    pub accesses: f64,
}

/// The regions that a text means, by their places in the list: the one of that name, or else the largest, the hottest, all of a kind,
/// or all of the files whose paths end so. Empty if there are none.
pub fn choose(text: &str, regions: &[Candidate<'_>]) -> Vec<usize> {
    let all = |is_one: &dyn Fn(&Candidate<'_>) -> bool| -> Vec<usize> {
        (0..regions.len()).filter(|at| is_one(&regions[*at])).collect()
    };
    let named = all(&|it| !text.is_empty() && it.name == text);
    if !named.is_empty() || text.is_empty() {
        return named;
    }
    // What the kernel maps into every program is not meant.
    let of_the_program = all(&|it| it.kind != RegionKind::Special);
    match text {
        "largest" => of_the_program
            .into_iter()
            .max_by_key(|at| (regions[*at].bytes, usize::MAX - at))
            .into_iter()
            .collect(),
        "hottest" => {
            let hot = of_the_program.into_iter().filter(|at| regions[*at].accesses > 0.0);
            hot.max_by(|a, b| regions[*a].accesses.total_cmp(&regions[*b].accesses)).into_iter().collect()
        }
        "heap" => all(&|it| it.kind == RegionKind::Heap),
        "stack" => all(&|it| it.kind == RegionKind::Stack),
        "anon" => all(&|it| it.kind == RegionKind::Anonymous),
        _ => all(&|it| it.path.is_some_and(|path| path.ends_with(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_means_what_the_help_says() {
        let of = |name, kind, path, bytes, accesses| Candidate { name, kind, path, bytes, accesses };
        let (file, anonymous) = (RegionKind::File, RegionKind::Anonymous);
        let regions = [
            of("app text", file, Some("/bin/app"), 10, 1.0),
            of("app data", file, Some("/bin/app"), 20, 0.0),
            of("heap", RegionKind::Heap, None, 30, 5.0),
            of("anon 1", anonymous, None, 40, 9.0),
            of("anon 2", anonymous, None, 40, 0.0),
            of("stack", RegionKind::Stack, None, 3, 2.0),
            of("thread stack", RegionKind::Stack, None, 8, 2.0),
            of("vdso", RegionKind::Special, None, 99, 99.0),
            of("", anonymous, None, 7, 0.0),
        ];
        for (text, meant) in [
            ("anon 2", &[4][..]),
            ("anon", &[3, 4, 8]),
            ("heap", &[2]),
            // A name comes before a kind.
            ("stack", &[5]),
            ("app", &[0, 1]),
            ("bin/app", &[0, 1]),
            ("largest", &[3]),
            ("hottest", &[3]),
            ("vdso", &[7]),
            ("anon 3", &[]),
            ("", &[]),
        ] {
            assert_eq!(choose(text, &regions), meant, "{text}");
        }
        assert_eq!(choose("hottest", &regions[4..5]), [0usize; 0]);
    }
}
