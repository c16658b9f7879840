//! Packs a recording into one tar archive, which every view can read. Its files are already compressed.

use std::io::{BufReader, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tar::{Builder, Header};

use super::folder;

/// Writes the files of the recording in `from` to `archive`, in a folder `name`. Other files in `from` are left out.
///
/// # Errors
/// If `from` is not a recording, cannot be read, or shrinks while it is read.
pub fn pack(from: &Path, name: &str, archive: impl Write) -> Result<()> {
    let mut archive = Builder::new(archive);
    let names = folder::parts(from).with_context(|| format!("cannot read {}", from.display()))?;
    ensure!(
        names.iter().any(|own| own == folder::MANIFEST),
        "{} is not a recording: it has no {}; name a folder that `biopsy record` made",
        from.display(),
        folder::MANIFEST
    );
    for own in names {
        let path = from.join(&own);
        add(&mut archive, &path, &format!("{name}/{own}"))
            .with_context(|| format!("cannot pack {}", path.display()))?;
    }
    archive.into_inner().and_then(|mut out| out.flush()).context("cannot write the archive")
}

fn add(archive: &mut Builder<impl Write>, path: &Path, name: &str) -> Result<()> {
    let file = folder::open(path)?;
    let size = file.metadata()?.len();
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_size(size);
    header.set_mode(0o600);
    // A fixed time, 1970: packing the same recording twice gives the same bytes.
    header.set_mtime(0);
    header.set_cksum();
    // A recording in progress is packed up to its current size.
    let mut body = BufReader::new(file).take(size);
    archive.append(&header, &mut body)?;
    ensure!(body.limit() == 0, "it became shorter while it was packed");
    Ok(())
}
