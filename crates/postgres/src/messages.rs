//! Messages that a client of PostgreSQL's protocol sends, as bytes and decoded (PostgreSQL documentation, "Message
//! Formats"; protocol version 3).
//!
//! Invariant: any byte may be hostile. A message is decoded only when all of it is there, within limits that depend on
//! its kind; a field that reaches beyond its message is an error, and so are bytes behind the last field.

use bytes::{Buf, Bytes, BytesMut};
use farpool_model::{Error, Result, limits};

/// Bytes of the length field of a message.
const LENGTH_BYTES: usize = 4;

/// Codes in place of a protocol version, by which a client asks for something else than a session.
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// The first message of a connection, which has no kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Asks whether the server speaks TLS.
    Tls,
    /// Asks whether the server speaks GSSAPI encryption.
    Gss,
    /// Asks to cancel the statement of another connection, of which these are the number and the secret.
    Cancel {
        /// The number of the session.
        session: u32,
        /// The secret that the session was given.
        secret: Bytes,
    },
    /// Begins a session.
    Startup {
        /// The protocol version as major and minor number.
        version: (u16, u16),
        /// The names and values of settings, in the order of the message.
        parameters: Vec<(String, String)>,
    },
}

/// A format of values: text or binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text of a literal, without quotes.
    Text,
    /// The binary representation of the type.
    Binary,
}

/// A prepared statement or a portal, by its name; an empty name is that of the unnamed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A prepared statement.
    Statement(String),
    /// A portal: a prepared statement with values for its parameters.
    Portal(String),
}

/// A message of a session that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Runs statements, separated by semicolons.
    Query(String),
    /// Prepares a statement.
    Parse {
        /// The name of the prepared statement.
        name: String,
        /// The text of one statement.
        text: String,
        /// The types of the first parameters as object ids (OIDs); 0 for a type that the server infers.
        types: Vec<u32>,
    },
    /// Makes a portal of a prepared statement.
    Bind(Bind),
    /// Asks for the columns of a result; for a statement, also for the types of its parameters.
    Describe(Target),
    /// Runs a portal, or continues it.
    Execute {
        /// The name of the portal.
        portal: String,
        /// The maximum number of rows to return; 0 for all.
        rows_max: u32,
    },
    /// Drops a statement or a portal.
    Close(Target),
    /// Asks the server to send what it has buffered.
    Flush,
    /// Ends a sequence of messages, behind which the session can go on after an error.
    Sync,
    /// Calls a function by its object id, which no current client does.
    FunctionCall,
    /// Rows of a COPY.
    CopyData(Bytes),
    /// The end of the rows of a COPY.
    CopyDone,
    /// Gives up a COPY, for this reason.
    CopyFail(String),
    /// The answer to a request for authentication, of which the meaning depends on the request.
    Authentication(Bytes),
    /// Ends the session.
    Terminate,
}

/// The message by which a client makes a portal of a prepared statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The name of the portal.
    pub portal: String,
    /// The name of the prepared statement.
    pub statement: String,
    /// The formats of the values: none for text, one for all, or one for each.
    pub formats: Vec<Format>,
    /// The values of the parameters; `None` for NULL.
    pub values: Vec<Option<Bytes>>,
    /// The formats of the columns of the result: none for text, one for all, or one for each.
    pub results: Vec<Format>,
}

/// Returns the format at `place` in a list of none, one, or one for each.
pub fn format_at(formats: &[Format], place: usize) -> Format {
    match formats {
        [] => Format::Text,
        [all] => *all,
        each => each.get(place).copied().unwrap_or(Format::Text),
    }
}

/// Takes the first message of a connection from the front of `received`; `None` while it is incomplete.
///
/// # Errors
/// `Corrupt` if it is not a message of the protocol; `OverLimit` if it is longer than
/// [`limits::POSTGRES_STARTUP_BYTES_MAX`].
pub fn opening(received: &mut BytesMut) -> Result<Option<Opening>> {
    let Some(mut body) = message_at(received, 0, limits::POSTGRES_STARTUP_BYTES_MAX)? else {
        return Ok(None);
    };
    let mut fields = Fields(&mut body);
    let code = fields.u32()?;
    let opening = match code {
        SSL_REQUEST => Opening::Tls,
        GSS_REQUEST => Opening::Gss,
        CANCEL_REQUEST => {
            let session = fields.u32()?;
            Opening::Cancel { session, secret: fields.rest() }
        }
        _ => {
            let [a, b, c, d] = code.to_be_bytes();
            let (major, minor) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            let mut parameters = Vec::new();
            // The names and values of another major version may be something else.
            if major == 3 {
                loop {
                    let name = fields.text()?;
                    if name.is_empty() {
                        break;
                    }
                    parameters.push((name, fields.text()?));
                }
            } else {
                fields.rest();
            }
            Opening::Startup { version: (major, minor), parameters }
        }
    };
    fields.end()?;
    Ok(Some(opening))
}

