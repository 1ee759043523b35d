//! Page of a program's run in less DRAM than it needs: what it needed, where its memory was, and its page faults over time.

use crate::chart::{At, Axis, Chart, Colour, Mark};
use crate::document;
use crate::escape::escape;
use crate::paged_dram::PagedDram;
use crate::quantity::{Quantity, grouped};

/// A run, as far as the page shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PagedRun {
    /// The program, as a shell has it.
    pub command: String,
    /// By what it was paged: swap or kernel.
    pub how: String,
    /// What it needed in all.
    pub required_bytes: u64,
    /// The limit of DRAM.
    pub dram_bytes: u64,
    /// The most that lay on flash.
    pub flash_peak_bytes: u64,
    /// Seconds from its start to its end.
    pub real_s: f64,
    /// Seconds of processor time, in the program and in the kernel for it; `None` if that is not known.
    pub cpu_s: Option<f64>,
    /// Page faults that read from disk.
    pub major_faults: u64,
    /// How long they took, in microseconds: half of them at most, and 99 of 100; `None` if that was not measured.
    pub fault_us: Option<(f64, f64)>,
    /// Pages that were fetched ahead, and those of them that were used; `None` where nothing was steered.
    pub prefetched: Option<(u64, u64)>,
    /// The part of the cost of memory that is saved.
    pub tcm_saved: Option<f64>,
    /// What more DRAM would have saved; `None` if that is not known, or nothing was waited for.
    pub more_dram: Option<PagedDram>,
    /// How it ended.
    pub ended: String,
    /// Parts of its time.
    pub slices: Vec<PagedSlice>,
}

/// A part of a run's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PagedSlice {
    /// Its end, in seconds since the start.
    pub at_s: f64,
    /// In DRAM at its end, with the file cache.
    pub dram_bytes: u64,
    /// On flash at its end.
    pub flash_bytes: u64,
    /// Page faults in it that did not read from disk.
    pub minor_faults: u64,
    /// Those that did.
    pub major_faults: u64,
    /// Read from flash in it.
    pub read_bytes: u64,
    /// Written to flash in it.
    pub written_bytes: u64,
}

impl PagedRun {
    /// The page, complete in itself.
    pub fn to_html(&self) -> String {
        let mut out = String::with_capacity(200_000);
        let source = format!("{}, paged by <b>{}</b>", escape(&self.command), escape(&self.how));
        let (headline, lead) = self.answer();
        document::begin(&mut out, &self.command, &source, (&headline, &lead));
        document::figures(&mut out, &self.figures());
        let more_dram = self.more_dram.as_ref().and_then(PagedDram::chart);
        document::section(&mut out, "What more DRAM would save", &[more_dram], true);
        document::section(&mut out, "Where the memory was", &[self.by_tier()], true);
        document::section(&mut out, "What it waited for", &[self.faults(), self.traffic()], false);
        out += &format!(
            "<footer><p>Memory needed is the peak of anonymous, shared and mapped memory, in DRAM and on flash. DRAM over time includes \
             the file cache, up to the limit. Saved is by Yang 2024, equation 4.2, with the flash that was used. What more DRAM \
             would save is told by the pages that came back: each by how many others had left DRAM after it.</p>\
             <p>Made by tiermem {}.</p></footer>",
            env!("CARGO_PKG_VERSION")
        );
        document::end(&mut out);
        out
    }

    fn answer(&self) -> (String, String) {
        let bytes = |bytes: u64| Quantity::Bytes.text(bytes as f64);
        let headline = match self.required_bytes > self.dram_bytes {
            true => format!(
                "It needed {}, and ran in {} of DRAM",
                bytes(self.required_bytes),
                bytes(self.dram_bytes)
            ),
            false => format!(
                "It needed {}, less than the {} of DRAM that it had",
                bytes(self.required_bytes),
                bytes(self.dram_bytes)
            ),
        };
        let waited = match self.fault_us {
            Some((p50_us, _)) => format!(
                "; at {} each, waiting for them took about {}",
                Quantity::Time.text(p50_us * 1e3),
                Quantity::Time.text(p50_us * 1e3 * self.major_faults as f64)
            ),
            None => String::new(),
        };
        let lead = format!(
            "{} of {} were on flash at most. {} page faults read from there{waited}, of {} in all.",
            bytes(self.flash_peak_bytes),
            bytes(self.required_bytes),
            Quantity::Count.tick(self.major_faults as f64),
            Quantity::Time.text(self.real_s * 1e9)
        );
        (headline, lead)
    }

