//! Types that describe the BPF objects. Each view describes its own object; generic code then checks what this kernel
//! supports, and measures the verifier's work.

use std::path::Path;

use anyhow::Result;
use libbpf_rs::OpenObject;

use super::btf::KernelBtf;
use super::libbpf;
use super::permit;
use super::skel::CompiledObject;
use super::trial::TrialResult;
use crate::host::abilities::{ProgramState, State, ViewState};
use crate::host::rights::Rights;
use crate::host::{BlockDevice, Host};
use crate::probe::btf_file;
use crate::refusal::Refusal;

/// A BPF object: a file `bpf/NAME.bpf.c`.
pub struct Spec {
    /// The object and its variants for other kernels.
    pub objects: &'static [CompiledObject],
    /// The programs that views attach, as `biopsy check` lists them.
    pub programs: &'static [&'static [Program]],
    /// Why the object cannot be used with a BTF file (`--btf`); None: it has a variant for that.
    pub not_by_file: Option<&'static str>,
    /// The remedy if the kernel lacks one of its events.
    pub newer: Option<&'static str>,
    /// Loads the named programs, attaches none, and closes the object.
    pub try_load: fn(&[String], &KernelBtf) -> TrialResult<()>,
    /// For an object whose programs are not tried one by one: whether its view can use it here.
    pub state: Option<fn(&Rights) -> ProgramState>,
    /// Sets the constants like the view with all options: they decide which branches exist.
    pub configure: fn(&mut OpenObject, Reach, &KernelBtf) -> Result<()>,
    /// The first object is verified a second time, with [`Reach::Full`].
    pub has_options: bool,
}

/// A verb, and what it can do here: a line of `biopsy check`.
pub struct View {
    pub name: &'static str,
    pub state: fn(&Here<'_>) -> ViewState,
}

/// What the state of a view depends on.
pub struct Here<'a> {
    pub programs: &'a [ProgramState],
    pub host: &'a Host,
    pub rights: &'a Rights,
}

impl View {
    /// A view that needs nothing that a machine may lack.
    pub const fn always(name: &'static str) -> Self {
        Self { name, state: |_| ViewState::ok() }
    }
}

impl<'a> Here<'a> {
    /// The first of these programs that does not work.
    pub fn lacks(&self, is_of: impl Fn(&str) -> bool) -> Option<&'a ProgramState> {
        self.programs.iter().find(|program| program.state == State::Missing && is_of(&program.name))
    }

    pub fn works(&self, name: &str) -> bool {
        self.programs.iter().any(|program| program.name == name && program.state == State::Ok)
    }

    /// The disks whose requests can be followed.
    pub fn traced(&self) -> impl Iterator<Item = &'a BlockDevice> {
        self.host.devices.iter().filter(|disk| disk.request_based && disk.size_bytes > 0)
    }
}

/// The state of a view that needs this program, which does not work.
pub fn without(program: &ProgramState) -> ViewState {
    let reason = program.reason.as_ref().map(|reason| format!("{}: {reason}", program.event));
    ViewState::missing(reason, program.remedy.clone())
}

/// The state of a view of disks if there are none.
pub fn without_disks() -> ViewState {
    ViewState::degraded("there is no request-based block device", None)
}

/// How many options the constants enable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// A view without options; or everything, for an object without [`Spec::has_options`].
    Usual,
    /// Everything that any view can enable.
    Full,
}

/// A program that a view attaches.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    pub name: &'static str,
    pub event: &'static str,
    /// The event is the entry or the return of this kernel function.
    pub function: bool,
    /// The module that defines the event, if it is not the kernel itself.
    pub module: Option<&'static str>,
    /// What a view does not measure without it.
    pub without: &'static str,
    /// Whether its view measures nothing without it.
    pub needed: bool,
    /// What the program needs of the kernel in addition to its event.
    pub requires: Requires,
    /// The same program on a raw event, for users who may not read the types of a module.
    pub raw: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requires {
    Nothing,
    /// Requires the usual object (compare-and-swap, the kernel's own BTF), for this reason.
    Usual(&'static str),
    /// Requires the usual object, and an event that names a submitted io_uring request.
    Operations,
}

impl Program {
    /// A program without which its view still works.
    pub const fn optional(name: &'static str, event: &'static str, without: &'static str) -> Self {
        let requires = Requires::Nothing;
        Self { name, event, function: false, module: None, without, needed: false, requires, raw: None }
    }

    pub const fn needed(name: &'static str, event: &'static str, without: &'static str) -> Self {
        Self { needed: true, ..Self::optional(name, event, without) }
    }

    /// A program that follows operations.
    pub const fn of_operations(name: &'static str, event: &'static str, without: &'static str) -> Self {
        Self { requires: Requires::Operations, ..Self::optional(name, event, without) }
    }

    /// Why it does not work, and what is not measured.
    pub fn lost(&self, why: &str) -> String {
        match self.needed {
            true => format!("{why}: {}", self.without),
            false => format!("{} ({why})", self.without),
        }
    }
}

impl Spec {
    /// For an object that no view tries by itself.
    pub const fn of(objects: &'static [CompiledObject]) -> Self {
        Self {
            objects,
            programs: &[],
            not_by_file: None,
            newer: None,
            try_load: |_, _| Ok(Vec::new()),
            state: None,
            configure: |_, _, _| Ok(()),
            has_options: false,
        }
    }

    /// Refuses a view that cannot work here, before anything is created or attached.
    pub fn permit(&self, root: &Path) -> Result<()> {
        permit::permit(root)?;
        libbpf::listen();
        match self.not_by_file.filter(|_| btf_file::path().is_some()) {
            Some(why) => Err(Refusal::Refused(format!("{why}: use a kernel with BTF of its own")).into()),
            None => Ok(()),
        }
    }
}

/// The state of a program: it works, or why not and the remedy.
pub fn state(name: &str, event: &str, missing: Option<(String, Option<&str>)>) -> ProgramState {
    let state = if missing.is_none() { State::Ok } else { State::Missing };
    let (reason, remedy) = missing.unzip();
    let remedy = remedy.flatten().map(str::to_string);
    ProgramState { name: name.to_string(), event: event.to_string(), state, optional: false, reason, remedy }
}