/// Takes a message from the front of `received`; `None` while it is incomplete. `bytes_max` is the maximum length of a
/// message that carries text or values; all others are short.
///
/// # Errors
/// `Corrupt` if it is not a message of the protocol; `OverLimit` if it is too long. The connection cannot go on after
/// that.
pub fn message(received: &mut BytesMut, bytes_max: usize) -> Result<Option<Message>> {
    let Some(&kind) = received.first() else { return Ok(None) };
    let bytes_max = match kind {
        b'Q' | b'P' | b'B' | b'd' | b'f' | b'F' => bytes_max,
        b'D' | b'E' | b'C' | b'H' | b'S' | b'c' | b'p' | b'X' => limits::POSTGRES_STARTUP_BYTES_MAX,
        _ => return Err(Error::corrupt(format!("there is no message of the kind {:?}", char::from(kind)))),
    };
    let Some(mut body) = message_at(received, 1, bytes_max)? else { return Ok(None) };
    let mut fields = Fields(&mut body);
    let message = fields.message(kind).and_then(|message| fields.end().map(|()| message));
    message.map(Some).map_err(|error| error.at(format!("message {:?}", char::from(kind))))
}

/// Takes a message of which the length begins at `at`; returns its fields.
fn message_at(received: &mut BytesMut, at: usize, bytes_max: usize) -> Result<Option<Bytes>> {
    let Some(mut length) = received.get(at..at + LENGTH_BYTES) else { return Ok(None) };
    let stated = length.get_u32();
    let length = usize::try_from(stated).unwrap_or(usize::MAX);
    if length < LENGTH_BYTES {
        return Err(Error::corrupt(format!("a message of {stated} bytes is shorter than its length field")));
    }
    if length > bytes_max {
        return Err(Error::over_limit(format!("a message of {stated} bytes; at most {bytes_max} are read")));
    }
    // No memory is taken for bytes that are only announced.
    if received.len() < at + length {
        return Ok(None);
    }
    received.advance(at);
    let mut body = received.split_to(length).freeze();
    body.advance(LENGTH_BYTES);
    Ok(Some(body))
}

/// The fields of a message that are not decoded yet.
struct Fields<'a>(&'a mut Bytes);

impl Fields<'_> {
    fn message(&mut self, kind: u8) -> Result<Message> {
        Ok(match kind {
            b'Q' => Message::Query(self.text()?),
            b'P' => {
                let (name, text) = (self.text()?, self.text()?);
                let types = self.list(Fields::u32)?;
                Message::Parse { name, text, types }
            }
            b'B' => Message::Bind(Bind {
                portal: self.text()?,
                statement: self.text()?,
                formats: self.list(Fields::format)?,
                values: self.list(Fields::value)?,
                results: self.list(Fields::format)?,
            }),
            b'D' => Message::Describe(self.target()?),
            b'C' => Message::Close(self.target()?),
            // A negative number means all rows, as in PostgreSQL.
            b'E' => Message::Execute {
                portal: self.text()?,
                rows_max: u32::try_from(self.u32()?.cast_signed()).unwrap_or(0),
            },
            b'H' => Message::Flush,
            b'S' => Message::Sync,
            b'F' => {
                self.rest();
                Message::FunctionCall
            }
            b'd' => Message::CopyData(self.rest()),
            b'c' => Message::CopyDone,
            b'f' => Message::CopyFail(self.text()?),
            b'p' => Message::Authentication(self.rest()),
            _ => Message::Terminate,
        })
    }

    fn target(&mut self) -> Result<Target> {
        match self.take(1)?.get_u8() {
            b'S' => Ok(Target::Statement(self.text()?)),
            b'P' => Ok(Target::Portal(self.text()?)),
            other => {
                Err(Error::corrupt(format!("{:?} is neither a statement nor a portal", char::from(other))))
            }
        }
    }

    fn format(&mut self) -> Result<Format> {
        match self.u16()? {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            other => Err(Error::corrupt(format!("{other} is not a format: 0 is text, and 1 binary"))),
        }
    }

    fn value(&mut self) -> Result<Option<Bytes>> {
        let length = self.u32()?;
        match length.cast_signed() {
            -1 => Ok(None),
            _ => self.take(usize::try_from(length).unwrap_or(usize::MAX)).map(Some),
        }
    }

    /// Reads a number of items, and the items. Memory is taken for items that are there only.
    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.u16()?;
        (0..count).map(|_| item(self)).collect()
    }

    /// Reads text up to a zero byte.
    fn text(&mut self) -> Result<String> {
        let end = memchr::memchr(0, self.0);
        let end = end.ok_or_else(|| Error::corrupt("a text does not end within its message"))?;
        let text = self.take(end)?;
        self.0.advance(1);
        String::from_utf8(text.into())
            .map_err(|_| Error::invalid("a text is not UTF-8").advise("use the client encoding UTF8"))
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(self.take(2)?.get_u16())
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(self.take(4)?.get_u32())
    }

    fn take(&mut self, count: usize) -> Result<Bytes> {
        match count <= self.0.len() {
            true => Ok(self.0.split_to(count)),
            false => Err(Error::corrupt(format!("a field of {count} bytes, and {} are left", self.0.len()))),
        }
    }

    fn rest(&mut self) -> Bytes {
        std::mem::take(self.0)
    }

    fn end(&self) -> Result<()> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Error::corrupt(format!("{} bytes behind the last field", self.0.len()))),
        }
    }
}

#[cfg(test)]
mod tests;
