//! The file formats of COPY TO, and their options.

use super::csv::{self, Form};
use super::encode::{Encoded, failed, stopped};
use super::{Message, Out};
use crate::terminal_text::EscapeStyle;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use farpool_datafusion::CopyTarget;
use farpool_model::{Error, FileCompression, OptionValue, Result, brief};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowColumnChunk;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use std::io::{BufWriter, Write};
use tokio::sync::mpsc::Receiver;

/// Size of the output buffer in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// The settings of the output.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    format: Format,
    compression: FileCompression,
}

#[derive(Clone, Debug)]
pub(super) enum Format {
    Csv(Csv),
    Json { is_array: bool },
    Parquet { compression: Compression, row_group_rows: Option<usize> },
    ArrowFile,
    ArrowStream,
}

/// The settings of CSV output.
#[derive(Clone, Debug)]
pub(super) struct Csv {
    header: bool,
    delimiter: u8,
    quote: u8,
    escape: Option<u8>,
    null: String,
}

impl Csv {
    fn new(delimiter: u8) -> Self {
        Csv { header: true, delimiter, quote: b'"', escape: None, null: String::new() }
    }

    pub(super) fn form(&self) -> Form {
        let escape = self.escape.filter(|escape| *escape != self.quote);
        Form { delimiter: self.delimiter, quote: self.quote, escape, null: self.null.clone() }
    }

    /// Returns the header line, empty if no header is written.
    fn head(&self, schema: &SchemaRef) -> Result<Vec<u8>> {
        if !self.header {
            return Ok(Vec::new());
        }
        csv::header(&self.form(), schema).map_err(|error| failed(&error))
    }

    /// Checks that the text for NULL needs no quotes, because NULL is recognized by the absence of quotes.
    fn check(&self) -> Result<()> {
        match self.form().is_special(&self.null) {
            false => Ok(()),
            true => Err(Error::invalid(format!(
                "COPY, option null: {:?} has a delimiter, a quote, an escape or a line break in it",
                brief(&self.null)
            ))
            .advise("NULL is written without quotes: choose another text for it, such as NULL 'NA'")),
        }
    }
}

impl Settings {
    /// Returns the settings of a statement; unset ones are derived from the file's extension.
    ///
    /// # Errors
    /// `Invalid` for an unknown format or option.
    pub(super) fn of(target: &CopyTarget) -> Result<Self> {
        let path = target.path.as_deref().unwrap_or_default().to_ascii_lowercase();
        let endings = [(".gz", FileCompression::Gzip), (".zst", FileCompression::Zstd)];
        let by_ending = endings.iter().find_map(|(end, how)| Some((path.strip_suffix(end)?, *how)));
        let (stem, compression) = by_ending.unwrap_or((&path, FileCompression::None));
        let ending = stem.rsplit_once('.').map_or("", |(_, ending)| ending);
        let name = target.format.as_deref().unwrap_or(ending).to_ascii_lowercase();
        let csv = |delimiter| Format::Csv(Csv::new(delimiter));
        let format = match name.as_str() {
            "csv" if ending == "tsv" => csv(b'\t'),
            "csv" => csv(b','),
            "tsv" | "text" => csv(b'\t'),
            "json" | "ndjson" | "jsonl" => Format::Json { is_array: false },
            "parquet" => Format::Parquet { compression: Compression::SNAPPY, row_group_rows: None },
            "arrow" | "feather" | "ipc" if target.path.is_some() => Format::ArrowFile,
            "arrow" | "arrows" => Format::ArrowStream,
            "" if target.path.is_none() => csv(b'\t'),
            _ => {
                let what = target.format.as_deref().or(target.path.as_deref()).unwrap_or_default();
                return Err(Error::invalid(format!("{:?} names no format to write", brief(what)))
                    .advise("say it: (FORMAT csv), json, parquet or arrow"));
            }
        };
        let mut settings = Settings { format, compression };
        for (name, value) in &target.options {
            settings
                .set(name, value)
                .map_err(|error| error.at(format_args!("COPY, option {}", brief(name))))?;
        }
        if let Format::Csv(csv) = &settings.format {
            csv.check()?;
        }
        match (&settings.format, settings.compression) {
            (_, FileCompression::None) | (Format::Csv(_) | Format::Json { .. }, _) => Ok(settings),
            _ => Err(Error::invalid("Parquet and Arrow files are not compressed as a whole")
                .advise("leave .gz or .zst out; Parquet has the option COMPRESSION")),
        }
    }

