//! Which views there are with these programs and rights.

use std::path::Path;

use crate::host::abilities::{ProgramState, State, ViewState};
use crate::host::rights::Rights;
use crate::host::{BlockDevice, Host};
use crate::probe::btf_file::{self, BY_FILE};
use crate::probe::latency::spec::{DETAIL, LATENCY};
use crate::probe::{interrupts, locks, skel, threads};

use super::{NEWER, reach};

/// Each view, with what it lacks here.
pub fn views(programs: &[ProgramState], host: &Host, rights: &Rights) -> Vec<ViewState> {
    let view = |name: &str, state, reason: Option<String>, remedy: Option<String>| ViewState {
        name: name.to_string(),
        state,
        reason,
        remedy,
    };
    let needed = |p: &&ProgramState| LATENCY.iter().chain(DETAIL).any(|k| k.needed && k.name == p.name);
    let broken = programs.iter().filter(needed).find(|p| p.state == State::Missing);
    let traced: Vec<&BlockDevice> =
        host.devices.iter().filter(|d| d.request_based && d.size_bytes > 0).collect();
    let latency = match broken {
        Some(program) => {
            let reason = program.reason.clone().map(|r| format!("{}: {r}", program.event));
            view("latency", State::Missing, reason, program.remedy.clone())
        }
        // The programs of such a kernel are built apart, and its modules have no BTF: NVMe drives have no
        // events of their own.
        None if rights.can_trace() && !skel::is_usual() => view(
            "latency",
            State::Degraded,
            Some(match btf_file::path() {
                Some(_) => format!("block layer only: {BY_FILE}"),
                None => "block layer only, best effort: stages queue and device, by programs for kernels before 5.12"
                    .to_string(),
            }),
            Some(NEWER.to_string()).filter(|_| btf_file::path().is_none()),
        ),
        None if traced.is_empty() => {
            view("latency", State::Degraded, Some("no request-based block device is here".to_string()), None)
        }
        None => {
            let blind = programs.iter().find(|p| p.name == "nvme_sq" && p.state != State::Ok);
            match blind.filter(|_| traced.iter().any(|device| device.is_nvme())) {
                Some(program) => {
                    view("latency", State::Degraded, program.reason.clone(), program.remedy.clone())
                }
                None => view("latency", State::Ok, Some(reach(programs).to_string()), None),
            }
        }
    };
    let mut diagnose = latency.clone();
    diagnose.name = "diagnose".to_string();
    if diagnose.state == State::Ok {
        diagnose.reason = None;
    }
    let mut trace = diagnose.clone();
    trace.name = "trace".to_string();
    let of_interrupts = |p: &&ProgramState| {
        p.name == "rq_complete" || interrupts::PROGRAMS.iter().any(|known| known.name == p.name)
    };
    let absent = programs.iter().filter(of_interrupts).find(|p| p.state == State::Missing);
    let interrupts = match absent {
        Some(program) => {
            let reason = program.reason.clone().map(|r| format!("{}: {r}", program.event));
            view("interrupts", State::Missing, reason, program.remedy.clone())
        }
        None if traced.is_empty() => view(
            "interrupts",
            State::Degraded,
            Some("no request-based block device is here".to_string()),
            None,
        ),
        None => view("interrupts", State::Ok, None, None),
    };
    let of_locks = |p: &&ProgramState| locks::PROGRAMS.iter().any(|known| known.name == p.name);
    let locks = match programs.iter().filter(of_locks).find(|p| p.state == State::Missing) {
        Some(program) => {
            let by_probes = rights.can_trace()
                && btf_file::path().is_none()
                && !rights.locked_down()
                && locks::has_slow_path(Path::new("/"));
            let reason = program.reason.clone().map(|r| format!("{}: {r}", program.event));
            let follows_memory = |p: &ProgramState| p.name == "direct_reclaim_begin" && p.state == State::Ok;
            let less = if by_probes {
                Some("waits for spinlocks alone, by probes on their slow path".to_string())
            } else if programs.iter().any(follows_memory) {
                let why = reason.as_deref().unwrap_or_default();
                Some(format!("only who reclaims memory, and no waits: {why}"))
            } else {
                None
            };
            match less {
                Some(less) => view("locks", State::Degraded, Some(less), program.remedy.clone()),
                None => view("locks", State::Missing, reason, program.remedy.clone()),
            }
        }
        None => view("locks", State::Ok, None, None),
    };
    let load = match rights.io_uring_disabled {
        Some(level) if level == 2 || (level == 1 && !rights.sys_admin) => view(
            "load",
            State::Degraded,
            Some(format!(
                "io_uring is switched off (kernel.io_uring_disabled = {level}): --ioengine libaio, psync, pvsync2 and \
                 mmap work, io_uring (the default) and io_uring_cmd do not"
            )),
            Some("sysctl kernel.io_uring_disabled=0".to_string()),
        ),
        _ => view("load", State::Ok, None, None),
    };
    let threads = match programs.iter().find(|p| p.event == threads::EVENT && p.state == State::Missing) {
        Some(program) => {
            let less = "by the files of /proc: fewer columns, no kernel stacks, more CPU time";
            let reason = program.reason.clone().map(|reason| format!("{less}: {reason}"));
            view("threads", State::Degraded, reason, program.remedy.clone())
        }
        None => view("threads", State::Ok, None, None),
    };
    let flame = flame(programs, &locks);
    vec![
        diagnose,
        latency,
        interrupts,
        locks,
        threads,
        flame,
        trace,
        view("top", State::Ok, None, None),
        load,
        view("devices", State::Ok, None, None),
        view("check", State::Ok, None, None),
        view("explain", State::Ok, None, None),
    ]
}

