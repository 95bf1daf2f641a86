//! Tickets: what a client is given for the result of a statement, and gives back to read it. A ticket grants nothing: it
//! names a statement, which runs with the rights of whoever presents the ticket. It is therefore neither encrypted nor
//! signed, and a server keeps nothing for it.

use farpool_model::{Error, Result};

/// A ticket for the result of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The number of the execution, by which it is cancelled.
    pub id: u128,
    /// The fingerprint of the schema that the client was told.
    pub schema: u64,
    /// The statement.
    pub target: TicketTarget,
}

/// The statement of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketTarget {
    /// A statement with its text, and the schema in which its names are looked up if that is not the default.
    Text {
        /// The schema.
        in_schema: Option<String>,
        /// The text.
        text: String,
    },
    /// A prepared statement with values for its parameters.
    Prepared {
        /// The statement's handle.
        handle: u128,
        /// The number of the values among those that the statement was given.
        binding: u64,
    },
}

/// The first byte of a ticket, by its target.
const TEXT: u8 = 1;
const PREPARED: u8 = 2;

impl Ticket {
    /// Encodes the ticket.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![match &self.target {
            TicketTarget::Text { .. } => TEXT,
            TicketTarget::Prepared { .. } => PREPARED,
        }];
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(self.schema.to_be_bytes());
        match &self.target {
            TicketTarget::Text { in_schema, text } => {
                // A schema has a name; no bytes stand for none.
                let name = in_schema.as_deref().unwrap_or_default();
                bytes.extend(u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes());
                bytes.extend(name.as_bytes());
                bytes.extend(text.as_bytes());
            }
            TicketTarget::Prepared { handle, binding } => {
                bytes.extend(handle.to_be_bytes());
                bytes.extend(binding.to_be_bytes());
            }
        }
        bytes
    }

    /// Decodes the output of [`Ticket::encode`].
    ///
    /// # Errors
    /// `Invalid` if the bytes are not a ticket.
    pub fn decode(bytes: &[u8]) -> Result<Ticket> {
        Self::parsed(bytes).ok_or_else(|| {
            Error::invalid("this is not a ticket of this server")
                .advise("ask for the statement's result anew")
        })
    }

    fn parsed(bytes: &[u8]) -> Option<Ticket> {
        let (kind, bytes) = bytes.split_first()?;
        let (id, bytes) = bytes.split_first_chunk()?;
        let (schema, bytes) = bytes.split_first_chunk()?;
        let target = match *kind {
            TEXT => {
                let (length, bytes) = bytes.split_first_chunk()?;
                let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
                let (name, text) = bytes.split_at_checked(length)?;
                let name = std::str::from_utf8(name).ok()?;
                let in_schema = (!name.is_empty()).then(|| name.to_string());
                TicketTarget::Text { in_schema, text: std::str::from_utf8(text).ok()?.to_string() }
            }
            PREPARED => {
                let (handle, bytes) = bytes.split_first_chunk()?;
                let binding = bytes.try_into().ok()?;
                TicketTarget::Prepared {
                    handle: u128::from_be_bytes(*handle),
                    binding: u64::from_be_bytes(binding),
                }
            }
            _ => return None,
        };
        Some(Ticket { id: u128::from_be_bytes(*id), schema: u64::from_be_bytes(*schema), target })
    }
}
