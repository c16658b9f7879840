//! What this kernel's BTF says: which events exist, and values that the programs need. The Rust side
//! of `bpf/compat.h`.

use std::path::Path;

use libbpf_rs::btf::types::{Enum, FuncProto, Typedef};
use libbpf_rs::btf::{Btf, BtfKind, BtfType};

use anyhow::Result;

use crate::refusal::Refusal;

/// The kernel's BTF, vmlinux part.
pub struct KernelBtf {
    vmlinux: Btf<'static>,
}

/// Where an event is defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventHome {
    Vmlinux,
    /// In a loaded module with BTF.
    Module(&'static str),
    /// The module is loaded and has no BTF (Linux 5.10): the event cannot be typed.
    Untyped(&'static str),
    /// The module that defines it is not loaded.
    NotLoaded(&'static str),
    /// Not in this kernel.
    Absent,
}

/// The name of the event that an io_uring request is submitted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingSubmit {
    /// `io_uring_submit_req(req)`.
    Request,
    /// `io_uring_submit_sqe(req, force_nonblock)`, its name until 6.2.
    Sqe,
}

impl EventHome {
    pub fn is_there(&self) -> bool {
        matches!(self, Self::Vmlinux | Self::Module(_))
    }
}

impl KernelBtf {
    /// Reads `/sys/kernel/btf/vmlinux` (or where libbpf finds it): no rights needed.
    pub fn read() -> Result<Self> {
        super::libbpf::listen();
        let vmlinux = Btf::from_vmlinux().map_err(|_| {
            Refusal::Refused(
                "this kernel has no BTF (/sys/kernel/btf/vmlinux), which the probes need to find its types: \
                 boot a kernel built with CONFIG_DEBUG_INFO_BTF, as the distributions' are"
                    .to_string(),
            )
        })?;
        Ok(Self { vmlinux })
    }

    /// Where the tracepoint `name` lives; `module` defines it where it is not built in.
    pub fn event(&self, name: &str, module: Option<&'static str>) -> EventHome {
        if self.vmlinux.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}")).is_some() {
            return EventHome::Vmlinux;
        }
        let Some(module) = module else { return EventHome::Absent };
        // A module's own BTF is readable with CAP_SYS_ADMIN only; its file's existence is enough here.
        match (
            Path::new("/sys/module").join(module).exists(),
            Path::new("/sys/kernel/btf").join(module).exists(),
        ) {
            (true, true) => EventHome::Module(module),
            (true, false) => EventHome::Untyped(module),
            (false, _) => EventHome::NotLoaded(module),
        }
    }

    /// The struct that argument `index` of an event points to; None where the event or the argument is
    /// not there, or points to no struct.
    pub fn argument(&self, event: &str, index: usize) -> Option<String> {
        let event = self.vmlinux.type_by_name::<Typedef<'_>>(&format!("btf_trace_{event}"))?;
        let prototype: FuncProto<'_> = event.next_type()?.next_type()?.try_into().ok()?;
        // The first parameter is the probe's own data.
        let argument = prototype.iter().nth(index + 1)?.ty;
        let pointer: BtfType<'_> = self.vmlinux.type_by_id(argument)?;
        let target = pointer.next_type()?.skip_mods_and_typedefs();
        (target.kind() == BtfKind::Struct).then(|| target.name())?.map(|n| n.to_string_lossy().into_owned())
    }

    /// The event of an io_uring request that is submitted, by the program for it; None where there is
    /// none that names the request (before 5.19).
    pub fn ring_submit(&self) -> Option<RingSubmit> {
        let names_request = |event| self.argument(event, 0).is_some_and(|name| name == "io_kiocb");
        if names_request("io_uring_submit_req") {
            Some(RingSubmit::Request)
        } else if names_request("io_uring_submit_sqe") {
            Some(RingSubmit::Sqe)
        } else {
            None
        }
    }

    /// The bit `RQF_FLUSH_SEQ`: an enumerator in 6.12 (of an anonymous enum) and 6.18, a macro `1 << 4`
    /// in 5.10 and 6.1, which BTF does not know.
    pub fn rqf_flush_seq(&self) -> u32 {
        for kind in self.vmlinux.type_by_kind::<Enum<'_>>() {
            for member in kind.iter() {
                if member.name.is_some_and(|n| n == "__RQF_FLUSH_SEQ") {
                    return 1 << member.value;
                }
            }
        }
        1 << 4
    }
}
