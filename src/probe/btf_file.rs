//! Holds the BTF file that replaces the kernel's own BTF if it has none (`--btf`).

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::Result;
use libbpf_rs::btf::Btf;

use super::libbpf;
use crate::refusal::{Refusal, plain};

const MAKES_BTF: &str = "`pahole --btf_encode_detached FILE vmlinux`";

/// The BTF file, for a kernel without its own BTF.
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// Reads BTF from this file from now on. The kernel then has no typed arguments, so the programs are those of raw
/// tracepoints (`bpf/latency_raw.bpf.c`), which follow the block layer and no operations. Must be called before BTF is
/// read.
pub fn set(path: &Path) -> Result<()> {
    libbpf::listen();
    if let Err(error) = std::fs::File::open(path) {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "does not exist".to_string(),
            _ => format!("cannot be read ({})", plain(&error.to_string())),
        };
        let why = format!("the file of --btf, {}, {why}: name one that {MAKES_BTF} makes", path.display());
        return Err(Refusal::Usage(why).into());
    }
    if let Err(error) = Btf::from_path(path) {
        let why = format!(
            "{} is not the BTF of a kernel ({error}): {MAKES_BTF} makes one from the kernel with its debug \
             information",
            path.display()
        );
        return Err(Refusal::Usage(why).into());
    }
    let _first = FILE.set(path.to_path_buf());
    Ok(())
}

/// The limitation of a BTF file.
pub const BY_FILE: &str =
    "with a BTF file the kernel types no arguments, so only the block layer is measured";

/// The file that replaces the kernel's BTF.
pub fn path() -> Option<&'static Path> {
    FILE.get().map(PathBuf::as_path)
}
