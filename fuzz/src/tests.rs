//! Runs the fuzz bodies over the seeds and over mutations of them, the same ones every time.

mod seeds;

use super::*;
use std::path::PathBuf;

/// Number of mutations that are tried for each fuzz body.
const MUTATIONS: u64 = 30_000;

/// Bytes of the largest mutation: larger ones find nothing more and are slow.
const BYTES_MAX: usize = 64 << 10;

#[test]
fn plans() {
    run("plan_decoder", plan_decoder);
}

#[test]
fn runs() {
    // Mutations that are valid plans are run several times, so that fewer mutations are tried.
    run_mutations("prepare_and_run", prepare_and_run, MUTATIONS / 10);
}

#[test]
fn messages() {
    run("native_messages", native_messages);
}

#[test]
fn sealed_answers() {
    // A key agreement takes as long as a hundred mutations of other inputs, so that fewer mutations are tried.
    run_mutations("sealed_messages", sealed_messages, MUTATIONS / 10);
}

#[test]
fn blocks() {
    run("block_decoder", block_decoder);
}

#[test]
fn segments() {
    run("segment_reader", segment_reader);
}

#[test]
fn chunks() {
    run("chunk_decoder", chunk_decoder);
}

#[test]
fn loads() {
    run("load_rows", load_rows);
}

#[test]
fn logs() {
    run("log_reader", log_reader);
}

#[test]
fn key_rings() {
    run("key_ring_decoder", key_ring_decoder);
}

#[test]
fn moments() {
    run("moments_decoder", moments_decoder);
}

#[test]
fn foreign_sketches() {
    run("datasketches_decoder", datasketches_decoder);
}

#[test]
fn hyperloglogs() {
    run("hll_decoder", hll_decoder);
}

#[test]
fn data_directories() {
    run_mutations("data_directory", data_directory, MUTATIONS / 20);
}

#[test]
fn received() {
    // For each input a log is created, whose space on the disk is reserved, so that fewer mutations are tried.
    run_mutations("received_records", received_records, MUTATIONS / 200);
}

#[test]
fn histograms() {
    run("histogram_decoder", histogram_decoder);
}

#[test]
fn parcels() {
    run("parcel_decoder", parcel_decoder);
}

#[test]
fn conditions_on_entries() {
    run("predicate_parser", predicate_parser);
}

#[test]
fn records_of_keys() {
    run_mutations("key_records", key_records, MUTATIONS / 10);
}

#[test]
fn compressed_values() {
    // A dictionary is built from each sample, so that fewer mutations are tried.
    run_mutations("packed_values", packed_values, MUTATIONS / 10);
}

#[test]
fn requests_of_redis_clients() {
    run("resp_decoder", resp_decoder);
}

#[test]
fn messages_of_arrow_flight() {
    run("flight_messages", flight_messages);
}

#[test]
fn messages_of_postgresql() {
    run("postgres_messages", postgres_messages);
}

#[test]
fn sketches() {
    run("sketch_decoder", sketch_decoder);
}

#[test]
fn texts() {
    run("text_decoder", text_decoder);
}

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

fn run(target: &str, body: fn(&[u8])) {
    run_mutations(target, body, MUTATIONS);
}

fn run_mutations(target: &str, body: fn(&[u8]), mutations: u64) {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder(target)).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(seeds.len() > 3, "the corpus of {target} is there");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mutations = (0..mutations).map(|_| mutated(&seeds, &mut random)).collect::<Vec<_>>();
    for input in seeds.iter().chain(&mutations) {
        let witness = Witness(input);
        body(input);
        drop(witness);
    }
}

/// Prints the input if the body panics while this value exists.
struct Witness<'a>(&'a [u8]);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("the input was {hex}");
        }
    }
}

/// xorshift64* (Vigna, 2016): simple, and the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end.max(1)
    }
}

fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(5) {
        let at = random.below(bytes.len() + 1);
        let length = 1 + random.below(16);
        let end = bytes.len().min(at + length);
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            5 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                let to = other.len().min(from + 64);
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            6 => {
                let extreme =
                    [0, 1, u64::MAX, i64::MAX as u64, u64::from(u32::MAX), 1 << 31][random.below(6)];
                let extreme = &extreme.to_le_bytes()[..1 + random.below(8)];
                let end = bytes.len().min(at + extreme.len());
                bytes.splice(at..end, extreme.iter().copied());
            }
            _ if at < bytes.len() => bytes[at] = random.below(256) as u8,
            _ => bytes.push(random.below(256) as u8),
        }
    }
    bytes.truncate(BYTES_MAX);
    bytes
}