    fn figures(&self) -> Vec<(&'static str, String, String)> {
        let ratio = (self.required_bytes as f64 / self.dram_bytes.max(1) as f64).max(1.0);
        let fetched = match self.prefetched {
            Some((fetched, used)) => {
                format!("{} of {} pages fetched ahead were used", grouped(used), grouped(fetched))
            }
            None => "nothing was fetched ahead".to_owned(),
        };
        let slowest = match self.fault_us {
            Some((p50_us, p99_us)) => {
                format!(
                    "p50 {}, p99 {}",
                    Quantity::Time.text(p50_us * 1e3),
                    Quantity::Time.text(p99_us * 1e3)
                )
            }
            None => "their time was not measured".to_owned(),
        };
        vec![
            (
                "Time",
                Quantity::Time.tick(self.real_s * 1e9),
                self.cpu_s.map_or_else(String::new, |cpu_s| {
                    format!("{} of processors", Quantity::Time.text(cpu_s * 1e9))
                }),
            ),
            ("Overcommit", format!("{ratio:.2}"), "memory needed over DRAM".to_owned()),
            ("Faults from flash", Quantity::Count.tick(self.major_faults as f64), slowest),
            ("On flash", Quantity::Bytes.tick(self.flash_peak_bytes as f64), fetched),
            (
                "Saved",
                self.tcm_saved.map_or_else(|| "-".to_owned(), |share| Quantity::Share.tick(share)),
                format!("of the cost of memory; {}", self.ended),
            ),
        ]
    }

    fn time_axis(&self) -> Option<Axis> {
        let end_s = self.slices.last()?.at_s;
        Some(Axis::up_to("time since the start", Quantity::Time, end_s * 1e9))
    }

    /// A line over time: from each slice its value.
    fn line(&self, name: &str, colour: usize, value: impl Fn(&PagedSlice, f64) -> f64) -> Mark {
        let mut begin_s = 0.0;
        let point = |slice: &PagedSlice| {
            let took_s = slice.at_s - std::mem::replace(&mut begin_s, slice.at_s);
            At::new(slice.at_s * 1e9, value(slice, took_s.max(1e-9)))
        };
        let points = self.slices.iter().map(point).collect();
        Mark::Line {
            name: name.to_owned(),
            colour: Colour::Distinct(colour),
            dashed: false,
            told: true,
            points,
        }
    }

    fn by_tier(&self) -> Option<Chart> {
        let largest = self.slices.iter().map(|slice| slice.dram_bytes.max(slice.flash_bytes)).max()?;
        let last = self.slices.last()?;
        let finding = format!(
            "At its end {} were in DRAM and {} on flash.",
            Quantity::Bytes.text(last.dram_bytes as f64),
            Quantity::Bytes.text(last.flash_bytes as f64)
        );
        Some(Chart {
            id: "tiers",
            title: "Bytes by tier".to_owned(),
            finding,
            x: self.time_axis()?,
            y: Axis::from_zero("bytes", Quantity::Bytes, largest as f64),
            marks: vec![
                self.line("DRAM", 0, |slice, _| slice.dram_bytes as f64),
                self.line("flash", 1, |slice, _| slice.flash_bytes as f64),
            ],
        })
    }

