//! A recording as one file, which every view opens as well: an archive of tar, whose parts are compressed already.

use std::io::{BufReader, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tar::{Builder, Header};

use super::folder;

/// Writes the files of the recording in `from` to `archive`, with `name` as their folder. What else lies there is left
/// out.
///
/// # Errors
/// Where `from` is no recording, cannot be read, or is written to meanwhile.
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
    // 1970: the same recording gives the same bytes.
    header.set_mtime(0);
    header.set_cksum();
    // A recording that goes on is packed up to here.
    let mut body = BufReader::new(file).take(size);
    archive.append(&header, &mut body)?;
    ensure!(body.limit() == 0, "it became shorter while it was packed");
    Ok(())
}
