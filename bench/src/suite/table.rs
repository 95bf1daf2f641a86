//! The tables of all reports: a row for each item, and columns that are added with their names.

use crate::text;
use comfy_table::{Cell, CellAlignment, presets};
use std::fmt::{Display, Formatter};

/// Content of a cell without a value.
const NOTHING: &str = "-";

/// A table without rules, with all cells aligned to the right.
pub struct Table<T> {
    items: Vec<T>,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl<T: Copy> Table<T> {
    /// Creates a table with a row for each item.
    pub fn of(items: impl IntoIterator<Item = T>) -> Table<T> {
        let items: Vec<T> = items.into_iter().collect();
        Table { header: Vec::new(), rows: vec![Vec::new(); items.len()], items }
    }

    /// Adds a column with a cell for each item.
    pub fn column<C: Display>(mut self, name: impl Into<String>, cell: impl Fn(T) -> C) -> Table<T> {
        self.header.push(name.into());
        for (row, item) in self.rows.iter_mut().zip(&self.items) {
            row.push(cell(*item).to_string());
        }
        self
    }

    /// Adds a column of values that some items do not have.
    pub fn optional<C: Display>(self, name: impl Into<String>, cell: impl Fn(T) -> Option<C>) -> Table<T> {
        self.column(name, |item| cell(item).map_or(NOTHING.to_string(), |cell| cell.to_string()))
    }

    /// Adds a column of numbers with this many digits after the point.
    pub fn number<V: Into<Option<f64>>>(
        self,
        name: impl Into<String>,
        digits: usize,
        value: impl Fn(T) -> V,
    ) -> Table<T> {
        self.optional(name, |item| value(item).into().map(|value| format!("{value:.digits$}")))
    }

    /// Adds a column of ratios, as in `1.50×`.
    pub fn ratio<V: Into<Option<f64>>>(
        self,
        name: impl Into<String>,
        digits: usize,
        value: impl Fn(T) -> V,
    ) -> Table<T> {
        self.optional(name, |item| value(item).into().map(|value| format!("{value:.digits$}×")))
    }

    /// Adds a column of numbers of bytes.
    pub fn bytes<V: Into<Option<u64>>>(self, name: impl Into<String>, value: impl Fn(T) -> V) -> Table<T> {
        self.optional(name, |item| value(item).into().map(text::bytes))
    }

    /// Adds a column without a name that tells which items meet their goals.
    pub fn met<V: Into<Option<bool>>>(self, is_met: impl Fn(T) -> V) -> Table<T> {
        self.column("", |item| text::met(is_met(item).into()))
    }
}

impl<T> Display for Table<T> {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING);
        let right = |text: &String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.set_header(self.header.iter().map(right));
        for row in &self.rows {
            table.add_row(row.iter().map(right));
        }
        table.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_aligned_and_missing_values_shown() {
        let items = [("one", Some(1.25), 3), ("three", None, 20_000)];
        let table = Table::of(&items)
            .column("name", |item| item.0)
            .ratio("ratio", 1, |item| item.1)
            .bytes("read", |item| item.2)
            .met(|item| item.1.map(|ratio| ratio < 2.0));
        let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        let text = table.to_string();
        let lines: Vec<Vec<String>> = text.lines().map(words).collect();
        assert_eq!(lines[0], ["name", "ratio", "read"]);
        assert_eq!(lines[1], ["one", "1.2×", "3", "B", "met"]);
        assert_eq!(lines[2], ["three", "-", "20.0", "kB", "-"]);
    }
}
