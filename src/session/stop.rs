//! Ctrl-C: the first signal asks for the end, the second ends at once.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_signal: libc::c_int) {
    if STOP.swap(true, Ordering::SeqCst) {
        // SAFETY: _exit is async-signal-safe. Links and maps die with the process.
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
    // A file that may not grow is an error of the write (EFBIG), and no end of the process. A handler, since a command
    // that is started would inherit an ignored signal.
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGXFSZ, on_file_size as extern "C" fn(libc::c_int) as usize) };
}

static DUMP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_dump(_signal: libc::c_int) {
    DUMP.store(true, Ordering::SeqCst);
}

/// From now on SIGUSR1 asks for a dump.
pub fn install_dump() {
    // SAFETY: as above; the handler only touches an atomic. Reads and writes that it interrupts go on.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_dump as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
}

/// Whether a dump was asked for since the last call.
pub fn dump_requested() -> bool {
    DUMP.swap(false, Ordering::Relaxed)
}

/// Whether the end was asked for. The generator's workers look at this flag too.
pub fn requested() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// The flag itself, for rooms that poll it.
pub fn flag() -> &'static AtomicBool {
    &STOP
}