/// A picture of each kind rests on programs of its own.
fn flame(programs: &[ProgramState], locks: &ViewState) -> ViewState {
    let missing = |name: &str| programs.iter().find(|p| p.name == name && p.state == State::Missing);
    let of_program = |option: &'static str, name: &str| {
        let program = missing(name)?;
        Some((option, program.reason.clone().unwrap_or_default(), program.remedy.clone()))
    };
    let lacking: Vec<_> = [
        of_program("--on-cpu", "on_cpu"),
        of_program("--off-cpu", "blocked_switch"),
        (locks.state == State::Missing)
            .then(|| ("--lock-wait", locks.reason.clone().unwrap_or_default(), locks.remedy.clone())),
        of_program("--reclaim", "direct_reclaim_begin"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let (state, reason, remedy) = match lacking.as_slice() {
        [] => (State::Ok, None, None),
        [(_, why, remedy), ..] if lacking.len() == 4 => (State::Missing, Some(why.clone()), remedy.clone()),
        [(_, why, remedy), ..] => {
            let options: Vec<&str> = lacking.iter().map(|(option, ..)| *option).collect();
            (State::Degraded, Some(format!("without {}: {why}", options.join(", "))), remedy.clone())
        }
    };
    ViewState { name: "flame".to_string(), state, reason, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_io_uring_the_load_generator_has_other_engines() {
        let load = |rights: &Rights| {
            views(&[], &Host::default(), rights).into_iter().find(|view| view.name == "load").unwrap()
        };
        assert_eq!(load(&Rights::default()).state, State::Ok);
        for (level, sys_admin) in [(2, true), (1, false)] {
            let off = load(&Rights { io_uring_disabled: Some(level), sys_admin, ..Rights::default() });
            assert_eq!(off.state, State::Degraded);
            let why = off.reason.unwrap();
            assert!(why.contains("libaio, psync, pvsync2 and mmap work"), "{why}");
        }
        let admin = Rights { io_uring_disabled: Some(1), sys_admin: true, ..Rights::default() };
        assert_eq!(load(&admin).state, State::Ok);
    }

    #[test]
    fn a_picture_needs_its_own_programs_only() {
        let program = |name: &str| ProgramState {
            name: name.to_string(),
            event: String::new(),
            state: State::Missing,
            reason: Some(format!("no {name}")),
            remedy: None,
        };
        let locks = |state| ViewState { name: "locks".to_string(), state, reason: None, remedy: None };
        assert_eq!(flame(&[], &locks(State::Ok)).state, State::Ok);
        let some = flame(&[program("blocked_switch")], &locks(State::Degraded));
        assert_eq!(
            (some.state, some.reason.as_deref()),
            (State::Degraded, Some("without --off-cpu: no blocked_switch"))
        );
        let all = ["on_cpu", "blocked_switch", "direct_reclaim_begin"].map(program);
        let none = flame(&all, &locks(State::Missing));
        assert_eq!((none.state, none.reason.as_deref()), (State::Missing, Some("no on_cpu")));
    }
}
