//! The arguments by which a command finds its pool.

use super::stop::Outcome;
use clap::Args;
use farpool::{Pool, PoolUrl};
use std::sync::Arc;

/// The environment variable that holds the token, so that it need not stand on a command line.
const TOKEN_VARIABLE: &str = "FARPOOL_TOKEN";

/// The pool that a command speaks to.
#[derive(Args, Clone, Debug)]
pub struct PoolArgs {
    /// The memory node [default: farpool://127.0.0.1:9797]
    #[arg(long, value_name = "URL")]
    pub pool: Option<PoolUrl>,

    #[command(flatten)]
    pub token: TokenArgs,
}

/// The token that a command shows.
#[derive(Args, Clone, Debug)]
pub struct TokenArgs {
    /// The token that the node asks for [default: the environment variable FARPOOL_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
}

impl TokenArgs {
    /// The token from the command line or the environment.
    pub fn find(&self) -> Option<String> {
        self.token.clone().or_else(|| std::env::var(TOKEN_VARIABLE).ok()).filter(|token| !token.is_empty())
    }
}

impl PoolArgs {
    /// Where the pool is.
    pub fn url(&self) -> String {
        self.pool.as_ref().map_or_else(|| "farpool://127.0.0.1:9797".to_string(), ToString::to_string)
    }

    /// Connects to the pool.
    pub async fn connect(&self) -> Outcome<Arc<dyn Pool>> {
        Ok(farpool::connect(&self.url(), self.token.find().as_deref()).await?)
    }
}
