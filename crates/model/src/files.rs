//! Options for reading files, and the set of files that forms one table of a query. `read_csv(…)`, `read_json(…)` and
//! `read_parquet(…)` take the options in SQL, and the commands take them as flags.
//!
//! Invariant: every way to state an option goes through [`ReadOptions::set`], so that it has the same meaning
//! everywhere.

use crate::{Error, Result, limits, schema};
use arrow_schema::{DataType, TimeUnit};

/// The file formats that can be read as tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileFormat {
    /// Comma-separated values, or values with another separator.
    Csv,
    /// JSON objects, on one line or several lines each, or one array of objects.
    Json,
    /// Apache Parquet.
    Parquet,
}

/// Compression of a CSV or JSON file as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileCompression {
    /// Not compressed.
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
}

/// The value of an option, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// A string.
    Text(String),
    /// An integer.
    Number(i64),
    /// `true` or `false`.
    Flag(bool),
    /// A list, such as `['NA', '']`.
    List(Vec<OptionValue>),
    /// A map, such as `{'zip': 'text'}`.
    Map(Vec<(String, OptionValue)>),
}

/// Options for reading files. Options that are not set are detected from the file, or have the default stated here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadOptions {
    /// The file format; overrides the file name.
    pub format: Option<FileFormat>,
    /// Compression of a CSV or JSON file; overrides the detection from its first bytes.
    pub compression: Option<FileCompression>,
    /// The separator between two fields.
    pub delimiter: Option<u8>,
    /// The quote around a field that contains separators; by default `"`.
    pub quote: Option<u8>,
    /// The character that escapes a quote within a quoted field; by default the quote itself.
    pub escape: Option<u8>,
    /// The character at the beginning of comment lines, which are skipped.
    pub comment: Option<u8>,
    /// Whether the first line has the names of the columns; by default it does.
    pub header: Option<bool>,
    /// Number of lines to skip at the beginning of the file, before the header.
    pub skip_lines: usize,
    /// Fields that are read as NULL; by default empty fields.
    pub null_texts: Option<Vec<String>>,
    /// Types of columns, by column name.
    pub types: Vec<(String, DataType)>,
    /// Whether every column is read as text.
    pub all_text: bool,
    /// Number of rows from which column types are detected; `usize::MAX` for all.
    pub sample_rows: Option<usize>,
    /// Whether lines that do not match the columns are skipped.
    pub ignore_errors: bool,
    /// Whether missing fields at the end of a line are read as NULL.
    pub null_padding: bool,
    /// Whether quoted fields, too, are read as NULL if they are in `null_texts`.
    pub quoted_nulls: bool,
    /// Whether folders named `name=value` become columns; by default if all files are in such folders.
    pub hive_partitioning: Option<bool>,
    /// Whether the table has all columns of all its files, matched by name; a column that a file lacks is NULL for its
    /// rows.
    pub union_by_name: bool,
    /// The name of an additional column with the path of each row's file.
    pub file_column: Option<String>,
    /// The character encoding; UTF-8 by default.
    pub encoding: Option<CharacterEncoding>,
    /// The decimal separator: the character before the fraction of a number; by default a point.
    pub decimal_separator: Option<u8>,
    /// The thousands separator: the character between groups of digits of a number.
    pub thousands: Option<u8>,
    /// Format of dates in the notation of `strptime`, such as `%d.%m.%Y`.
    pub date_format: Option<String>,
    /// Format of timestamps in the notation of `strptime`.
    pub timestamp_format: Option<String>,
    /// Names of the first columns, which replace those of the header.
    pub names: Vec<String>,
}

/// The character encoding of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CharacterEncoding {
    /// UTF-8.
    Utf8,
    /// ISO 8859-1: each byte is the character of that number.
    Latin1,
    /// UTF-16 in the order that a byte order mark says, little-endian without.
    Utf16,
    /// UTF-16, little-endian.
    Utf16Le,
    /// UTF-16, big-endian.
    Utf16Be,
}

