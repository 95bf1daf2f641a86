//! A text table with a header; each column is as wide as its widest cell.

use crate::cli::terminal::printable;
use std::fmt;
use unicode_width::UnicodeWidthStr;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For texts.
    Left,
    /// For numbers.
    Right,
}

/// A text table.
#[derive(Debug)]
pub struct Grid {
    header: Vec<String>,
    aligns: Vec<Align>,
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// Makes a table with these columns and no rows.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Grid {
            header: columns.iter().map(|(name, _)| printable(name).into_owned()).collect(),
            aligns: columns.iter().map(|(_, align)| *align).collect(),
            widths: columns.iter().map(|(name, _)| printable(name).width()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, which has as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.header.len(), "a cell for each column");
        let cells: Vec<String> = cells.iter().map(|cell| printable(cell).into_owned()).collect();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.width());
        }
        self.rows.push(cells);
    }

    /// Rows added since the last [`Grid::take_rows`].
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Renders the header and the line below it.
    pub fn head(&self) -> String {
        let rules: Vec<String> = self.widths.iter().map(|width| "─".repeat(*width)).collect();
        self.line(&self.header, " │ ") + &self.line(&rules, "─┼─")
    }

    /// Renders the rows so far and removes them; the widths of the columns stay.
    pub fn take_rows(&mut self) -> String {
        let rows = std::mem::take(&mut self.rows);
        rows.iter().map(|row| self.line(row, " │ ")).collect()
    }

    fn line(&self, cells: &[String], between: &str) -> String {
        let mut line = String::new();
        for (i, cell) in cells.iter().enumerate() {
            if i > 0 {
                line.push_str(between);
            }
            let padding = " ".repeat(self.widths[i].saturating_sub(cell.width()));
            match self.aligns[i] {
                Align::Left => line.extend([cell.as_str(), &padding]),
                Align::Right => line.extend([padding.as_str(), cell]),
            }
        }
        line.truncate(line.trim_end_matches(' ').len());
        line.push('\n');
        line
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.head())?;
        self.rows.iter().try_for_each(|row| f.write_str(&self.line(row, " │ ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_the_script() {
        let mut grid = Grid::new(&[("name", Align::Left), ("n", Align::Right)]);
        grid.row(vec!["Zürich".into(), "7".into()]);
        grid.row(vec!["東京".into(), "1000".into()]);
        let expected = "name   │    n\n───────┼─────\nZürich │    7\n東京   │ 1000\n";
        assert_eq!(grid.to_string(), expected);
    }

    #[test]
    fn control_characters_are_shown_not_obeyed() {
        let mut grid = Grid::new(&[("a", Align::Left)]);
        grid.row(vec!["x\n\u{1b}[2Jy".into()]);
        assert_eq!(grid.take_rows(), "x\\n\\u{1b}[2Jy\n");
    }
}
