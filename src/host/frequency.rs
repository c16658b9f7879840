//! Reads the driver, the governor and the limits of the CPU frequency.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attribute::{list, names, number, text};

/// Drivers that choose the frequency themselves: with them, `powersave` is the usual governor name for "as needed" and
/// no limit. In passive mode, `intel_pstate` and `amd-pstate` have other names (`intel_cpufreq`, `amd-pstate`).
const THEIR_OWN: [&str; 2] = ["intel_pstate", "amd-pstate-epp"];

/// CPUs with the same frequency settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Frequency {
    /// `intel_pstate`, `acpi-cpufreq`, `amd-pstate-epp`.
    pub driver: Option<String>,
    pub governor: Option<String>,
    /// The preference of drivers that choose the frequency themselves: `balance_performance`.
    pub preference: Option<String>,
    /// The limits that are set.
    pub min_khz: Option<u64>,
    pub max_khz: Option<u64>,
    /// The maximum of the hardware.
    pub hardware_max_khz: Option<u64>,
    /// The online CPUs.
    pub cpus: Vec<u32>,
}

impl Frequency {
    /// The frequency at which the governor holds its CPUs although they could run faster: `powersave` of a driver that
    /// leaves the choice to the governor. None if the governor does not limit the frequency, or if that is unknown.
    pub fn held_khz(&self) -> Option<u64> {
        let chooses = THEIR_OWN.contains(&self.driver.as_deref()?);
        let held = self.min_khz.filter(|_| !chooses && self.governor.as_deref() == Some("powersave"))?;
        (held < self.hardware_max_khz?).then_some(held)
    }
}

/// Groups the CPUs by driver and governor, from `/sys/devices/system/cpu/cpufreq/policyN`. Empty if the kernel has no
/// driver.
pub fn frequencies(root: &Path) -> Vec<Frequency> {
    let directory = root.join("sys/devices/system/cpu/cpufreq");
    let mut found: BTreeMap<Frequency, Vec<u32>> = BTreeMap::new();
    for name in names(&directory).iter().filter(|name| name.starts_with("policy")) {
        let policy = directory.join(name);
        // Separated by blanks. If all CPUs of a policy are offline, the list is empty.
        let cpus = text(&policy.join("affected_cpus")).and_then(|value| list(&value.replace(' ', ",")));
        let Some(cpus) = cpus else { continue };
        let word = |name: &str| text(&policy.join(name));
        let khz = |name: &str| number::<u64>(&policy.join(name)).filter(|khz| *khz > 0);
        let setting = Frequency {
            driver: word("scaling_driver"),
            governor: word("scaling_governor"),
            preference: word("energy_performance_preference"),
            min_khz: khz("scaling_min_freq"),
            max_khz: khz("scaling_max_freq"),
            hardware_max_khz: khz("cpuinfo_max_freq"),
            cpus: Vec::new(),
        };
        found.entry(setting).or_default().extend(cpus);
    }
    let mut all: Vec<Frequency> = found
        .into_iter()
        .map(|(setting, mut cpus)| {
            cpus.sort_unstable();
            cpus.dedup();
            Frequency { cpus, ..setting }
        })
        .collect();
    all.sort_by(|a, b| a.cpus.cmp(&b.cpus));
    all
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn cpus_that_are_set_alike_are_one_set() {
        let root = std::env::temp_dir().join(format!("biopsy-frequency-{}", std::process::id()));
        let policy = |number: u32, cpus: &str, governor: &str| {
            let directory = root.join(format!("sys/devices/system/cpu/cpufreq/policy{number}"));
            fs::create_dir_all(&directory).unwrap();
            let files = [
                ("affected_cpus", cpus),
                ("scaling_driver", "acpi-cpufreq"),
                ("scaling_governor", governor),
                ("scaling_min_freq", "1500000"),
                ("cpuinfo_max_freq", "0"),
                ("scaling_max_freq", "<unknown>"),
            ];
            files
                .iter()
                .for_each(|(name, text)| fs::write(directory.join(name), format!("{text}\n")).unwrap());
        };
        assert_eq!(frequencies(&root), []);
        policy(0, "0 2", "schedutil");
        policy(10, "1 3", "schedutil");
        policy(4, "4", "powersave");
        policy(5, "", "powersave");
        policy(6, "6-x", "powersave");
        let found = frequencies(&root);
        fs::remove_dir_all(&root).unwrap();
        let sets: Vec<_> =
            found.iter().map(|set| (set.governor.as_deref().unwrap(), &set.cpus[..])).collect();
        assert_eq!(sets, [("schedutil", &[0, 1, 2, 3][..]), ("powersave", &[4][..])]);
        assert_eq!(
            (found[0].min_khz, found[0].max_khz, found[0].hardware_max_khz),
            (Some(1_500_000), None, None)
        );
        assert_eq!(found[1].held_khz(), None, "nobody knows that they could run faster");
    }

    #[test]
    fn powersave_holds_cpus_back_only_where_the_governor_decides() {
        let set = |driver: &str, governor: &str| Frequency {
            driver: Some(driver.into()),
            governor: Some(governor.into()),
            min_khz: Some(1_500_000),
            hardware_max_khz: Some(3_400_000),
            ..Frequency::default()
        };
        for driver in ["acpi-cpufreq", "intel_cpufreq", "amd-pstate", "cppc_cpufreq"] {
            assert_eq!(set(driver, "powersave").held_khz(), Some(1_500_000), "{driver}");
            assert_eq!(set(driver, "schedutil").held_khz(), None, "{driver}");
        }
        for driver in THEIR_OWN {
            assert_eq!(set(driver, "powersave").held_khz(), None, "{driver}");
        }
        let fast = Frequency { min_khz: Some(3_400_000), ..set("acpi-cpufreq", "powersave") };
        assert_eq!(fast.held_khz(), None, "the lowest is the highest");
        assert_eq!(Frequency { driver: None, ..set("", "powersave") }.held_khz(), None);
    }
}
