//! Checks what can be measured here: looks up each program in BTF and, if the rights suffice, loads it once (never
//! attached).

use std::collections::HashMap;

use super::btf::{EventHome, KernelBtf, RingSubmit};
use super::latency::spec::{NEWER, RING_SUBMIT, SQE_SUBMIT};
use super::registry::{self, PROBES, VIEWS};
use super::spec::{self, Here, Program, Requires, Spec};
use super::{permit, skel, trial};
use crate::host::abilities::{Abilities, ProgramState, ViewState};
use crate::host::rights::Rights;
use crate::host::{BlockDevice, Host};
use crate::probe::btf_file::{self, BY_FILE};

/// Checks everything. Works without any rights, and reports what could not be tried without them.
pub fn abilities(host: &Host, rights: &Rights) -> Abilities {
    let btf = KernelBtf::read().ok();
    let btf = btf.as_ref();
    let of_spec = |spec: &'static Spec| {
        registry::programs(spec).map(move |program| {
            let program = by_its_name(*program, btf);
            (spec, program, plan(spec, &program, btf, rights, host))
        })
    };
    let plans: Vec<(&Spec, Program, TrialPlan)> = PROBES.iter().flat_map(of_spec).collect();
    let mut loaded = btf.map(|btf| try_all(&plans, btf)).unwrap_or_default();
    let mut programs: Vec<ProgramState> = plans
        .into_iter()
        .map(|(_, program, plan)| {
            let (missing, optional) = match plan {
                TrialPlan::Missing { reason, remedy, optional } => (Some((reason, remedy)), optional),
                TrialPlan::Try { name, note } => match loaded.remove(name) {
                    Some(Ok(())) => {
                        let works = spec::state(program.name, program.event, None);
                        return ProgramState { reason: note.map(str::to_string), ..works };
                    }
                    Some(Err(why)) => {
                        let why = program.lost(&format!("the kernel refused it: {why}"));
                        (Some((why, None)), !program.needed)
                    }
                    None => (Some((program.lost("it was not tried"), None)), !program.needed),
                },
            };
            ProgramState { optional, ..spec::state(program.name, program.event, missing) }
        })
        .collect();
    programs.extend(PROBES.iter().filter_map(|spec| spec.state).map(|state| state(rights)));
    let here = Here { programs: &programs, host, rights };
    let views =
        VIEWS.iter().map(|view| ViewState { name: view.name.to_string(), ..(view.state)(&here) }).collect();
    Abilities { btf: btf.is_some(), programs, views }
}

/// Loads the programs to be tried, one object at a time. Returns for each name whether the kernel accepts it, or why
/// not.
fn try_all(plans: &[(&Spec, Program, TrialPlan)], btf: &KernelBtf) -> HashMap<String, Result<(), String>> {
    let mut all = HashMap::new();
    for spec in PROBES {
        let names: Vec<String> = plans
            .iter()
            .filter(|(of, ..)| std::ptr::eq(*of, spec))
            .filter_map(|(_, _, plan)| match plan {
                TrialPlan::Try { name, .. } => Some((*name).to_string()),
                TrialPlan::Missing { .. } => None,
            })
            .collect();
        let loaded = trial::each(&names, &mut |names| (spec.try_load)(names, btf));
        all.extend(names.into_iter().zip(loaded));
    }
    all
}

