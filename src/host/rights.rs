//! Reads the capabilities of this process and the kernel settings that restrict tracing.

use std::fs::File;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attribute::{bracketed, file, number, text};
use super::cpu::field;

/// Effective capabilities, and the kernel settings that restrict tracing.
///
/// Capabilities in a user namespace do not allow BPF or perf: see `initial_user_namespace`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rights {
    /// CAP_SYS_ADMIN: everything below except the last two; also BTF of modules and program statistics.
    pub sys_admin: bool,
    /// CAP_BPF: load programs, make maps. Since 5.8.
    pub bpf: bool,
    /// CAP_PERFMON: tracing programs, perf events. Since 5.8.
    pub perfmon: bool,
    /// CAP_SYSLOG: kernel addresses in /proc/kallsyms.
    pub syslog: bool,
    /// CAP_SYS_PTRACE: maps and names of other users' processes.
    pub sys_ptrace: bool,
    /// CAP_SYS_RESOURCE: raise the limit of locked memory, to which kernels before 5.11 charge BPF maps.
    pub sys_resource: bool,
    /// False in a container with its own user namespace: the capabilities above then apply only to objects of that
    /// namespace, which do not include BPF.
    pub initial_user_namespace: bool,
    /// `kernel.unprivileged_bpf_disabled`: 0 no, 1 until reboot, 2 changeable.
    pub unprivileged_bpf_disabled: Option<u32>,
    /// `kernel.perf_event_paranoid`: -1 allows everything; up to 2 (in some distributions 3 or 4) allows own processes
    /// or nothing.
    pub perf_event_paranoid: Option<i32>,
    /// `kernel.kptr_restrict`: 0 shows addresses, 1 with CAP_SYSLOG, 2 never.
    pub kptr_restrict: Option<u32>,
    /// `none`, `integrity` or `confidentiality` (which forbids BPF reads of kernel memory). If securityfs is not
    /// mounted, the level of the kernel's command line. None on kernels without lockdown, or if it is unknown.
    pub lockdown: Option<String>,
    /// `kernel.io_uring_disabled`: 0 no, 1 for the unprivileged, 2 for all. Since 6.6.
    pub io_uring_disabled: Option<u32>,
    /// `/sys/kernel/btf/vmlinux` is readable: programs can be relocated for this kernel.
    pub btf: bool,
}

// Numbers of include/uapi/linux/capability.h.
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_SYSLOG: u32 = 34;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

impl Rights {
    /// Reads `/proc/self/status`, `/proc/sys/kernel` and `/sys/kernel`.
    ///
    /// A capability that cannot be read counts as not granted.
    pub fn read(root: &Path) -> Self {
        let effective =
            file(&root.join("proc/self/status")).ok().and_then(|status| effective(&status)).unwrap_or(0);
        let has = |capability: u32| effective >> capability & 1 == 1;
        let sysctl = root.join("proc/sys/kernel");
        let lockdown = text(&root.join("sys/kernel/security/lockdown"));
        let booted = || booted_with(&file(&root.join("proc/cmdline")).unwrap_or_default());
        Self {
            sys_admin: has(CAP_SYS_ADMIN),
            bpf: has(CAP_BPF),
            perfmon: has(CAP_PERFMON),
            syslog: has(CAP_SYSLOG),
            sys_ptrace: has(CAP_SYS_PTRACE),
            sys_resource: has(CAP_SYS_RESOURCE),
            initial_user_namespace: initial_namespace(
                &file(&root.join("proc/self/uid_map")).unwrap_or_default(),
            ),
            unprivileged_bpf_disabled: number(&sysctl.join("unprivileged_bpf_disabled")),
            perf_event_paranoid: number(&sysctl.join("perf_event_paranoid")),
            kptr_restrict: number(&sysctl.join("kptr_restrict")),
            lockdown: lockdown.and_then(|value| bracketed(&value).map(str::to_string)).or_else(booted),
            io_uring_disabled: number(&sysctl.join("io_uring_disabled")),
            btf: File::open(root.join("sys/kernel/btf/vmlinux")).is_ok(),
        }
    }

    /// Whether tracing programs may be loaded: the kernel accepts CAP_SYS_ADMIN in place of both capabilities.
    pub fn can_trace(&self) -> bool {
        self.initial_user_namespace && (self.sys_admin || (self.bpf && self.perfmon))
    }

    /// Whether the kernel forbids BPF to read its memory, whatever the capabilities.
    pub fn locked_down(&self) -> bool {
        self.lockdown.as_deref() == Some("confidentiality")
    }

    /// Whether every CPU may be sampled, in kernel and user space.
    pub fn can_sample(&self) -> bool {
        (self.initial_user_namespace && (self.sys_admin || self.perfmon))
            || self.perf_event_paranoid == Some(-1)
    }
}

/// The `CapEff` mask of a status file.
fn effective(status: &str) -> Option<u64> {
    u64::from_str_radix(field(status, "CapEff")?, 16).ok()
}

/// Parses `lockdown=LEVEL` of a kernel's command line; the level can only rise later.
fn booted_with(line: &str) -> Option<String> {
    let level = line.split_whitespace().filter_map(|word| word.strip_prefix("lockdown=")).next_back()?;
    matches!(level, "integrity" | "confidentiality").then(|| level.to_string())
}

/// Whether this is the initial user namespace, which maps every id to itself. Without a map (a kernel without user
/// namespaces), there is only that one.
fn initial_namespace(map: &str) -> bool {
    let words: Vec<&str> = map.split_whitespace().collect();
    words.is_empty() || words == ["0", "0", "4294967295"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits_of_a_mask() {
        assert_eq!(effective("Name:\tx\nCapEff:\t000001fffeffffff\n"), Some(0x1ff_feff_ffff));
        assert_eq!(effective("CapEff:\tzz\n"), None);
        assert_eq!(effective(""), None);
    }

    #[test]
    fn a_container_with_its_own_users_is_not_root() {
        assert!(initial_namespace("         0          0 4294967295\n"));
        assert!(initial_namespace(""));
        assert!(!initial_namespace("0 100000 65536\n"));
        let container = Rights { sys_admin: true, ..Rights::default() };
        assert!(!container.can_trace());
    }

    #[test]
    fn the_command_line_tells_of_a_lockdown_where_nothing_else_does() {
        let level = |line| booted_with(line);
        assert_eq!(
            level("root=/dev/sda1 lockdown=confidentiality quiet\n").as_deref(),
            Some("confidentiality")
        );
        assert_eq!(level("lockdown=none lockdown=integrity").as_deref(), Some("integrity"));
        assert_eq!((level("lockdown=x"), level("nolockdown=integrity"), level("")), (None, None, None));
        assert!(Rights { lockdown: level("lockdown=confidentiality"), ..Rights::default() }.locked_down());
        assert!(!Rights { lockdown: level("lockdown=integrity"), ..Rights::default() }.locked_down());
    }

    #[test]
    fn the_two_small_capabilities_suffice_together() {
        let own = Rights { initial_user_namespace: true, ..Rights::default() };
        assert!(Rights { bpf: true, perfmon: true, ..own.clone() }.can_trace());
        assert!(!Rights { bpf: true, ..own.clone() }.can_trace());
        assert!(Rights { sys_admin: true, ..own }.can_trace());
    }
}
