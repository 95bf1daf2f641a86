//! Tests of the ciphers with published test vectors, and with random data against a simple implementation of the
//! standards (`plain.rs`).

mod plain;

use crate::{Cipher, Mode, Secret, Tag, Tier};
use farpool_model::ErrorKind;
use plain::Aes;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|digit| !digit.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn cipher(mode: Mode, key: &[u8]) -> Cipher {
    Cipher::new(mode, &Secret::take(&mut key.to_vec()).unwrap()).unwrap()
}

/// Encrypts `plain` in place, compares the result with `expected` (ciphertext and tag), and decrypts it again.
fn check(cipher: &Cipher, start: &[u8], associated: &[u8], plain: &[u8], expected: (&[u8], Option<Tag>)) {
    let mut data = plain.to_vec();
    let tag = cipher.encrypt(start, associated, &mut data).unwrap();
    assert_eq!((&data[..], tag), expected, "{cipher:?}");
    cipher.decrypt(start, associated, &mut data, tag.as_ref()).unwrap();
    assert_eq!(data, plain);
}

/// NIST SP 800-38A, appendix F: the keys, and the ciphertexts of the four blocks for ECB, CBC and CTR.
const SP_800_38A: [(&str, [&str; 3]); 3] = [
    (
        "2b7e151628aed2a6abf7158809cf4f3c",
        [
            "3ad77bb40d7a3660a89ecaf32466ef97 f5d3d58503b9699de785895a96fdbaaf
             43b1cd7f598ece23881b00e3ed030688 7b0c785e27e8ad3f8223207104725dd4",
            "7649abac8119b246cee98e9b12e9197d 5086cb9b507219ee95db113a917678b2
             73bed6b8e3c1743b7116e69e22229516 3ff1caa1681fac09120eca307586e1a7",
            "874d6191b620e3261bef6864990db6ce 9806f66b7970fdff8617187bb9fffdff
             5ae4df3edbd5d35e5b4f09020db03eab 1e031dda2fbe03d1792170a0f3009cee",
        ],
    ),
    (
        "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
        [
            "bd334f1d6e45f25ff712a214571fa5cc 974104846d0ad3ad7734ecb3ecee4eef
             ef7afd2270e2e60adce0ba2face6444e 9a4b41ba738d6c72fb16691603c18e0e",
            "4f021db243bc633d7178183a9fa071e8 b4d9ada9ad7dedf4e5e738763f69145a
             571b242012fb7ae07fa9baac3df102e0 08b0e27988598881d920a9e64f5615cd",
            "1abc932417521ca24f2b0459fe7e6e0b 090339ec0aa6faefd5ccc2c6f4ce8e94
             1e36b26bd1ebc670d1bd1d665620abf7 4f78a7f6d29809585a97daec58c6b050",
        ],
    ),
    (
        "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
        [
            "f3eed1bdb5d2a03c064b5a7e3db181f8 591ccb10d410ed26dc5ba74a31362870
             b6ed21b99ca6f4f9f153e7b1beafed1d 23304b7a39f9f3ff067d8d8f9e24ecc7",
            "f58c4c04d6e5f1ba779eabfb5f7bfbd6 9cfc4e967edb808d679f777bc6702c7d
             39f23369a9d9bacfa530e26304231461 b2eb05e2c39be9fcda6c19078c6a9d1b",
            "601ec313775789a5b7a7f504bbf3d228 f443e3ca4d62b59aca84e990cacaf5c5
             2b0930daa23de94ce87017ba2d84988d dfc9c58db67aada613c2dd08457941a6",
        ],
    ),
];

