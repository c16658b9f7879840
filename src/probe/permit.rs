//! Checks whether probes may run here at all (rights, BTF, lockdown), and words every refusal.

use std::path::Path;

use anyhow::Result;

use super::btf::NO_BTF;
use crate::host::rights::Rights;
use crate::probe::btf_file;
use crate::refusal::Refusal;

pub const RIGHTS: &str = "needs CAP_BPF and CAP_PERFMON";
pub const RIGHTS_REMEDY: &str =
    "run as root, or grant the capabilities: setcap cap_bpf,cap_perfmon+ep biopsy";

pub const NO_BTF_HERE: &str = "this kernel has no BTF, which describes its data structures";
pub const NO_BTF_REMEDY: &str = "boot a kernel with CONFIG_DEBUG_INFO_BTF, or name a file with --btf: \
    pahole --btf_encode_detached FILE vmlinux makes one from the same kernel with debug information";

pub const LOCKED: &str = "this kernel is locked down (confidentiality): BPF may not read kernel memory, \
    not even as root";
pub const LOCKED_REMEDY: &str = "boot without lockdown=confidentiality; lockdown=integrity is fine";

/// Refuses what cannot work, before anything is created or attached.
pub fn permit(root: &Path) -> Result<()> {
    let rights = Rights::read(root);
    let why = if !rights.btf && btf_file::path().is_none() {
        NO_BTF.to_string()
    } else if rights.locked_down() {
        format!("{LOCKED}: {LOCKED_REMEDY}")
    } else if !rights.can_trace() {
        "the probes need CAP_BPF and CAP_PERFMON: run as root, or grant them with \
         setcap cap_bpf,cap_perfmon+ep"
            .to_string()
    } else {
        return Ok(());
    };
    Err(Refusal::Refused(why).into())
}
