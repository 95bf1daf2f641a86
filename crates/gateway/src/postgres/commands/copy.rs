//! The grammar of COPY.

use super::{Command, Words};
use farpool_model::quoted;
use farpool_postgres::copies::{CopyFormat, CopyOptions};
use farpool_postgres::failure::{Failure, code};
use farpool_sql::PieceKind;

impl Words<'_> {
    /// Reads a COPY behind its first word.
    pub(super) fn copy(&mut self) -> Result<Command, Failure> {
        if self.shown(self.at) == "(" {
            let query = self.in_brackets()?;
            self.expect("to")?;
            self.expect_client("stdout")?;
            return Ok(Command::CopyOut { query, options: self.copy_options()? });
        }
        let mut table = vec![self.name()?];
        while self.skip_sign(".") {
            table.push(self.name()?);
        }
        let mut columns = Vec::new();
        if self.skip_sign("(") {
            loop {
                columns.push(self.name()?);
                if !self.skip_sign(",") {
                    break;
                }
            }
            if !self.skip_sign(")") {
                return Err(self.syntax(self.shown(self.at)));
            }
        }
        match self.take_word()?.as_str() {
            "to" => {
                self.expect_client("stdout")?;
                let names = |names: &[String], by: &str| {
                    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(by)
                };
                let listed = if columns.is_empty() { "*".to_string() } else { names(&columns, ", ") };
                let query = format!("SELECT {listed} FROM {}", names(&table, "."));
                Ok(Command::CopyOut { query, options: self.copy_options()? })
            }
            "from" => {
                self.expect_client("stdin")?;
                Ok(Command::CopyIn { table, columns, options: self.copy_options()? })
            }
            other => Err(self.syntax(other)),
        }
    }

    fn expect_client(&mut self, word: &str) -> Result<(), Failure> {
        if self.skip(word) {
            return Ok(());
        }
        let failure = Failure::new(
            code::INSUFFICIENT_PRIVILEGE,
            "COPY with a file or a program of the server is not allowed",
        );
        Err(failure.hint(format!("use {}, which psql has as \\copy", word.to_uppercase())))
    }

    /// Takes a text in brackets, without these.
    fn in_brackets(&mut self) -> Result<String, Failure> {
        let start = self.pieces.get(self.at).map_or(0, |piece| piece.range.end);
        let mut depth = 0_usize;
        loop {
            let piece = self.pieces.get(self.at).ok_or_else(|| self.syntax("end of input"))?;
            self.at += 1;
            match &self.text[piece.range.clone()] {
                "(" if piece.kind == PieceKind::Sign => depth += 1,
                ")" if piece.kind == PieceKind::Sign => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(self.text[start..piece.range.start].to_string());
                    }
                }
                _ => {}
            }
        }
    }

    /// Reads the options: a list in brackets, or in the form from before PostgreSQL 9.
    fn copy_options(&mut self) -> Result<CopyOptions, Failure> {
        let mut given: Vec<(String, Option<String>)> = Vec::new();
        self.skip("with");
        if self.skip_sign("(") {
            loop {
                let name = self.take_word()?;
                let has_value = ![",", ")"].contains(&self.shown(self.at));
                given.push((name, if has_value { Some(self.value()?) } else { None }));
                if !self.skip_sign(",") {
                    break;
                }
            }
            if !self.skip_sign(")") {
                return Err(self.syntax(self.shown(self.at)));
            }
        } else {
            while !self.is_done() {
                let name = self.take_word()?;
                match name.as_str() {
                    "csv" | "binary" => given.push(("format".into(), Some(name))),
                    "header" => given.push((name, None)),
                    "delimiter" | "delimiters" | "null" | "quote" | "escape" | "encoding" => {
                        self.skip("as");
                        given.push((name.trim_end_matches('s').to_string(), Some(self.value()?)));
                    }
                    other => return Err(self.syntax(other)),
                }
            }
        }
        options(&given)
    }
}

fn options(given: &[(String, Option<String>)]) -> Result<CopyOptions, Failure> {
    let invalid = |message: String| Failure::new(code::INVALID_PARAMETER_VALUE, message);
    let format = given.iter().find(|(name, _)| name == "format").and_then(|(_, value)| value.as_deref());
    let format = match format.unwrap_or("text").to_lowercase().as_str() {
        "text" => CopyFormat::Text,
        "csv" => CopyFormat::Csv,
        "binary" => CopyFormat::Binary,
        other => return Err(invalid(format!("COPY format \"{other}\" not recognized"))),
    };
    let mut options = CopyOptions::of(format);
    let byte = |name: &str, value: &Option<String>| match value.as_deref().map(str::as_bytes) {
        Some([byte]) if !byte.is_ascii_alphanumeric() && !b"\r\n.".contains(byte) => Ok(*byte),
        _ => Err(invalid(format!("COPY {name} must be a single one-byte character"))),
    };
    let mut escapes = false;
    for (name, value) in given {
        match name.as_str() {
            "format" => {}
            "delimiter" => options.delimiter = byte(name, value)?,
            "null" => options.null = value.clone().unwrap_or_default(),
            "header" => {
                options.header = match value.as_deref().map(str::to_lowercase).as_deref() {
                    None | Some("true" | "on" | "1") => true,
                    Some("false" | "off" | "0") => false,
                    Some(other) => {
                        return Err(invalid(format!("header requires a Boolean value, not {other}")));
                    }
                }
            }
            "quote" if format == CopyFormat::Csv => options.quote = byte(name, value)?,
            "escape" if format == CopyFormat::Csv => {
                (options.escape, escapes) = (byte(name, value)?, true);
            }
            "encoding" if value.as_deref().is_some_and(|v| v.to_lowercase().replace('-', "") == "utf8") => {}
            "freeze" => {}
            other => {
                let message = format!("the option {other} of COPY is not done");
                return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, message));
            }
        }
    }
    if !escapes {
        options.escape = options.quote;
    }
    let is_wrong = options.null.contains(['\r', '\n'])
        || options.null.as_bytes().contains(&options.delimiter)
        || (format == CopyFormat::Csv && options.delimiter == options.quote);
    match is_wrong {
        true => Err(invalid("the delimiter, the quote and the text of NULL of COPY must differ".to_string())),
        false => Ok(options),
    }
}
