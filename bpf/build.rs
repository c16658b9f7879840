//! Compiles every `bpf/*.bpf.c` into `OUT_DIR/NAME.skel.rs`, and writes the records that the kernel side sends to
//! `OUT_DIR/records.rs`. No other file contains clang flags.

mod records;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context as _, Result, bail};
use libbpf_cargo::SkeletonBuilder;

/// Debian keeps asm/types.h of the kernel's headers in a directory of the architecture, which clang does not search for
/// the target bpf.
const UAPI: &str = "/usr/include/x86_64-linux-gnu";

fn main() -> Result<()> {
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=PATH");
    // The directory detects a new file, the files detect an edit.
    println!("cargo:rerun-if-changed=bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    let clang = clang()?;

    let mut sources = Vec::new();
    for entry in fs::read_dir("bpf").context("bpf/ cannot be read")? {
        let path = entry?.path();
        println!("cargo:rerun-if-changed={}", path.display());
        if path.to_string_lossy().ends_with(".bpf.c") {
            sources.push(path);
        }
    }
    // The order of a directory is arbitrary; sorting makes the order of errors stable.
    sources.sort();
    let mut skeletons = Vec::new();
    for source in &sources {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let skeleton = out.join(name.replace(".bpf.c", ".skel.rs"));
        SkeletonBuilder::new()
            .source(source)
            .obj(out.join(name.replace(".bpf.c", ".bpf.o")))
            .clang(&clang)
            .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-I", "bpf", "-I", UAPI, target_arch()?])
            .build_and_generate(&skeleton)
            .with_context(|| format!("{} does not compile with {}", source.display(), clang.display()))?;
        skeletons.push(fs::read_to_string(&skeleton)?);
    }
    fs::write(out.join("records.rs"), records::generate(&skeletons)?)?;
    choose_when_opened(&out.join("latency.skel.rs"))
}

/// latency_old.bpf.c and latency_raw.bpf.c are the same source with the same maps and programs, so the skeleton of
/// latency.bpf.c serves all three; `object` in `src/probe/skel.rs` chooses the object that it opens.
fn choose_when_opened(skeleton: &Path) -> Result<()> {
    let text = fs::read_to_string(skeleton)?;
    let opened = "ObjectSkeletonConfigBuilder::new(&DATA)";
    if text.matches(opened).count() != 1 {
        bail!("libbpf-cargo writes another skeleton than this script knows: {opened} stands not once in it");
    }
    let chosen = "ObjectSkeletonConfigBuilder::new(crate::probe::skel::object(&DATA))";
    Ok(fs::write(skeleton, text.replace(opened, chosen))?)
}

/// The define by which libbpf's headers choose register names.
fn target_arch() -> Result<&'static str> {
    Ok(match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "-D__TARGET_ARCH_x86",
        Ok("aarch64") => "-D__TARGET_ARCH_arm64",
        other => bail!("biopsy has no kernel side for the architecture {other:?}"),
    })
}

/// `$CLANG`, else the newest `clang` or `clang-N` on the path. Distributions often install only the numbered names.
fn clang() -> Result<PathBuf> {
    if let Some(clang) = env::var_os("CLANG").filter(|c| !c.is_empty()) {
        return Ok(clang.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for dir in env::split_paths(&path) {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(rest) = name.to_str().and_then(|n| n.strip_prefix("clang")) else { continue };
            let numbered = rest.strip_prefix('-').and_then(|n| n.parse().ok());
            let version = if rest.is_empty() { version(&entry.path()) } else { numbered };
            found.extend(version.map(|v| (v, entry.path())));
        }
    }
    // Among equal versions the first on the path wins.
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    let newest = found.into_iter().next();
    Ok(newest.context("no clang found: install it (apt install clang), or name one in $CLANG")?.1)
}

/// The major version that a compiler prints: `... clang version 14.0.6 ...`.
fn version(clang: &Path) -> Option<u32> {
    let output = Command::new(clang).arg("--version").stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split("version ").nth(1)?.split('.').next()?.parse().ok()
}
