//! Reads the kernel's release, the host's name, and the hypervisor that the machine runs on.

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

/// Vendors that put their name into the firmware tables of their virtual machines: the start of the DMI string, and the
/// name that biopsy prints.
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

/// The hypervisor below this kernel; None on bare metal, or if no source names one.
///
/// `/sys/hypervisor/type` is exact. DMI names the vendor, but Amazon, Google and Microsoft also make bare metal: DMI
/// counts only together with the CPU's hypervisor flag, if the CPU has flags.
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

/// Whether the CPU flags name a hypervisor.
pub fn is_guest(root: &Path) -> bool {
    let processors = file(&root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = processors.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// Whether the kernel of this KVM guest waits for spinlocks with the hypervisor's help. Then each wait uses the queue,
/// and no CPU spins ahead of it on the pending bit or by test-and-set (`kvm_spinlock_init`). Also false if this is
/// unknown.
pub fn has_paravirtual_spinlocks(root: &Path, cpus_possible: u32) -> bool {
    let line = file(&root.join("proc/cmdline")).unwrap_or_default();
    cpus_possible > 1 && !line.split_whitespace().any(|word| word == "nopvspin") && paravirtual(kvm())
}

/// KVM_FEATURE_PV_UNHALT without KVM_HINTS_REALTIME: a guest with dedicated CPUs does not use it.
fn paravirtual(kvm: Option<(u32, u32)>) -> bool {
    kvm.is_some_and(|(features, hints)| features & 1 << 7 != 0 && hints & 1 == 0)
}

/// The features that KVM offers its guest, and its hints; None without KVM.
#[cfg(target_arch = "x86_64")]
fn kvm() -> Option<(u32, u32)> {
    use std::arch::x86_64::__cpuid;
    // Bit 31 of leaf 1: there is a hypervisor, which answers from leaf 0x40000000 on.
    if __cpuid(1).ecx & 1 << 31 == 0 {
        return None;
    }
    let name = __cpuid(0x4000_0000);
    if [name.ebx, name.ecx, name.edx].map(u32::to_le_bytes).concat() != b"KVMKVMKVM\0\0\0" {
        return None;
    }
    let offered = __cpuid(0x4000_0001);
    Some((offered.eax, offered.edx))
}

#[cfg(not(target_arch = "x86_64"))]
fn kvm() -> Option<(u32, u32)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_has_its_cpus_for_itself_spins_as_a_machine_does() {
        assert!(paravirtual(Some((1 << 7, 0))));
        assert!(!paravirtual(Some((1 << 7, 1))), "KVM_HINTS_REALTIME");
        assert!(!paravirtual(Some((1 << 6, 0))));
        assert!(!paravirtual(None));
        // A single CPU never waits for another.
        assert!(!has_paravirtual_spinlocks(Path::new("/"), 1));
    }
}
