//! Parts of the suites that compare farpool with a database system: a PostgreSQL server with its own data, psql, and a
//! node that speaks the protocols of other systems.

mod postgres;
mod psql;
mod served;

pub use postgres::{Postgres, Settings, client_program};
pub use psql::{Psql, agree_on_texts};
pub use served::Served;
