//! A client and a node that does what a script says: answers of the wrong kind, too many, too large, or none.

mod fake;
mod hostile;
mod silent;
