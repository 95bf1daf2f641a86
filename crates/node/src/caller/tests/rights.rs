//! Tests every verb of the table of rights, of Callers and of clients over TCP and over TLS: without the right it is
//! refused, and nobody reaches another tenant's data except by the verbs for that.

#[path = "../../../tests/common/certificates.rs"]
mod certificates;

use super::exercise::{MANY, exercise, exercise_over, load, load_over, name, names_own_table, stuck};
use super::{node, tenant};
use crate::rights::VERBS;
use crate::{Access, Caller, Node, NodeConfig, Right, Verb, native};
use certificates::AUTHORITY;
use farpool_model::{ErrorKind, LoadMode, ResultForm, TableName};
use farpool_transfer::{ClientOptions, ClientTls, Pool, PoolUrl, RemotePool};
use tokio::net::TcpListener;

#[test]
fn every_verb_takes_its_right_and_reaches_the_callers_own_tables_only() {
    let (own, others) = (TableName::new("own").unwrap(), TableName::new("others").unwrap());
    for (verb, least, reach) in VERBS {
        for right in Right::ALL {
            let node = node();
            load(&node.owner(tenant("ann")), &own, LoadMode::Create).unwrap();
            load(&node.owner(tenant("bob")), &others, LoadMode::Create).unwrap();
            let caller = Caller::new(node.clone(), tenant("ann"), right);
            let done = exercise(verb, &caller, &own);
            match right >= least {
                true => assert_eq!(done, Ok(()), "{verb:?} with {right:?}"),
                false => assert_eq!(done.unwrap_err().kind, ErrorKind::Denied, "{verb:?} with {right:?}"),
            }
            // Another tenant's table is not found, whatever the right, and must still exist afterwards.
            if names_own_table(verb, reach) && right >= least {
                let kind = exercise(verb, &caller, &others).unwrap_err().kind;
                assert_eq!(kind, ErrorKind::NotFound, "{verb:?}");
            }
            assert_eq!(node.owner(tenant("bob")).tables().unwrap().len(), 1, "{verb:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_takes_its_right_over_tcp() {
    walk(Server::start(false).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_takes_its_right_over_tls() {
    walk(Server::start(true).await).await;
}

/// A node that serves TCP, or TLS over it.
struct Server {
    url: PoolUrl,
    tls: Option<ClientTls>,
}

impl Server {
    async fn start(is_encrypted: bool) -> Self {
        let config =
            NodeConfig { memory_bytes: 256 << 20, workers: 2, access: access(), ..NodeConfig::default() };
        let node = Node::start(config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        if is_encrypted {
            node.set_tls(AUTHORITY.node("127.0.0.1"));
        }
        tokio::spawn(native::serve(node, listener, std::future::pending()));
        let scheme = if is_encrypted { "farpools" } else { "farpool" };
        let url = format!("{scheme}://{address}").parse().unwrap();
        Server { url, tls: is_encrypted.then(|| AUTHORITY.clients()) }
    }

    async fn connect(&self, token: &str) -> RemotePool {
        let (token, tls) = (Some(token.to_string()), self.tls.clone());
        let options = ClientOptions { token, tls, ..ClientOptions::default() };
        // Packed, the whole result of a program would be in flight at once.
        RemotePool::connect(&self.url, options).await.unwrap().with_results(ResultForm::Plain)
    }
}

/// Access for bob, and for a client of ann's with each right.
fn access() -> Access {
    let mut access = Access::of_nobody().with_token("bobs", tenant("bob"), Right::Write);
    for right in Right::ALL {
        access = access.with_token(right.name(), tenant("ann"), right);
    }
    access
}

async fn walk(server: Server) {
    let bob = server.connect("bobs").await;
    load_over(&bob, "large", LoadMode::Create, MANY).await.unwrap();
    let writer = server.connect("write").await;
    let of_keys = [Verb::ReadKeys, Verb::WriteKeys];
    for (verb, least, reach) in VERBS.into_iter().filter(|(verb, ..)| !of_keys.contains(verb)) {
        for right in Right::ALL {
            let what = format!("{verb:?} with {right:?}");
            if writer.table(&name("own")).await.map_or(true, |own| own.rows != MANY as u64) {
                load_over(&writer, "own", LoadMode::Replace, MANY).await.unwrap();
            }
            load_over(&bob, "others", LoadMode::Replace, 10).await.unwrap();
            load_over(&bob, "spare", LoadMode::Replace, 10).await.unwrap();
            let running = stuck(&bob, "large").await.unwrap();
            let query = bob.queries().await.unwrap()[0].id;
            let pool = server.connect(right.name()).await;
            let done = exercise_over(verb, &pool, "own", query).await;
            match (right >= least, verb) {
                (true, _) => assert_eq!(done, Ok(()), "{what}"),
                // Other tenants must not learn that there is such a query.
                (false, Verb::CancelQueryOfAll) => {
                    assert_eq!(done.unwrap_err().kind, ErrorKind::NotFound, "{what}");
                }
                (false, _) => assert_eq!(done.unwrap_err().kind, ErrorKind::Denied, "{what}"),
            }
            if names_own_table(verb, reach) && right >= least {
                let error = exercise_over(verb, &pool, "others", query).await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::NotFound, "{what}");
            }
            // Nothing of another tenant may be gone, except by the verb for that.
            let left = bob.tables().await.unwrap().len();
            assert_eq!(left, if verb == Verb::DropOfAll && right >= least { 2 } else { 3 }, "{what}");
            let still_runs = bob.queries().await.unwrap().iter().any(|q| q.id == query);
            assert_eq!(still_runs, !(verb == Verb::CancelQueryOfAll && right >= least), "{what}");
            drop(running);
            while !bob.queries().await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }
}
