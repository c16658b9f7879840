//! Messages to a service manager (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that says where it listens. A command that we start does not get it: we are the service.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// The interval has begun: for systemd with `Type=notify`, or a script that waits. It is no error where nobody listens.
pub fn ready() {
    let Some(place) = std::env::var_os(NOTIFY_SOCKET) else { return };
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&place),
    };
    let _sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
}
