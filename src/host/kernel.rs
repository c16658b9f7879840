//! The kernel's release, the host's name, and what the machine runs on.

use std::path::Path;

use super::attribute::{file, text};
use super::cpu::field;

/// `uname -r`.
pub fn release(root: &Path) -> Option<String> {
    text(&root.join("proc/sys/kernel/osrelease"))
}

/// `uname -n`.
pub fn hostname(root: &Path) -> Option<String> {
    text(&root.join("proc/sys/kernel/hostname"))
}

/// Makers that put their name into the firmware tables of their virtual machines: start of the
/// DMI string, and what it is called here.
const MAKERS: [(&str, &str); 13] = [
    ("KVM", "kvm"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("innotek GmbH", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Microsoft Corporation", "hyper-v"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("Amazon EC2", "amazon ec2"),
    ("Google", "google compute engine"),
    ("OpenStack", "openstack"),
    ("Apple Virtualization", "apple"),
];

/// The hypervisor below this kernel; None on bare metal, or where nothing tells.
///
/// `/sys/hypervisor/type` is exact. DMI names the maker, but Amazon, Google and Microsoft also make
/// bare metal: it counts only together with the CPU's hypervisor flag, where there are flags.
pub fn virtualization(root: &Path) -> Option<String> {
    if let Some(kind) = text(&root.join("sys/hypervisor/type")) {
        return Some(kind);
    }
    let info = file(&root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = field(&info, "flags");
    let flagged = flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    if flagged == Some(false) {
        return None;
    }
    let dmi = |name: &str| text(&root.join("sys/class/dmi/id").join(name));
    let maker = ["product_name", "sys_vendor", "bios_vendor"].into_iter().filter_map(dmi).find_map(|value| {
        MAKERS.iter().find(|(start, _)| value.starts_with(start)).map(|(_, name)| (*name).to_string())
    });
    maker.or_else(|| (flagged == Some(true)).then(|| "unnamed hypervisor".to_string()))
}

/// Whether a hypervisor says that it is there.
pub fn is_guest(root: &Path) -> bool {
    let processors = file(&root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = processors.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}
