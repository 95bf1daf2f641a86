//! Calls of AWS-LC, the C library with the cryptographic functions. No other module uses its types.
//!
//! Contexts are created in locked memory. The library keeps key schedules inside the contexts and nowhere else.
//! Contexts do not change after their creation, so that threads may share them.

#![expect(unsafe_code, reason = "functions of a C library are called")]

use crate::cipher::{GCM_NONCE_BYTES, START_BYTES, TAG_BYTES};
use crate::locked::Slot;
use aws_lc_sys as lc;
use farpool_model::{Error, Result};
use std::ffi::c_uint;
use std::ptr::{null, null_mut};

const OK: i32 = 1;

/// Fills `bytes` with cryptographically secure random bytes.
pub(crate) fn random(bytes: &mut [u8]) -> Result<()> {
    // SAFETY: the function writes as many bytes as the slice has.
    match unsafe { lc::RAND_bytes(bytes.as_mut_ptr(), bytes.len()) } {
        OK => Ok(()),
        _ => Err(Error::internal("the system gives no random bytes")),
    }
}

/// Fills `out` with bytes derived from all arguments, which reveal nothing about `secret` (HKDF, RFC 5869, with
/// SHA-256).
pub(crate) fn hkdf_sha256(secret: &[u8], salt: &[u8], info: &[u8], out: &mut [u8]) -> Result<()> {
    // SAFETY: pointers and lengths are those of slices; the digest is static.
    let derived = unsafe {
        lc::HKDF(
            out.as_mut_ptr(),
            out.len(),
            lc::EVP_sha256(),
            secret.as_ptr(),
            secret.len(),
            salt.as_ptr(),
            salt.len(),
            info.as_ptr(),
            info.len(),
        )
    };
    if derived == OK { Ok(()) } else { Err(refused("deriving a key")) }
}

/// Returns the SHA-256 of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    // SAFETY: reads the slice and writes the 32 bytes of a digest.
    unsafe { lc::SHA256(bytes.as_ptr(), bytes.len(), digest.as_mut_ptr()) };
    digest
}

/// Computes the first half of HKDF (RFC 5869) with SHA-256: extracts the randomness of `secret` into the key `out`.
pub(crate) fn hkdf_extract(salt: &[u8], secret: &[u8], out: &mut [u8; 32]) -> Result<()> {
    let mut bytes = 0;
    // SAFETY: pointers and lengths are those of slices; the output is as long as the digest, which is static.
    let extracted = unsafe {
        lc::HKDF_extract(
            out.as_mut_ptr(),
            &mut bytes,
            lc::EVP_sha256(),
            secret.as_ptr(),
            secret.len(),
            salt.as_ptr(),
            salt.len(),
        )
    };
    if extracted == OK && bytes == out.len() { Ok(()) } else { Err(refused("deriving a key")) }
}

/// Computes the second half of HKDF with SHA-256: fills `out` with bytes derived from `key` and `info`.
pub(crate) fn hkdf_expand(key: &[u8], info: &[u8], out: &mut [u8]) -> Result<()> {
    // SAFETY: pointers and lengths are those of slices; the digest is static.
    let expanded = unsafe {
        lc::HKDF_expand(
            out.as_mut_ptr(),
            out.len(),
            lc::EVP_sha256(),
            key.as_ptr(),
            key.len(),
            info.as_ptr(),
            info.len(),
        )
    };
    if expanded == OK { Ok(()) } else { Err(refused("deriving a key")) }
}

/// Returns the X25519 public key of a private key (RFC 7748).
pub(crate) fn x25519_public(private: &[u8; 32]) -> [u8; 32] {
    let mut public = [0; 32];
    // SAFETY: both arrays have the 32 bytes of a key.
    unsafe { lc::X25519_public_from_private(public.as_mut_ptr(), private.as_ptr()) };
    public
}

/// Writes the X25519 shared secret of a private and a public key to `out`. Returns false if the public key is of low
/// order, for which every private key yields zeros.
pub(crate) fn x25519(private: &[u8; 32], public: &[u8; 32], out: &mut [u8; 32]) -> bool {
    // SAFETY: all three arrays have the 32 bytes of a key.
    let agreed = unsafe { lc::X25519(out.as_mut_ptr(), private.as_ptr(), public.as_ptr()) };
    // Clears the errors that the library has added to its list for this thread, which would grow otherwise.
    // SAFETY: the function has no preconditions.
    unsafe { lc::ERR_clear_error() };
    agreed == OK
}

