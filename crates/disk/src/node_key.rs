//! The private key by which a node proves its identity to clients. Its file is encrypted in an encrypted data
//! directory; in a plain one only its owner may read it.

use crate::files::{Directory, failed};
use crate::local::PRIVATE;
use crate::sealed::{read_sealed, write_sealed};
use farpool_cipher::Secret;
use farpool_cipher::hpke::PrivateKey;
use farpool_model::{Error, Result};
use std::io;

/// Name of the key file.
const NODE_KEY: &str = PRIVATE;

/// Format number of the contents of the key file.
const FORMAT: u32 = 1;

/// Returns the private key of the node with this data directory, and creates it if there is none yet. Must be called
/// after the directory has been unlocked, because an encrypted directory can only be created while it has no files.
///
/// # Errors
/// Errors of [`read_sealed`] and [`write_sealed`]; `Corrupt` if the file does not contain a key.
pub fn node_key(directory: &dyn Directory) -> Result<PrivateKey> {
    match directory.open(NODE_KEY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = PrivateKey::random()?;
            // In a plain directory the key is unencrypted on disk, so copies of it in ordinary memory reveal no more.
            write_sealed(directory, NODE_KEY, FORMAT, key.bytes())?;
            return Ok(key);
        }
        Err(error) => return Err(failed(directory, "open", NODE_KEY, &error)),
        Ok(_) => {}
    }
    let mut bytes = read_sealed(directory, NODE_KEY, FORMAT)?;
    PrivateKey::new(Secret::take(&mut bytes)?)
        .map_err(|error| Error::corrupt(format!("{NODE_KEY} in {}: {}", directory.describe(), error.message)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalDirectory, SimulatedDirectory, unlock};
    use farpool_cipher::{MasterKey, Tier};
    use farpool_model::ErrorKind;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    #[test]
    fn a_directory_keeps_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let directory = LocalDirectory::open(folder.path()).unwrap();
        let key = node_key(&*directory).unwrap();
        assert_eq!(node_key(&*directory).unwrap().public(), key.public());
        let file = folder.path().join(NODE_KEY);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        write_sealed(&*directory, NODE_KEY, FORMAT, &[1; 31]).unwrap();
        assert_eq!(node_key(&*directory).unwrap_err().kind, ErrorKind::Corrupt);
        std::fs::write(&file, [7; 50]).unwrap();
        assert_eq!(node_key(&*directory).unwrap_err().kind, ErrorKind::Corrupt);
    }

    #[test]
    fn it_is_encrypted_where_all_is() {
        let master = MasterKey::new(Secret::take(&mut [3; 32]).unwrap()).unwrap();
        let files = SimulatedDirectory::new();
        let directory = unlock(files.clone(), Some(&master), Some(Tier::Standard)).unwrap();
        let key = node_key(&*directory).unwrap();
        let file = files.open(NODE_KEY).unwrap();
        let mut bytes = vec![0; file.bytes().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        assert!(!bytes.windows(32).any(|part| part == key.bytes()));
        let again = unlock(Arc::clone(&files) as Arc<dyn Directory>, Some(&master), None).unwrap();
        assert_eq!(node_key(&*again).unwrap().public(), key.public());
    }
}
