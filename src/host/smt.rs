//! Reads which CPUs share a core (SMT), and whether the kernel allows it.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attribute::{flag, text};
use super::cpu;

/// Simultaneous multithreading.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Smt {
    /// `on`, `off`, `forceoff` (until the next boot), `notsupported` (by the CPU), `notimplemented`.
    pub control: Option<String>,
    /// Whether a core now runs more than one thread.
    pub active: Option<bool>,
    /// Online physical cores; None if the kernel does not give the core of each CPU.
    pub cores: Option<u32>,
    /// The CPUs of each core with several threads.
    pub siblings: Vec<Vec<u32>>,
}

impl Smt {
    /// Reads the state of the online CPUs.
    pub fn read(root: &Path, online: &[u32]) -> Self {
        let directory = root.join("sys/devices/system/cpu/smt");
        let told = online.iter().map(|cpu| cpu::threads(root, *cpu)).collect::<Option<Vec<_>>>();
        let mut cores = told.unwrap_or_default();
        cores.sort();
        cores.dedup();
        Self {
            control: text(&directory.join("control")),
            active: flag(&directory.join("active")),
            cores: u32::try_from(cores.len()).ok().filter(|cores| *cores > 0),
            siblings: cores.into_iter().filter(|threads| threads.len() > 1).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn cores_are_counted_where_every_cpu_tells_of_its_own() {
        let root = std::env::temp_dir().join(format!("biopsy-smt-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join("sys/devices/system/cpu").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(Smt::read(&root, &[0, 1]), Smt::default());
        write("smt/control", "on\n");
        write("smt/active", "1\n");
        for (cpu, threads) in [(0, "0,2\n"), (1, "1\n"), (2, "0,2\n")] {
            write(&format!("cpu{cpu}/topology/core_cpus_list"), threads);
        }
        let smt = Smt::read(&root, &[0, 1, 2]);
        assert_eq!((smt.control.as_deref(), smt.active, smt.cores), (Some("on"), Some(true), Some(2)));
        assert_eq!(smt.siblings, [[0, 2]]);
        let smt = Smt::read(&root, &[0, 1, 2, 3]);
        assert_eq!((smt.cores, smt.siblings.len()), (None, 0), "of CPU 3 nothing is known");
        fs::remove_dir_all(&root).unwrap();
    }
}
