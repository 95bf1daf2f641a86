//! Borders and separators of a table, in one of several styles.

use super::layout::{GAP, Slot, cut};
use unicode_width::UnicodeWidthStr;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Alignment of texts.
    Left,
    /// Alignment of numbers.
    Right,
}

/// The style in which a table is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Lines between columns and below the header.
    Lines,
    /// Lines around everything.
    Boxed,
    /// A table of Markdown.
    Markdown,
}

impl Style {
    /// Number of characters between two columns.
    pub const BETWEEN: usize = 3;

    /// Returns the number of characters at both ends of a line.
    pub fn around(self) -> usize {
        match self {
            Style::Lines => 0,
            Style::Boxed | Style::Markdown => 4,
        }
    }

    /// Returns the minimum width of a column.
    pub fn least(self) -> usize {
        match self {
            Style::Lines | Style::Boxed => 0,
            // A delimiter row of Markdown has at least three characters.
            Style::Markdown => 3,
        }
    }

    /// Escapes characters of a cell that would end it.
    pub fn escaped(self, cell: String) -> String {
        match self {
            Style::Lines | Style::Boxed => cell,
            Style::Markdown => cell.replace('|', "\\|"),
        }
    }
}

/// A table with the widths of its columns, ready to be drawn.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub style: Style,
    pub slots: Vec<Slot>,
    pub aligns: Vec<Align>,
    /// Whether cells that are wider than their column are truncated. Otherwise they shift the rest of their line.
    pub cuts: bool,
    /// Whether a column is narrower than its contents.
    pub is_narrow: bool,
}

impl Drawn {
    /// Returns the lines above the rows.
    pub fn head(&self, header: &[String]) -> String {
        let rule = |left: &str, between: &str, right: &str| self.rule("─", left, between, right);
        match self.style {
            Style::Lines => self.row(header) + &rule("", "─┼─", ""),
            Style::Boxed => rule("┌─", "─┬─", "─┐") + &self.row(header) + &rule("├─", "─┼─", "─┤"),
            Style::Markdown => self.row(header) + &self.markdown_rule(),
        }
    }

    /// Returns the line below the rows.
    pub fn foot(&self) -> String {
        match self.style {
            Style::Boxed => self.rule("─", "└─", "─┴─", "─┘"),
            Style::Lines | Style::Markdown => String::new(),
        }
    }

    /// Returns the line of a row.
    pub fn row(&self, cells: &[String]) -> String {
        self.line(|slot| match slot.column {
            Some(column) => (cells.get(column).map_or("", String::as_str), self.aligns[column]),
            None => (GAP, Align::Left),
        })
    }

    /// Returns the line that replaces rows that are left out.
    pub fn left_out(&self) -> String {
        self.line(|slot| ("⋮", slot.column.map_or(Align::Left, |column| self.aligns[column])))
    }

    fn line<'a>(&self, cell: impl Fn(&Slot) -> (&'a str, Align)) -> String {
        let (left, between, right) = match self.style {
            Style::Lines => ("", " │ ", ""),
            Style::Boxed => ("│ ", " │ ", " │"),
            Style::Markdown => ("| ", " | ", " |"),
        };
        let mut line = left.to_string();
        for (place, slot) in self.slots.iter().enumerate() {
            if place > 0 {
                line.push_str(between);
            }
            let (text, align) = cell(slot);
            let shortened = (self.cuts && text.width() > slot.width).then(|| cut(text, slot.width));
            let text = shortened.as_deref().unwrap_or(text);
            let padding = " ".repeat(slot.width.saturating_sub(text.width()));
            match align {
                Align::Left => line.extend([text, &padding]),
                Align::Right => line.extend([&padding, text]),
            }
        }
        line.push_str(right);
        line.truncate(line.trim_end_matches(' ').len());
        line.push('\n');
        line
    }

    fn rule(&self, with: &str, left: &str, between: &str, right: &str) -> String {
        let rules: Vec<String> = self.slots.iter().map(|slot| with.repeat(slot.width)).collect();
        format!("{left}{}{right}\n", rules.join(between))
    }

    fn markdown_rule(&self) -> String {
        let rule = |slot: &Slot| {
            let dashes = "-".repeat(slot.width.saturating_sub(1));
            match slot.column.map(|column| self.aligns[column]) {
                Some(Align::Right) => format!("{dashes}:"),
                _ => format!("{dashes}-"),
            }
        };
        let rules: Vec<String> = self.slots.iter().map(rule).collect();
        format!("| {} |\n", rules.join(" | "))
    }
}
