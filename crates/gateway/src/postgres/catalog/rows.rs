//! Rows of tables that are computed.

use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{Field, Schema};
use farpool_model::{Error, Result};
use std::sync::Arc;

/// A value of a row.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    Bool(bool),
    Int(i64),
    Float(f32),
    Text(String),
}

pub(super) use Cell::{Bool, Float, Int};

pub(super) fn text(text: &str) -> Cell {
    Cell::Text(text.to_string())
}

/// The rows of a table, as they are made.
pub(super) struct Rows {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Option<Cell>>>,
}

impl Rows {
    /// Creates an empty table. `columns` has its columns, each with a name and, behind a colon, a type: `o` for an object id,
    /// `b` for a boolean, `2`, `4` and `8` for integers of so many bytes, `f` for a float, `t` for text, `a` for an array of
    /// texts, and `i` for one of integers.
    pub fn new(columns: &'static str) -> Self {
        Rows { columns: columns.split_whitespace().collect(), rows: Vec::new() }
    }

    /// Adds a row with these values; columns without one are NULL.
    pub fn add(&mut self, cells: &[(&str, Cell)]) {
        let mut row = vec![None; self.columns.len()];
        for (name, cell) in cells {
            let place = self.columns.iter().position(|column| column.split(':').next() == Some(name));
            debug_assert!(place.is_some(), "there is no column {name}");
            if let Some(place) = place {
                row[place] = Some(cell.clone());
            }
        }
        self.rows.push(row);
    }

    /// Returns the rows.
    ///
    /// # Errors
    /// `Internal` only on a bug.
    pub fn batch(self) -> Result<RecordBatch> {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (place, column) in self.columns.iter().enumerate() {
            let (name, kind) = column.split_once(':').unwrap_or((column, "t"));
            let array = array(kind, self.rows.iter().map(|row| row[place].as_ref()));
            fields.push(Field::new(name, array.data_type().clone(), true));
            columns.push(array);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
            .map_err(|error| Error::internal(format!("a table of the catalog: {error}")))
    }
}

fn array<'a>(kind: &str, cells: impl Iterator<Item = Option<&'a Cell>>) -> ArrayRef {
    let int = |cell: Option<&Cell>| if let Some(Int(value)) = cell { Some(*value) } else { None };
    match kind {
        "b" => {
            let value = |cell: Option<&Cell>| if let Some(Bool(value)) = cell { Some(*value) } else { None };
            Arc::new(cells.map(value).collect::<BooleanArray>())
        }
        // The values are small.
        "2" => {
            Arc::new(cells.map(|cell| int(cell).and_then(|n| i16::try_from(n).ok())).collect::<Int16Array>())
        }
        "4" => {
            Arc::new(cells.map(|cell| int(cell).and_then(|n| i32::try_from(n).ok())).collect::<Int32Array>())
        }
        "o" | "8" => Arc::new(cells.map(int).collect::<Int64Array>()),
        "f" => {
            let value = |cell: Option<&Cell>| if let Some(Float(value)) = cell { Some(*value) } else { None };
            Arc::new(cells.map(value).collect::<Float32Array>())
        }
        "i" => {
            let mut lists = ListBuilder::new(Int64Builder::new());
            cells.for_each(|_| lists.append_null());
            Arc::new(lists.finish())
        }
        "a" => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            cells.for_each(|_| lists.append_null());
            Arc::new(lists.finish())
        }
        _ => {
            let value = |cell: Option<&'a Cell>| {
                if let Some(Cell::Text(text)) = cell { Some(text.as_str()) } else { None }
            };
            Arc::new(cells.map(value).collect::<StringArray>())
        }
    }
}
