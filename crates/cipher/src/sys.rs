//! System calls: mapping locked memory (never swapped out), waiting for the output of a command with a time limit, and
//! killing a command.

#![expect(unsafe_code, reason = "these are system calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

/// Flag for opening a file without blocking, for example on a named pipe without a writer.
pub(crate) const OPEN_AT_ONCE: i32 = libc::O_NONBLOCK;

/// Maps `bytes` zero bytes that are not swapped out, not in core dumps, and zero in child processes.
pub(crate) fn locked_region(bytes: usize) -> io::Result<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the system chooses.
    let start = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range has just been mapped.
    match unsafe { lock(start, bytes) } {
        Ok(()) => NonNull::new(start.cast()).ok_or_else(|| io::Error::other("a mapping at address 0")),
        Err(error) => {
            // SAFETY: the range was just mapped, and nobody else knows it.
            unsafe { libc::munmap(start, bytes) };
            Err(error)
        }
    }
}

/// Locks a range of memory, so that it is not swapped out; on Linux, core dumps and child processes do not contain it
/// either.
///
/// # Safety
/// The caller must have mapped the range.
unsafe fn lock(start: *mut libc::c_void, bytes: usize) -> io::Result<()> {
    let done = |outcome: i32| if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the caller has mapped the range, and these calls change none of its bytes in this process.
    unsafe {
        done(libc::mlock(start, bytes))?;
        #[cfg(target_os = "linux")]
        for advice in [libc::MADV_DONTDUMP, libc::MADV_WIPEONFORK] {
            done(libc::madvise(start, bytes, advice))?;
        }
    }
    Ok(())
}

/// Blocks until something can be read from `file` or its other end is closed; returns false if that takes longer than
/// `wait`.
pub(crate) fn wait_readable(file: BorrowedFd<'_>, wait: Duration) -> io::Result<bool> {
    let mut waited = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let milliseconds = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX).max(1);
    // SAFETY: the one entry is valid for the call.
    match unsafe { libc::poll(&mut waited, 1, milliseconds) } {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
        ready => Ok(ready > 0),
    }
}

/// Kills all processes of a process group.
pub(crate) fn kill_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().filter(|group| *group > 1) {
        // SAFETY: the call only sends a signal to other processes.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}
