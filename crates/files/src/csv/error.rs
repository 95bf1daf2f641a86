//! Errors of CSV files, with file and line.

use super::super::{damaged, files};
use super::records::Broken;
use arrow_schema::Field;
use farpool_model::{Error, brief, limits, sql_name};
use std::path::Path;

/// Returns the error for records that cannot be split.
pub(super) fn broken(path: &Path, why: Broken) -> Error {
    let named = |line: u64, what: &str| Error::invalid(format!("{}, line {line}: {what}", path.display()));
    match why {
        Broken::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => damaged(path, error),
        Broken::Io(error) => files::unreadable(path, &error),
        Broken::Unclosed(line) => named(line, "a quote opens in this record, and none closes it").advise(
            "correct the line, or say which character quotes (--quote, read_csv(…, quote = '')); '' is none",
        ),
        Broken::Wide(line) => {
            let what = format!("this record has more than {} fields", limits::CSV_FIELDS_MAX);
            named(line, &what).advise("say what separates fields (--delimiter, read_csv(…, delim = ';'))")
        }
        Broken::Long(line) => {
            let what = format!("this record has more than {} bytes", limits::RECORD_BYTES_MAX);
            named(line, &what).advise("perhaps a quote opens there and none closes it")
        }
    }
}

/// Returns the error for a line whose number of fields differs from the number of columns.
pub(super) fn ragged(path: &Path, line: u64, fields: usize, columns: usize) -> Error {
    let (field, column) = (counted(fields, "field"), counted(columns, "column"));
    let error =
        Error::invalid(format!("{}, line {line}: {field}, and the file has {column}", path.display()));
    let padding = match fields < columns {
        true => "; null_padding = true takes missing fields for NULL",
        false => "",
    };
    error.advise(format!(
        "correct the line, or leave such lines out (--ignore-errors, read_csv(…, ignore_errors = true)){padding}"
    ))
}

/// Returns the error for a field that is not UTF-8.
pub(super) fn no_text(path: &Path, line: u64, column: usize) -> Error {
    Error::invalid(format!("{}, line {line}: field {} is not UTF-8 text", path.display(), column + 1)).advise(
        "convert the file, for example with iconv -f latin1 -t utf8, or leave such lines out (--ignore-errors)",
    )
}

/// Returns the error for a value that does not fit its column's type; `guessed_of` is the number of rows the type was
/// guessed from.
pub(super) fn misfit(path: &Path, line: u64, value: &str, field: &Field, guessed_of: Option<usize>) -> Error {
    let name = brief(field.name());
    let by = guessed_of.map_or(String::new(), |rows| format!(" by the first {rows} rows"));
    let message = format!(
        "{}, line {line}: {:?} is not a value of column {name:?}, which has type {}{by}",
        path.display(),
        brief(value),
        sql_name(field.data_type()),
    );
    Error::invalid(message).advise(format!(
        "read it as text (--types {name}=text, read_csv(…, types = {{'{name}': 'text'}})), guess types from all rows \
         (sample_size = -1), or leave such lines out (ignore_errors = true)"
    ))
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
