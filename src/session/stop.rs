//! Handles Ctrl-C: the first signal requests a stop, the second exits at once.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_signal: libc::c_int) {
    if STOP.swap(true, Ordering::SeqCst) {
        // SAFETY: _exit is async-signal-safe. Links and maps are released with the process.
        unsafe { libc::_exit(130) };
    }
}

extern "C" fn on_file_size(_signal: libc::c_int) {}

/// Installs the handlers for SIGINT, SIGTERM and SIGHUP. Sleeps are interrupted: no SA_RESTART.
pub fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the action is fully initialised (zeroed is a valid empty mask and no flags) and the
        // handler only touches an atomic and calls _exit.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
    // Exceeding the file size limit is an error of the write (EFBIG) and must not end the process. SIGXFSZ gets a
    // handler, because a started command would inherit an ignored signal.
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGXFSZ, on_file_size as extern "C" fn(libc::c_int) as usize) };
}

static DUMP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_dump(_signal: libc::c_int) {
    DUMP.store(true, Ordering::SeqCst);
}

/// From now on SIGUSR1 requests a dump.
pub fn install_dump() {
    // SAFETY: as above; the handler only touches an atomic. Interrupted reads and writes are restarted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_dump as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
}

/// Whether a dump was requested since the last call.
pub fn dump_requested() -> bool {
    DUMP.swap(false, Ordering::Relaxed)
}

/// Whether a stop was requested. The generator's workers check the same flag.
pub fn requested() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// The flag itself, for rooms that poll it.
pub fn flag() -> &'static AtomicBool {
    &STOP
}