    fn faults(&self) -> Option<Chart> {
        let marks = vec![
            self.line("from memory", 5, |slice, took_s| slice.minor_faults as f64 / took_s),
            self.line("from flash", 1, |slice, took_s| slice.major_faults as f64 / took_s),
        ];
        let total: u64 = self.slices.iter().map(|slice| slice.minor_faults).sum();
        let finding = format!(
            "{} faults read from flash, {} found their page in memory.",
            Quantity::Count.tick(self.major_faults as f64),
            Quantity::Count.tick(total as f64)
        );
        Some(Chart {
            id: "faults",
            title: "Page faults over time".to_owned(),
            finding,
            x: self.time_axis()?,
            y: Axis::from_zero("faults a second", Quantity::Count, largest(&marks)),
            marks,
        })
    }

    fn traffic(&self) -> Option<Chart> {
        let marks = vec![
            self.line("read", 0, |slice, took_s| slice.read_bytes as f64 / took_s),
            self.line("written", 1, |slice, took_s| slice.written_bytes as f64 / took_s),
        ];
        let sum = |field: fn(&PagedSlice) -> u64| {
            Quantity::Bytes.text(self.slices.iter().map(field).sum::<u64>() as f64)
        };
        let finding = format!(
            "{} read and {} written.",
            sum(|slice| slice.read_bytes),
            sum(|slice| slice.written_bytes)
        );
        Some(Chart {
            id: "traffic",
            title: "Flash traffic over time".to_owned(),
            finding,
            x: self.time_axis()?,
            y: Axis::from_zero("bytes a second", Quantity::Bytes, largest(&marks)),
            marks,
        })
    }
}

/// The largest value of lines.
fn largest(marks: &[Mark]) -> f64 {
    let points = marks.iter().flat_map(|mark| match mark {
        Mark::Line { points, .. } => points.as_slice(),
        Mark::Bars { .. } | Mark::Rule { .. } => &[],
    });
    points.map(|at| at.y).fold(1.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_what_was_needed_and_where_it_was() {
        let slice = |at: u32| PagedSlice {
            at_s: f64::from(at) / 2.0,
            dram_bytes: 64 << 20,
            flash_bytes: u64::from(at) << 20,
            major_faults: 50,
            minor_faults: 10,
            read_bytes: 1 << 20,
            written_bytes: 0,
        };
        let run = PagedRun {
            command: "a <b> c".to_owned(),
            how: "kernel".to_owned(),
            required_bytes: 128 << 20,
            dram_bytes: 64 << 20,
            flash_peak_bytes: 60 << 20,
            real_s: 30.0,
            major_faults: 3000,
            fault_us: Some((80.0, 900.0)),
            prefetched: Some((2000, 1900)),
            tcm_saved: Some(0.25),
            more_dram: Some(PagedDram {
                dram_bytes: 64 << 20,
                finding: "+16MiB would save none".to_owned(),
                sizes: vec![(64 << 20, 3000, 1900), (128 << 20, 0, 0)],
            }),
            ended: "exit status: 0".to_owned(),
            slices: (1..=60).map(slice).collect(),
            ..PagedRun::default()
        };
        // A number and its unit stay on one line.
        let plain = |run: &PagedRun| run.to_html().replace(|it: char| it != '\n' && it.is_whitespace(), " ");
        let html = plain(&run);
        for text in [
            "It needed 128 MiB, and ran in 64 MiB of DRAM",
            "a &lt;b&gt; c",
            "1,900 of 2,000 pages fetched ahead were used",
            "p50 80 µs, p99 900 µs",
            "25%",
            "Bytes by tier",
            "Page faults over time",
            "Flash traffic over time",
            "What more DRAM would save",
            "+16MiB would save none",
            "this run",
            "fetched ahead",
            // 50 in half a second.
            "100",
        ] {
            assert!(html.contains(text), "{text}");
        }
        assert!(!html.contains("<b> c") && !html.contains("src=") && !html.contains("href=\"http"));
        // A program that has ended before it was looked at has no charts.
        let html = plain(&PagedRun { dram_bytes: 1 << 30, ..PagedRun::default() });
        assert!(html.contains("less than the 1 GiB of DRAM") && !html.contains("<figure"));
    }
}
