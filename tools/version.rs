//! `biopsy version`: the build and the kernel, as a bug report needs them.

use std::path::Path;

use anyhow::Result;
use biopsy::probe;
use biopsy::render::text::{clean, fit};
use biopsy::session::wall_clock;

use crate::output::{self, Sink};

/// Set by the Makefile and by packages: cargo does not know it.
const COMMIT: Option<&str> = option_env!("BIOPSY_COMMIT");

/// How it was built.
const FEATURES: &str = if cfg!(target_feature = "crt-static") { "static" } else { "dynamic" };
const CHECKS: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// BTF of the running kernel, used to relocate the programs.
const BTF: &str = "/sys/kernel/btf/vmlinux";

pub fn run() -> Result<()> {
    let objects = probe::verifier::objects().count();
    let btf = if Path::new(BTF).exists() { "with BTF" } else { "without BTF: see --btf" };
    let rows = [
        ("biopsy", env!("CARGO_PKG_VERSION").to_string()),
        (
            "commit",
            COMMIT.filter(|commit| !commit.is_empty()).unwrap_or("not recorded by this build").to_string(),
        ),
        ("libbpf", probe::libbpf_version()),
        (
            "features",
            format!("{FEATURES}, {CHECKS}, {objects} BPF objects, io_uring, DWARF symbols, zstd, Parquet"),
        ),
        ("kernel", format!("{} {}, {btf}", wall_clock::kernel(), std::env::consts::ARCH)),
    ];
    let text: String = rows.iter().map(|(name, value)| format!("{name:<8}  {}\n", clean(value))).collect();
    Sink::open(None)?.write(fit(&text, output::stdout_width()).as_bytes())
}
