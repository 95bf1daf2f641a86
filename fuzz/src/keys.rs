//! Fuzz body that decodes untrusted wrapped encryption keys.

use farpool_cipher::{KeyKind, KeyRing, MasterKey, Secret, WrappedKey};

/// Decodes a key ring, and a single key. A decoded ring is encoded to the same bytes, and unwrapping its keys
/// terminates: with an error unless the bytes are a ring of the master key.
pub fn key_ring_decoder(data: &[u8]) {
    if let Ok(key) = WrappedKey::from_bytes(data) {
        assert_eq!(key.to_bytes(), data, "there is one form of a wrapped key");
        let _ = key.open(key.kind(), (key.parent(), &Secret::take(&mut [1; 32]).expect("a key is short")));
    }
    let Ok(ring) = KeyRing::from_bytes(data) else { return };
    assert_eq!(ring.to_bytes(), data, "there is one form of a ring");
    let master = master();
    for kind in [KeyKind::Directory, KeyKind::Tenant, KeyKind::Table] {
        if let Some((id, _)) = ring.first(kind) {
            let unwrapped = ring.unwrap(&master, id).is_ok();
            assert!(!unwrapped || ring.fingerprint() == master.fingerprint());
        }
    }
    let _ = ring.rotated(&master, &master);
}

/// Returns the master key with which the seeds were generated.
pub(crate) fn master() -> MasterKey {
    let secret = Secret::take(&mut [1; 32]).expect("a key is short");
    MasterKey::new(secret).expect("the key has the right length")
}
