//! The formats of COPY TO, and their options.

use super::{Message, Out, textual};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::json::writer::{JsonArray, LineDelimited};
use farpool_datafusion::CopyTarget;
use farpool_model::{Error, FileCompression, OptionValue, Result, brief};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::io::{BufWriter, Write};
use tokio::sync::mpsc::Receiver;

/// Bytes that are written at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// How rows are written.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    format: Format,
    compression: FileCompression,
}

#[derive(Clone, Debug)]
enum Format {
    Csv { header: bool, delimiter: u8, quote: u8, escape: Option<u8>, null: String },
    Json { is_array: bool },
    Parquet { compression: Compression, row_group_rows: Option<usize> },
    ArrowFile,
    ArrowStream,
}

impl Settings {
    /// What a statement asks for; by the ending of the file, what it does not say.
    ///
    /// # Errors
    /// `Invalid` for a format or an option that there is not.
    pub(super) fn of(target: &CopyTarget) -> Result<Self> {
        let path = target.path.as_deref().unwrap_or_default().to_ascii_lowercase();
        let endings = [(".gz", FileCompression::Gzip), (".zst", FileCompression::Zstd)];
        let by_ending = endings.iter().find_map(|(end, how)| Some((path.strip_suffix(end)?, *how)));
        let (stem, compression) = by_ending.unwrap_or((&path, FileCompression::None));
        let ending = stem.rsplit_once('.').map_or("", |(_, ending)| ending);
        let name = target.format.as_deref().unwrap_or(ending).to_ascii_lowercase();
        let csv = |delimiter| Format::Csv {
            header: true,
            delimiter,
            quote: b'"',
            escape: None,
            null: String::new(),
        };
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
        match (&settings.format, settings.compression) {
            (_, FileCompression::None) | (Format::Csv { .. } | Format::Json { .. }, _) => Ok(settings),
            _ => Err(Error::invalid("Parquet and Arrow files are not compressed as a whole")
                .advise("leave .gz or .zst out; Parquet has the option COMPRESSION")),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match (&mut self.format, name) {
            (Format::Csv { header, .. }, "header" | "has_header") => *header = flag(value)?,
            (Format::Csv { delimiter, .. }, "delimiter" | "delim" | "sep") => *delimiter = byte(value)?,
            (Format::Csv { quote, .. }, "quote") => *quote = byte(value)?,
            (Format::Csv { escape, .. }, "escape") => *escape = Some(byte(value)?),
            (Format::Csv { null, .. }, "null" | "nullstr" | "null_value") => *null = value.to_string(),
            (Format::Json { is_array }, "array") => *is_array = flag(value)?,
            (Format::Csv { .. } | Format::Json { .. }, "compression") => {
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

    /// Writes what comes, and says whether that was all of it.
    pub(super) fn write(&self, out: Out, schema: &SchemaRef, rows: Receiver<Message>) -> Result<bool> {
        match self.compression {
            FileCompression::None => {
                let (out, is_all) = self.rows(BufWriter::with_capacity(BUFFER_BYTES, out), schema, rows)?;
                out.into_inner().map_err(|error| invalid(error.error()))?.flush().map_err(|e| invalid(&e))?;
                Ok(is_all)
            }
            FileCompression::Gzip => {
                let out = flate2::write::GzEncoder::new(out, flate2::Compression::default());
                let (out, is_all) = self.rows(BufWriter::with_capacity(BUFFER_BYTES, out), schema, rows)?;
                let out = out.into_inner().map_err(|error| invalid(error.error()))?;
                out.finish().and_then(|mut out| out.flush()).map_err(|error| invalid(&error))?;
                Ok(is_all)
            }
            FileCompression::Zstd => {
                let out = zstd::stream::write::Encoder::new(out, 0).map_err(|error| invalid(&error))?;
                let (out, is_all) = self.rows(BufWriter::with_capacity(BUFFER_BYTES, out), schema, rows)?;
                let out = out.into_inner().map_err(|error| invalid(error.error()))?;
                out.finish().and_then(|mut out| out.flush()).map_err(|error| invalid(&error))?;
                Ok(is_all)
            }
        }
    }

    fn rows<W: Write + Send>(
        &self,
        out: W,
        schema: &SchemaRef,
        rows: Receiver<Message>,
    ) -> Result<(W, bool)> {
        match &self.format {
            Format::Csv { header, delimiter, quote, escape, null } => {
                let mut builder = arrow::csv::WriterBuilder::new()
                    .with_header(*header)
                    .with_delimiter(*delimiter)
                    .with_quote(*quote)
                    .with_null(null.clone());
                if let Some(escape) = escape.filter(|escape| escape != quote) {
                    builder = builder.with_escape(escape).with_double_quote(false);
                }
                let mut writer = builder.build(out);
                // The header comes with the first batch, of which there may be none.
                let empty = textual(&RecordBatch::new_empty(schema.clone()))?;
                writer.write(&empty).map_err(|error| failed(&error))?;
                let is_all =
                    each(rows, |batch| writer.write(&textual(batch)?).map_err(|error| failed(&error)))?;
                Ok((writer.into_inner(), is_all))
            }
            Format::Json { is_array } => json(*is_array, out, rows),
            Format::Parquet { compression, row_group_rows } => {
                let mut properties = WriterProperties::builder().set_compression(*compression);
                if let Some(rows) = row_group_rows {
                    properties = properties.set_max_row_group_row_count(Some(*rows));
                }
                let stopped = |error: parquet::errors::ParquetError| Error::invalid(error.to_string());
                let writer = ArrowWriter::try_new(out, schema.clone(), Some(properties.build()));
                let mut writer = writer.map_err(stopped)?;
                let is_all = each(rows, |batch| writer.write(batch).map_err(stopped))?;
                Ok((writer.into_inner().map_err(stopped)?, is_all))
            }
            Format::ArrowFile => {
                let mut writer = FileWriter::try_new(out, schema).map_err(|error| failed(&error))?;
                let is_all = each(rows, |batch| writer.write(batch).map_err(|error| failed(&error)))?;
                writer.finish().map_err(|error| failed(&error))?;
                Ok((writer.into_inner().map_err(|error| failed(&error))?, is_all))
            }
            Format::ArrowStream => {
                let mut writer = StreamWriter::try_new(out, schema).map_err(|error| failed(&error))?;
                let is_all = each(rows, |batch| writer.write(batch).map_err(|error| failed(&error)))?;
                writer.finish().map_err(|error| failed(&error))?;
                Ok((writer.into_inner().map_err(|error| failed(&error))?, is_all))
            }
        }
    }
}

impl Format {
    fn options(&self) -> &'static str {
        match self {
            Format::Csv { .. } => "header, delimiter, quote, escape, null, compression",
            Format::Json { .. } => "array, compression",
            Format::Parquet { .. } => "compression, row_group_size",
            Format::ArrowFile | Format::ArrowStream => "none",
        }
    }
}

fn json<W: Write + Send>(is_array: bool, out: W, rows: Receiver<Message>) -> Result<(W, bool)> {
    let builder = arrow::json::WriterBuilder::new().with_explicit_nulls(true);
    if is_array {
        let mut writer = builder.build::<_, JsonArray>(out);
        let is_all = each(rows, |batch| writer.write(batch).map_err(|error| failed(&error)))?;
        writer.finish().map_err(|error| failed(&error))?;
        return Ok((writer.into_inner(), is_all));
    }
    let mut writer = builder.build::<_, LineDelimited>(out);
    let is_all = each(rows, |batch| writer.write(batch).map_err(|error| failed(&error)))?;
    writer.finish().map_err(|error| failed(&error))?;
    Ok((writer.into_inner(), is_all))
}

/// Gives `write` each batch, and says whether the last one came.
fn each(mut rows: Receiver<Message>, mut write: impl FnMut(&RecordBatch) -> Result<()>) -> Result<bool> {
    loop {
        match rows.blocking_recv() {
            Some(Message::Batch(batch)) => write(&batch)?,
            Some(Message::End) => return Ok(true),
            None => return Ok(false),
        }
    }
}

fn failed(error: &ArrowError) -> Error {
    Error::invalid(error.to_string())
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
