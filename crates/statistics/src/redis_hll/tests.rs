//! Tests HyperLogLogs in the format of Redis against bytes that redis-server 7.0.15 has written, and against
//! plain tables of registers.

use super::*;
use proptest::prelude::*;

/// Returns the 64-bit FNV-1a hash.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Returns a HyperLogLog with the decimal numbers of this range as elements, without a cached cardinality.
fn with_elements(numbers: std::ops::Range<u32>) -> Writer {
    let mut value = Writer::new();
    for number in numbers {
        value.add(format!("element:{number}").as_bytes()).unwrap();
    }
    value.forget_count();
    value
}

fn reader(value: &Writer) -> Reader<'_> {
    Reader::new(value.bytes()).unwrap()
}

#[test]
fn few_elements_are_the_bytes_that_redis_writes() {
    let mut value = Writer::new();
    value.forget_count();
    assert_eq!(value.bytes(), hex("48594c4c0100000000000000000000807fff"));
    for element in ["Ada", "Grace", "Barbara", ""] {
        assert_eq!(value.add(element.as_bytes()), Ok(true));
        assert_eq!(value.add(element.as_bytes()), Ok(false));
    }
    assert_eq!(value.bytes(), hex("48594c4c0100000000000000000000804d4e8849e1844070844a2d905e2b"));
    assert_eq!((reader(&value).cached_count(), reader(&value).count()), (None, Ok(4)));
    let mut kept = value.bytes().to_vec();
    keep_count(&mut kept, 4);
    assert_eq!(kept, hex("48594c4c0100000004000000000000004d4e8849e1844070844a2d905e2b"));
    assert_eq!(Reader::new(&kept).unwrap().cached_count(), Some(4));
}

#[test]
fn many_elements_are_the_bytes_that_redis_writes() {
    for (elements, bytes, hash, count) in [
        (10, 48, 0x77f1_dfb6_ec0d_7ad9, 10),
        (100, 285, 0x67b3_25af_8799_02d0, 99),
        (700, 1401, 0x1ee1_e7db_4c44_da07, 703),
        (1600, 2886, 0x22e4_803b_acfa_adbc, 1604),
        (1700, 12_304, 0xe5e0_159a_33b4_1423, 1706),
        (100_000, 12_304, 0x8c61_5f2c_0212_2d45, 100_039),
        (1_000_000, 12_304, 0x09c0_689f_5b58_e099, 1_010_357),
    ] {
        let value = with_elements(0..elements);
        assert_eq!((value.bytes().len(), fnv(value.bytes())), (bytes, hash), "{elements}");
        assert_eq!(reader(&value).count(), Ok(count), "{elements}");
    }
}

#[test]
fn merged_values_are_the_bytes_that_redis_writes() {
    let (a, b, many) = (with_elements(0..500), with_elements(300..900), with_elements(0..20_000));
    let mut registers = Registers::new();
    reader(&a).merge_into(&mut registers).unwrap();
    reader(&b).merge_into(&mut registers).unwrap();
    assert_eq!(registers.count(), 897);
    let mut merged = Writer::new();
    merged.raise_all(&registers).unwrap();
    let mut other = other_copy(&a);
    other.merge(reader(&b)).unwrap();
    assert!(other.bytes() == merged.bytes(), "the same bytes as in one pass");
    assert_eq!((merged.bytes().len(), fnv(merged.bytes())), (1736, 0x9a3b_aab1_6fb7_cce9));
    reader(&many).merge_into(&mut registers).unwrap();
    merged.make_dense().unwrap();
    merged.raise_all(&registers).unwrap();
    assert_eq!((merged.bytes().len(), fnv(merged.bytes())), (12_304, 0x50d6_b0a9_6d37_3a57));
    assert_eq!((reader(&merged).count(), registers.count()), (Ok(19_986), 19_986));
}

#[test]
fn a_register_that_runs_cannot_hold_makes_a_value_dense() {
    let mut value = Writer::new();
    assert_eq!(value.raise(16_383, 32), Ok(true));
    assert!(!reader(&value).is_dense());
    assert_eq!(value.raise(16_383, 33), Ok(true));
    assert!(reader(&value).is_dense());
    assert_eq!((value.raise(16_383, 33), value.raise(0, 1)), (Ok(false), Ok(true)));
    assert_eq!(value.bytes()[value.bytes().len() - 1], 33 << 2);
}

