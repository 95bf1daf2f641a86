//! A client and a scripted node: answers of the wrong kind, too many, too large, or none.

mod fake;
mod hostile;
mod methods;
mod silent;
