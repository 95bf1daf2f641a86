//! The flags that control how files are read, shared by `load`, `profile` and `sql`.

use super::stop::{Outcome, Stop};
use farpool::model::{OptionValue, ReadOptions};

/// Options for reading CSV and JSON files
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Reading CSV and JSON files")]
pub struct ReadArgs {
    /// Text of a field that means NULL, such as NA; repeatable [default: empty fields]
    #[arg(long = "null", value_name = "TEXT")]
    nulls: Vec<String>,

    /// Types of columns, such as zip=text,fare=double; other types are inferred
    #[arg(long, value_name = "NAME=TYPE", value_delimiter = ',')]
    types: Vec<String>,

    /// Read every column of a CSV file as text
    #[arg(long)]
    all_text: bool,

    /// Number of rows from which types are inferred; -1 for all [default: 20480]
    #[arg(long, value_name = "ROWS", allow_negative_numbers = true)]
    sample_size: Option<i64>,

    /// The character between two fields, such as ';' or '\t'
    #[arg(long, value_name = "CHARACTER")]
    delim: Option<String>,

    /// Quote character around fields, '' for none [default: "]
    #[arg(long, value_name = "CHARACTER")]
    quote: Option<String>,

    /// Escape character before a quote within a quoted field [default: the quote character]
    #[arg(long, value_name = "CHARACTER")]
    escape: Option<String>,

    /// Skip lines that begin with this character
    #[arg(long, value_name = "CHARACTER")]
    comment: Option<String>,

    /// Number of lines to skip at the beginning
    #[arg(long, value_name = "LINES")]
    skip: Option<i64>,

    /// Read the first line as a row; columns are named column0, column1, …
    #[arg(long)]
    no_header: bool,

    /// Skip lines that have the wrong number of fields or a value that its type cannot hold
    #[arg(long)]
    ignore_errors: bool,
}

impl ReadArgs {
    /// Converts the flags to options.
    pub fn options(&self) -> Outcome<ReadOptions> {
        let mut options = ReadOptions::default();
        let text = |text: &String| OptionValue::Text(text.clone());
        let mut set = |name: &str, value: Option<OptionValue>| match value {
            Some(value) => options.set(name, &value),
            None => Ok(()),
        };
        let flag = |is_set: bool| is_set.then_some(OptionValue::Flag(true));
        let nulls =
            (!self.nulls.is_empty()).then(|| OptionValue::List(self.nulls.iter().map(text).collect()));
        set("nullstr", nulls)?;
        set("types", self.types()?)?;
        set("all_varchar", flag(self.all_text))?;
        set("sample_size", self.sample_size.map(OptionValue::Number))?;
        set("delim", self.delim.as_ref().map(text))?;
        set("quote", self.quote.as_ref().map(text))?;
        set("escape", self.escape.as_ref().map(text))?;
        set("comment", self.comment.as_ref().map(text))?;
        set("skip", self.skip.map(OptionValue::Number))?;
        set("header", self.no_header.then_some(OptionValue::Flag(false)))?;
        set("ignore_errors", flag(self.ignore_errors))?;
        Ok(options)
    }

    /// Fails if one of the flags was given, because they would have no effect for `what`, which is not a file.
    pub fn none_for(&self, what: &str) -> Outcome {
        if !self.is_given()? {
            return Ok(());
        }
        Err(Stop::usage(
            format!("the flags about reading CSV and JSON do nothing here: {what} is no file"),
            "leave them out (--null, --types, --delim, …); those of a load decided what the table holds",
        ))
    }

    /// Returns whether any of the flags was given.
    pub fn is_given(&self) -> Outcome<bool> {
        Ok(self.options()? != ReadOptions::default())
    }

    fn types(&self) -> farpool::Result<Option<OptionValue>> {
        let pair = |text: &String| match text.rsplit_once('=') {
            Some((name, data_type)) => Ok((name.to_string(), OptionValue::Text(data_type.to_string()))),
            None => {
                Err(farpool::Error::invalid(format!("--types {text}: a column and its type are expected"))
                    .advise("write NAME=TYPE, as in --types zip=text,fare=double"))
            }
        };
        let pairs = joined(&self.types).iter().map(pair).collect::<farpool::Result<Vec<_>>>()?;
        Ok((!pairs.is_empty()).then_some(OptionValue::Map(pairs)))
    }
}

/// Joins types such as `decimal(10,2)` again, which were split at the comma that separates columns.
fn joined(parts: &[String]) -> Vec<String> {
    let mut whole: Vec<String> = Vec::new();
    for part in parts {
        match whole.last_mut() {
            Some(last) if last.contains('(') && !last.contains(')') => {
                last.push(',');
                last.push_str(part);
            }
            _ => whole.push(part.clone()),
        }
    }
    whole
}
