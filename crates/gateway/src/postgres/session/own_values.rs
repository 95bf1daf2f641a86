//! Functions of a session's own state: `current_setting`, `set_config`, `current_schema` and `pg_backend_pid`. Engines
//! are shared by sessions, so that the calls are replaced by their values before the engine reads a statement. Only calls
//! with constant arguments are: of others, the engine knows what a new session has, or nothing.

use super::{Outcome, Session};
use farpool_postgres::failure::{Failure, code};
use farpool_sql::{Piece, PieceKind, sql_pieces};
use std::borrow::Cow;

/// The functions.
const NAMES: &[&str] = &["current_setting", "set_config", "current_schema", "pg_backend_pid"];

/// A call with constant arguments, each `None` for NULL.
struct Call {
    name: &'static str,
    arguments: Vec<Option<String>>,
    /// The place in the list of pieces behind the call.
    end: usize,
}

impl Session {
    /// Returns the statement with the values of such calls. Settings are changed only if it `is_carried_out`.
    pub(super) fn with_own_values<'a>(
        &mut self,
        text: &'a str,
        is_carried_out: bool,
    ) -> Outcome<Cow<'a, str>> {
        let lower = text.to_ascii_lowercase();
        if !NAMES.iter().any(|name| lower.contains(name)) {
            return Ok(Cow::Borrowed(text));
        }
        let pieces = sql_pieces(text);
        let (mut out, mut copied, mut at) = (String::new(), 0, 0);
        while at < pieces.len() {
            let Some(call) = call_at(text, &pieces, at) else {
                at += 1;
                continue;
            };
            let value = self.value_of(&call, is_carried_out)?;
            let start = pieces[start_of(text, &pieces, at)].range.start;
            out.push_str(&text[copied..start]);
            out.push_str(&value);
            if is_column(text, &pieces, at, call.end) {
                out.push_str(" AS ");
                out.push_str(call.name);
            }
            copied = pieces[call.end - 1].range.end;
            at = call.end;
        }
        out.push_str(&text[copied..]);
        Ok(Cow::Owned(out))
    }

    fn value_of(&mut self, call: &Call, is_carried_out: bool) -> Outcome<String> {
        let text = |value: &str| format!("'{}'", value.replace('\'', "''"));
        match (call.name, call.arguments.as_slice()) {
            ("pg_backend_pid", []) => Ok(self.entry.session.to_string()),
            ("current_schema", []) => Ok(text(self.settings.schema.as_deref().unwrap_or("public"))),
            ("current_setting", [Some(name)]) => Ok(text(&self.shown(name)?)),
            ("current_setting", [Some(name), Some(is_missing_fine)]) => match self.shown(name) {
                Ok(value) => Ok(text(&value)),
                Err(_) if is_missing_fine == "true" => Ok("CAST(NULL AS text)".into()),
                Err(failure) => Err(failure.into()),
            },
            ("set_config", [Some(name), value, Some(is_local)]) => {
                if is_carried_out {
                    self.set(name, value.as_deref(), is_local == "true")?;
                    return Ok(text(&self.shown(name)?));
                }
                Ok(text(value.as_deref().unwrap_or_default()))
            }
            (name, _) => {
                let message = format!("{name} does not take these arguments");
                Err(Failure::new(code::UNDEFINED_FUNCTION, message).into())
            }
        }
    }
}

/// Returns the call that begins at the name `at`; `None` if there is none, or its arguments are not constants.
fn call_at(text: &str, pieces: &[Piece], at: usize) -> Option<Call> {
    let shown = |at: usize| pieces.get(at).map(|piece| (piece.kind, &text[piece.range.clone()]));
    let (PieceKind::Word, word) = shown(at)? else { return None };
    let name = NAMES.iter().find(|name| word.eq_ignore_ascii_case(name))?;
    if shown(at + 1)?.1 != "(" {
        return None;
    }
    let (mut arguments, mut end) = (Vec::new(), at + 2);
    while shown(end)?.1 != ")" {
        arguments.push(match shown(end)? {
            (PieceKind::Text, text) => Some(text.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'")),
            (PieceKind::Word, word) if word.eq_ignore_ascii_case("null") => None,
            (PieceKind::Word, word) if ["true", "false"].contains(&word.to_ascii_lowercase().as_str()) => {
                Some(word.to_ascii_lowercase())
            }
            _ => return None,
        });
        end += 1;
        match shown(end)?.1 {
            "," => end += 1,
            ")" => {}
            _ => return None,
        }
    }
    Some(Call { name, arguments, end: end + 1 })
}

/// Returns the place of the first piece of a name that may have the catalog in front of it.
fn start_of(text: &str, pieces: &[Piece], at: usize) -> usize {
    let is = |at: usize, wanted: &str| text[pieces[at].range.clone()].eq_ignore_ascii_case(wanted);
    if at >= 2 && is(at - 1, ".") && is(at - 2, "pg_catalog") { at - 2 } else { at }
}

/// Returns whether the call is a column of its own without a name, to which PostgreSQL gives that of the function.
fn is_column(text: &str, pieces: &[Piece], at: usize, end: usize) -> bool {
    let shown = |piece: &Piece| text[piece.range.clone()].to_ascii_lowercase();
    let start = start_of(text, pieces, at);
    let before = start.checked_sub(1).map(|at| shown(&pieces[at]));
    let behind = pieces.get(end).map(shown);
    matches!(before.as_deref(), Some("select" | ","))
        && matches!(behind.as_deref(), None | Some("," | ";" | "from"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_with_constants_are_found() {
        let found = |text: &str| {
            let pieces = sql_pieces(text);
            (0..pieces.len())
                .find_map(|at| call_at(text, &pieces, at))
                .map(|call| (call.name, call.arguments))
        };
        let some = |text: &str| Some(text.to_string());
        assert_eq!(
            found("select current_setting('a''b', TRUE)"),
            Some(("current_setting", vec![some("a'b"), some("true")]))
        );
        assert_eq!(
            found("select pg_catalog.set_config('x', null, false)"),
            Some(("set_config", vec![some("x"), None, some("false")]))
        );
        assert_eq!(found("select pg_backend_pid()"), Some(("pg_backend_pid", vec![])));
        for other in [
            "select 'current_setting(''a'')'",
            "select current_setting(name) from s",
            "select current_setting",
            "select current_setting('a'",
            "select current_setting('a' || 'b')",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn a_column_has_the_name_of_its_function() {
        let is = |text: &str| {
            let pieces = sql_pieces(text);
            let at = (0..pieces.len()).find(|at| call_at(text, &pieces, *at).is_some()).unwrap();
            is_column(text, &pieces, at, call_at(text, &pieces, at).unwrap().end)
        };
        assert!(is("select current_setting('a')") && is("select 1, pg_catalog.current_schema() from t"));
        assert!(
            !is("select current_setting('a') || 'b'")
                && !is("select * from t where s in (1, current_schema())")
        );
        assert!(!is("select current_schema() as x"));
    }
}
