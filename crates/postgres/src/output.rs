//! Messages that the server sends, encoded into a buffer (PostgreSQL documentation, "Message Formats").

use crate::failure::{Failure, Severity};
use crate::messages::Format;
use crate::types::PostgresType;
use bytes::{BufMut, BytesMut};

/// The state of the session's transaction, which each [`Output::ready`] tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No transaction is open.
    #[default]
    Idle,
    /// A transaction is open.
    Open,
    /// A statement of the open transaction has failed, so that only its end is accepted.
    Failed,
}

/// A column of a result, as the client is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name of the column.
    pub name: String,
    /// The type of its values.
    pub data_type: PostgresType,
    /// The format in which values are sent.
    pub format: Format,
}

/// Messages that wait to be sent.
#[derive(Debug, Default)]
pub struct Output {
    pub(crate) bytes: BytesMut,
}

impl Output {
    /// Returns the number of bytes that wait to be sent.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes that wait to be sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all messages, since they have been sent.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Frees memory beyond `bytes` if nothing waits.
    pub fn shrink(&mut self, bytes: usize) {
        if self.bytes.is_empty() && self.bytes.capacity() > bytes {
            self.bytes = BytesMut::new();
        }
    }

    /// Appends a message of this kind, of which `body` appends the fields.
    pub(crate) fn message(&mut self, kind: u8, body: impl FnOnce(&mut BytesMut)) {
        self.bytes.put_u8(kind);
        let start = self.bytes.len();
        self.bytes.put_u32(0);
        body(&mut self.bytes);
        self.end_message(start);
    }

