//! Sessions: settings that a client gives for its later statements, under a handle that comes with each request as a
//! cookie. Without one, statements run with the defaults.
//!
//! The messages are those of `Flight.proto`, which the crate `arrow-flight` does not have.

use super::service::Service;
use super::status::{malformed, status};
use super::users::User;
use crate::postgres::settings::duration;
use farpool_model::SchemaName;
use parking_lot::Mutex;
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

/// The name of the cookie, which clients of several languages expect.
const COOKIE: &str = "arrow_flight_session_id";

/// The settings of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// The schema that names without one refer to, if it is another one than `public`.
    pub in_schema: Option<String>,
    /// The maximum time of a statement; unlimited if `None`.
    pub timeout: Option<Duration>,
}

/// The value of an option.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OptionValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sfixed64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Texts(Texts),
}

#[derive(Clone, PartialEq, Message)]
struct Texts {
    #[prost(string, repeated, tag = "1")]
    values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct SetRequest {
    #[prost(map = "string, message", tag = "1")]
    options: HashMap<String, OptionValue>,
}

#[derive(Clone, PartialEq, Message)]
struct SetResult {
    #[prost(map = "string, message", tag = "1")]
    errors: HashMap<String, OptionError>,
}

#[derive(Clone, PartialEq, Message)]
struct OptionError {
    #[prost(enumeration = "Wrong", tag = "1")]
    value: i32,
}

/// The reason why an option was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum Wrong {
    Unspecified = 0,
    Name = 1,
    Value = 2,
}

#[derive(Clone, PartialEq, Message)]
struct GetResult {
    #[prost(map = "string, message", tag = "1")]
    options: HashMap<String, OptionValue>,
}

#[derive(Clone, PartialEq, Message)]
struct CloseResult {
    #[prost(enumeration = "Closed", tag = "1")]
    status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum Closed {
    Unspecified = 0,
    Done = 1,
    Closing = 2,
    NotCloseable = 3,
}

impl Options {
    /// Sets an option of a session of `database`; a value that says nothing sets its default.
    fn set(&mut self, database: &str, name: &str, value: &OptionValue) -> Result<(), Wrong> {
        match (name, &value.value) {
            ("catalog", None) => {}
            ("catalog", Some(Value::Text(catalog))) if catalog.is_empty() || catalog == database => {}
            ("schema", None) => self.in_schema = None,
            ("schema", Some(Value::Text(schema))) => {
                SchemaName::new(schema.as_str()).map_err(|_| Wrong::Value)?;
                self.in_schema = (schema != SchemaName::PUBLIC).then(|| schema.clone());
            }
            ("statement_timeout", None) => self.timeout = None,
            ("statement_timeout", Some(Value::Integer(milliseconds))) => {
                let time = u64::try_from(*milliseconds).map_err(|_| Wrong::Value)?;
                self.timeout = (time > 0).then(|| Duration::from_millis(time));
            }
            ("statement_timeout", Some(Value::Text(text))) => {
                let time = duration(text).ok_or(Wrong::Value)?;
                self.timeout = (!time.is_zero()).then_some(time);
            }
            // Days begin, and zones are left out, as in UTC.
            ("timezone", None) => {}
            ("timezone", Some(Value::Text(zone))) if zone.eq_ignore_ascii_case("utc") => {}
            ("catalog" | "schema" | "statement_timeout" | "timezone", Some(_)) => return Err(Wrong::Value),
            _ => return Err(Wrong::Name),
        }
        Ok(())
    }

    fn all(&self, database: &str) -> HashMap<String, OptionValue> {
        let text = |text: &str| Value::Text(text.to_string());
        let timeout = self.timeout.map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        [
            ("catalog", text(database)),
            ("schema", text(self.in_schema.as_deref().unwrap_or(SchemaName::PUBLIC))),
            ("statement_timeout", Value::Integer(timeout)),
            ("timezone", text("UTC")),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_string(), OptionValue { value: Some(value) }))
        .collect()
    }
}

/// Returns the handle of the session that a request belongs to; `None` if it belongs to none.
fn handle(headers: &MetadataMap) -> Option<u128> {
    let cookies = headers.get_all("cookie").into_iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.split_once('='));
    // A handle that cannot be read is that of no session.
    pairs
        .filter(|(name, _)| name.trim() == COOKIE)
        .map(|(_, value)| u128::from_str_radix(value.trim().trim_matches('"'), 16).unwrap_or_default())
        .next()
}