/// How to find out whether a program works here.
enum TrialPlan {
    /// It does not, and no trial is needed. `optional`: its view works without it.
    Missing { reason: String, remedy: Option<&'static str>, optional: bool },
    /// Load the program `name`, which may be a replacement; `note` gives the reason.
    Try { name: &'static str, note: Option<&'static str> },
}

/// Before 6.3 the same event had another name.
fn by_its_name(program: Program, btf: Option<&KernelBtf>) -> Program {
    if program.name == RING_SUBMIT && btf.and_then(KernelBtf::ring_submit) == Some(RingSubmit::Sqe) {
        return Program { name: SQE_SUBMIT, event: "io_uring_submit_sqe", ..program };
    }
    program
}

fn plan(spec: &Spec, program: &Program, btf: Option<&KernelBtf>, rights: &Rights, host: &Host) -> TrialPlan {
    let missing = |reason: String, remedy| TrialPlan::Missing { reason, remedy, optional: false };
    let optional = !program.needed;
    let lost = |why: &str, remedy| TrialPlan::Missing { reason: program.lost(why), remedy, optional };
    let newer = || Some(NEWER).filter(|_| btf_file::path().is_none());
    let Some(btf) = btf else { return missing(permit::NO_BTF_HERE.to_string(), Some(permit::NO_BTF_REMEDY)) };
    if rights.locked_down() {
        return missing(permit::LOCKED.to_string(), Some(permit::LOCKED_REMEDY));
    }
    let unusual = match program.requires {
        Requires::Operations if !skel::is_usual() || btf.ring_submit().is_none() => {
            Some("this kernel has no event that names the submitted io_uring request")
        }
        Requires::Usual(why) if !skel::is_usual() => Some(why),
        Requires::Operations | Requires::Usual(_) | Requires::Nothing => None,
    };
    if let Some(why) = unusual {
        return lost(if btf_file::path().is_some() { BY_FILE } else { why }, newer());
    }
    if let Some(why) = spec.not_by_file.filter(|_| btf_file::path().is_some()) {
        return lost(why, None);
    }
    let home = match program.function {
        true if btf.has_function(program.event) => EventHome::Vmlinux,
        true => EventHome::Absent,
        false => btf.event(program.event, program.module),
    };
    match home {
        EventHome::Absent => return lost("this kernel does not have the event", spec.newer),
        EventHome::Untyped(module) => {
            return lost(
                &format!("module {module} has no BTF"),
                Some("use a kernel with CONFIG_DEBUG_INFO_BTF_MODULES (5.11 or newer)"),
            );
        }
        EventHome::NotLoaded(module) => {
            let why = format!("module {module} is not loaded");
            if host.devices.iter().any(BlockDevice::is_nvme) {
                return lost(&why, None);
            }
            // Without an NVMe device nothing is missed.
            let reason = format!("this machine has no NVMe drive ({why})");
            return TrialPlan::Missing { reason, remedy: None, optional: true };
        }
        EventHome::Vmlinux | EventHome::Module(_) => {}
    }
    if !rights.can_trace() {
        return missing(permit::RIGHTS.to_string(), Some(permit::RIGHTS_REMEDY));
    }
    // Only root may read the types of a module; the raw event does not need them.
    match program.raw.filter(|_| btf_file::path().is_some() || !rights.sys_admin) {
        None => TrialPlan::Try { name: program.name, note: None },
        Some(name) if btf_file::path().is_some() => {
            TrialPlan::Try { name, note: Some("as a raw event, as always with a BTF file") }
        }
        Some(name) => TrialPlan::Try {
            name,
            note: Some("as a raw event, since reading the types of a module needs CAP_SYS_ADMIN"),
        },
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ObjectBuilder;

    use super::*;
    use crate::probe::{interrupts, latency};

    /// Except those that replace another one of the list.
    #[test]
    fn every_program_of_the_views_is_listed() {
        let known =
            |name: &str| PROBES.iter().flat_map(registry::programs).any(|program| program.name == name);
        let unlisted = |spec: &Spec| -> Vec<String> {
            let object = ObjectBuilder::default().open_memory(spec.objects[0].1).unwrap();
            let names = object.progs().map(|program| program.name().to_string_lossy().into_owned());
            names.filter(|name| !known(name)).collect()
        };
        assert_eq!(unlisted(&latency::SPEC), ["nvme_sq_raw", SQE_SUBMIT]);
        assert_eq!(unlisted(&interrupts::SPEC), ["nvme_sq_raw"]);
    }
}
