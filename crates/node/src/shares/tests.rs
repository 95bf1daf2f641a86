//! Tests of the limits on connections, per tenant and per port (the ports of the native and of the Redis protocol).

use super::*;
use crate::access::Access;
use crate::node::NodeConfig;
use crate::rights::Right;
use crate::{Node, node::ConnectionGuard};

fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

fn node(access: Access) -> Arc<Node> {
    Node::start(NodeConfig { memory_bytes: 64 << 20, access, ..NodeConfig::default() }).unwrap()
}

/// Opens connections of a tenant on a port until one is refused; returns the accepted ones.
fn all(node: &Node, name: &str, port: Port) -> Vec<ConnectionGuard> {
    std::iter::from_fn(|| node.connect(&tenant(name), port).ok()).collect()
}

#[test]
fn no_tenant_and_no_port_keeps_all_others_out() {
    let access = Access::of_nobody().with_token("anns", tenant("ann"), Right::Read).with_token(
        "bobs",
        tenant("bob"),
        Right::Read,
    );
    let node = node(access);
    let mut open = Vec::new();
    for (port, most) in [(Port::Redis, limits::RESP_CONNECTIONS_MAX), (Port::Native, limits::CONNECTIONS_MAX)]
    {
        let of_ann = all(&node, "ann", port);
        assert_eq!(of_ann.len(), most - most / limits::CONNECTIONS_RESERVED_PART, "{port:?}");
        let error = node.connect(&tenant("ann"), port).err().unwrap();
        assert!(error.message.contains(&format!("serves {most} connections")), "{error}");
        let of_bob = all(&node, "bob", port);
        assert_eq!(of_bob.len(), most / limits::CONNECTIONS_FEW_PART, "{port:?}");
        open.extend(of_ann.into_iter().chain(of_bob));
    }
    assert_eq!(node.status().connections, open.len() as u64);
    open.clear();
    assert_eq!(node.status().connections, 0);
    assert!(node.connect(&tenant("ann"), Port::Redis).is_ok());
}

#[test]
fn without_tokens_nothing_is_reserved() {
    let node = node(Access::of_everybody());
    let open = all(&node, "main", Port::Native);
    assert_eq!(open.len(), limits::CONNECTIONS_MAX);
}
