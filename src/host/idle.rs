//! Reads the idle states (C-states) that the kernel may choose for each CPU, and the limits on their exit latency.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attribute::{flag, names, number, text};
use crate::refusal::reason;

/// The value that the kernel treats as no limit: 2,000 s (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const NO_LIMIT_US: i32 = 2_000_000_000;

/// The idle states of all CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Idle {
    /// `intel_idle`, `acpi_idle`, `haltpoll`.
    pub driver: Option<String>,
    /// The governor that chooses between the states: `menu`, `teo`, `haltpoll`.
    pub governor: Option<String>,
    /// By number. CPUs of different kinds may have different states with the same number.
    pub states: Vec<IdleState>,
    pub wakeup: Wakeup,
}

/// One state, `cpuN/cpuidle/stateM`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IdleState {
    pub state: u32,
    /// `POLL`, `C1E`, `C6`.
    pub name: Option<String>,
    /// The longest time to wake from it, according to the driver.
    pub exit_us: Option<u64>,
    /// CPUs that may enter it. A CPU without this information is in neither list.
    pub cpus: Vec<u32>,
    /// CPUs that have it but may not enter it: it is disabled there, or their own latency limit is shorter.
    pub off_cpus: Vec<u32>,
}

/// The longest wake-up time that programs allow all CPUs (`/dev/cpu_dma_latency`): while one of them holds the file
/// open, deeper states are not entered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Wakeup {
    #[default]
    #[serde(rename = "unlimited")]
    Unlimited,
    #[serde(rename = "limit_us")]
    Limit(u64),
    /// With the reason.
    #[serde(rename = "untold")]
    Untold(String),
}

impl Idle {
    /// Reads the states of these CPUs. None if the kernel has no driver for them: it then halts a CPU, and the hardware
    /// or hypervisor below decides the rest.
    pub fn read(root: &Path, cpus: &[u32]) -> Option<Self> {
        let system = root.join("sys/devices/system/cpu");
        let states = states(&system, cpus);
        // The kernel prints `none` if no driver is registered.
        let driver = text(&system.join("cpuidle/current_driver")).filter(|name| name != "none");
        if driver.is_none() && states.is_empty() {
            return None;
        }
        // Before Linux 5.9, a governor that could not be changed had the second name.
        let governor = ["current_governor", "current_governor_ro"]
            .iter()
            .find_map(|name| text(&system.join("cpuidle").join(name)));
        Some(Self { driver, governor, states, wakeup: Wakeup::read(root) })
    }

    /// The states that take longer than this to wake from and that at least one CPU may enter, as far as that is known.
    pub fn deeper_than(&self, us: u64) -> impl Iterator<Item = (&IdleState, u64)> {
        let most = match self.wakeup {
            Wakeup::Limit(most) => most,
            Wakeup::Unlimited | Wakeup::Untold(_) => u64::MAX,
        };
        let deep = move |state: &IdleState| state.exit_us.filter(|exit| (us + 1..=most).contains(exit));
        self.states
            .iter()
            .filter(|state| !state.cpus.is_empty())
            .filter_map(move |state| Some((state, deep(state)?)))
    }
}

/// Merges states with the same number, name and exit latency.
fn states(system: &Path, cpus: &[u32]) -> Vec<IdleState> {
    let mut found: BTreeMap<(u32, Option<String>, Option<u64>), IdleState> = BTreeMap::new();
    for cpu in cpus {
        let directory = system.join(format!("cpu{cpu}/cpuidle"));
        let limit = own_limit(&system.join(format!("cpu{cpu}/power/pm_qos_resume_latency_us")));
        for name in names(&directory) {
            let Some(state) = name.strip_prefix("state").and_then(|number| number.parse().ok()) else {
                continue;
            };
            let path = directory.join(&name);
            let (name, exit_us) = (text(&path.join("name")), number(&path.join("latency")));
            let disabled = flag(&path.join("disable"));
            let known = found.entry((state, name.clone(), exit_us)).or_insert_with(|| IdleState {
                state,
                name,
                exit_us,
                ..IdleState::default()
            });
            let too_long = exit_us.zip(limit).is_some_and(|(exit, limit)| exit > limit);
            match disabled {
                _ if too_long => known.off_cpus.push(*cpu),
                Some(true) => known.off_cpus.push(*cpu),
                Some(false) => known.cpus.push(*cpu),
                None => {}
            }
        }
    }
    found.into_values().collect()
}

