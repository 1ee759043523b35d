//! What a run in less DRAM than the program needs would have waited for with more of it: a chart of the page.

use crate::chart::{At, Axis, Chart, Colour, Mark};
use crate::quantity::Quantity;

/// Page faults by the size of DRAM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PagedDram {
    /// The size that it had.
    pub dram_bytes: u64,
    /// The finding, in a sentence.
    pub finding: String,
    /// Bytes of DRAM, page faults that read from flash, and pages fetched ahead and used, by ascending size.
    pub sizes: Vec<(u64, u64, u64)>,
}

impl PagedDram {
    pub(crate) fn chart(&self) -> Option<Chart> {
        let largest_bytes = self.sizes.last()?.0;
        let line = |name: &str, colour, pages: fn(&(u64, u64, u64)) -> u64| Mark::Line {
            name: name.to_owned(),
            colour: Colour::Distinct(colour),
            dashed: false,
            told: true,
            points: self.sizes.iter().map(|size| At::new(size.0 as f64, pages(size) as f64)).collect(),
        };
        let mut marks = vec![Mark::Rule { x: self.dram_bytes as f64, name: "this run".to_owned() }];
        let most = self.sizes.iter().map(|size| size.1.max(size.2)).max()?;
        if self.sizes.iter().any(|size| size.2 > 0) {
            marks.push(line("fetched ahead", 0, |size| size.2));
        }
        marks.push(line("faults", 1, |size| size.1));
        Some(Chart {
            id: "more-dram",
            title: "Pages read from flash, by the size of DRAM".to_owned(),
            finding: self.finding.clone(),
            x: Axis::up_to("DRAM", Quantity::Bytes, largest_bytes as f64),
            y: Axis::from_zero("pages", Quantity::Count, most as f64),
            marks,
        })
    }
}
