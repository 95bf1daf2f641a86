//! The settings of a session: those that clients of PostgreSQL set or ask for, with the values that mean what the
//! session does.
//!
//! Invariant: a value that would make PostgreSQL answer otherwise than this session is refused.

use farpool_postgres::failure::{Failure, code};
use farpool_postgres::values::{Style, Zone};
use std::collections::BTreeMap;
use std::time::Duration;

/// The version of PostgreSQL that clients are told, of which the number is also that of `server_version_num`.
pub const SERVER_VERSION: &str = concat!("15.0 (farpool ", env!("CARGO_PKG_VERSION"), ")");

/// The schema that names without one refer to if the search path names no other.
const PUBLIC: &str = "public";

/// Values that a setting accepts.
#[derive(Clone, Copy)]
enum Accepts {
    /// Only its default, and these other ways to write it.
    Only(&'static [&'static str]),
    /// Any text; it has no effect.
    Any,
    /// A boolean; it has no effect.
    Bool,
    /// Milliseconds, or a number with a unit of time.
    Duration,
    /// A time zone.
    Zone,
    /// A list of schemas.
    Path,
    /// An isolation level.
    Isolation,
    /// A number in this range; it has no effect.
    Number(i64, i64),
}

/// The isolation levels, in lower case.
pub const LEVELS: &[&str] = &["serializable", "repeatable read", "read committed", "read uncommitted"];

/// A setting: its name, its default, and what it accepts.
type Known = (&'static str, &'static str, Accepts);

/// The settings, in the order of their names. Those that clients are told of are in [`REPORTED`].
const KNOWN: &[Known] = &[
    ("application_name", "", Accepts::Any),
    ("backslash_quote", "safe_encoding", Accepts::Any),
    ("bytea_output", "hex", Accepts::Only(&["hex"])),
    ("client_encoding", "UTF8", Accepts::Only(&["utf8", "utf-8", "unicode"])),
    ("client_min_messages", "notice", Accepts::Any),
    (
        "datestyle",
        "ISO, MDY",
        Accepts::Only(&["iso", "iso, mdy", "iso,mdy", "iso, ymd", "iso, dmy", "mdy", "dmy", "ymd"]),
    ),
    ("default_table_access_method", "heap", Accepts::Only(&["heap"])),
    ("default_transaction_deferrable", "off", Accepts::Bool),
    ("default_transaction_isolation", "read committed", Accepts::Isolation),
    ("default_transaction_read_only", "off", Accepts::Bool),
    ("escape_string_warning", "on", Accepts::Bool),
    ("extra_float_digits", "1", Accepts::Number(1, 3)),
    ("geqo", "on", Accepts::Bool),
    ("idle_in_transaction_session_timeout", "0", Accepts::Duration),
    ("idle_session_timeout", "0", Accepts::Duration),
    ("in_hot_standby", "off", Accepts::Only(&["off"])),
    ("integer_datetimes", "on", Accepts::Only(&["on"])),
    ("intervalstyle", "postgres", Accepts::Only(&["postgres"])),
    ("is_superuser", "off", Accepts::Only(&["off"])),
    ("jit", "off", Accepts::Bool),
    ("lc_collate", "C", Accepts::Only(&["c", "posix"])),
    ("lc_ctype", "C", Accepts::Only(&["c", "posix"])),
    ("lc_messages", "C", Accepts::Any),
    ("lc_monetary", "C", Accepts::Any),
    ("lc_numeric", "C", Accepts::Any),
    ("lc_time", "C", Accepts::Any),
    ("lock_timeout", "0", Accepts::Duration),
    ("max_identifier_length", "63", Accepts::Only(&["63"])),
    ("max_index_keys", "32", Accepts::Only(&["32"])),
    ("row_security", "on", Accepts::Bool),
    ("search_path", "\"$user\", public", Accepts::Path),
    ("server_encoding", "UTF8", Accepts::Only(&["utf8"])),
    ("server_version", SERVER_VERSION, Accepts::Only(&[])),
    ("server_version_num", "150000", Accepts::Only(&[])),
    ("session_authorization", "", Accepts::Only(&[])),
    ("standard_conforming_strings", "on", Accepts::Only(&["on", "true", "yes", "1"])),
    ("statement_timeout", "0", Accepts::Duration),
    ("synchronize_seqscans", "on", Accepts::Bool),
    ("timezone", "UTC", Accepts::Zone),
    ("transaction_deferrable", "off", Accepts::Bool),
    ("transaction_isolation", "read committed", Accepts::Isolation),
    ("transaction_read_only", "off", Accepts::Bool),
    ("work_mem", "4MB", Accepts::Any),
    ("xmlbinary", "base64", Accepts::Any),
    ("xmloption", "content", Accepts::Any),
];

