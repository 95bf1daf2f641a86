//! Fuzz body that opens untrusted sealed (encrypted) answers, and reads untrusted requests for them.

use bytes::Bytes;
use farpool_wire::sealed::{NodeProof, Opener, PrivateKey, Proof, SealedRequest, Sealer};
use farpool_wire::{FrameKind, Message, Request};
use std::sync::LazyLock;

/// The private key of the node, which differs in each process.
static NODE: LazyLock<PrivateKey> = LazyLock::new(|| PrivateKey::random().expect("a key is short"));

/// Decodes a message: the first byte is its kind, the rest its body. As a request, a node accepts or rejects it; as an
/// answer it cannot be opened, because its key is unknown.
pub fn sealed_messages(data: &[u8]) {
    let Some((kind, body)) = data.split_first() else { return };
    let Some(kind) = FrameKind::from_number(*kind) else { return };
    let message =
        Message { kind, stream: 1, bytes_on_wire: body.len() as u64, body: Bytes::copy_from_slice(body) };
    if let Ok(sealed) = SealedRequest::read(&message) {
        assert!(sealed.request.kind.may_be_sealed() && sealed.request.body.len() <= body.len());
        let _ = sealed.handle();
        let _ = Request::decode(&sealed.request, None);
        let _ = Sealer::new(&sealed, Some(&[7; 32]), NodeProof { key: Some(&NODE), ..NodeProof::default() });
    }
    let opener = opener();
    let is_in_order = opener.check(&message).is_ok();
    assert!(is_in_order || kind != FrameKind::Error);
    assert!(opener.open(message).is_err(), "an answer that nobody has sealed is opened");
}

fn opener() -> Opener {
    let request = Request::Status.encode().ok().and_then(|mut messages| messages.pop());
    let request = request.expect("a request has a message");
    Opener::new(request, &Proof::NodeKey(NODE.public()), [0; 32], None).expect("a request is short").1
}
