//! Tests of encrypted data directories: opened with the right master key, with a wrong one or none, and changing the
//! master key.

use super::*;
use crate::simulated::{Faults, SimulatedDirectory};
use farpool_cipher::Secret;

fn master(byte: u8) -> MasterKey {
    MasterKey::new(Secret::take(&mut [byte; 32]).unwrap()).unwrap()
}

/// Opens the directory with the master key of the tests, encrypting it if it is new.
pub(crate) fn with_keys(directory: Arc<dyn Directory>) -> Arc<dyn Directory> {
    unlock(directory, Some(&master(1)), Some(Tier::Standard)).unwrap()
}

const NAME: &str = "manifest-000000000001";
const TEXT: &[u8] = b"names of tables";

fn contents(device: &SimulatedDirectory, name: &str) -> Vec<u8> {
    let file = device.open(name).unwrap();
    let mut bytes = vec![0; file.bytes().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn what_is_sealed_is_read_with_the_key_only() {
    for tier in [Tier::Standard, Tier::Strict] {
        let device = SimulatedDirectory::new();
        let directory = unlock(device.clone(), Some(&master(1)), Some(tier)).unwrap();
        assert_eq!(directory.keys().unwrap().tier(), tier);
        write_sealed(&*directory, NAME, 1, TEXT).unwrap();
        assert_eq!(directory.names().unwrap(), [NAME]);
        assert!(!contents(&device, NAME).windows(5).any(|window| window == b"names"));
        // The encryption tier is the one that the directory was created with, whatever tier is requested later.
        let directory = unlock(device.clone(), Some(&master(1)), Some(Tier::Standard)).unwrap();
        assert_eq!(directory.keys().unwrap().tier(), tier);
        assert_eq!(read_sealed(&*directory, NAME, 1).unwrap(), TEXT);
        assert!(read_sealed(&*directory, NAME, 2).unwrap_err().message.contains("format 1"));
        let wrong = unlock(device.clone(), Some(&master(2)), Some(tier)).unwrap_err();
        assert!(wrong.kind == ErrorKind::Denied && wrong.message.contains("master key is"), "{wrong}");
        for none in
            [unlock(device.clone(), None, None).unwrap_err(), read_sealed(&*device, NAME, 1).unwrap_err()]
        {
            assert_eq!(none.kind, ErrorKind::Denied);
            assert!(none.advice.unwrap().contains("--master-key-file"));
        }
        // A sealed file that was renamed to another sealed file's name fails authentication.
        directory.rename(NAME, "manifest-000000000002").unwrap();
        let error = read_sealed(&*directory, "manifest-000000000002", 1).unwrap_err();
        assert!(error.kind == ErrorKind::Corrupt && error.message.contains("was changed"), "{error}");
    }
}

#[test]
fn every_byte_of_a_sealed_file_counts() {
    let device = SimulatedDirectory::new();
    let directory = with_keys(device.clone());
    write_sealed(&*directory, NAME, 1, TEXT).unwrap();
    for name in [NAME, KEYS] {
        for at in 0..contents(&device, name).len() {
            device.flip(name, at, 1 << (at % 8));
            let read =
                unlock(device.clone(), Some(&master(1)), None).and_then(|it| read_sealed(&*it, NAME, 1));
            let error = read.unwrap_err();
            assert!(error.message.contains(name), "byte {at} of {name}: {error}");
            device.flip(name, at, 1 << (at % 8));
        }
    }
}

#[test]
fn directories_that_are_not_encrypted_stay_so() {
    let device = SimulatedDirectory::new();
    write_sealed(&*unlock(device.clone(), None, None).unwrap(), NAME, 1, TEXT).unwrap();
    let error = unlock(device.clone(), Some(&master(1)), Some(Tier::Standard)).unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("is not encrypted"), "{error}");
    assert_eq!(read_sealed(&*device, NAME, 1).unwrap(), TEXT);
    assert!(rotate_master_key(&*device, &master(1), &master(2)).is_err());
    // An encrypted directory rejects a plain file, and cannot be opened without its keys.
    let other = SimulatedDirectory::new();
    let directory = with_keys(other.clone());
    write_sealed(&*other, NAME, 1, TEXT).unwrap();
    let error = read_sealed(&*directory, NAME, 1).unwrap_err();
    assert!(error.kind == ErrorKind::Corrupt && error.message.contains("is not encrypted"), "{error}");
    write_sealed(&*directory, NAME, 1, TEXT).unwrap();
    other.remove(KEYS).unwrap();
    let error = unlock(other, Some(&master(1)), Some(Tier::Standard)).unwrap_err();
    assert!(error.kind == ErrorKind::Corrupt && error.message.contains("keys is missing"), "{error}");
    let empty = SimulatedDirectory::new();
    let error = unlock(empty.clone(), Some(&master(1)), Some(Tier::Fast)).unwrap_err();
    assert!(error.message.contains("does not authenticate"), "{error}");
    assert!(unlock(empty.clone(), Some(&master(1)), None).is_err());
    assert!(empty.names().unwrap().is_empty());
}

/// Changing the master key is atomic under any failure or loss of power: afterwards, either the old or the new key
/// opens the directory, and the files have the same contents.
#[test]
fn rotation_is_done_or_is_not() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..200 {
        let device = SimulatedDirectory::new();
        write_sealed(&*with_keys(device.clone()), NAME, 1, TEXT).unwrap();
        let before = contents(&device, NAME);
        device.set_faults(Faults { fails_after: Some(seed % 5), ..Faults::default() });
        let rotated = rotate_master_key(&*device, &master(1), &master(2));
        if seed % 3 > 0 {
            device.crash(seed);
        }
        device.set_faults(Faults::default());
        let opens = |byte: u8| {
            let opened = unlock(device.clone(), Some(&master(byte)), None);
            opened.inspect(|it| assert_eq!(read_sealed(&**it, NAME, 1).unwrap(), TEXT)).is_ok()
        };
        assert!(opens(1) != opens(2) && (rotated.is_err() || opens(2)), "seed {seed}");
        assert_eq!(contents(&device, NAME), before);
        *(if opens(1) { &mut old } else { &mut new }) += 1;
    }
    assert!(old > 20 && new > 20, "{old} {new}");
}

/// A crash while an encrypted directory is created leaves a directory that has its keys, or one in which they can be
/// created again.
#[test]
fn making_keys_is_done_or_is_not() {
    for seed in 0..100 {
        let device = SimulatedDirectory::new();
        device.set_faults(Faults { fails_after: Some(seed % 4), ..Faults::default() });
        let _ = unlock(device.clone(), Some(&master(1)), Some(Tier::Standard));
        device.crash(seed);
        device.set_faults(Faults::default());
        let directory = with_keys(device.clone());
        write_sealed(&*directory, NAME, 1, TEXT).unwrap();
        device.crash(seed);
        assert_eq!(read_sealed(&*with_keys(device), NAME, 1).unwrap(), TEXT);
    }
}