/// The settings of which a client is told the values, at the beginning and at each change, by their usual names.
pub const REPORTED: &[(&str, &str)] = &[
    ("application_name", "application_name"),
    ("client_encoding", "client_encoding"),
    ("DateStyle", "datestyle"),
    ("default_transaction_read_only", "default_transaction_read_only"),
    ("in_hot_standby", "in_hot_standby"),
    ("integer_datetimes", "integer_datetimes"),
    ("IntervalStyle", "intervalstyle"),
    ("is_superuser", "is_superuser"),
    ("search_path", "search_path"),
    ("server_encoding", "server_encoding"),
    ("server_version", "server_version"),
    ("session_authorization", "session_authorization"),
    ("standard_conforming_strings", "standard_conforming_strings"),
    ("TimeZone", "timezone"),
];

/// The values of a session's settings.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The values that differ from the defaults. Names with a dot are the client's own.
    changed: BTreeMap<String, String>,
    /// The values that the client's start asked for, to which RESET returns.
    initial: BTreeMap<String, String>,
    /// The style in which values are written.
    pub style: Style,
    /// The maximum time of a statement; unlimited if `None`.
    pub statement_timeout: Option<Duration>,
    /// The schema that names without one refer to.
    pub schema: Option<String>,
}

fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|(known, ..)| *known == name)
}

/// Returns the name by which a setting is stored: in lower case, and without the spelling of SQL.
pub fn canonical(name: &str) -> String {
    match name.to_lowercase().as_str() {
        "time zone" => "timezone".to_string(),
        "names" => "client_encoding".to_string(),
        "transaction isolation level" => "transaction_isolation".to_string(),
        name => name.to_string(),
    }
}

