//! Sends messages to a service manager (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The environment variable with its socket. The started command does not inherit it, because biopsy is the service.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Reports that the interval has begun: for systemd with `Type=notify`, or a script that waits. It is not an error if
/// there is no listener.
pub fn ready() {
    let Some(place) = std::env::var_os(NOTIFY_SOCKET) else { return };
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&place),
    };
    let _sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
}