/// A CPU's own limit in microseconds; None if it has none. The kernel prints 0 for no limit, and `n/a` for a limit of
/// 0.
fn own_limit(path: &Path) -> Option<u64> {
    match text(path)?.as_str() {
        "n/a" => Some(0),
        value => value.parse().ok().filter(|us| *us > 0),
    }
}

impl Wakeup {
    /// Opening the file requests no limit; only a write would set one.
    fn read(root: &Path) -> Self {
        match limit(&root.join("dev/cpu_dma_latency")) {
            Ok(us @ 0..NO_LIMIT_US) => Self::Limit(us.unsigned_abs().into()),
            Ok(_) => Self::Unlimited,
            Err(error) => Self::Untold(reason(&error)),
        }
    }
}

fn limit(path: &Path) -> io::Result<i32> {
    let mut bytes = [0; size_of::<i32>()];
    // O_NONBLOCK: the open must not block, whatever file has this path.
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?.read_exact(&mut bytes)?;
    Ok(i32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tree::Tree;

    fn state(tree: &Tree, cpu: u32, state: u32, [name, latency, disable]: [&str; 3]) {
        let directory = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}");
        for (file, text) in [("name", name), ("latency", latency), ("disable", disable)] {
            tree.write(&format!("{directory}/{file}"), format!("{text}\n").as_bytes());
        }
    }

    const DRIVER: (&str, &str) = ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n");

    #[test]
    fn states_are_told_with_who_may_enter_them() {
        let tree = Tree::new("idle-states", &[DRIVER]);
        for cpu in 0..3 {
            state(&tree, cpu, 0, ["POLL", "0", "0"]);
            state(&tree, cpu, 1, ["C6", "133", if cpu == 1 { "1" } else { "0" }]);
        }
        // CPU 2 has a limit of 100 us of its own.
        tree.write("sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us", b"100\n");
        let idle = Idle::read(tree.root(), &[0, 1, 2]).unwrap();
        assert_eq!((idle.driver.as_deref(), idle.governor.as_deref()), (Some("intel_idle"), None));
        let [poll, deep] = &idle.states[..] else { panic!("{idle:?}") };
        assert_eq!(
            (poll.name.as_deref(), poll.exit_us, &poll.cpus[..]),
            (Some("POLL"), Some(0), &[0, 1, 2][..])
        );
        assert_eq!((&deep.cpus[..], &deep.off_cpus[..]), (&[0][..], &[1, 2][..]));
        assert!(matches!(idle.wakeup, Wakeup::Untold(_)), "{:?}", idle.wakeup);
    }

    #[test]
    fn a_limit_that_a_program_holds_hides_the_deeper_states() {
        let tree = Tree::new("idle-held", &[DRIVER]);
        state(&tree, 0, 0, ["C1", "2", "0"]);
        state(&tree, 0, 1, ["C1E", "30", "0"]);
        state(&tree, 0, 2, ["C6", "133", "0"]);
        let deep = |held: i32| {
            tree.write("dev/cpu_dma_latency", &held.to_ne_bytes());
            let idle = Idle::read(tree.root(), &[0]).unwrap();
            idle.deeper_than(20).map(|(_, us)| us).collect::<Vec<_>>()
        };
        assert_eq!(deep(NO_LIMIT_US), [30, 133]);
        assert_eq!(deep(100), [30]);
        assert_eq!(deep(30), [30], "as long as the limit is not longer");
        assert_eq!((deep(0), deep(20)), (vec![], vec![]));
    }

    #[test]
    fn what_is_no_number_is_absent_and_not_zero() {
        let tree = Tree::new("idle-garbled", &[("sys/devices/system/cpu/cpuidle/current_driver", "none\n")]);
        assert_eq!(Idle::read(tree.root(), &[0, 1]), None);
        state(&tree, 0, 3, ["", "-1", "maybe"]);
        let idle = Idle::read(tree.root(), &[0, 1]).unwrap();
        assert_eq!(idle.states, [IdleState { state: 3, ..IdleState::default() }]);
        assert_eq!(idle.deeper_than(0).count(), 0);
    }

    #[test]
    fn a_cpus_own_limit_of_nothing_is_spelt_out() {
        let tree = Tree::new("idle-own", &[("a", "n/a\n"), ("b", "0\n"), ("c", "70\n"), ("d", "x\n")]);
        let limits = ["a", "b", "c", "d", "e"].map(|name| own_limit(&tree.root().join(name)));
        assert_eq!(limits, [Some(0), None, Some(70), None, None]);
    }
}