fn unrecognized(name: &str) -> Failure {
    Failure::new(code::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

fn invalid(name: &str, value: &str) -> Failure {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    Failure::new(code::INVALID_PARAMETER_VALUE, message)
}

impl Settings {
    /// Returns the settings of a new session of `user`.
    pub fn of(user: &str) -> Self {
        let mut settings = Settings::default();
        settings.changed.insert("session_authorization".into(), user.to_string());
        settings.begin();
        settings
    }

    /// Makes the present values those that RESET returns to.
    pub fn begin(&mut self) {
        self.initial.clone_from(&self.changed);
    }

    /// Returns the value of a setting.
    ///
    /// # Errors
    /// A failure for a name that is not known.
    pub fn get(&self, name: &str) -> Result<&str, Failure> {
        let name = &canonical(name);
        match (self.changed.get(name), known(name)) {
            (Some(value), _) => Ok(value),
            (None, Some((_, default, _))) => Ok(default),
            (None, None) => Err(unrecognized(name)),
        }
    }

    /// Returns the value of a setting if it is not the default.
    pub fn own(&self, name: &str) -> Option<String> {
        self.changed.get(&canonical(name)).cloned()
    }

    /// Returns the bytes of the values that are not defaults, and of their names.
    pub fn bytes(&self) -> usize {
        self.changed.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Iterates over the names of all settings and their values.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.changed.iter().filter(|(name, _)| known(name).is_none());
        let own = own.map(|(name, value)| (name.as_str(), value.as_str()));
        KNOWN
            .iter()
            .map(|(name, default, _)| (*name, self.changed.get(*name).map_or(*default, String::as_str)))
            .chain(own)
    }

    /// Sets a setting; `None` for its default.
    ///
    /// # Errors
    /// A failure for a name that is not known, or a value that the setting does not accept.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), Failure> {
        let name = canonical(name);
        let Some((_, default, accepts)) = known(&name) else {
            // Settings of the client's own have a dot in their name, as in PostgreSQL.
            if !name.contains('.') || name.starts_with("datafusion.") {
                return Err(unrecognized(&name));
            }
            match value {
                Some(value) => self.changed.insert(name, value.to_string()),
                None => self.changed.remove(&name),
            };
            return Ok(());
        };
        let initial = self.initial.get(&name).cloned();
        let value = value.map(str::to_string).or(initial).unwrap_or_else(|| (*default).to_string());
        self.check_and_apply(&name, &value, *accepts, default)?;
        let value = match accepts {
            Accepts::Only(_) => self.changed.get(&name).cloned().unwrap_or_else(|| (*default).to_string()),
            Accepts::Bool => if is_true(&value) == Some(true) { "on" } else { "off" }.to_string(),
            Accepts::Isolation => value.to_lowercase(),
            _ => value,
        };
        match value == *default && !self.initial.contains_key(&name) {
            true => self.changed.remove(&name),
            false => self.changed.insert(name, value),
        };
        Ok(())
    }

    /// Returns all settings to the values of the session's beginning.
    pub fn reset(&mut self) {
        let names: Vec<String> = self.changed.keys().cloned().collect();
        for name in names {
            // Values of the beginning were accepted then.
            drop(self.set(&name, None));
        }
    }

    fn check_and_apply(
        &mut self,
        name: &str,
        value: &str,
        accepts: Accepts,
        default: &str,
    ) -> Result<(), Failure> {
        match accepts {
            Accepts::Any => Ok(()),
            Accepts::Isolation => match LEVELS.contains(&value.to_lowercase().as_str()) {
                true => Ok(()),
                false => Err(invalid(name, value)),
            },
            Accepts::Bool => is_true(value).map(drop).ok_or_else(|| invalid(name, value)),
            Accepts::Only(others) => {
                // Clients put quotes around values of their first message.
                let wanted = value.trim_matches('\'').to_lowercase();
                let is_current = self.changed.get(name).is_some_and(|now| now == value);
                match is_current || value == default || others.contains(&wanted.as_str()) {
                    true => Ok(()),
                    false => {
                        let failure = Failure::new(
                            code::FEATURE_NOT_SUPPORTED,
                            format!("the parameter \"{name}\" cannot be set to \"{value}\""),
                        );
                        Err(failure.hint(format!("it is always \"{default}\" here")))
                    }
                }
            }
            Accepts::Number(least, most) => match value.trim().parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(()),
                Ok(number) => {
                    let message = format!(
                        "{number} is outside the valid range for parameter \"{name}\" ({least} .. {most})"
                    );
                    Err(Failure::new(code::INVALID_PARAMETER_VALUE, message))
                }
                Err(_) => Err(invalid(name, value)),
            },
            Accepts::Duration => {
                let time = duration(value).ok_or_else(|| invalid(name, value))?;
                if name == "statement_timeout" {
                    self.statement_timeout = (!time.is_zero()).then_some(time);
                }
                Ok(())
            }
            Accepts::Zone => {
                self.style.zone = value.parse::<Zone>().map_err(|error| {
                    let failure = Failure::new(code::INVALID_PARAMETER_VALUE, error.message);
                    Failure { hint: error.advice, ..failure }
                })?;
                Ok(())
            }
            Accepts::Path => {
                self.schema = first_schema(value)?;
                Ok(())
            }
        }
    }
}

