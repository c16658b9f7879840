//! Compiles each `bpf/*.bpf.c` and writes its skeleton to `OUT_DIR`. The only place that knows clang's
//! flags. `$CLANG` names the compiler; else the plain name, else the newest versioned one on PATH.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use libbpf_cargo::SkeletonBuilder;

fn clang() -> Result<PathBuf> {
    let runs =
        |name: &str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    if let Some(named) = env::var_os("CLANG") {
        return Ok(named.into());
    }
    if runs("clang") {
        return Ok("clang".into());
    }
    for version in (14..=30).rev() {
        let name = format!("clang-{version}");
        if runs(&name) {
            return Ok(name.into());
        }
    }
    bail!("no clang on PATH: install it (Debian: apt-get install clang) or name it in $CLANG")
}

fn main() -> Result<()> {
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed=bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    let clang = clang()?;
    let mut sources: Vec<PathBuf> = Path::new("bpf")
        .read_dir()?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.to_string_lossy().ends_with(".bpf.c"))
        .collect();
    sources.sort();
    for source in sources {
        let name = source.file_name().context("a file")?.to_string_lossy().replace(".bpf.c", "");
        SkeletonBuilder::new()
            .source(&source)
            .clang(&clang)
            .clang_args([
                "-I",
                "bpf",
                "-O2",
                "-mcpu=v3",
                "-Wall",
                "-Werror",
                "-Wno-unused-function",
                "-I",
                "/usr/include/x86_64-linux-gnu",
            ])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .with_context(|| format!("cannot compile {}", source.display()))?;
    }
    Ok(())
}