/// An AES-GCM key schedule for nonces of 96 bits and tags of 128 bits.
#[derive(Debug)]
pub(crate) struct GcmKey {
    /// The library's `EVP_AEAD_CTX`, in locked memory; it must not be moved.
    context: Slot,
}

impl GcmKey {
    pub fn new(key: &[u8]) -> Result<GcmKey> {
        // SAFETY: these functions have no preconditions and return pointers to static tables.
        let algorithm = unsafe {
            match key.len() {
                16 => lc::EVP_aead_aes_128_gcm(),
                24 => lc::EVP_aead_aes_192_gcm(),
                _ => lc::EVP_aead_aes_256_gcm(),
            }
        };
        let mut context = Slot::new(size_of::<lc::EVP_AEAD_CTX>())?;
        let pointer = context.as_mut_ptr().cast::<lc::EVP_AEAD_CTX>();
        // SAFETY: the slot is large enough and aligned for a context, and zeros are a valid empty context.
        let made = unsafe {
            lc::EVP_AEAD_CTX_init(pointer, algorithm, key.as_ptr(), key.len(), TAG_BYTES, null_mut())
        };
        if made == OK { Ok(GcmKey { context }) } else { Err(refused("setting a key")) }
    }

    fn pointer(&self) -> *const lc::EVP_AEAD_CTX {
        self.context.as_ptr().cast()
    }

    /// Encrypts `data` in place and returns the tag of the ciphertext and of `associated`.
    pub fn seal(
        &self,
        nonce: &[u8; GCM_NONCE_BYTES],
        associated: &[u8],
        data: &mut [u8],
    ) -> Result<[u8; TAG_BYTES]> {
        let (mut tag, mut tag_bytes) = ([0; TAG_BYTES], 0);
        let pointer = data.as_mut_ptr();
        // SAFETY: the library allows input and output to be the same memory, of one length; the tag has the room that
        // is named, and the others are slices.
        let sealed = unsafe {
            lc::EVP_AEAD_CTX_seal_scatter(
                self.pointer(),
                pointer,
                tag.as_mut_ptr(),
                &mut tag_bytes,
                TAG_BYTES,
                nonce.as_ptr(),
                GCM_NONCE_BYTES,
                pointer,
                data.len(),
                null(),
                0,
                associated.as_ptr(),
                associated.len(),
            )
        };
        if sealed == OK && tag_bytes == TAG_BYTES { Ok(tag) } else { Err(refused("encrypting")) }
    }