/// Returns the boolean that a text means; `None` if it means none.
fn is_true(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

/// Returns the time that a text means: a number of milliseconds, or a number with a unit.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let milliseconds = match text[digits..].trim() {
        "" | "ms" => 1,
        "us" => return Some(Duration::from_micros(number)),
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.checked_mul(milliseconds)?))
}

/// Returns the schema, other than `public`, in which a search path has names looked up; `None` if there is none.
fn first_schema(path: &str) -> Result<Option<String>, Failure> {
    let name = |part: &str| {
        let part = part.trim();
        let quoted = part.strip_prefix('"').and_then(|part| part.strip_suffix('"'));
        quoted.map_or_else(|| part.trim_matches('\'').to_lowercase(), |part| part.replace("\"\"", "\""))
    };
    let looked_up = |name: &String| !name.is_empty() && name != "$user" && name != "pg_catalog";
    let schemas: Vec<String> = path.split(',').map(name).filter(looked_up).collect();
    match schemas.as_slice() {
        [] => Ok(None),
        [only] => Ok((only != PUBLIC).then(|| only.clone())),
        // What is not in the first would be looked up in the second.
        [_, _, ..] => Err(Failure::new(
            code::FEATURE_NOT_SUPPORTED,
            format!("a search path of several schemas is not done: {path}"),
        )
        .hint("name one schema, and write the others in front of their tables")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_change_answers_is_refused() {
        let mut settings = Settings::of("ann");
        for (name, value) in [
            ("DateStyle", "German"),
            ("IntervalStyle", "iso_8601"),
            ("bytea_output", "escape"),
            ("client_encoding", "LATIN1"),
            ("standard_conforming_strings", "off"),
            ("extra_float_digits", "0"),
            ("search_path", "a, b"),
            ("TimeZone", "Mars/Olympus"),
            ("statement_timeout", "soon"),
            ("server_version", "16"),
            ("nothing_known", "1"),
            ("datafusion.execution.batch_size", "1"),
        ] {
            assert!(settings.set(name, Some(value)).is_err(), "{name}");
        }
        for (name, value) in [
            ("datestyle", "ISO"),
            ("INTERVALSTYLE", "postgres"),
            ("names", "utf-8"),
            ("extra_float_digits", "3"),
            ("search_path", "pg_catalog"),
            ("search_path", "\"$user\", public"),
            ("app.user", "7"),
        ] {
            settings.set(name, Some(value)).unwrap();
        }
        assert_eq!(settings.get("DateStyle").unwrap(), "ISO, MDY");
        assert_eq!(settings.get("app.user").unwrap(), "7");
        assert_eq!(settings.get("session_authorization").unwrap(), "ann");
        assert!(settings.get("app.other").is_err());
    }

    #[test]
    fn settings_have_effects_and_return_to_the_beginning() {
        let mut settings = Settings::of("ann");
        settings.set("timezone", Some("Asia/Tokyo")).unwrap();
        settings.begin();
        settings.set("time zone", Some("Europe/Oslo")).unwrap();
        settings.set("statement_timeout", Some("2s")).unwrap();
        settings.set("search_path", Some("\"My Schema\"")).unwrap();
        assert_eq!(settings.style.zone.name, "Europe/Oslo");
        assert_eq!(settings.statement_timeout, Some(Duration::from_secs(2)));
        assert_eq!(settings.schema.as_deref(), Some("My Schema"));
        settings.reset();
        assert_eq!(settings.style.zone.name, "Asia/Tokyo");
        assert_eq!((settings.statement_timeout, settings.schema.clone()), (None, None));
        assert_eq!(settings.get("search_path").unwrap(), "\"$user\", public");
        settings.set("jit", Some("true")).unwrap();
        assert_eq!(settings.get("jit").unwrap(), "on");
    }

    #[test]
    fn the_table_is_in_order_and_what_is_reported_is_in_it() {
        assert!(KNOWN.is_sorted_by(|a, b| a.0 < b.0));
        assert!(REPORTED.iter().all(|(_, name)| known(name).is_some()));
    }
}