/// The files that form one table of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileSpec {
    /// Paths, file patterns and folders.
    pub paths: Vec<String>,
    /// Options for reading them.
    pub options: ReadOptions,
}

/// The options by name, each with the file formats that it applies to.
const OPTIONS: &[(&str, &[FileFormat])] = &[
    ("all_varchar", CSV),
    ("allow_quoted_nulls", CSV),
    ("comment", CSV),
    ("compression", TEXT),
    ("dateformat", CSV),
    ("decimal_separator", CSV),
    ("delim", CSV),
    ("encoding", CSV),
    ("escape", CSV),
    ("filename", ALL),
    ("header", CSV),
    ("hive_partitioning", ALL),
    ("ignore_errors", TEXT),
    ("names", CSV),
    ("null_padding", CSV),
    ("nullstr", CSV),
    ("quote", CSV),
    ("sample_size", TEXT),
    ("skip", CSV),
    ("thousands", CSV),
    ("timestampformat", CSV),
    ("types", TEXT),
    ("union_by_name", ALL),
];
const ALL: &[FileFormat] = &[FileFormat::Csv, FileFormat::Json, FileFormat::Parquet];
const CSV: &[FileFormat] = &[FileFormat::Csv];
const TEXT: &[FileFormat] = &[FileFormat::Csv, FileFormat::Json];

impl FileFormat {
    /// Returns the SQL function that reads the format.
    pub fn function(self) -> &'static str {
        match self {
            FileFormat::Csv => "read_csv",
            FileFormat::Json => "read_json",
            FileFormat::Parquet => "read_parquet",
        }
    }

    /// Returns the format that the SQL function `name` reads; `None` for other functions.
    pub fn of_function(name: &str) -> Option<FileFormat> {
        Some(match name {
            "read_csv" | "read_csv_auto" => FileFormat::Csv,
            "read_json" | "read_json_auto" | "read_ndjson" | "read_ndjson_auto" => FileFormat::Json,
            "read_parquet" | "parquet_scan" => FileFormat::Parquet,
            _ => return None,
        })
    }
}

impl ReadOptions {
    /// Options for files of `format`.
    pub fn for_format(format: FileFormat) -> Self {
        ReadOptions { format: Some(format), ..ReadOptions::default() }
    }

