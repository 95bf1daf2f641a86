//! Partition folders named `name=value`, as Hive and Spark write them, whose values are columns of the files inside.
//!
//! A column of the file itself takes precedence over a folder of the same name.

use super::InputFile;
use super::csv::guess::Guess;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use farpool_model::{Error, ReadOptions, Result, brief};
use std::path::Path;
use std::sync::Arc;

/// Value of a partition folder that stands for NULL, as in Hive.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// Returns the schema with a column for each partition folder, if all files are in such folders of the same names.
pub(super) fn with_partitions(
    files: &mut [InputFile],
    schema: SchemaRef,
    options: &ReadOptions,
) -> SchemaRef {
    if options.hive_partitioning == Some(false) {
        return schema;
    }
    let found: Vec<Vec<(String, Option<String>)>> =
        files.iter().map(|file| partitions(&file.place.path)).collect();
    let names = |of: &[(String, Option<String>)]| of.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let first = names(&found[0]);
    if first.is_empty() || found.iter().any(|of| names(of) != first) {
        return schema;
    }
    let is_new = |i: &usize| schema.index_of(&first[*i]).is_err() && !first[..*i].contains(&first[*i]);
    let places: Vec<usize> = (0..first.len()).filter(is_new).collect();
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    for &place in &places {
        let mut guess = Guess::default();
        found.iter().filter_map(|of| of[place].1.as_deref()).for_each(|value| guess.see(value));
        let data_type = match guess.data_type() {
            DataType::Null => DataType::Utf8View,
            other => other,
        };
        fields.push(Arc::new(Field::new(&first[place], data_type, true)));
    }
    for (file, of) in files.iter_mut().zip(&found) {
        file.partitions = places.iter().map(|&place| of[place].1.clone()).collect();
    }
    Arc::new(Schema::new(fields))
}

/// Returns the schema with a column for the path of each row's file, if the options request it.
pub(super) fn with_paths(
    files: &mut [InputFile],
    schema: SchemaRef,
    options: &ReadOptions,
) -> Result<SchemaRef> {
    let Some(name) = &options.file_column else { return Ok(schema) };
    if schema.index_of(name).is_ok() {
        return Err(Error::invalid(format!("option filename: the files have a column {:?}", brief(name)))
            .advise("give the column of paths another name: filename = 'path'"));
    }
    for file in files {
        let path = file.place.path.display().to_string();
        file.partitions.push(Some(path));
    }
    let field = Arc::new(Field::new(name, DataType::Utf8View, true));
    Ok(Arc::new(Schema::new(schema.fields().iter().cloned().chain([field]).collect::<Vec<_>>())))
}

fn partitions(path: &Path) -> Vec<(String, Option<String>)> {
    let folders = path.parent().into_iter().flat_map(Path::components);
    let folders = folders.filter_map(|folder| folder.as_os_str().to_str()?.split_once('='));
    let value = |value: &str| (value != NULL).then(|| decoded(value));
    folders.filter(|(name, _)| !name.is_empty()).map(|(name, text)| (decoded(name), value(text))).collect()
}

/// Decodes percent-encoded characters such as `%20`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| byte == b'%') {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &behind[2..];
            }
            None => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_string())
}
