//! `biopsy devices`.

use std::path::Path;

use anyhow::Result;
use biopsy::envelope::Envelope;
use biopsy::host::nvme::identity;
use biopsy::host::{Host, select, warnings};
use biopsy::render::{json, text};

use crate::cli::Devices;
use crate::clock;
use crate::output::Sink;

pub fn run(args: &Devices) -> Result<()> {
    let root = Path::new("/");
    let start = clock::now_rfc3339();
    let mut host = Host::read(root)?;
    let missing = identity::identify(root, &mut host);
    // Resolved before the output is opened: an unknown device leaves no file behind.
    let selection = select::selection(&host, root, &args.devices, args.all)?;
    let warnings = warnings::warnings(&host, &selection.devices);
    let mut sink = Sink::open(args.output.output.as_deref())?;
    if args.output.json {
        let envelope = Envelope {
            version: env!("CARGO_PKG_VERSION").to_string(),
            kernel: host.kernel.clone(),
            start,
            missing,
            ..Envelope::default()
        };
        return sink.write(&json::devices::devices(&envelope, &host, &selection, &warnings));
    }
    sink.write(text::devices::devices(&host, &selection, &warnings, &missing).as_bytes())
}
