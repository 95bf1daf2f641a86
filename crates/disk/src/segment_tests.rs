//! Tests of segments (immutable files of column chunks), with and without encryption and compression.

use super::*;
use crate::compression::{CompressionPolicy, compressing};
use crate::encrypted::tests::with_keys;
use crate::simulated::SimulatedDirectory;
use farpool_codec::Codec;
use farpool_model::ErrorKind;

/// Lengths of parts: zero, small ones on both sides of a disk page (4096 bytes), and large ones.
const SIZES: [usize; 6] = [0, 1, 4095, 4097, SMALL_BYTES, 3 << 20];

fn data(number: u64) -> Vec<u8> {
    let bytes = SIZES[number as usize];
    (0..bytes).map(|i| (i as u64 * 31 + number) as u8).collect()
}

/// A simulated disk, the directory through which a segment is written and read, and the key of a table, if the parts
/// are encrypted under one.
type Case = (Arc<SimulatedDirectory>, Arc<dyn Directory>, Option<Arc<TableKey>>);

/// Returns plain and encrypted directories, with and without table keys, for every compression policy.
fn all() -> Vec<Case> {
    let ways = Codec::ALL.map(CompressionPolicy::By);
    let ways = [CompressionPolicy::None, CompressionPolicy::Auto].into_iter().chain(ways);
    let cases = |way| {
        let [(plain, plain_directory), (encrypted, keyed)] = both();
        let (of_tables, directory) = both().into_iter().nth(1).unwrap();
        let key = table_key(&*directory);
        let cases =
            [(plain, plain_directory, None), (encrypted, keyed, None), (of_tables, directory, Some(key))];
        cases.map(|(device, directory, key)| (device, compressing(directory, way), key))
    };
    ways.flat_map(cases).collect()
}

/// Creates a random key of a table, of a new tenant.
fn table_key(directory: &dyn Directory) -> Arc<TableKey> {
    directory.keys().unwrap().new_tenant().unwrap().new_table().unwrap()
}

/// Creates a part with this head and length.
pub(super) fn part(number: u64, head: Vec<u8>, bytes: usize, key: Option<&Arc<TableKey>>) -> NewPart<'_> {
    NewPart { number, head, bytes, key, may_be_packed: true }
}

/// Returns the table key of a part, given its number: every third part has none.
fn key_of(key: Option<&Arc<TableKey>>, number: u64) -> Option<&Arc<TableKey>> {
    key.filter(|_| number % 3 < 2)
}

/// Returns a plain and an encrypted directory, each after the simulated disk that it is on.
fn both() -> [(Arc<SimulatedDirectory>, Arc<dyn Directory>); 2] {
    let directories = [SimulatedDirectory::new(), SimulatedDirectory::new()];
    let keyed = with_keys(directories[1].clone());
    let [plain, encrypted] = directories;
    [(plain.clone(), plain), (encrypted, keyed)]
}

fn write(directory: &Arc<dyn Directory>, key: Option<&Arc<TableKey>>, parts: usize) {
    let mut writer = SegmentWriter::create(directory.clone(), 7).unwrap();
    for number in 0..parts as u64 {
        let write = |out: &mut Vec<u8>| out.extend(data(number));
        let (head, bytes) = (vec![number as u8; 3 * number as usize], data(number).len());
        writer.add(part(number, head, bytes, key_of(key, number)), write).unwrap();
    }
    writer.finish().unwrap();
}

/// Reads all parts of the segment; returns the first error, if there is one.
fn read(directory: &dyn Directory, key: Option<&Arc<TableKey>>, parts: usize) -> Result<()> {
    let segment = Segment::open(directory, 7)?;
    assert_eq!(segment.parts().count(), parts);
    for (number, part) in segment.parts() {
        let key = key_of(key, number);
        assert_eq!(part.is_of_table(), key.is_some());
        assert_eq!(*segment.head(part, key)?, vec![number as u8; 3 * number as usize]);
        let mut bytes = vec![0; part.bytes as usize];
        segment.read(part, key, &mut bytes)?;
        assert!(bytes == data(number), "part {number}");
    }
    Ok(())
}

#[test]
fn parts_are_found_again_after_power_was_lost() {
    for (device, directory, key) in all() {
        write(&directory, key.as_ref(), SIZES.len());
        read(&*directory, key.as_ref(), SIZES.len()).unwrap();
        device.crash(1);
        read(&*directory, key.as_ref(), SIZES.len()).unwrap();
    }
}

