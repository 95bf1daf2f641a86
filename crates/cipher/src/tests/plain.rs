//! AES and its modes, written down as the standards have them (FIPS 197, NIST SP 800-38A and 38D), a bit or byte at a
//! time.

/// Returns the product of two elements of the finite field of AES, GF(2^8).
fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b > 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = a << 1 ^ if a & 0x80 > 0 { 0x1b } else { 0 };
        b >>= 1;
    }
    product
}

fn substituted(byte: u8) -> u8 {
    let inverse = (1..=255).find(|other| times(byte, *other) == 1).unwrap_or(0);
    (0..5).fold(0x63, |sum, turn| sum ^ inverse.rotate_left(turn))
}

pub struct Aes {
    round_keys: Vec<[u8; 16]>,
    table: [u8; 256],
}

impl Aes {
    pub fn new(key: &[u8]) -> Aes {
        let table = std::array::from_fn(|byte| substituted(byte as u8));
        let (words, rounds) = (key.len() / 4, key.len() / 4 + 6);
        let mut expanded: Vec<[u8; 4]> = key.chunks(4).map(|word| word.try_into().unwrap()).collect();
        let mut constant = 1;
        for i in words..4 * (rounds + 1) {
            let mut word = expanded[i - 1];
            if i % words == 0 {
                word.rotate_left(1);
                word = word.map(|byte| table[usize::from(byte)]);
                word[0] ^= constant;
                constant = times(constant, 2);
            } else if words > 6 && i % words == 4 {
                word = word.map(|byte| table[usize::from(byte)]);
            }
            let before = expanded[i - words];
            expanded.push(std::array::from_fn(|j| before[j] ^ word[j]));
        }
        let round_keys = expanded.chunks(4).map(|words| words.concat().try_into().unwrap()).collect();
        Aes { round_keys, table }
    }

    pub fn block(&self, mut state: [u8; 16]) -> [u8; 16] {
        let last = self.round_keys.len() - 1;
        for (round, key) in self.round_keys.iter().enumerate() {
            if round > 0 {
                let before = state.map(|byte| self.table[usize::from(byte)]);
                state = std::array::from_fn(|i| before[(i + 4 * (i % 4)) % 16]);
                if round < last {
                    let columns = state;
                    state = std::array::from_fn(|i| {
                        let byte = |j: usize| columns[i / 4 * 4 + (i + j) % 4];
                        times(byte(0), 2) ^ times(byte(1), 3) ^ byte(2) ^ byte(3)
                    });
                }
            }
            state = std::array::from_fn(|i| state[i] ^ key[i]);
        }
        state
    }

    pub fn ecb(&self, data: &[u8]) -> Vec<u8> {
        data.chunks(16).flat_map(|block| self.block(block.try_into().unwrap())).collect()
    }

    pub fn cbc(&self, start: [u8; 16], data: &[u8]) -> Vec<u8> {
        let mut last = start;
        let mut out = Vec::new();
        for block in data.chunks(16) {
            last = self.block(std::array::from_fn(|i| last[i] ^ block[i]));
            out.extend(last);
        }
        out
    }

    pub fn ctr(&self, start: [u8; 16], data: &[u8]) -> Vec<u8> {
        let mut counter = u128::from_be_bytes(start);
        let mut out = Vec::new();
        for block in data.chunks(16) {
            let stream = self.block(counter.to_be_bytes());
            out.extend(block.iter().zip(stream).map(|(byte, key)| byte ^ key));
            counter = counter.wrapping_add(1);
        }
        out
    }

    /// Encrypts `data` with GCM; returns the ciphertext and the authentication tag.
    pub fn gcm(&self, nonce: [u8; 12], associated: &[u8], data: &[u8]) -> (Vec<u8>, [u8; 16]) {
        let first =
            |last: u8| std::array::from_fn(|i| if i < 12 { nonce[i] } else { u8::from(i == 15) * last });
        let out = self.ctr(first(2), data);
        let h = u128::from_be_bytes(self.block([0; 16]));
        let lengths = [associated, &out].map(|part| 8 * part.len() as u64);
        let padded =
            |part: &[u8]| [part, &vec![0; part.len().next_multiple_of(16) - part.len()][..]].concat();
        let all = [
            padded(associated),
            padded(&out),
            lengths[0].to_be_bytes().into(),
            lengths[1].to_be_bytes().into(),
        ];
        let hash = all
            .concat()
            .chunks(16)
            .fold(0, |sum, block| hashed(sum ^ u128::from_be_bytes(block.try_into().unwrap()), h));
        let tag = hash ^ u128::from_be_bytes(self.block(first(1)));
        (out, tag.to_be_bytes())
    }
}

/// Returns the product of two elements of the finite field of GHASH, GF(2^128).
fn hashed(a: u128, mut b: u128) -> u128 {
    let mut product = 0;
    for bit in (0..128).rev() {
        if a >> bit & 1 == 1 {
            product ^= b;
        }
        b = b >> 1 ^ if b & 1 == 1 { 0xe1 << 120 } else { 0 };
    }
    product
}
