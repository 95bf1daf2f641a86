//! Tests of encrypted chunks against the plain chunks that they were made from.

use super::arrays::{Random, SHAPES, TYPES, array};
use super::chunks::check;
use super::{encoded, pool, schema_of};
use crate::{Chunk, Encoder, PlainGroup, RowGroup, TableBuilder, table_cipher};
use arrow_array::{Array, ArrayRef, RecordBatch, StringViewArray};
use arrow_buffer::Buffer;
use farpool_cipher::MemoryCipher;
use farpool_memory::Pool;
use farpool_model::{ErrorKind, TenantName, Tier};
use std::sync::Arc;

fn encrypted(pool: &Arc<Pool>, cipher: &Arc<MemoryCipher>, array: &ArrayRef) -> RowGroup {
    let columns = [array.clone()];
    let encoder = Encoder::new(pool.clone(), TenantName::default(), schema_of(&columns));
    encoder.encrypting(Some(cipher)).encode(&PlainGroup::of(&columns)).unwrap()
}

fn image(chunk: &Chunk) -> (Vec<u8>, Vec<u8>) {
    let image = chunk.to_image().unwrap();
    let mut data = Vec::new();
    image.write_data(&mut data);
    (image.head, data)
}

#[test]
fn encrypted_chunks_are_what_they_were_made_of() {
    let mut random = Random(11);
    for tier in Tier::ALL {
        let cipher = table_cipher(tier).unwrap();
        for data_type in &TYPES {
            for shape in SHAPES {
                for (rows, nulls) in [(0, 0), (1, 100), (1500, 0), (2100, 30)] {
                    let pool = pool(32);
                    let array = array(data_type, shape, rows, nulls, &mut random);
                    let plain = encoded(&pool, &array);
                    let group = encrypted(&pool, &cipher, &array);
                    let chunk = &group.chunks[0];
                    assert!(chunk.is_encrypted());
                    assert_eq!(chunk.decode(0..rows).unwrap_err().kind, ErrorKind::Internal);
                    assert_eq!(chunk.zone(), plain.zone());
                    assert_eq!(chunk.integer_bounds(), plain.integer_bounds());
                    assert_eq!(chunk.dictionary_len(), plain.dictionary_len());
                    assert_eq!((chunk.encoding(), chunk.rows()), (plain.encoding(), rows));
                    let is_small = |values: &ArrayRef| values.get_buffer_memory_size() <= 512;
                    let expected = plain.dictionary_values().filter(is_small);
                    assert_eq!(chunk.dictionary_values(), expected);
                    assert!(image(chunk) == image(&plain), "images are in the clear");
                    let opened = group.with_values(0..1).unwrap().unwrap();
                    check(&opened.chunks[0], &array, &mut random);
                }
            }
        }
    }
}

#[test]
fn nothing_of_a_table_is_in_the_clear() {
    let pool = pool(64);
    let secret = |row: usize| format!("patient {} has a secret of {}", row % 5_000, row % 11);
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..70_000).map(secret)));
    let few: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..70_000).map(|row| secret(row % 3))));
    let batch = RecordBatch::try_from_iter([("texts", texts), ("few", few)]).unwrap();
    let build = |cipher: Option<&Arc<MemoryCipher>>| {
        let builder = TableBuilder::new(pool.clone(), TenantName::default(), &batch.schema(), None).unwrap();
        let mut builder = builder.encrypting(cipher);
        builder.push(&batch).unwrap();
        builder.finish().unwrap()
    };
    let tells = |table: &crate::Table| format!("{table:?}").contains("a secret of");
    assert!(tells(&build(None)));
    for tier in Tier::ALL {
        let table = build(Some(&table_cipher(tier).unwrap()));
        assert_eq!(table.tier(), Some(tier));
        // `Debug` output of the table contains everything in memory, with bytes of the pool as numbers.
        assert!(!tells(&table));
        for column in &table.statistics {
            assert_eq!((&column.min, &column.max, column.distinct_count), (&None, &None, None));
        }
        // The number of distinct values is estimated by the number of their distinct hashes.
        assert_eq!(table.statistics[1].distinct_estimate, Some(3));
        for chunk in table.row_groups.iter().flat_map(|group| &group.chunks) {
            let bytes = &chunk.hidden().unwrap().bytes;
            let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
            assert!(!has(b"patient") && !has(b"secret"));
        }
    }
}

#[test]
fn changed_bytes_are_an_error_for_whoever_wants_the_values() {
    let array: ArrayRef =
        Arc::new(StringViewArray::from_iter_values((0..300).map(|row| format!("row {row}"))));
    for tier in [Tier::Standard, Tier::Strict] {
        let group = encrypted(&pool(8), &table_cipher(tier).unwrap(), &array);
        let bytes = group.chunks[0].hidden().unwrap().bytes.clone();
        for place in (0..bytes.len()).step_by(7) {
            let mut changed = bytes.to_vec();
            changed[place] ^= 1 << (place % 8);
            let chunk = Arc::new(group.chunks[0].with_other_bytes(Buffer::from(changed)));
            let group = RowGroup { rows: 300, chunks: vec![chunk] };
            let opened = group.with_values(0..1).unwrap().unwrap();
            assert_eq!(opened.chunks[0].check_intact().unwrap_err().kind, ErrorKind::Corrupt);
            assert_eq!(opened.chunks[0].decode(0..300).unwrap_err().kind, ErrorKind::Corrupt);
        }
    }
}