#[test]
fn sp_800_38a() {
    let plain = bytes(
        "6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51
         30c81c46a35ce411e5fbc1191a0a52ef f69f2445df4f9b17ad2b417be66c3710",
    );
    for (key, [ecb, cbc, ctr]) in SP_800_38A {
        let key = bytes(key);
        let start = bytes("000102030405060708090a0b0c0d0e0f");
        let counter = bytes("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
        check(&cipher(Mode::Ecb, &key), &[], &[], &plain, (&bytes(ecb), None));
        check(&cipher(Mode::Cbc, &key), &start, &[], &plain, (&bytes(cbc), None));
        check(&cipher(Mode::Ctr, &key), &counter, &[], &plain, (&bytes(ctr), None));
        let mut chains = plain.clone();
        let starts = [start.clone().try_into().unwrap()];
        cipher(Mode::Cbc, &key).encrypt_chains(&starts, &mut chains).unwrap();
        assert_eq!(chains, bytes(cbc));
    }
}

/// D. McGrew, J. Viega, *The Galois/Counter Mode of Operation*, appendix B: key, encrypted data, and the tags of test
/// cases 3, 9, 15 (without associated data) and 4, 10, 16 (with them, and four bytes of data fewer).
const GCM: [(&str, &str, [&str; 2]); 3] = [
    (
        "feffe9928665731c6d6a8f9467308308",
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e
         21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985",
        ["4d5c2af327cd64a62cf35abd2ba6fab4", "5bc94fbc3221a5db94fae95ae7121a47"],
    ),
    (
        "feffe9928665731c6d6a8f9467308308feffe9928665731c",
        "3980ca0b3c00e841eb06fac4872a2757859e1ceaa6efd984628593b40ca1e19c
         7d773d00c144c525ac619d18c84a3f4718e2448b2fe324d9ccda2710acade256",
        ["9924a7c8587336bfb118024db8674a14", "2519498e80f1478f37ba55bd6d27618c"],
    ),
    (
        "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa
         8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad",
        ["b094dac5d93471bdec1a502270e3cc6c", "76fc6ece0f4e1768cddf8853bb2d551b"],
    ),
];

#[test]
fn gcm_vectors() {
    let plain = bytes(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
    );
    let nonce = bytes("cafebabefacedbaddecaf888");
    let associated = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    for (key, encrypted, tags) in GCM {
        let (cipher, encrypted) = (cipher(Mode::Gcm, &bytes(key)), bytes(encrypted));
        let [without, with] = tags.map(|tag| Some(bytes(tag).try_into().unwrap()));
        check(&cipher, &nonce, &[], &plain, (&encrypted, without));
        check(&cipher, &nonce, &associated, &plain[..60], (&encrypted[..60], with));
    }
}

/// A pseudo-random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

#[test]
fn random_data_agree_with_a_plain_twin() {
    let mut random = Random(5);
    for round in 0..60 {
        for key_bytes in [16, 24, 32] {
            let key = random.bytes(key_bytes);
            let twin = Aes::new(&key);
            let length = (random.next() % if round % 10 == 0 { 3000 } else { 200 }) as usize;
            let data = random.bytes(length);
            let mut start: [u8; 16] = random.bytes(16).try_into().unwrap();
            if round % 4 == 0 {
                // An initial counter of which all but four bytes are ones, so that incrementing it carries far.
                start[4..].fill(0xff);
            }
            let whole = &data[..length / 16 * 16];
            check(&cipher(Mode::Ecb, &key), &[], &[], whole, (&twin.ecb(whole), None));
            check(&cipher(Mode::Cbc, &key), &start, &[], whole, (&twin.cbc(start, whole), None));
            check(&cipher(Mode::Ctr, &key), &start, &[], &data, (&twin.ctr(start, &data), None));
            let nonce = *start.first_chunk::<12>().unwrap();
            let associated_bytes = (random.next() % 40) as usize;
            let associated = random.bytes(associated_bytes);
            let (encrypted, tag) = twin.gcm(nonce, &associated, &data);
            check(&cipher(Mode::Gcm, &key), &nonce, &associated, &data, (&encrypted, Some(tag)));
        }
    }
}

#[test]
fn many_chains_are_what_each_is_alone() {
    let mut random = Random(6);
    for key_bytes in [16, 24, 32] {
        let cipher = cipher(Mode::Cbc, &random.bytes(key_bytes));
        for chains in [0, 1, 2, 7, 63, 64, 65, 130] {
            for chain_bytes in [0, 16, 32, 400] {
                let data = random.bytes(chains * chain_bytes);
                let starts: Vec<[u8; 16]> =
                    (0..chains).map(|_| random.bytes(16).try_into().unwrap()).collect();
                let mut together = data.clone();
                cipher.encrypt_chains(&starts, &mut together).unwrap();
                let mut alone = data.clone();
                for (start, chain) in starts.iter().zip(alone.chunks_mut(chain_bytes.max(1))) {
                    cipher.encrypt(start, &[], chain).unwrap();
                }
                assert!(together == alone, "{chains} chains of {chain_bytes} bytes");
            }
        }
    }
}

#[test]
fn what_was_changed_is_not_decrypted() {
    let mut random = Random(7);
    for key_bytes in [16, 24, 32] {
        let cipher = cipher(Mode::Gcm, &random.bytes(key_bytes));
        let (nonce, associated, plain) = (random.bytes(12), random.bytes(5), random.bytes(70));
        let mut data = plain.clone();
        let tag = cipher.encrypt(&nonce, &associated, &mut data).unwrap().unwrap();
        let all = [nonce, associated, data, tag.to_vec()];
        let opened = |all: &[Vec<u8>; 4]| {
            let mut data = all[2].clone();
            let tag: Tag = all[3].clone().try_into().unwrap();
            let opened = cipher.decrypt(&all[0], &all[1], &mut data, Some(&tag));
            assert!(opened.is_ok() || data.iter().all(|byte| *byte == 0), "nothing of it is shown");
            opened.map(|()| data)
        };
        assert_eq!(opened(&all).unwrap(), plain);
        for part in 0..all.len() {
            for at in 0..all[part].len() {
                let mut changed = all.clone();
                changed[part][at] ^= 1 << (at % 8);
                assert_eq!(opened(&changed).unwrap_err().kind, ErrorKind::Corrupt);
            }
        }
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let key = |bytes: usize| Secret::take(&mut vec![1; bytes]).unwrap();
    for bytes in [0, 15, 17, 31, 33, 64] {
        let error = Cipher::new(Mode::Gcm, &key(bytes)).unwrap_err();
        assert!(error.message.contains("16, 24 or 32"), "{error}");
    }
    assert!(Secret::take(&mut [1; 65]).is_err());
    for mode in Mode::ALL {
        let cipher = Cipher::new(mode, &key(16)).unwrap();
        let mut data = [0; 32];
        for start in (0..20).filter(|start| *start != mode.start_bytes()) {
            let error = cipher.encrypt(&vec![0; start], &[], &mut data).unwrap_err();
            assert!(error.message.contains(&mode.to_string()), "{error}");
            let tag = mode.authenticates().then_some([0; 16]);
            assert_eq!(
                cipher.decrypt(&vec![0; start], &[], &mut data, tag.as_ref()).unwrap_err().kind,
                ErrorKind::Invalid
            );
        }
        let start = vec![0; mode.start_bytes()];
        let tag = (!mode.authenticates()).then_some([0; 16]);
        assert_eq!(
            cipher.decrypt(&start, &[], &mut data, tag.as_ref()).unwrap_err().kind,
            ErrorKind::Invalid
        );
        assert_eq!(cipher.encrypt(&start, b"x", &mut data).is_ok(), mode.authenticates());
        assert_eq!(
            cipher.encrypt(&start, &[], &mut data[..31]).is_ok(),
            matches!(mode, Mode::Gcm | Mode::Ctr)
        );
        let chains =
            |count: usize, bytes: usize| cipher.encrypt_chains(&vec![[0; 16]; count], &mut vec![0; bytes]);
        assert_eq!(chains(2, 64).is_ok(), mode == Mode::Cbc);
        assert!(chains(3, 64).is_err() && chains(0, 16).is_err() && chains(1, 8).is_err());
    }
}

/// HKDF, compared with test case 1 of RFC 5869.
#[test]
fn derived_keys() {
    let secret = Secret::take(&mut [0x0b; 22]).unwrap();
    let derived =
        secret.derive(&bytes("000102030405060708090a0b0c"), &bytes("f0f1f2f3f4f5f6f7f8f9"), 42).unwrap();
    let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
    assert_eq!(derived.bytes(), bytes(expected));
    let mut taken = [7; 32];
    let secret = Secret::take(&mut taken).unwrap();
    assert_eq!(taken, [0; 32], "where a key comes from is wiped");
    assert_eq!(format!("{secret:?}"), "Secret(32 bytes)");
}

#[test]
fn tiers_say_what_they_do_not_promise() {
    for tier in Tier::ALL {
        assert_eq!(Mode::of(tier).authenticates(), tier.authenticates());
        assert_eq!(Mode::of(tier).authenticates(), !tier.describe().contains("does not authenticate"));
        assert!(tier.describe().contains(&format!("AES-{}-{}", 8 * tier.key_bytes(), Mode::of(tier))));
    }
}
