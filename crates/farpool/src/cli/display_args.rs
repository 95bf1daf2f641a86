//! The arguments that control the output of results.

use super::output::{Fit, Format};
use super::terminal;

/// Default maximum number of rows of a result that are shown on a terminal.
pub const ROWS_DEFAULT: usize = 40;

/// Format and extent of printed results
#[derive(clap::Args, Clone, Debug)]
pub struct DisplayArgs {
    /// Format of the rows [default: table]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,

    /// Maximum number of rows shown by the formats table, box and line, half of them from the end of the result; 0 for
    /// no limit [default: 40 on a terminal, else no limit]
    #[arg(long, value_name = "ROWS")]
    pub max_rows: Option<usize>,

    /// Maximum width of a line in characters in the formats table and box; 0 for no limit [default: width of the
    /// terminal, else no limit]
    #[arg(long, value_name = "CHARACTERS")]
    pub max_width: Option<usize>,
}

impl DisplayArgs {
    /// Returns the format.
    pub fn format(&self) -> Format {
        self.format.unwrap_or(Format::Table)
    }

    /// Returns the limits of the output: those that fit the terminal at its current size, or none if the output is not
    /// a terminal.
    pub fn fit(&self) -> Fit {
        let screen = terminal::size();
        let given = |given: Option<usize>| given.map(|most| Some(most).filter(|most| *most > 0));
        Fit {
            rows: given(self.max_rows).unwrap_or(screen.map(|_| ROWS_DEFAULT)),
            width: given(self.max_width).unwrap_or(screen.map(|(columns, _)| columns)),
        }
    }
}