#[test]
fn damage_anywhere_is_found() {
    for (device, directory, key) in all() {
        write(&directory, key.as_ref(), 5);
        let bytes = directory.open(&segment_name(7)).unwrap().bytes().unwrap();
        let mut harmless = 0;
        for at in 0..bytes {
            device.flip(&segment_name(7), at as usize, 1 << (at % 8));
            match read(&*directory, key.as_ref(), 5) {
                // The flipped bit was in padding, which no checksum covers.
                Ok(()) => harmless += 1,
                Err(error) => {
                    let place = format!("{} in", segment_name(7));
                    assert!(error.message.contains(&place), "{error}");
                    assert!([ErrorKind::Corrupt, ErrorKind::Invalid].contains(&error.kind), "{error}");
                }
            }
            device.flip(&segment_name(7), at as usize, 1 << (at % 8));
        }
        assert!(harmless < 4 * ALIGNMENT, "{harmless}");
        read(&*directory, key.as_ref(), 5).unwrap();
    }
}

/// Without the key a disk reveals neither data nor heads, and no two parts look alike.
#[test]
fn encrypted_parts_show_nothing() {
    let [_, (device, directory)] = both();
    let mut writer = SegmentWriter::create(directory.clone(), 7).unwrap();
    let (head, text) = (b"a head with bounds".to_vec(), b"a text of a table ".repeat(50));
    let (one, other) = (table_key(&*directory), table_key(&*directory));
    let keys = [None, Some(one.clone()), Some(one), Some(other)];
    for number in 0..4 {
        let part = part(number, head.clone(), text.len(), keys[number as usize].as_ref());
        writer.add(part, |out| out.extend_from_slice(&text)).unwrap();
    }
    writer.finish().unwrap();
    let file = device.open(&segment_name(7)).unwrap();
    let mut bytes = vec![0; file.bytes().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    for known in [&head[..], &text[..18]] {
        assert!(!bytes.windows(known.len()).any(|window| window == known));
    }
    let blocks: Vec<&[u8]> = bytes[ALIGNMENT..bytes.len() - ALIGNMENT]
        .chunks(16)
        .filter(|block| block.iter().any(|byte| *byte != 0))
        .collect();
    let different: std::collections::BTreeSet<&&[u8]> = blocks.iter().collect();
    assert!(blocks.len() > 200 && different.len() == blocks.len());
    // A segment written again with the same number and parts is encrypted with another key.
    let segment = Segment::open(&*directory, 7).unwrap();
    let (mut old, mut new) = ([0; 900], [0; 900]);
    segment.file.read_at(&mut old, segment.part(0).unwrap().offset).unwrap();
    let mut again = SegmentWriter::create(directory.clone(), 7).unwrap();
    again.add(part(0, head, text.len(), None), |out| out.extend_from_slice(&text)).unwrap();
    again.finish().unwrap();
    device.open(&segment_name(7)).unwrap().read_at(&mut new, segment.part(0).unwrap().offset).unwrap();
    assert_ne!(old, new);
}

#[test]
fn a_plain_segment_is_none_of_an_encrypted_directory() {
    let [(plain, _), (encrypted, keyed)] = both();
    write(&(plain.clone() as Arc<dyn Directory>), None, 2);
    write(&keyed, None, 2);
    let error = Segment::open(&*encrypted, 7).unwrap_err();
    assert!(error.kind == ErrorKind::Denied && error.advice.unwrap().contains("--master-key-file"));
    let copy = |from: &dyn Directory, to: &dyn Directory| {
        let (from, file) = (from.open(&segment_name(7)).unwrap(), to.create(&segment_name(7)).unwrap());
        let mut bytes = vec![0; from.bytes().unwrap() as usize];
        from.read_at(&mut bytes, 0).unwrap();
        file.write_at(&bytes, 0).unwrap();
    };
    encrypted.remove(&segment_name(7)).unwrap();
    copy(&*plain, &*encrypted);
    let error = Segment::open(&*keyed, 7).unwrap_err();
    assert!(error.kind == ErrorKind::Corrupt && error.message.contains("is not encrypted"), "{error}");
    // A segment of another directory, which has another key.
    let [_, (other, other_keyed)] = both();
    write(&other_keyed, None, 2);
    encrypted.remove(&segment_name(7)).unwrap();
    copy(&*other, &*encrypted);
    let error = Segment::open(&*keyed, 7).unwrap_err();
    assert!(error.kind == ErrorKind::Corrupt && error.message.contains("was changed"), "{error}");
}

#[test]
fn a_segment_that_was_not_finished_is_told() {
    let directory = SimulatedDirectory::new();
    let mut writer = SegmentWriter::create(directory.clone(), 7).unwrap();
    writer.add(part(0, vec![1], 2 << 20, None), |out| out.resize(2 << 20, 5)).unwrap();
    drop(writer);
    assert!(Segment::open(&*directory, 7).unwrap_err().message.contains("was not finished"));
    // A segment can be created again under the number of an unfinished one.
    SegmentWriter::create(directory.clone(), 7).unwrap().finish().unwrap();
    assert_eq!(Segment::open(&*directory, 7).unwrap().parts().count(), 0);
}

/// Parts of a table are read with its key only, and cannot replace one another: the directory's key alone reads neither
/// their data nor their heads.
#[test]
fn parts_of_a_table_are_read_with_its_key_only() {
    let text = b"a text of a table ".repeat(50_000);
    let [_, (_, directory)] = both();
    let (one, other) = (table_key(&*directory), table_key(&*directory));
    for policy in [CompressionPolicy::None, CompressionPolicy::By(Codec::Lz4)] {
        let mut writer = SegmentWriter::create(compressing(directory.clone(), policy), 7).unwrap();
        let keys = [Some(&one), Some(&one), Some(&other), None];
        for (number, key) in (0..).zip(keys) {
            let part = part(number, b"its bounds".to_vec(), text.len(), key);
            writer.add(part, |out| out.extend_from_slice(&text)).unwrap();
        }
        drop(writer.finish().unwrap());
        let segment = Segment::open(&*directory, 7).unwrap();
        let read = |part: &Part, key: Option<&Arc<TableKey>>| {
            let mut data = vec![0; text.len()];
            let read = segment.read(part, key, &mut data).map(|()| data);
            let head = segment.head(part, key).map(|head| head.into_owned());
            assert_eq!(read.is_ok(), head.is_ok(), "neither or both");
            head.and(read)
        };
        for (number, key) in (0..).zip(keys) {
            let found = segment.part(number).unwrap();
            assert!(read(found, key).unwrap() == text);
            for wrong in [None, Some(&one), Some(&other)] {
                let is_right = key.is_none_or(|key| wrong.is_some_and(|wrong| Arc::ptr_eq(wrong, key)));
                let outcome = read(found, wrong);
                assert_eq!(
                    outcome.as_ref().err().map(|error| error.kind),
                    (!is_right).then_some(ErrorKind::Corrupt)
                );
            }
            // Tries to read another part, of the same table or not, as if it were this part.
            for taken in (0..4).filter(|taken| *taken != number).map(|taken| segment.part(taken).unwrap()) {
                let moved = Part { number, ..taken.clone() };
                for key in [None, Some(&one), Some(&other)] {
                    // Heads without a table's key are authenticated as part of the directory.
                    let mut data = vec![0; text.len()];
                    assert!(segment.read(&moved, key, &mut data).is_err());
                    assert!(!moved.is_of_table() || segment.head(&moved, key).is_err());
                }
            }
        }
    }
}

/// Keys are unwrapped by the key that wrapped them, and by no other.
#[test]
fn keys_of_tenants_and_tables_are_unwrapped_again() {
    let [_, (device, directory)] = both();
    let keys = directory.keys().unwrap();
    let tenant = keys.new_tenant().unwrap();
    let table = tenant.new_table().unwrap();
    write(&directory, Some(&table), 3);
    let again = with_keys(device);
    let found = again.keys().unwrap().tenant(tenant.wrapped().clone()).unwrap();
    read(&*again, Some(&found.table(table.wrapped().clone()).unwrap()), 3).unwrap();
    // Wrong keys: another tenant, another directory, a tenant's key in place of a table's.
    let other = keys.new_tenant().unwrap();
    let [_, (_, elsewhere)] = both();
    let refused = [
        other.table(table.wrapped().clone()).map(|_| ()),
        other.table(tenant.wrapped().clone()).map(|_| ()),
        keys.tenant(table.wrapped().clone()).map(|_| ()),
        elsewhere.keys().unwrap().tenant(tenant.wrapped().clone()).map(|_| ()),
    ];
    for outcome in refused {
        assert_eq!(outcome.unwrap_err().kind, ErrorKind::Corrupt);
    }
}