    /// Returns the names of the columns whose types are set by the options.
    pub fn typed(&self) -> Vec<String> {
        self.types.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Sets the option called `name`, in any case.
    ///
    /// # Errors
    /// `Invalid` if there is no such option (the error lists those that exist), or if the value is not valid for it.
    pub fn set(&mut self, name: &str, value: &OptionValue) -> Result<()> {
        let name = match name.to_ascii_lowercase().as_str() {
            "sep" | "delimiter" | "separator" => "delim".to_string(),
            "null" | "nulls" | "na_values" => "nullstr".to_string(),
            "dtypes" | "column_types" | "columns_types" => "types".to_string(),
            "all_text" => "all_varchar".to_string(),
            "date_format" => "dateformat".to_string(),
            "timestamp_format" => "timestampformat".to_string(),
            "decimal" => "decimal_separator".to_string(),
            "column_names" => "names".to_string(),
            name => name.to_string(),
        };
        self.check_name(&name)?;
        self.set_known(&name, value).map_err(|error| error.at(format_args!("option {name}")))
    }

    fn check_name(&self, name: &str) -> Result<()> {
        let is_of = |formats: &[FileFormat]| self.format.is_none_or(|format| formats.contains(&format));
        let known = || OPTIONS.iter().filter(|(_, formats)| is_of(formats)).map(|(name, _)| *name);
        if known().any(|known| known == name) {
            return Ok(());
        }
        let of = self.format.map_or("files", FileFormat::function);
        Err(Error::invalid(format!("{of} has no option {:?}", crate::brief(name)))
            .advise(format!("the options are: {}", known().collect::<Vec<_>>().join(", "))))
    }

    fn set_known(&mut self, name: &str, value: &OptionValue) -> Result<()> {
        match name {
            "all_varchar" => self.all_text = flag(value)?,
            "allow_quoted_nulls" => self.quoted_nulls = flag(value)?,
            "comment" => self.comment = optional_byte(value)?,
            "compression" => self.compression = compression(value)?,
            "dateformat" => self.date_format = Some(format(value)?),
            "decimal_separator" => self.decimal_separator = Some(decimal_separator(value)?),
            "delim" => self.delimiter = Some(byte(value)?),
            "encoding" => self.encoding = Some(encoding(value)?),
            "escape" => self.escape = optional_byte(value)?,
            "filename" => self.file_column = file_column(value)?,
            "header" => self.header = Some(flag(value)?),
            "hive_partitioning" => self.hive_partitioning = Some(flag(value)?),
            "ignore_errors" => self.ignore_errors = flag(value)?,
            "names" => self.names = names(value)?,
            "null_padding" => self.null_padding = flag(value)?,
            "nullstr" => self.null_texts = Some(texts(value)?),
            "quote" => self.quote = optional_byte(value)?.or(Some(0)),
            "sample_size" => self.sample_rows = Some(sample_rows(value)?),
            "skip" => self.skip_lines = count(value)?,
            "thousands" => self.thousands = Some(byte(value)?),
            "timestampformat" => self.timestamp_format = Some(format(value)?),
            "types" => self.types = types(value)?,
            "union_by_name" => self.union_by_name = flag(value)?,
            _ => return Err(Error::internal("an option without a meaning")),
        }
        Ok(())
    }
}

impl FileSpec {
    /// Creates the file or file pattern `path` with default options.
    pub fn plain(path: impl Into<String>) -> Self {
        FileSpec { paths: vec![path.into()], options: ReadOptions::default() }
    }
}

/// Formats the files as messages name them.
impl std::fmt::Display for FileSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.paths.as_slice() {
            [path] => f.write_str(path),
            [first, rest @ ..] => write!(f, "{first} and {} more", rest.len()),
            [] => f.write_str("no file"),
        }
    }
}

