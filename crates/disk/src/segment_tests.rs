//! Segments, plain and encrypted, compressed and not.

use super::*;
use crate::compression::{Packing, compressing};
use crate::encrypted::tests::with_keys;
use crate::simulated::SimulatedDirectory;
use farpool_codec::Codec;
use farpool_model::ErrorKind;

/// Sizes of the data: none, small ones on both sides of a block, and a large one.
const SIZES: [usize; 6] = [0, 1, 4095, 4097, SMALL_BYTES, 3 << 20];

fn data(number: u64) -> Vec<u8> {
    let bytes = SIZES[number as usize];
    (0..bytes).map(|i| (i as u64 * 31 + number) as u8).collect()
}

/// Plain directories and encrypted ones, as they are on the device and as they are read, that compress in every way.
fn all() -> Vec<(Arc<SimulatedDirectory>, Arc<dyn Directory>)> {
    let ways = Codec::ALL.map(Packing::By);
    let ways = [Packing::None, Packing::Auto].into_iter().chain(ways);
    ways.flat_map(|way| both().map(|(device, directory)| (device, compressing(directory, way)))).collect()
}

/// Both a plain directory and an encrypted one.
fn both() -> [(Arc<SimulatedDirectory>, Arc<dyn Directory>); 2] {
    let directories = [SimulatedDirectory::new(), SimulatedDirectory::new()];
    let keyed = with_keys(directories[1].clone());
    let [plain, encrypted] = directories;
    [(plain.clone(), plain), (encrypted, keyed)]
}

fn write(directory: &Arc<dyn Directory>, parts: usize) {
    let mut writer = SegmentWriter::create(directory.clone(), 7).unwrap();
    for number in 0..parts as u64 {
        let write = |out: &mut Vec<u8>| out.extend(data(number));
        writer.add(number, vec![number as u8; 3 * number as usize], data(number).len(), write).unwrap();
    }
    writer.finish().unwrap();
}

/// Reads everything, and returns the first error.
fn read(directory: &dyn Directory, parts: usize) -> Result<()> {
    let segment = Segment::open(directory, 7)?;
    assert_eq!(segment.parts().count(), parts);
    for (number, part) in segment.parts() {
        assert_eq!(*part.head().unwrap(), vec![number as u8; 3 * number as usize]);
        let mut bytes = vec![0; part.bytes as usize];
        segment.read(part, &mut bytes)?;
        assert!(bytes == data(number), "part {number}");
    }
    Ok(())
}

#[test]
fn parts_are_found_again_after_power_was_lost() {
    for (device, directory) in all() {
        write(&directory, SIZES.len());
        read(&*directory, SIZES.len()).unwrap();
        device.crash(1);
        read(&*directory, SIZES.len()).unwrap();
    }
}

#[test]
fn damage_anywhere_is_found() {
    for (device, directory) in all() {
        write(&directory, 5);
        let bytes = directory.open(&segment_name(7)).unwrap().bytes().unwrap();
        let mut harmless = 0;
        for at in 0..bytes {
            device.flip(&segment_name(7), at as usize, 1 << (at % 8));
            match read(&*directory, 5) {
                // Padding.
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
        read(&*directory, 5).unwrap();
    }
}

/// What a disk shows to somebody without the key: neither data nor heads, and no two parts alike.
#[test]
fn encrypted_parts_show_nothing() {
    let [_, (device, directory)] = both();
    let mut writer = SegmentWriter::create(directory.clone(), 7).unwrap();
    let (head, text) = (b"a head with bounds".to_vec(), b"a text of a table ".repeat(50));
    for number in 0..4 {
        writer.add(number, head.clone(), text.len(), |out| out.extend_from_slice(&text)).unwrap();
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
    // Another file of the same number, with the same parts, has another key.
    let segment = Segment::open(&*directory, 7).unwrap();
    let (mut old, mut new) = ([0; 900], [0; 900]);
    segment.file.read_at(&mut old, segment.part(0).unwrap().offset).unwrap();
    let mut again = SegmentWriter::create(directory.clone(), 7).unwrap();
    again.add(0, head, text.len(), |out| out.extend_from_slice(&text)).unwrap();
    again.finish().unwrap();
    device.open(&segment_name(7)).unwrap().read_at(&mut new, segment.part(0).unwrap().offset).unwrap();
    assert_ne!(old, new);
}

#[test]
fn a_plain_segment_is_none_of_an_encrypted_directory() {
    let [(plain, _), (encrypted, keyed)] = both();
    write(&(plain.clone() as Arc<dyn Directory>), 2);
    write(&keyed, 2);
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
    // One of another directory, which has another key.
    let [_, (other, other_keyed)] = both();
    write(&other_keyed, 2);
    encrypted.remove(&segment_name(7)).unwrap();
    copy(&*other, &*encrypted);
    let error = Segment::open(&*keyed, 7).unwrap_err();
    assert!(error.kind == ErrorKind::Corrupt && error.message.contains("was changed"), "{error}");
}

#[test]
fn a_segment_that_was_not_finished_is_told() {
    let directory = SimulatedDirectory::new();
    let mut writer = SegmentWriter::create(directory.clone(), 7).unwrap();
    writer.add(0, vec![1], 2 << 20, |out| out.resize(2 << 20, 5)).unwrap();
    drop(writer);
    assert!(Segment::open(&*directory, 7).unwrap_err().message.contains("was not finished"));
    assert_eq!(segment_number(&segment_name(7)), Some(7));
    // Its number is used again by whoever comes next.
    SegmentWriter::create(directory.clone(), 7).unwrap().finish().unwrap();
    assert_eq!(Segment::open(&*directory, 7).unwrap().parts().count(), 0);
}
