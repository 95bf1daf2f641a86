//! Column names: makes them unique and not blank, and applies types given by name.

use arrow_schema::{Field, Schema, SchemaRef};
use farpool_model::{Error, ReadOptions, Result, brief};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Returns the column names of a header. Blank ones are replaced by a name with the column's index, from 0, as in
/// DuckDB.
pub(super) fn of_header(header: &[String]) -> Vec<String> {
    let name = |(i, name): (usize, &String)| match name.trim() {
        "" => format!("column{i}"),
        name => name.to_string(),
    };
    unique(header.iter().enumerate().map(name))
}

/// Returns the names, of which the first ones are replaced by those that the user gave.
pub(super) fn renamed(path: &Path, mut names: Vec<String>, given: &[String]) -> Result<Vec<String>> {
    if given.len() > names.len() {
        let (given, columns) = (given.len(), names.len());
        let message = format!("{} has {columns} columns, and {given} names are given", path.display());
        return Err(
            Error::invalid(message).advise("leave names out; those that are missing come from the header")
        );
    }
    names.splice(..given.len(), given.iter().cloned());
    Ok(unique(names.into_iter()))
}

/// Makes names unique: repeated ones get `_1`, `_2`, … appended.
fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut times: HashMap<String, usize> = HashMap::new();
    let mut rename = |mut name: String| {
        while let Some(count) = times.get_mut(&name) {
            *count += 1;
            name = format!("{name}_{count}");
        }
        times.insert(name.clone(), 0);
        name
    };
    names.map(&mut rename).collect()
}

/// Returns the schema with unique names.
pub(super) fn with_unique_names(schema: SchemaRef) -> SchemaRef {
    let fields = schema.fields();
    let names = unique(fields.iter().map(|field| field.name().clone()));
    if names.iter().zip(fields).all(|(name, field)| name == field.name()) {
        return schema;
    }
    let renamed = names.into_iter().zip(fields).map(|(name, field)| field.as_ref().clone().with_name(name));
    Arc::new(Schema::new_with_metadata(renamed.collect::<Vec<Field>>(), schema.metadata().clone()))
}

/// Returns the columns with the types that the user set for some of them.
pub(super) fn with_types(path: &Path, mut fields: Vec<Field>, options: &ReadOptions) -> Result<Vec<Field>> {
    for (name, data_type) in &options.types {
        let Some(at) = fields.iter().position(|field| field.name() == name) else {
            if options.union_by_name {
                // A column of another file may have this name.
                continue;
            }
            let known: Vec<&str> = fields.iter().map(|field| field.name().as_str()).take(20).collect();
            let message =
                format!("{} has no column {:?}, which a type is given for", path.display(), brief(name));
            return Err(Error::not_found(message).advise(format!("there is: {}", known.join(", "))));
        };
        fields[at] = Field::new(name, data_type.clone(), true);
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_come_again_are_numbered() {
        let names = ["a", "a", "a_1", "A", " ", "a"].map(str::to_string);
        assert_eq!(of_header(&names), ["a", "a_1", "a_1_1", "A", "column4", "a_2"]);
    }
}