fn flag(value: &OptionValue) -> Result<bool> {
    match value {
        OptionValue::Flag(flag) => Ok(*flag),
        OptionValue::Number(0) => Ok(false),
        OptionValue::Number(1) => Ok(true),
        OptionValue::Text(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        OptionValue::Text(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(Error::invalid("true or false is expected")),
    }
}

fn count(value: &OptionValue) -> Result<usize> {
    match value {
        OptionValue::Number(number) => {
            usize::try_from(*number).map_err(|_| Error::invalid("a number of lines cannot be negative"))
        }
        _ => Err(Error::invalid("a whole number is expected")),
    }
}

fn sample_rows(value: &OptionValue) -> Result<usize> {
    match value {
        OptionValue::Number(-1) => Ok(usize::MAX),
        OptionValue::Number(rows) if *rows > 0 => Ok(usize::try_from(*rows).unwrap_or(usize::MAX)),
        _ => Err(Error::invalid("a number of rows is expected, or -1 for all")),
    }
}

fn text(value: &OptionValue) -> Result<&str> {
    match value {
        OptionValue::Text(text) => Ok(text),
        _ => Err(Error::invalid("a text in single quotes is expected")),
    }
}

fn texts(value: &OptionValue) -> Result<Vec<String>> {
    let texts = match value {
        OptionValue::List(values) => {
            values.iter().map(|v| text(v).map(str::to_string)).collect::<Result<Vec<_>>>()?
        }
        other => vec![text(other)?.to_string()],
    };
    match texts.len() <= limits::NULL_TEXTS_MAX {
        true => Ok(texts),
        false => Err(Error::over_limit(format!("{} texts are the most", limits::NULL_TEXTS_MAX))),
    }
}

fn optional_byte(value: &OptionValue) -> Result<Option<u8>> {
    if text(value)?.is_empty() { Ok(None) } else { byte(value).map(Some) }
}

fn byte(value: &OptionValue) -> Result<u8> {
    match text(value)? {
        "\\t" => Ok(b'\t'),
        text if text.len() == 1 && !matches!(text, "\n" | "\r" | "\0") => Ok(text.as_bytes()[0]),
        _ => Err(Error::invalid("one ASCII character is expected, such as ';' or '\\t'")),
    }
}

/// Returns a format of dates or times. It is validated by the reader that uses it.
fn format(value: &OptionValue) -> Result<String> {
    match text(value)? {
        "" => Err(Error::invalid("it is empty").advise("write it as strptime has it: '%d.%m.%Y'")),
        format => Ok(format.to_string()),
    }
}

fn decimal_separator(value: &OptionValue) -> Result<u8> {
    match text(value)? {
        "," => Ok(b','),
        "." => Ok(b'.'),
        _ => Err(Error::invalid("it is ',' or '.'")),
    }
}

fn encoding(value: &OptionValue) -> Result<CharacterEncoding> {
    match text(value)?.to_ascii_lowercase().replace('_', "-").as_str() {
        "utf-8" | "utf8" => Ok(CharacterEncoding::Utf8),
        "latin-1" | "latin1" | "iso-8859-1" | "iso8859-1" => Ok(CharacterEncoding::Latin1),
        "utf-16" | "utf16" => Ok(CharacterEncoding::Utf16),
        "utf-16le" | "utf-16-le" | "utf16le" => Ok(CharacterEncoding::Utf16Le),
        "utf-16be" | "utf-16-be" | "utf16be" => Ok(CharacterEncoding::Utf16Be),
        _ => Err(Error::invalid("it is one of: utf-8, latin-1, utf-16, utf-16le, utf-16be")
            .advise("convert the file from another one, for example with iconv -f windows-1252 -t utf8")),
    }
}

/// Returns the name of the column for the path; `None` if there is no such column.
fn file_column(value: &OptionValue) -> Result<Option<String>> {
    match value {
        OptionValue::Text(name) if flag(value).is_err() && !name.is_empty() => Ok(Some(name.clone())),
        _ => Ok(flag(value)?.then(|| "filename".to_string())),
    }
}

fn names(value: &OptionValue) -> Result<Vec<String>> {
    let OptionValue::List(values) = value else {
        return Err(Error::invalid("a list of names is expected, as in ['id', 'name']"));
    };
    let names = values.iter().map(|value| text(value).map(str::to_string)).collect::<Result<Vec<_>>>()?;
    if names.len() > limits::COLUMNS_MAX {
        return Err(Error::over_limit(format!("a table may have {} columns", limits::COLUMNS_MAX)));
    }
    match names.iter().enumerate().find(|(i, name)| name.trim().is_empty() || names[..*i].contains(name)) {
        Some((_, name)) => Err(Error::invalid(format!("{:?} is empty, or twice there", crate::brief(name)))),
        None => Ok(names),
    }
}

fn compression(value: &OptionValue) -> Result<Option<FileCompression>> {
    match text(value)?.to_ascii_lowercase().as_str() {
        "auto" | "auto_detect" => Ok(None),
        "none" => Ok(Some(FileCompression::None)),
        "gzip" | "gz" => Ok(Some(FileCompression::Gzip)),
        "zstd" | "zst" => Ok(Some(FileCompression::Zstd)),
        _ => Err(Error::invalid("it is one of: auto, none, gzip, zstd")),
    }
}

fn types(value: &OptionValue) -> Result<Vec<(String, DataType)>> {
    let OptionValue::Map(entries) = value else {
        return Err(Error::invalid("names and types are expected, as in {'zip': 'text', 'fare': 'double'}"));
    };
    entries.iter().map(|(name, value)| Ok((name.clone(), named_type(text(value)?)?))).collect()
}

/// Returns the type with this SQL name, among the types that text files can be read as.
///
/// # Errors
/// `Invalid` if there is no such type.
pub fn named_type(name: &str) -> Result<DataType> {
    let lower = name.trim().to_ascii_lowercase();
    let data_type = match lower.as_str() {
        "text" | "varchar" | "string" | "char" => DataType::Utf8View,
        "bool" | "boolean" | "logical" => DataType::Boolean,
        "tinyint" | "int1" => DataType::Int8,
        "smallint" | "int2" => DataType::Int16,
        "int" | "integer" | "int4" => DataType::Int32,
        "bigint" | "int8" | "long" => DataType::Int64,
        "utinyint" => DataType::UInt8,
        "usmallint" => DataType::UInt16,
        "uinteger" => DataType::UInt32,
        "ubigint" => DataType::UInt64,
        "real" | "float" | "float4" => DataType::Float32,
        "double" | "double precision" | "float8" => DataType::Float64,
        "date" => DataType::Date32,
        "timestamp" | "datetime" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "timestamp_ns" => DataType::Timestamp(TimeUnit::Nanosecond, None),
        "timestamptz" | "timestamp with time zone" => {
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
        }
        "decimal" | "numeric" => DataType::Decimal128(18, 3),
        _ => named_decimal(&lower).ok_or_else(|| {
            Error::invalid(format!("{:?} is no type that files are read as", crate::brief(name))).advise(
                "types are: text, boolean, tinyint, smallint, integer, bigint (with u for unsigned), real, \
                 double, decimal(p, s), date, timestamp, timestamptz",
            )
        })?,
    };
    Ok(data_type)
}

fn named_decimal(name: &str) -> Option<DataType> {
    let arguments = name.strip_prefix("decimal").or_else(|| name.strip_prefix("numeric"))?.trim();
    let (precision, scale) = arguments.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    schema::decimal(precision.trim().parse().ok()?, scale.trim().parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: OptionValue) -> Result<ReadOptions> {
        let mut options = ReadOptions::for_format(FileFormat::Csv);
        options.set(name, &value).map(|()| options)
    }

    fn text(value: &str) -> OptionValue {
        OptionValue::Text(value.to_string())
    }

    #[test]
    fn options_have_the_names_that_people_know() {
        let nulls = OptionValue::List(vec![text("NA"), text("")]);
        let expected = Some(vec!["NA".to_string(), String::new()]);
        assert_eq!(set("nullstr", nulls.clone()).unwrap().null_texts, expected);
        assert_eq!(set("NULL", nulls).unwrap().null_texts, expected);
        assert_eq!(set("sep", text("\\t")).unwrap().delimiter, Some(b'\t'));
        assert_eq!(set("sample_size", OptionValue::Number(-1)).unwrap().sample_rows, Some(usize::MAX));
        let types = OptionValue::Map(vec![("m".to_string(), text("DECIMAL(10, 2)"))]);
        assert_eq!(set("types", types).unwrap().types, [("m".to_string(), DataType::Decimal128(10, 2))]);
    }

    #[test]
    fn wrong_options_say_what_there_is() {
        let said = |outcome: Result<ReadOptions>| outcome.unwrap_err().to_string();
        let error = said(set("nulstr", text("NA")));
        assert!(error.contains("read_csv has no option \"nulstr\"") && error.contains("nullstr"), "{error}");
        assert!(said(set("delim", text("ab"))).contains("option delim: one ASCII character"));
        assert!(said(set("sample_size", OptionValue::Number(-2))).contains("option sample_size"));
        assert!(said(set("types", text("int"))).contains("names and types"));
        let types = OptionValue::Map(vec![("m".to_string(), text("decimal(50, 2)"))]);
        assert!(said(set("types", types)).contains("decimal(p, s)"));
        let mut parquet = ReadOptions::for_format(FileFormat::Parquet);
        let error = parquet.set("delim", &text(";")).unwrap_err().to_string();
        assert!(error.contains("the options are: filename, hive_partitioning, union_by_name"), "{error}");
    }
}
