//! DEFLATE libraries for comparison, each with contexts that are created once and reset for every block: raw streams
//! with the largest window, one for each block.

use super::packing::Packs;
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// Defines a type for zlib and for zlib-ng, whose functions have the same names in two crates.
macro_rules! of_zlib {
    ($name:ident, $library:ident) => {
        pub struct $name {
            compress: *mut $library::z_stream,
            decompress: *mut $library::z_stream,
        }

        // SAFETY: the streams belong to one thread at a time.
        unsafe impl Send for $name {}

        impl $name {
            pub fn version() -> String {
                // SAFETY: the function returns a static string.
                unsafe { CStr::from_ptr($library::zlibVersion()) }.to_string_lossy().into_owned()
            }

            pub fn new(level: i32) -> Result<$name, String> {
                let size = size_of::<$library::z_stream>() as i32;
                // Zeroed fields select the library's own allocator; the library keeps the address of a stream.
                let stream = || Box::into_raw(Box::new(MaybeUninit::<$library::z_stream>::zeroed())).cast();
                let streams = $name { compress: stream(), decompress: stream() };
                let (strategy, deflated) = ($library::Z_DEFAULT_STRATEGY, $library::Z_DEFLATED);
                // SAFETY: both are zeroed streams, as the library requires.
                let made = unsafe {
                    let version = $library::zlibVersion();
                    let first = $library::deflateInit2_(
                        streams.compress, level, deflated, -15, 8, strategy, version, size,
                    );
                    (first, $library::inflateInit2_(streams.decompress, -15, version, size))
                };
                if made == ($library::Z_OK, $library::Z_OK) {
                    Ok(streams)
                } else {
                    Err(format!("no streams of level {level}: {made:?}"))
                }
            }
        }

        impl Packs for $name {
            fn pack(&mut self, block: &[u8], stored: &mut [u8]) -> usize {
                let stream = self.compress;
                // SAFETY: both slices outlive the call, and their lengths are passed.
                let left = unsafe {
                    $library::deflateReset(stream);
                    ((*stream).next_in, (*stream).avail_in) = (block.as_ptr().cast_mut(), block.len() as u32);
                    ((*stream).next_out, (*stream).avail_out) = (stored.as_mut_ptr(), stored.len() as u32);
                    assert_eq!($library::deflate(stream, $library::Z_FINISH), $library::Z_STREAM_END);
                    (*stream).avail_out
                };
                stored.len() - left as usize
            }

            fn unpack(&mut self, _: usize, stored: &mut [u8], block: &mut [u8]) {
                let stream = self.decompress;
                // SAFETY: both slices outlive the call, and their lengths are passed.
                let left = unsafe {
                    $library::inflateReset(stream);
                    ((*stream).next_in, (*stream).avail_in) = (stored.as_mut_ptr(), stored.len() as u32);
                    ((*stream).next_out, (*stream).avail_out) = (block.as_mut_ptr(), block.len() as u32);
                    assert_eq!($library::inflate(stream, $library::Z_FINISH), $library::Z_STREAM_END);
                    (*stream).avail_out
                };
                assert_eq!(left, 0);
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: both come from a box, and are not used afterwards.
                unsafe {
                    $library::deflateEnd(self.compress);
                    $library::inflateEnd(self.decompress);
                    for stream in [self.compress, self.decompress] {
                        drop(Box::from_raw(stream.cast::<MaybeUninit<$library::z_stream>>()));
                    }
                }
            }
        }
    };
}

of_zlib!(Zlib, libz_sys);
of_zlib!(ZlibNg, libz_ng_sys);

pub struct Libdeflate {
    compress: *mut libdeflate_sys::libdeflate_compressor,
    decompress: *mut libdeflate_sys::libdeflate_decompressor,
}

// SAFETY: the contexts belong to one thread at a time.
unsafe impl Send for Libdeflate {}

impl Libdeflate {
    pub fn new(level: i32) -> Result<Libdeflate, String> {
        // SAFETY: the functions have no preconditions.
        let made = unsafe {
            Libdeflate {
                compress: libdeflate_sys::libdeflate_alloc_compressor(level),
                decompress: libdeflate_sys::libdeflate_alloc_decompressor(),
            }
        };
        match made.compress.is_null() || made.decompress.is_null() {
            true => Err(format!("no contexts of level {level}")),
            false => Ok(made),
        }
    }
}

impl Packs for Libdeflate {
    fn pack(&mut self, block: &[u8], stored: &mut [u8]) -> usize {
        let (from, to) = (block.as_ptr().cast(), stored.as_mut_ptr().cast());
        // SAFETY: both slices outlive the call, and their lengths are passed.
        let bytes = unsafe {
            libdeflate_sys::libdeflate_deflate_compress(self.compress, from, block.len(), to, stored.len())
        };
        assert!(bytes > 0, "there is room");
        bytes
    }

    fn unpack(&mut self, _: usize, stored: &mut [u8], block: &mut [u8]) {
        let (from, to, mut bytes) = (stored.as_ptr().cast(), block.as_mut_ptr().cast(), 0);
        // SAFETY: both slices outlive the call, and their lengths are passed.
        let done = unsafe {
            libdeflate_sys::libdeflate_deflate_decompress(
                self.decompress,
                from,
                stored.len(),
                to,
                block.len(),
                &mut bytes,
            )
        };
        assert_eq!((done, bytes), (libdeflate_sys::libdeflate_result_LIBDEFLATE_SUCCESS, block.len()));
    }
}

impl Drop for Libdeflate {
    fn drop(&mut self) {
        // SAFETY: both may be null, and are not used afterwards.
        unsafe {
            libdeflate_sys::libdeflate_free_compressor(self.compress);
            libdeflate_sys::libdeflate_free_decompressor(self.decompress);
        }
    }
}
