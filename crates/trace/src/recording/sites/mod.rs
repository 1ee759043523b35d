//! Sites: which code of a program first touched its memory.
//!
//! A sample of the first touches is kept, each with the stack of who touched. The *site* of a stack is its innermost frame that is not the
//! run-time library's. [`Recording::site_shares`](super::Recording::site_shares) tells whose the memory between the sampled touches is.

mod heat;
mod shares;

use serde::{Deserialize, Serialize};

pub use heat::SiteHeat;
pub use shares::SiteShares;

/// Who first touched the memory of all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sites {
    /// All frames that there are in stacks.
    pub frames: Vec<SiteFrame>,
    /// All stacks.
    pub stacks: Vec<SiteStack>,
    /// Who touched, by process and address.
    pub touches: Vec<SiteTouches>,
    /// Touches that were sampled.
    pub sampled: u64,
    /// Of these, those of which no site is known, as their stack could not be unwound.
    pub not_unwound: u64,
    /// Samples that were lost because there were too many at once.
    pub lost: u64,
}

/// A frame, as far as it has names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SiteFrame {
    /// The function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The source file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The program or library; `None` of code that lies in no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Where in the module, as the file counts addresses, if the function is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// A stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SiteStack {
    /// Indices in [`Sites::frames`], the innermost first.
    pub frames: Vec<u32>,
    /// Which of them is the site.
    pub site: u32,
}

/// Touches of a stretch of memory by one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct SiteTouches {
    /// The process: an index in [`Head::processes`](super::Head::processes), 0 where there are none.
    pub process: u32,
    /// The first address of the stretch in the recorded run.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Index in [`Sites::stacks`].
    pub stack: u32,
    /// How many touches the samples stand for.
    pub touches: u64,
    /// The slice of the first of them.
    pub slice: u32,
}

/// As they are written: there may be many.
type Row = (u32, u64, u64, u32, u64, u32);

impl From<Row> for SiteTouches {
    fn from((process, start, bytes, stack, touches, slice): Row) -> Self {
        SiteTouches { process, start, bytes, stack, touches, slice }
    }
}

impl From<SiteTouches> for Row {
    fn from(it: SiteTouches) -> Row {
        (it.process, it.start, it.bytes, it.stack, it.touches, it.slice)
    }
}

impl SiteFrame {
    /// What it is called: the function, else the place in the file, else that there is none.
    pub fn name(&self) -> String {
        match (&self.function, &self.module, self.offset) {
            (Some(function), ..) => function.clone(),
            (None, Some(module), offset) => {
                let file = module.rsplit('/').next().unwrap_or(module);
                format!("{file}+{:#x}", offset.unwrap_or(0))
            }
            (None, None, _) => "[anonymous code]".to_owned(),
        }
    }

    /// Source file and line, `a.c:12`; `None` if they are not known.
    pub fn source(&self) -> Option<String> {
        let file = self.file.as_ref()?;
        Some(self.line.map_or(file.clone(), |line| format!("{file}:{line}")))
    }
}

impl Sites {
    /// The site of a stack: an index in [`Self::frames`]; `None` if it has none.
    pub fn site_of(&self, stack: u32) -> Option<u32> {
        let stack = self.stacks.get(stack as usize)?;
        let frame = *stack.frames.get(stack.site as usize)?;
        ((frame as usize) < self.frames.len()).then_some(frame)
    }

    /// The frames outside of a stack's site, from its caller on.
    pub fn callers_of(&self, stack: u32) -> impl Iterator<Item = &SiteFrame> {
        let stack = self.stacks.get(stack as usize);
        let callers = stack.and_then(|it| it.frames.get(it.site as usize + 1..)).unwrap_or_default();
        callers.iter().filter_map(|frame| self.frames.get(*frame as usize))
    }

    /// Those of one process, which becomes the first.
    pub(super) fn of_process(&self, index: usize) -> Sites {
        let own = self.touches.iter().filter(|it| it.process as usize == index);
        let touches = own.map(|it| SiteTouches { process: 0, ..*it }).collect();
        Sites { touches, ..self.clone() }
    }

    /// Those of some slices, as if there had been no others: what was touched before them was there.
    pub(super) fn of_slices(&self, slices: &[usize]) -> Sites {
        let before = |slice: u32| slices.partition_point(|its| *its < slice as usize) as u32;
        let touches = self.touches.iter().map(|it| SiteTouches { slice: before(it.slice), ..*it });
        Sites { touches: touches.collect(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Head;

    #[test]
    fn frames_are_called_by_what_is_known_of_them() {
        let frame = SiteFrame {
            function: Some("fill".to_owned()),
            file: Some("/src/a.c".to_owned()),
            line: Some(12),
            module: Some("/bin/a".to_owned()),
            offset: None,
        };
        assert_eq!((frame.name(), frame.source()), ("fill".to_owned(), Some("/src/a.c:12".to_owned())));
        let stripped =
            SiteFrame { module: Some("/bin/a".to_owned()), offset: Some(0x1234), ..SiteFrame::default() };
        assert_eq!((stripped.name(), stripped.source()), ("a+0x1234".to_owned(), None));
        assert_eq!(SiteFrame::default().name(), "[anonymous code]");
    }

    #[test]
    fn what_names_nothing_has_no_site() {
        let frame = |name: &str| SiteFrame { function: Some(name.to_owned()), ..SiteFrame::default() };
        let stack = |frames: &[u32], site| SiteStack { frames: frames.to_vec(), site };
        let sites = Sites {
            frames: vec![frame("a"), frame("b"), frame("c")],
            stacks: vec![stack(&[0, 1, 2], 1), stack(&[0], 7), stack(&[9], 0), stack(&[], 0)],
            ..Sites::default()
        };
        assert_eq!([0, 1, 2, 3, 4].map(|stack| sites.site_of(stack)), [Some(1), None, None, None, None]);
        let callers = |stack| sites.callers_of(stack).map(SiteFrame::name).collect::<Vec<_>>();
        assert_eq!((callers(0), callers(1), callers(9)), (vec!["c".to_owned()], vec![], vec![]));
    }

    #[test]
    fn an_older_head_has_none_and_a_newer_one_is_compact() {
        let head = Head { sites: None, ..Head::default() };
        let text = serde_json::to_string(&head).unwrap();
        assert!(!text.contains("sites"));
        assert_eq!(serde_json::from_str::<Head>(&text).unwrap(), head);
        let touches = SiteTouches { process: 1, start: 2, bytes: 3, stack: 4, touches: 5, slice: 6 };
        let sites = Sites { touches: vec![touches], ..Sites::default() };
        let newer = Head { sites: Some(sites), ..head };
        let text = serde_json::to_string(&newer).unwrap();
        assert!(text.contains("[[1,2,3,4,5,6]]"), "{text}");
        assert_eq!(serde_json::from_str::<Head>(&text).unwrap(), newer);
    }
}