    /// Writes the length of the message of which the length field is at `start`.
    pub(crate) fn end_message(&mut self, start: usize) {
        // Messages are smaller than the batches and texts that they are made of, which have fewer than 2 GiB.
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Appends the answer to a request for encryption: whether it follows.
    pub fn encryption(&mut self, follows: bool) {
        self.bytes.put_u8(if follows { b'S' } else { b'N' });
    }

    /// Tells that the client is authenticated.
    pub fn authenticated(&mut self) {
        self.message(b'R', |body| body.put_u32(0));
    }

    /// Asks for the password in the clear.
    pub fn ask_password(&mut self) {
        self.message(b'R', |body| body.put_u32(3));
    }

    /// Asks for an authentication by one of these SASL mechanisms (RFC 4422).
    pub fn ask_sasl(&mut self, mechanisms: &[&str]) {
        self.message(b'R', |body| {
            body.put_u32(10);
            mechanisms.iter().for_each(|mechanism| put_text(body, mechanism));
            body.put_u8(0);
        });
    }

    /// Sends a message of the SASL mechanism: the last one, or another.
    pub fn sasl(&mut self, data: &str, is_last: bool) {
        self.message(b'R', |body| {
            body.put_u32(if is_last { 12 } else { 11 });
            body.put_slice(data.as_bytes());
        });
    }

    /// Tells the newest version of the protocol that the server speaks, and the options that it does not know.
    pub fn negotiate_version(&mut self, version: (u16, u16), unknown: &[&str]) {
        self.message(b'v', |body| {
            body.put_u16(version.0);
            body.put_u16(version.1);
            put_count_u32(body, unknown.len());
            unknown.iter().for_each(|option| put_text(body, option));
        });
    }

    /// Tells the number and the secret by which another connection can cancel this session's statements.
    pub fn cancel_key(&mut self, session: u32, secret: &[u8]) {
        self.message(b'K', |body| {
            body.put_u32(session);
            body.put_slice(secret);
        });
    }

    /// Tells the value of a setting.
    pub fn setting(&mut self, name: &str, value: &str) {
        self.message(b'S', |body| {
            put_text(body, name);
            put_text(body, value);
        });
    }

    /// Tells that the session accepts the next statement.
    pub fn ready(&mut self, status: TransactionStatus) {
        self.message(b'Z', |body| {
            body.put_u8(match status {
                TransactionStatus::Idle => b'I',
                TransactionStatus::Open => b'T',
                TransactionStatus::Failed => b'E',
            });
        });
    }

    /// Tells the columns of the rows that follow.
    pub fn row_description(&mut self, columns: &[Column]) {
        self.message(b'T', |body| {
            put_count(body, columns.len());
            for column in columns {
                put_text(body, &column.name);
                // The columns of results are not traced back to those of tables.
                body.put_u32(0);
                body.put_u16(0);
                body.put_u32(column.data_type.oid);
                body.put_i16(column.data_type.size);
                body.put_i32(column.data_type.modifier);
                body.put_u16(code(column.format));
            }
        });
    }

    /// Tells that a statement returns no rows.
    pub fn no_data(&mut self) {
        self.message(b'n', |_| {});
    }

    /// Tells the types of a statement's parameters.
    pub fn parameter_description(&mut self, types: &[u32]) {
        self.message(b't', |body| {
            put_count(body, types.len());
            types.iter().for_each(|oid| body.put_u32(*oid));
        });
    }

    /// Tells that a statement was prepared.
    pub fn parse_complete(&mut self) {
        self.message(b'1', |_| {});
    }

    /// Tells that a portal was made.
    pub fn bind_complete(&mut self) {
        self.message(b'2', |_| {});
    }

    /// Tells that a statement or a portal was dropped.
    pub fn close_complete(&mut self) {
        self.message(b'3', |_| {});
    }

    /// Tells that a portal has more rows than were asked for.
    pub fn portal_suspended(&mut self) {
        self.message(b's', |_| {});
    }

    /// Tells that a statement has ended, and what it did.
    pub fn command_complete(&mut self, tag: &str) {
        self.message(b'C', |body| put_text(body, tag));
    }

    /// Tells that the text had no statement.
    pub fn empty_query(&mut self) {
        self.message(b'I', |_| {});
    }

    /// Asks for the rows of a COPY with `columns` columns.
    pub fn copy_in(&mut self, format: Format, columns: usize) {
        self.copy(b'G', format, columns);
    }

    /// Tells that the rows of a COPY with `columns` columns follow.
    pub fn copy_out(&mut self, format: Format, columns: usize) {
        self.copy(b'H', format, columns);
    }

    fn copy(&mut self, kind: u8, format: Format, columns: usize) {
        self.message(kind, |body| {
            body.put_u8(if format == Format::Binary { 1 } else { 0 });
            put_count(body, columns);
            (0..columns).for_each(|_| body.put_u16(code(format)));
        });
    }

    /// Sends a piece of the rows of a COPY.
    pub fn copy_data(&mut self, data: &[u8]) {
        self.message(b'd', |body| body.put_slice(data));
    }

    /// Tells that the rows of a COPY have ended.
    pub fn copy_done(&mut self) {
        self.message(b'c', |_| {});
    }

    /// Tells of an error, or of something less.
    pub fn failure(&mut self, failure: &Failure) {
        let kind = match failure.severity {
            Severity::Error | Severity::Fatal => b'E',
            Severity::Warning | Severity::Notice => b'N',
        };
        self.message(kind, |body| {
            let severity = failure.severity.name();
            for (field, text) in
                [(b'S', severity), (b'V', severity), (b'C', failure.code), (b'M', &failure.message)]
            {
                body.put_u8(field);
                put_text(body, text);
            }
            if let Some(hint) = &failure.hint {
                body.put_u8(b'H');
                put_text(body, hint);
            }
            if let Some(position) = failure.position {
                body.put_u8(b'P');
                put_text(body, &position.to_string());
            }
            body.put_u8(0);
        });
    }
}

fn code(format: Format) -> u16 {
    match format {
        Format::Text => 0,
        Format::Binary => 1,
    }
}

/// Appends a number of items as 16 bits. There are at most 65,535 columns and parameters.
fn put_count(body: &mut BytesMut, count: usize) {
    body.put_u16(u16::try_from(count).unwrap_or(u16::MAX));
}

fn put_count_u32(body: &mut BytesMut, count: usize) {
    body.put_u32(u32::try_from(count).unwrap_or(u32::MAX));
}

/// Appends a text and the zero byte that ends it. A zero byte within ends the text early.
fn put_text(body: &mut BytesMut, text: &str) {
    let text = text.split('\0').next().unwrap_or_default();
    body.put_slice(text.as_bytes());
    body.put_u8(0);
}
