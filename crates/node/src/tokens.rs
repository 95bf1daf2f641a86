//! Who may connect: a file with a token and the tenant it belongs to on each line.
//!
//! Invariant: a wrong token takes as long to refuse as a right one takes to accept, wherever they differ.

use farpool_model::{Error, ErrorKind, Result, TenantName};
use std::fmt;
use std::path::Path;

/// The tokens that a node accepts.
#[derive(Clone)]
pub struct Tokens(Vec<(String, TenantName)>);

impl Tokens {
    /// Reads a file of lines `TOKEN TENANT`; empty lines and lines that start with `#` mean nothing.
    ///
    /// # Errors
    /// `NotFound` or `Invalid` for the file; `Invalid` for a line, with its number.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ => ErrorKind::Invalid,
            };
            Error::new(kind, format!("cannot read the tokens in {}: {error}", path.display()))
        })?;
        Tokens::parse(&text).map_err(|error| error.at(path.display()))
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// `Invalid` when a line is wrong, a token occurs twice or there is none.
    pub fn parse(text: &str) -> Result<Self> {
        let mut tokens: Vec<(String, TenantName)> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (token, tenant) =
                parse_line(line).map_err(|error| error.at(format!("line {}", index + 1)))?;
            if tokens.iter().any(|(known, _)| *known == token) {
                return Err(Error::invalid("the token occurs twice").at(format!("line {}", index + 1)));
            }
            tokens.push((token, tenant));
        }
        if tokens.is_empty() {
            return Err(Error::invalid("there is no token, so nobody could connect")
                .advise("write a line with a token, a blank and the name of its tenant"));
        }
        Ok(Tokens(tokens))
    }

    /// The tenant to whom `token` belongs.
    ///
    /// # Errors
    /// `Denied` when there is no token, or it is unknown.
    pub fn tenant(&self, token: Option<&str>) -> Result<TenantName> {
        let Some(token) = token else {
            return Err(denied("the pool asks for a token"));
        };
        // Looks at every token whatever was found, so that the time tells nothing.
        let mut found = None;
        for (known, tenant) in &self.0 {
            if same(known.as_bytes(), token.as_bytes()) {
                found = Some(tenant);
            }
        }
        found.cloned().ok_or_else(|| denied("the pool does not know this token"))
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({} tokens)", self.0.len())
    }
}

fn parse_line(line: &str) -> Result<(String, TenantName)> {
    let mut words = line.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(token), Some(tenant), None) => Ok((token.to_string(), TenantName::new(tenant)?)),
        _ => Err(Error::invalid("expected a token, a blank and the name of its tenant")),
    }
}

fn denied(message: &str) -> Error {
    Error::new(ErrorKind::Denied, message)
        .advise("give the token that whoever runs the pool gave you: --token, or FARPOOL_TOKEN")
}

/// Equality in time that depends on the lengths alone.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |differences, (l, r)| differences | (l ^ r)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_lead_to_tenants() {
        let tokens = Tokens::parse("# people\n\ns3cret alice\n  other\tbob  \r\nthird alice").unwrap();
        for (token, tenant) in [("s3cret", "alice"), ("other", "bob"), ("third", "alice")] {
            assert_eq!(tokens.tenant(Some(token)).unwrap().as_str(), tenant);
        }
        for token in [None, Some(""), Some("s3cre"), Some("s3cretx"), Some("#")] {
            assert_eq!(tokens.tenant(token).unwrap_err().kind, ErrorKind::Denied);
        }
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, place) in [
            ("a b\nc", "line 2"),
            ("a b c", "line 1"),
            ("# x\n\na b\na c", "line 4"),
            ("# nothing", "no token"),
            ("", "no token"),
        ] {
            let error = Tokens::parse(text).unwrap_err();
            assert!(error.message.contains(place), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Tokens::read(Path::new("/nonexistent/tokens")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert!(error.message.contains("/nonexistent/tokens"));
    }

    #[test]
    fn tokens_do_not_show_in_logs() {
        assert!(!format!("{:?}", Tokens::parse("s3cret a").unwrap()).contains("s3cret"));
    }
}
