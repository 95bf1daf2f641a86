//! OpenSSL's functions for comparison: EVP, with a context for each direction, whose key is set once.

use super::rounds::{InPlace, START, key};
use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::ptr::{null, null_mut};

type Context = *mut c_void;
type Cipher = *const c_void;

#[link(name = "libcrypto.so.3", modifiers = "+verbatim")]
unsafe extern "C" {
    fn OpenSSL_version(what: c_int) -> *const c_char;
    fn EVP_get_cipherbyname(name: *const c_char) -> Cipher;
    fn EVP_CIPHER_CTX_new() -> Context;
    fn EVP_CIPHER_CTX_free(context: Context);
    fn EVP_CIPHER_CTX_set_padding(context: Context, pads: c_int) -> c_int;
    fn EVP_CIPHER_CTX_ctrl(context: Context, what: c_int, number: c_int, bytes: *mut c_void) -> c_int;
    fn EVP_CipherInit_ex(
        context: Context,
        cipher: Cipher,
        engine: *mut c_void,
        key: *const c_uchar,
        start: *const c_uchar,
        encrypts: c_int,
    ) -> c_int;
    fn EVP_CipherUpdate(
        context: Context,
        out: *mut c_uchar,
        out_bytes: *mut c_int,
        data: *const c_uchar,
        bytes: c_int,
    ) -> c_int;
    fn EVP_CipherFinal_ex(context: Context, out: *mut c_uchar, out_bytes: *mut c_int) -> c_int;
}

const GET_TAG: c_int = 0x10;
const SET_TAG: c_int = 0x11;

pub fn version() -> String {
    // SAFETY: the function returns a static string.
    unsafe { CStr::from_ptr(OpenSSL_version(0)) }.to_string_lossy().into_owned()
}

/// A cipher with contexts for both directions.
pub struct Evp {
    encrypt: Context,
    decrypt: Context,
    tag: Option<[u8; 16]>,
}

// SAFETY: a context belongs to one thread at a time.
unsafe impl Send for Evp {}

impl Evp {
    pub fn new(mode: &str, bits: usize) -> Result<Evp, String> {
        let name = format!("aes-{bits}-{mode}\0");
        // SAFETY: the name ends with zero; keys have the length that the cipher requires.
        unsafe {
            let cipher = EVP_get_cipherbyname(name.as_ptr().cast());
            if cipher.is_null() {
                return Err(format!("OpenSSL does not know {name:?}"));
            }
            let context = |encrypts: c_int| {
                let context = EVP_CIPHER_CTX_new();
                let key = key(bits);
                EVP_CipherInit_ex(context, cipher, null_mut(), key.as_ptr(), START.as_ptr(), encrypts);
                EVP_CIPHER_CTX_set_padding(context, 0);
                context
            };
            let tag = (mode == "gcm").then_some([0; 16]);
            Ok(Evp { encrypt: context(1), decrypt: context(0), tag })
        }
    }

    /// Processes one message: a new start, the data, and the end.
    fn run(&mut self, encrypts: bool, data: &mut [u8]) {
        let context = if encrypts { self.encrypt } else { self.decrypt };
        let mut done = 0;
        // SAFETY: output and input are the same slice, which OpenSSL allows; sizes are below 2 GiB.
        let ended = unsafe {
            EVP_CipherInit_ex(context, null(), null_mut(), null(), START.as_ptr(), -1);
            if let Some(tag) = &mut self.tag
                && !encrypts
            {
                EVP_CIPHER_CTX_ctrl(context, SET_TAG, 16, tag.as_mut_ptr().cast());
            }
            let pointer = data.as_mut_ptr();
            EVP_CipherUpdate(context, pointer, &mut done, pointer, data.len() as c_int);
            let mut rest = [0; 16];
            let ended = EVP_CipherFinal_ex(context, rest.as_mut_ptr(), &mut done);
            if let Some(tag) = &mut self.tag
                && encrypts
            {
                EVP_CIPHER_CTX_ctrl(context, GET_TAG, 16, tag.as_mut_ptr().cast());
            }
            ended
        };
        assert_eq!(ended, 1, "OpenSSL does not accept its own tag");
    }
}

impl InPlace for Evp {
    fn encrypt(&mut self, data: &mut [u8]) {
        self.run(true, data);
    }

    fn decrypt(&mut self, data: &mut [u8]) {
        self.run(false, data);
    }

    fn tag(&self) -> Option<[u8; 16]> {
        self.tag
    }
}

impl Drop for Evp {
    fn drop(&mut self) {
        // SAFETY: both were created, and are not used afterwards.
        unsafe {
            EVP_CIPHER_CTX_free(self.encrypt);
            EVP_CIPHER_CTX_free(self.decrypt);
        }
    }
}
