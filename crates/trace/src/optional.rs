//! Optional columns of a trace, in addition to the fields of every record: where an access went and which instruction made it.
//!
//! A trace has such a column for all of its records or not at all. They are read only if [`crate::ReadOptions::optional`] asks
//! for them, and travel beside the records ([`OptionalColumns`]), which stay as small as they are.

use std::fmt;
use std::ops::BitOr;

/// An optional column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum OptionalColumn {
    /// The physical frame of 4096 bytes in which the address lies.
    Frame = 0,
    /// The memory node where the page lies; 255 where that is not known.
    Node = 1,
    /// Where the access was answered: a code of `recording::Level`, 0 where that is not known.
    Level = 2,
    /// The address of the instruction.
    Pc = 3,
}

const COUNT: usize = 4;

impl OptionalColumn {
    /// All of them, in the order of the schema.
    pub const ALL: [OptionalColumn; COUNT] =
        [OptionalColumn::Frame, OptionalColumn::Node, OptionalColumn::Level, OptionalColumn::Pc];

    /// The name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            OptionalColumn::Frame => "frame",
            OptionalColumn::Node => "node",
            OptionalColumn::Level => "level",
            OptionalColumn::Pc => "pc",
        }
    }

    /// The largest value that the column holds.
    pub const fn max(self) -> u64 {
        match self {
            OptionalColumn::Frame | OptionalColumn::Pc => u64::MAX,
            OptionalColumn::Node | OptionalColumn::Level => u8::MAX as u64,
        }
    }
}

/// A set of optional columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalSet(u8);

impl OptionalSet {
    /// No column.
    pub const NONE: OptionalSet = OptionalSet(0);
    /// All.
    pub const ALL: OptionalSet = OptionalSet((1 << COUNT) - 1);

    /// This one alone.
    pub const fn of(column: OptionalColumn) -> Self {
        OptionalSet(1 << column as u8)
    }

    /// Whether it is among them.
    pub const fn contains(self, column: OptionalColumn) -> bool {
        self.0 >> column as u8 & 1 == 1
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The columns of the set, in the order of the schema.
    pub fn columns(self) -> impl Iterator<Item = OptionalColumn> {
        OptionalColumn::ALL.into_iter().filter(move |column| self.contains(*column))
    }
}

impl BitOr for OptionalSet {
    type Output = OptionalSet;

    fn bitor(self, other: OptionalSet) -> OptionalSet {
        OptionalSet(self.0 | other.0)
    }
}

impl FromIterator<OptionalColumn> for OptionalSet {
    fn from_iter<I: IntoIterator<Item = OptionalColumn>>(columns: I) -> Self {
        columns.into_iter().fold(OptionalSet::NONE, |all, column| all | OptionalSet::of(column))
    }
}

impl fmt::Display for OptionalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.columns().map(OptionalColumn::name).collect::<Vec<_>>().join(", "))
    }
}

/// The values of one record; none for columns that the trace does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalRow([Option<u64>; COUNT]);

impl OptionalRow {
    /// The value in a column.
    pub fn get(&self, column: OptionalColumn) -> Option<u64> {
        self.0[column as usize]
    }
}

/// The values of many records, column by column. Each column that is there has as many values as the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionalColumns([Option<Vec<u64>>; COUNT]);

impl OptionalColumns {
    /// These columns, empty.
    pub fn with(set: OptionalSet) -> Self {
        OptionalColumns(OptionalColumn::ALL.map(|column| set.contains(column).then(Vec::new)))
    }

    /// A single column with its values.
    pub fn of(column: OptionalColumn, values: Vec<u64>) -> Self {
        let mut columns = OptionalColumns::default();
        columns.0[column as usize] = Some(values);
        columns
    }

    /// The set of columns that are there.
    pub fn set(&self) -> OptionalSet {
        OptionalColumn::ALL.into_iter().filter(|column| self.0[*column as usize].is_some()).collect()
    }

    /// The values of a column.
    pub fn get(&self, column: OptionalColumn) -> Option<&[u64]> {
        self.0[column as usize].as_deref()
    }

    /// The values of a column, to add to them; the caller adds equally many to each column.
    pub fn get_mut(&mut self, column: OptionalColumn) -> Option<&mut Vec<u64>> {
        self.0[column as usize].as_mut()
    }

    /// Whether each column that is there has `records` values, none above its largest.
    pub fn are_of(&self, records: usize) -> bool {
        OptionalColumn::ALL.into_iter().all(|column| {
            let fits =
                |values: &[u64]| values.len() == records && values.iter().all(|value| *value <= column.max());
            self.get(column).is_none_or(fits)
        })
    }

    /// The values of a record; none for a column that is not there.
    pub fn row(&self, at: usize) -> OptionalRow {
        OptionalRow(OptionalColumn::ALL.map(|column| self.get(column)?.get(at).copied()))
    }

    /// Adds a record's values to the columns that are there.
    ///
    /// # Panics
    /// When the row lacks one of them: a trace has a column for all records.
    pub fn push(&mut self, row: &OptionalRow) {
        for column in OptionalColumn::ALL {
            if let Some(values) = self.get_mut(column) {
                let Some(value) = row.get(column) else {
                    panic!("a record has no `{}`, and its trace has", column.name());
                };
                values.push(value);
            }
        }
    }

    /// Adds a range of the records of others, which have at least these columns.
    pub(crate) fn extend_from(&mut self, others: &OptionalColumns, range: std::ops::Range<usize>) {
        for column in OptionalColumn::ALL {
            if let (Some(values), Some(more)) = (self.get_mut(column), others.get(column)) {
                values.extend_from_slice(more.get(range.clone()).unwrap_or_default());
            }
        }
    }

    /// Forgets all values; the columns stay.
    pub fn clear(&mut self) {
        self.0.iter_mut().flatten().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_there_for_all_records_or_not_at_all() {
        let set = OptionalSet::of(OptionalColumn::Pc) | OptionalSet::of(OptionalColumn::Node);
        assert_eq!((set.to_string().as_str(), OptionalSet::NONE.to_string().as_str()), ("node, pc", ""));
        let mut columns = OptionalColumns::with(set);
        assert_eq!((columns.set(), columns.are_of(0)), (set, true));
        columns.get_mut(OptionalColumn::Pc).unwrap().push(u64::MAX);
        assert!(!columns.are_of(1), "one column has a value more");
        columns.get_mut(OptionalColumn::Node).unwrap().push(256);
        assert!(!columns.are_of(1), "a node is a number of 8 bits");
        columns.get_mut(OptionalColumn::Node).unwrap()[0] = 255;
        assert!(columns.are_of(1) && columns.get(OptionalColumn::Level).is_none());
        let row = columns.row(0);
        let values = OptionalColumn::ALL.map(|column| row.get(column));
        assert_eq!(values, [None, Some(255), None, Some(u64::MAX)]);
        columns.push(&row);
        let mut more = OptionalColumns::with(OptionalSet::of(OptionalColumn::Pc));
        more.extend_from(&columns, 1..2);
        assert_eq!(more.get(OptionalColumn::Pc), Some(&[u64::MAX][..]));
        columns.clear();
        assert!(columns.are_of(0) && columns.set() == set && columns.row(0) == OptionalRow::default());
        let lacking = std::panic::catch_unwind(move || columns.push(&OptionalRow::default()));
        assert!(lacking.is_err());
    }
}
