//! Tests a client against a scripted node that sends answers of the wrong kind, too many, too large, or none.

mod fake;
mod hostile;
mod methods;
mod silent;
mod takes;