    /// Returns the style in which the output is escaped on a terminal; `None` for binary formats.
    pub(super) fn escapes(&self) -> Option<EscapeStyle> {
        match (&self.format, self.compression) {
            (Format::Csv(_), FileCompression::None) => Some(EscapeStyle::Text),
            (Format::Json { .. }, FileCompression::None) => Some(EscapeStyle::Json),
            _ => None,
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match (&mut self.format, name) {
            (Format::Csv(csv), "header" | "has_header") => csv.header = flag(value)?,
            (Format::Csv(csv), "delimiter" | "delim" | "sep") => csv.delimiter = byte(value)?,
            (Format::Csv(csv), "quote") => csv.quote = byte(value)?,
            (Format::Csv(csv), "escape") => csv.escape = Some(byte(value)?),
            (Format::Csv(csv), "null" | "nullstr" | "null_value") => csv.null = value.to_string(),
            (Format::Json { is_array }, "array") => *is_array = flag(value)?,
            (Format::Csv(_) | Format::Json { .. }, "compression") => {
                let mut read = farpool_model::ReadOptions::default();
                read.set("compression", &OptionValue::Text(value.to_string()))?;
                self.compression = read.compression.unwrap_or(self.compression);
            }
            (Format::Parquet { compression, .. }, "compression" | "codec") => *compression = codec(value)?,
            (Format::Parquet { row_group_rows, .. }, "row_group_size") => {
                let rows = value.replace('_', "").parse().ok().filter(|rows| *rows > 0);
                *row_group_rows = Some(rows.ok_or_else(|| Error::invalid("a number of rows is expected"))?);
            }
            (format, _) => {
                return Err(Error::invalid("there is no such option")
                    .advise(format!("the options of this format are: {}", format.options())));
            }
        }
        Ok(())
    }

    pub(super) fn format(&self) -> &Format {
        &self.format
    }

    /// Returns the properties of a Parquet file; `None` for other formats.
    pub(super) fn properties(&self) -> Option<WriterProperties> {
        let Format::Parquet { compression, .. } = &self.format else { return None };
        Some(WriterProperties::builder().set_compression(*compression).build())
    }

    /// Writes the parts as they arrive. Returns whether the last part arrived; if not, the file is incomplete.
    pub(super) fn write(&self, out: Out, schema: &SchemaRef, parts: Receiver<Message>) -> Result<bool> {
        let failed = |error: std::io::Error| invalid(&error);
        let buffered = |out| BufWriter::with_capacity(BUFFER_BYTES, out);
        let (mut out, is_all) = match self.compression {
            FileCompression::None => self.parts(buffered(out), schema, parts)?,
            FileCompression::Gzip => {
                let out = flate2::write::GzEncoder::new(buffered(out), flate2::Compression::default());
                let (out, is_all) = self.parts(out, schema, parts)?;
                (out.finish().map_err(failed)?, is_all)
            }
            FileCompression::Zstd => {
                let out = zstd::stream::write::Encoder::new(buffered(out), 0).map_err(failed)?;
                let (out, is_all) = self.parts(out, schema, parts)?;
                (out.finish().map_err(failed)?, is_all)
            }
        };
        out.flush().map_err(failed)?;
        Ok(is_all)
    }

    fn parts<W: Write + Send>(
        &self,
        out: W,
        schema: &SchemaRef,
        parts: Receiver<Message>,
    ) -> Result<(W, bool)> {
        match &self.format {
            Format::Csv(csv) => texts(out, (&csv.head(schema)?, b"", b""), parts),
            Format::Json { is_array: true } => texts(out, (b"[", b",", b"]"), parts),
            Format::Json { is_array: false } => texts(out, (b"", b"", b""), parts),
            Format::Parquet { .. } => {
                let writer = ArrowWriter::try_new(out, schema.clone(), self.properties());
                let (mut writer, _) =
                    writer.and_then(ArrowWriter::into_serialized_writer).map_err(stopped)?;
                let is_all = each(parts, |part| match part {
                    Encoded::Columns(columns) => row_group(&mut writer, columns).map_err(stopped),
                    Encoded::Bytes(_) | Encoded::Batches(_) => Err(of_another_format()),
                })?;
                Ok((writer.into_inner().map_err(stopped)?, is_all))
            }
            Format::ArrowFile => {
                let mut writer = FileWriter::try_new(out, schema).map_err(|error| failed(&error))?;
                let is_all = each_batch(parts, |batch| writer.write(batch))?;
                writer.finish().map_err(|error| failed(&error))?;
                Ok((writer.into_inner().map_err(|error| failed(&error))?, is_all))
            }
            Format::ArrowStream => {
                let mut writer = StreamWriter::try_new(out, schema).map_err(|error| failed(&error))?;
                let is_all = each_batch(parts, |batch| writer.write(batch))?;
                writer.finish().map_err(|error| failed(&error))?;
                Ok((writer.into_inner().map_err(|error| failed(&error))?, is_all))
            }
        }
    }
}

impl Format {
    fn options(&self) -> &'static str {
        match self {
            Format::Csv(_) => "header, delimiter, quote, escape, null, compression",
            Format::Json { .. } => "array, compression",
            Format::Parquet { .. } => "compression, row_group_size",
            Format::ArrowFile | Format::ArrowStream => "none",
        }
    }
}

