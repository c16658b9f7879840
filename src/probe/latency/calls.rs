//! Follows system calls that can do I/O at their functions (fentry and fexit). The events of all system calls send
//! every call of every process through the slow path; here only these calls pay.
//!
//! There are 25 of them, and the kernel detaches programs from functions one by one, with a grace period of all tasks
//! for each: 80 to 110 ms for each of these 50 programs in guests with Linux 6.1 and 6.12, 40 ms in one with 7.3. So
//! this is not the default. If the kernel refuses one of them, none is used, and the events are used instead.

use std::io;
use std::os::fd::OwnedFd;

use libbpf_rs::skel::Skel;

use super::super::btf::KernelBtf;
use super::super::cost::{MeteredProgram, metered};
use super::super::libbpf;
use super::super::skel::latency::LatencySkel;
use super::super::syscalls;
use crate::host::syscalls::name;

/// Names of the programs.
pub const ENTER: &str = "call_enter";
pub const EXIT: &str = "call_exit";

/// The function of a system call, as its id in the kernel's BTF; None: the kernel does not have or does not list it.
fn function(btf: &KernelBtf, name: &str) -> Option<u32> {
    match name {
        // Without arguments: its function has two names, of which BTF has this one.
        "sync" => btf.function("__do_sys_sync"),
        "sendfile" => btf.function("__x64_sys_sendfile64"),
        _ => btf.function(&format!("__x64_sys_{name}")),
    }
}

/// The functions of all followed calls. Empty if one of them is unknown, or none may be followed.
pub fn functions(btf: &KernelBtf) -> Vec<u32> {
    let all: Option<Vec<u32>> =
        syscalls::followed().map(|(number, _)| function(btf, name(u32::try_from(number).ok()?)?)).collect();
    let all = all.unwrap_or_default();
    if all.first().is_some_and(|first| libbpf::may_follow(*first)) { all } else { Vec::new() }
}

/// The programs, loaded once per call. Dropping it detaches them.
pub struct Calls {
    /// One for the entry and one for the return.
    programs: Vec<[OwnedFd; 2]>,
    links: Vec<OwnedFd>,
}

impl Calls {
    /// Loads the programs of the object again for each of these functions.
    pub fn load(skel: &LatencySkel<'_>, functions: &[u32]) -> io::Result<Self> {
        let [enter, exit] = [&skel.progs.call_enter, &skel.progs.call_exit];
        let both = |function: &u32| {
            Ok([
                libbpf::load_for(skel.object(), enter, *function)?,
                libbpf::load_for(skel.object(), exit, *function)?,
            ])
        };
        Ok(Self { programs: functions.iter().map(both).collect::<io::Result<_>>()?, links: Vec::new() })
    }

    /// All returns are attached before the first entry.
    pub fn attach(&mut self) -> io::Result<()> {
        let in_order =
            self.programs.iter().map(|[_, exit]| exit).chain(self.programs.iter().map(|[enter, _]| enter));
        self.links = in_order.map(libbpf::attach_to_function).collect::<io::Result<_>>()?;
        Ok(())
    }

    pub fn detach(&mut self) {
        self.links.clear();
    }

    pub fn metered(&self) -> impl Iterator<Item = MeteredProgram<'_>> {
        self.programs.iter().flat_map(|[enter, exit]| [metered(ENTER, enter), metered(EXIT, exit)])
    }
}
