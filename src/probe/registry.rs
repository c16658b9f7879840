//! Lists all BPF objects of the executable and all views, in the order in which `biopsy check` lists them.

use super::spec::{Program, Spec, View};
use super::{blocked, cost, errors, flame, interrupts, latency, locks, pagecache, reclaim, stacks, threads};
use crate::host::abilities::ViewState;
use crate::host::rights::Rights;

pub static PROBES: &[Spec] = &[
    latency::SPEC,
    interrupts::SPEC,
    locks::SPEC,
    pagecache::SPEC,
    pagecache::PATHS,
    cost::SPEC,
    stacks::SPEC,
    threads::SPEC,
    blocked::SPEC,
    reclaim::SPEC,
    errors::SPEC,
];

/// All verbs that measure or report, in the same order.
pub static VIEWS: &[View] = &[
    latency::DIAGNOSE,
    latency::VIEW,
    interrupts::VIEW,
    locks::VIEW,
    threads::VIEW,
    flame::VIEW,
    latency::TRACE,
    errors::VIEW,
    View::always("top"),
    LOAD,
    View::always("devices"),
    View::always("check"),
    View::always("explain"),
];

/// The load generator has no programs.
const LOAD: View = View { name: "load", state: |here| load(here.rights) };

fn load(rights: &Rights) -> ViewState {
    match rights.io_uring_disabled {
        Some(level) if level == 2 || (level == 1 && !rights.sys_admin) => ViewState::degraded(
            format!(
                "io_uring is switched off (kernel.io_uring_disabled = {level}): --ioengine libaio, psync, pvsync2 and \
                 mmap work, io_uring (the default) and io_uring_cmd do not"
            ),
            Some("sysctl kernel.io_uring_disabled=0".to_string()),
        ),
        _ => ViewState::ok(),
    }
}

/// The programs of an object.
pub fn programs(spec: &Spec) -> impl Iterator<Item = &'static Program> {
    spec.programs.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::abilities::State;

    #[test]
    fn without_io_uring_the_load_generator_has_other_engines() {
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
}