/// Writes text parts, with the given bytes before the first part, between parts and after the last part.
fn texts<W: Write>(
    mut out: W,
    (before, between, behind): (&[u8], &[u8], &[u8]),
    parts: Receiver<Message>,
) -> Result<(W, bool)> {
    out.write_all(before).map_err(|error| invalid(&error))?;
    let mut is_first = true;
    let is_all = each(parts, |part| match part {
        Encoded::Bytes(bytes) if bytes.is_empty() => Ok(()),
        Encoded::Bytes(bytes) => {
            let between = if std::mem::take(&mut is_first) { b"" } else { between };
            out.write_all(between).and_then(|()| out.write_all(&bytes)).map_err(|error| invalid(&error))
        }
        Encoded::Columns(_) | Encoded::Batches(_) => Err(of_another_format()),
    })?;
    out.write_all(behind).map_err(|error| invalid(&error))?;
    Ok((out, is_all))
}

fn row_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: Vec<ArrowColumnChunk>,
) -> std::result::Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    columns.into_iter().try_for_each(|column| column.append_to_row_group(&mut group))?;
    group.close().map(|_| ())
}

fn each_batch(
    parts: Receiver<Message>,
    mut write: impl FnMut(&RecordBatch) -> std::result::Result<(), ArrowError>,
) -> Result<bool> {
    each(parts, |part| match part {
        Encoded::Batches(batches) => batches.iter().try_for_each(&mut write).map_err(|error| failed(&error)),
        Encoded::Bytes(_) | Encoded::Columns(_) => Err(of_another_format()),
    })
}

/// Calls `write` with each part. Returns whether the last part arrived.
fn each(mut parts: Receiver<Message>, mut write: impl FnMut(Encoded) -> Result<()>) -> Result<bool> {
    loop {
        match parts.blocking_recv() {
            Some(Message::Part(part)) => write(part)?,
            Some(Message::End) => return Ok(true),
            None => return Ok(false),
        }
    }
}

fn of_another_format() -> Error {
    Error::internal("rows were encoded for another format than that of the file")
}

fn invalid(error: &std::io::Error) -> Error {
    Error::invalid(error.to_string())
}

fn flag(value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(Error::invalid("true or false is expected")),
    }
}

fn byte(value: &str) -> Result<u8> {
    match value {
        "\\t" => Ok(b'\t'),
        _ if value.len() == 1 => Ok(value.as_bytes()[0]),
        _ => Err(Error::invalid("one ASCII character is expected")),
    }
}

fn codec(value: &str) -> Result<Compression> {
    Ok(match value.to_ascii_lowercase().as_str() {
        "snappy" => Compression::SNAPPY,
        "zstd" => Compression::ZSTD(ZstdLevel::default()),
        "gzip" => Compression::GZIP(GzipLevel::default()),
        "lz4" | "lz4_raw" => Compression::LZ4_RAW,
        "none" | "uncompressed" => Compression::UNCOMPRESSED,
        _ => return Err(Error::invalid("it is one of: snappy, zstd, gzip, lz4, uncompressed")),
    })
}