#[test]
fn what_is_none_and_what_does_not_add_up_is_told_apart() {
    let dense = {
        let mut value = with_elements(0..10);
        value.make_dense().unwrap();
        value
    };
    for none in [b"", &b"HYLL"[..], &[0; 100], &dense.bytes()[1..], &dense.bytes()[..12_303]] {
        assert!(Reader::new(none).is_none());
    }
    let with_runs = |runs: &[u8]| [&Writer::new().bytes()[..HEADER_BYTES], runs].concat();
    for corrupt in [&[][..], &[0x7f], &[0x7f, 0xfe], &[0x7f, 0xff, 0], &[0x7f, 0xff, 0x80], &[0x3f; 40_000]] {
        let value = with_runs(corrupt);
        let value = Reader::new(&value).unwrap();
        assert_eq!(value.count(), Err(Corrupt));
        assert_eq!(value.merge_into(&mut Registers::new()), Err(Corrupt));
        if let Ok(mut value) = Writer::of(value) {
            assert_eq!(value.make_dense(), Err(Corrupt));
        }
    }
    let short = with_runs(&[0x40, 0x10]);
    let mut short = Writer::of(Reader::new(&short).unwrap()).unwrap();
    assert_eq!((short.raise(16, 1), short.raise(17, 1)), (Ok(true), Err(Corrupt)));
}

/// Generates changes of a HyperLogLog: the index of a register, and the value to which it is raised.
fn raised() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let near = (0..200_usize, 1..6_u8);
    let far = (0..REGISTERS, 1..52_u8);
    let equal = (5000..5100_usize, Just(2));
    prop_oneof![
        prop::collection::vec(prop_oneof![near, equal.clone()], 0..600),
        prop::collection::vec(prop_oneof![1 => far, 30 => equal], 0..600),
        prop::collection::vec((0..REGISTERS, 1..20_u8), 0..3000),
    ]
}

fn plain(raised: &[(usize, u8)]) -> Vec<u8> {
    let mut registers = vec![0; REGISTERS];
    raised.iter().for_each(|(index, rank)| registers[*index] = (*rank).max(registers[*index]));
    registers
}

fn registers_of(value: &Writer) -> Vec<u8> {
    let mut registers = Registers::new();
    reader(value).merge_into(&mut registers).unwrap();
    registers.0.into_vec()
}

fn other_copy(value: &Writer) -> Writer {
    Writer::of(reader(value)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn registers_are_those_of_a_plain_table(first in raised(), second in raised()) {
        let mut value = Writer::new();
        for (at, (index, rank)) in first.iter().enumerate() {
            let before = plain(&first[..at])[*index];
            prop_assert_eq!(value.raise(*index, *rank), Ok(*rank > before));
            prop_assert!(reader(&value).is_dense() || value.bytes().len() <= SPARSE_BYTES);
        }
        prop_assert_eq!(registers_of(&value), plain(&first));
        let mut dense = Writer::of(reader(&value)).unwrap();
        dense.make_dense().unwrap();
        prop_assert_eq!(registers_of(&dense), plain(&first));
        prop_assert_eq!(reader(&dense).count(), reader(&value).count());
        let mut other = Writer::new();
        for (index, rank) in &second {
            other.raise(*index, *rank).unwrap();
        }
        let mut union = Registers::new();
        reader(&dense).merge_into(&mut union).unwrap();
        reader(&other).merge_into(&mut union).unwrap();
        value.raise_all(&union).unwrap();
        for (mut one, other) in [(other_copy(&dense), &other), (other_copy(&other), &dense)] {
            one.merge(reader(other)).unwrap();
            prop_assert!(reader(&one).is_dense());
            prop_assert_eq!(registers_of(&one), union.0.to_vec());
        }
        let mut sparse = Writer::new();
        for (index, rank) in &first {
            sparse.raise(*index, *rank).unwrap();
        }
        let is_dense = reader(&sparse).is_dense() || reader(&other).is_dense();
        sparse.merge(reader(&other)).unwrap();
        prop_assert_eq!(registers_of(&sparse), union.0.to_vec());
        prop_assert!(reader(&sparse).is_dense() || !is_dense && sparse.bytes().len() <= SPARSE_BYTES);
        prop_assert_eq!(reader(&sparse).cached_count(), None);
        let both: Vec<(usize, u8)> = first.into_iter().chain(second).collect();
        prop_assert_eq!(registers_of(&value), plain(&both));
        prop_assert_eq!(reader(&value).count(), Ok(union.count()));
    }

    #[test]
    fn bytes_of_others_are_used_or_refused(
        is_dense in any::<bool>(),
        runs in prop::collection::vec(any::<u8>(), 0..400),
        elements in prop::collection::vec(any::<[u8; 3]>(), 0..20),
    ) {
        let mut value = Writer::new().bytes()[..HEADER_BYTES].to_vec();
        value.extend(&runs);
        if is_dense {
            value[4] = DENSE;
            value.resize(DENSE_BYTES, 0xff);
        }
        let read = Reader::new(&value).unwrap();
        let mut registers = Registers::new();
        let merged = read.merge_into(&mut registers);
        prop_assert_eq!(read.count(), merged.map(|()| registers.count()));
        let mut written = Writer::of(read).unwrap();
        for element in &elements {
            if written.add(element).is_err() {
                prop_assert!(merged.is_err());
                break;
            }
        }
        let is_dense = reader(&written).is_dense();
        prop_assert!(written.make_dense().is_ok() == (merged.is_ok() || is_dense));
    }
}
