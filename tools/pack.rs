//! `biopsy pack`: packs a recording into one file.

use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use biopsy::recording::pack::pack;
use biopsy::refusal::{Refusal, reason};

use crate::cli::Pack;

pub fn run(args: &Pack) -> Result<()> {
    let folder = &args.folder;
    // Resolves `.` and `..` to a folder with a name.
    let whole = folder.canonicalize().map_err(|error| {
        let why = format!("cannot read {}: {}; name a recording", folder.display(), reason(&error));
        Refusal::Usage(why)
    })?;
    let name = whole.file_name().map_or_else(|| "recording".into(), |name| name.to_string_lossy());
    let path = args.output.clone().unwrap_or_else(|| {
        let mut path = whole.clone().into_os_string();
        path.push(".tar");
        PathBuf::from(path)
    });
    if path == Path::new("-") {
        return pack(&whole, &name, BufWriter::new(io::stdout().lock()));
    }
    let file = File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(|error| {
        let why = format!("cannot make {}: {}; name another file with -o", path.display(), reason(&error));
        Refusal::Usage(why)
    })?;
    pack(&whole, &name, BufWriter::new(file)).inspect_err(|_| {
        // An incomplete archive looks like a complete one.
        let _gone = std::fs::remove_file(&path);
    })
}
