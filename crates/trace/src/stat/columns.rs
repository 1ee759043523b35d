//! Statistics of the optional columns: their range, and for nodes and levels how often each value occurs.

use serde::Serialize;

use crate::optional::{OptionalColumn, OptionalRow};

/// Values of a column that are counted one by one.
const VALUES: usize = 256;

/// Statistics of an optional column. Fields are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColumnStat {
    /// Its name.
    pub column: &'static str,
    /// The least value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// Each value that occurs, of nodes and levels alone.
    pub values: Vec<ValueStat>,
}

/// A value of a column. Fields are stable.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ValueStat {
    /// The value.
    pub value: u64,
    /// Accesses that have it.
    pub requests: u64,
    /// These over all accesses.
    pub share: f64,
}

/// Gathers them.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns([Option<Gathered>; OptionalColumn::ALL.len()]);

#[derive(Clone, Debug)]
struct Gathered {
    min: u64,
    max: u64,
    requests: u64,
    counts: Vec<u64>,
}

impl Columns {
    pub fn observe(&mut self, row: &OptionalRow) {
        for (gathered, column) in self.0.iter_mut().zip(OptionalColumn::ALL) {
            let Some(value) = row.get(column) else { continue };
            let counted = if column.max() < VALUES as u64 { VALUES } else { 0 };
            let gathered = gathered.get_or_insert_with(|| Gathered {
                min: value,
                max: value,
                requests: 0,
                counts: vec![0; counted],
            });
            gathered.min = gathered.min.min(value);
            gathered.max = gathered.max.max(value);
            gathered.requests += 1;
            let count = usize::try_from(value).ok().and_then(|value| gathered.counts.get_mut(value));
            count.into_iter().for_each(|count| *count += 1);
        }
    }

    pub fn stat(&self) -> Vec<ColumnStat> {
        let known = self.0.iter().zip(OptionalColumn::ALL);
        known.filter_map(|(gathered, column)| Some(gathered.as_ref()?.stat(column))).collect()
    }
}

impl Gathered {
    fn stat(&self, column: OptionalColumn) -> ColumnStat {
        let counts = (0..).zip(&self.counts).filter(|(_, count)| **count > 0);
        let values = counts.map(|(value, count)| ValueStat {
            value,
            requests: *count,
            share: *count as f64 / self.requests as f64,
        });
        ColumnStat { column: column.name(), min: self.min, max: self.max, values: values.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optional::{OptionalColumns, OptionalSet};

    #[test]
    fn nodes_are_counted_and_addresses_have_a_range() {
        let mut columns = Columns::default();
        columns.observe(&OptionalRow::default());
        assert!(columns.stat().is_empty());
        let mut rows = OptionalColumns::with(
            OptionalSet::of(OptionalColumn::Node) | OptionalSet::of(OptionalColumn::Pc),
        );
        rows.get_mut(OptionalColumn::Node).unwrap().extend([1, 255, 1, 1]);
        rows.get_mut(OptionalColumn::Pc).unwrap().extend([9, u64::MAX, 7, 8]);
        (0..4).for_each(|at| columns.observe(&rows.row(at)));
        let value = |value, requests, share| ValueStat { value, requests, share };
        let node = vec![value(1, 3, 0.75), value(255, 1, 0.25)];
        let expected = [
            ColumnStat { column: "node", min: 1, max: 255, values: node },
            ColumnStat { column: "pc", min: 7, max: u64::MAX, values: vec![] },
        ];
        assert_eq!(columns.stat(), expected);
    }
}
