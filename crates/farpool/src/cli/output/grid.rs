//! A text table with a header; each column is as wide as its widest cell.

use super::layout::{Slot, Wish, slots};
pub use super::style::Align;
use super::style::{Drawn, Style};
use crate::cli::terminal::printable;
use std::fmt;
use unicode_width::UnicodeWidthStr;

/// A text table.
#[derive(Debug)]
pub struct Grid {
    header: Vec<String>,
    aligns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// Creates a table with these columns and no rows.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Grid {
            header: columns.iter().map(|(name, _)| printable(name).into_owned()).collect(),
            aligns: columns.iter().map(|(_, align)| *align).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, which has as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.header.len(), "a cell for each column");
        self.rows.push(cells.iter().map(|cell| printable(cell).into_owned()).collect());
    }
}

impl Grid {
    /// Returns the table in at most `width` characters, if possible: cells of the columns marked in `is_text` are
    /// shortened by `cut`, and columns in the middle are left out if that is not enough.
    pub fn fitted(&self, width: usize, is_text: &[bool], cut: fn(&str, usize) -> String) -> String {
        let slots = slots(&self.wishes(is_text), Some(width), Style::BETWEEN);
        let mut shortened = self.rows.clone();
        let mut header = self.header.clone();
        for slot in &slots {
            let Some(column) = slot.column else { continue };
            for row in std::iter::once(&mut header).chain(&mut shortened) {
                row[column] = cut(&row[column], slot.width);
            }
        }
        self.drawn(slots, &header, &shortened)
    }

    fn wishes(&self, is_text: &[bool]) -> Vec<Wish> {
        let values = |column: usize| self.rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
        let wish = |(column, name): (usize, &String)| Wish {
            header: name.width(),
            values: values(column),
            is_text: is_text.get(column).is_some_and(|is_text| *is_text),
        };
        self.header.iter().enumerate().map(wish).collect()
    }

    fn drawn(&self, slots: Vec<Slot>, header: &[String], rows: &[Vec<String>]) -> String {
        let aligns = self.aligns.clone();
        let drawn = Drawn { style: Style::Lines, slots, aligns, cuts: false, is_narrow: false };
        rows.iter().fold(drawn.head(header), |text, row| text + &drawn.row(row))
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = slots(&self.wishes(&[]), None, Style::BETWEEN);
        f.write_str(&self.drawn(slots, &self.header, &self.rows))
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
        assert_eq!(grid.to_string().lines().last(), Some("x\\n\\u{1b}[2Jy"));
    }
}