    /// Decrypts `data` in place. Returns false, with zeros in `data`, if the tag does not match.
    pub fn open(
        &self,
        nonce: &[u8; GCM_NONCE_BYTES],
        associated: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool {
        // SAFETY: input and output are the same slice, which the library allows.
        unsafe { self.open_at(nonce, associated, data.as_ptr(), data, tag) }
    }

    /// Decrypts as [`GcmKey::open`] does, from another buffer of the same length.
    pub fn open_to(
        &self,
        nonce: &[u8; GCM_NONCE_BYTES],
        associated: &[u8],
        encrypted: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool {
        assert_eq!(encrypted.len(), data.len(), "a message of another length than its data");
        // SAFETY: the two slices have the same length and do not overlap, because the second is an exclusive reference.
        unsafe { self.open_at(nonce, associated, encrypted.as_ptr(), data, tag) }
    }

    /// SAFETY: the caller must pass as `encrypted` a pointer to `data` itself or to as many bytes that do not overlap
    /// `data`.
    unsafe fn open_at(
        &self,
        nonce: &[u8; GCM_NONCE_BYTES],
        associated: &[u8],
        encrypted: *const u8,
        data: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool {
        // SAFETY: input and output fulfil the condition of this function; the other pointers and lengths are those of
        // slices.
        let opened = unsafe {
            lc::EVP_AEAD_CTX_open_gather(
                self.pointer(),
                data.as_mut_ptr(),
                nonce.as_ptr(),
                GCM_NONCE_BYTES,
                encrypted,
                data.len(),
                tag.as_ptr(),
                TAG_BYTES,
                associated.as_ptr(),
                associated.len(),
            )
        };
        if opened != OK {
            data.fill(0);
            // Clears the errors that the library has added to its list for this thread, which would grow otherwise.
            // SAFETY: the function has no preconditions.
            unsafe { lc::ERR_clear_error() };
        }
        opened == OK
    }
}

impl Drop for GcmKey {
    fn drop(&mut self) {
        // SAFETY: the context was initialized by the library, and is not used after this call.
        unsafe { lc::EVP_AEAD_CTX_cleanup(self.context.as_mut_ptr().cast()) }
    }
}

/// An AES key schedule for one direction, encryption or decryption.
#[derive(Debug)]
pub(crate) struct AesKey {
    /// The library's `AES_KEY`, in locked memory.
    schedule: Slot,
}

impl AesKey {
    pub fn to_encrypt(key: &[u8]) -> Result<AesKey> {
        AesKey::new(key, lc::AES_set_encrypt_key)
    }

    pub fn to_decrypt(key: &[u8]) -> Result<AesKey> {
        AesKey::new(key, lc::AES_set_decrypt_key)
    }

    fn new(
        key: &[u8],
        set: unsafe extern "C" fn(*const u8, c_uint, *mut lc::AES_KEY) -> i32,
    ) -> Result<AesKey> {
        let mut schedule = Slot::new(size_of::<lc::AES_KEY>())?;
        let bits = 8 * key.len() as c_uint;
        // SAFETY: the slot is large enough and aligned for a key schedule, and the key has `bits` bits.
        match unsafe { set(key.as_ptr(), bits, schedule.as_mut_ptr().cast()) } {
            0 => Ok(AesKey { schedule }),
            _ => Err(refused("setting a key")),
        }
    }

    fn pointer(&self) -> *const lc::AES_KEY {
        self.schedule.as_ptr().cast()
    }

    /// Encrypts or decrypts `data` in place in counter mode, where both are the same operation. The counter has 128
    /// bits.
    pub fn count(&self, start: &[u8; START_BYTES], data: &mut [u8]) {
        // SAFETY: input and output are the same slice, which the library allows.
        unsafe { self.count_at(start, data.as_ptr(), data) }
    }

    /// Encrypts or decrypts as [`AesKey::count`] does, from another buffer of the same length.
    pub fn count_to(&self, start: &[u8; START_BYTES], from: &[u8], data: &mut [u8]) {
        assert_eq!(from.len(), data.len(), "a message of another length than its data");
        // SAFETY: the two slices have the same length and do not overlap, because the second is an exclusive reference.
        unsafe { self.count_at(start, from.as_ptr(), data) }
    }

    /// SAFETY: the caller must pass as `from` a pointer to `data` itself or to as many bytes that do not overlap
    /// `data`.
    unsafe fn count_at(&self, start: &[u8; START_BYTES], from: *const u8, data: &mut [u8]) {
        let (mut counter, mut rest, mut used) = (*start, [0_u8; START_BYTES], 0);
        // SAFETY: input and output fulfil the condition of this function; `counter` and `rest` have one block each.
        unsafe {
            lc::AES_ctr128_encrypt(
                from,
                data.as_mut_ptr(),
                data.len(),
                self.pointer(),
                counter.as_mut_ptr(),
                rest.as_mut_ptr(),
                &mut used,
            );
        }
        // Wiped, because it contains the unused rest of the key stream.
        zeroize::Zeroize::zeroize(&mut rest);
    }

    /// Encrypts (`encrypts`) or decrypts `data`, whole blocks, in place in CBC mode. The key schedule must be for the
    /// same direction.
    pub fn chain(&self, start: &[u8; START_BYTES], data: &mut [u8], encrypts: bool) {
        let (mut start, pointer) = (*start, data.as_mut_ptr());
        let direction = if encrypts { lc::AES_ENCRYPT } else { lc::AES_DECRYPT };
        // SAFETY: input and output are the same slice of whole blocks, which the library allows.
        unsafe {
            lc::AES_cbc_encrypt(pointer, pointer, data.len(), self.pointer(), start.as_mut_ptr(), direction);
        }
    }
}

fn refused(doing: &str) -> Error {
    Error::internal(format!("the cipher library refuses {doing}"))
}