/// Returns the settings that a request of a user runs with.
pub(super) fn of_request(user: &User, headers: &MetadataMap) -> Result<Options, Status> {
    match handle(headers) {
        Some(handle) => Ok(user.session(handle).map_err(|error| status(&error))?.lock().clone()),
        None => Ok(Options::default()),
    }
}

/// The answer to an action about a session: its message, and the cookie of a session that has begun or ended.
pub(super) struct SessionAnswer {
    pub message: Vec<u8>,
    pub cookie: Option<AsciiMetadataValue>,
}

fn cookie(handle: u128, rest: &str) -> Option<AsciiMetadataValue> {
    format!("{COOKIE}={handle:032x}; HttpOnly; SameSite=Strict{rest}").parse().ok()
}

impl Service {
    /// Sets options of the client's session, which begins if there is none.
    pub(super) fn set_options(
        &self,
        user: &User,
        headers: &MetadataMap,
        body: &[u8],
    ) -> Result<SessionAnswer, Status> {
        let request = SetRequest::decode(body).map_err(malformed)?;
        let failed = |error| status(&error);
        let (cookie, session): (_, Arc<Mutex<Options>>) = match handle(headers) {
            Some(handle) => (None, user.session(handle).map_err(failed)?),
            None => {
                let (handle, session) = user.open_session().map_err(failed)?;
                (cookie(handle, ""), session)
            }
        };
        let mut options = session.lock();
        let mut errors = HashMap::new();
        for (name, value) in &request.options {
            if let Err(wrong) = options.set(&user.engine.database, name, value) {
                errors.insert(name.clone(), OptionError { value: wrong.into() });
            }
        }
        Ok(SessionAnswer { message: SetResult { errors }.encode_to_vec(), cookie })
    }

    /// Returns the options of the client's session.
    pub(super) fn get_options(&self, user: &User, headers: &MetadataMap) -> Result<SessionAnswer, Status> {
        let options = of_request(user, headers)?.all(&user.engine.database);
        Ok(SessionAnswer { message: GetResult { options }.encode_to_vec(), cookie: None })
    }

    /// Ends the client's session.
    pub(super) fn close_session(&self, user: &User, headers: &MetadataMap) -> SessionAnswer {
        let handle = handle(headers);
        let (status, cookie) = match handle {
            Some(handle) if user.close_session(handle) => (Closed::Done, cookie(handle, "; Max-Age=0")),
            _ => (Closed::NotCloseable, None),
        };
        SessionAnswer { message: CloseResult { status: status.into() }.encode_to_vec(), cookie }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(value: Value) -> OptionValue {
        OptionValue { value: Some(value) }
    }

    #[test]
    fn options_have_effects_and_what_is_none_is_told_apart() {
        let mut options = Options::default();
        let set =
            |options: &mut Options, name: &str, value: &OptionValue| options.set("farpool", name, value);
        let text = |text: &str| value(Value::Text(text.into()));
        set(&mut options, "schema", &text("sales")).unwrap();
        set(&mut options, "statement_timeout", &text("2s")).unwrap();
        set(&mut options, "catalog", &text("farpool")).unwrap();
        set(&mut options, "timezone", &text("utc")).unwrap();
        assert_eq!(options.in_schema.as_deref(), Some("sales"));
        assert_eq!(options.timeout, Some(Duration::from_secs(2)));
        set(&mut options, "statement_timeout", &value(Value::Integer(0))).unwrap();
        set(&mut options, "schema", &OptionValue::default()).unwrap();
        assert_eq!(options, Options::default());
        assert_eq!(set(&mut options, "catalog", &text("other")), Err(Wrong::Value));
        assert_eq!(set(&mut options, "timezone", &text("Asia/Tokyo")), Err(Wrong::Value));
        assert_eq!(set(&mut options, "statement_timeout", &value(Value::Bool(true))), Err(Wrong::Value));
        assert_eq!(set(&mut options, "work_mem", &text("1")), Err(Wrong::Name));
        assert_eq!(options.all("farpool").len(), 4);
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = MetadataMap::new();
        assert_eq!(handle(&headers), None);
        headers.insert("cookie", "a=b; arrow_flight_session_id=00ff; c=d".parse().unwrap());
        assert_eq!(handle(&headers), Some(255));
        headers.insert("cookie", "arrow_flight_session_id=\"1f\"".parse().unwrap());
        assert_eq!(handle(&headers), Some(31));
        headers.insert("cookie", "arrow_flight_session_id=zz".parse().unwrap());
        assert_eq!(handle(&headers), Some(0), "of no session, rather than none");
    }
}
