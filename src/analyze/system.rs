//! Records the machine's state besides the traced I/O: CPU time, CPU quotas, and each device's rate every 100 ms.
//! Recordings contain it, for a later diagnosis.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cpu::{CounterTotals, CpuSummary};
use super::rates::{DeviceRates, DeviceWindows};
use crate::envelope::View;
use crate::host::cpu_quota::CpuQuota;
use crate::merge::{Merge, Summary, how, merge_fields, row};

/// The system in a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SystemSummary {
    pub duration_ns: u64,
    pub cpu: CpuSummary,
    /// Sums over all CPUs.
    pub counted: CounterTotals,
    pub context_switches: Option<u64>,
    /// Processes and threads that were made.
    pub forks: Option<u64>,
    pub wakeups: Option<u64>,
    /// The cgroups with a CPU quota.
    pub cpu_quotas: Vec<CpuQuota>,
    /// The devices that ever did something.
    pub devices: Vec<DeviceWindows>,
}

impl View for SystemSummary {
    const SCHEMA: &'static str = "biopsy.system/1";
    const HAS_DURATION: bool = true;
}

impl SystemSummary {
    pub fn new(cpu: CpuSummary, cpu_quotas: Vec<CpuQuota>, devices: Vec<DeviceWindows>) -> Self {
        Self {
            duration_ns: cpu.duration_ns,
            counted: cpu.counted.clone(),
            context_switches: cpu.context_switches,
            forks: cpu.processes,
            wakeups: cpu.wakeups,
            cpu,
            cpu_quotas,
            devices,
        }
    }

    /// With the sums that its JSON keeps separately.
    pub fn cpu(&self) -> CpuSummary {
        CpuSummary {
            counted: self.counted.clone(),
            context_switches: self.context_switches,
            processes: self.forks,
            wakeups: self.wakeups,
            ..self.cpu.clone()
        }
    }

    pub fn rates(&self) -> Vec<DeviceRates> {
        DeviceRates::of_all(self.devices.iter().cloned())
    }
}

merge_fields!(SystemSummary {
    add: duration_ns cpu;
    add: counted;
    both: context_switches forks wakeups;
    rows: cpu_quotas devices;
});

/// Windows of all devices together: 10 minutes of 40 devices.
const MOST_WINDOWS: usize = 40 * DeviceWindows::MOST;

impl Merge for SystemSummary {
    fn merge_with(&mut self, later: &Self) {
        self.merge_fields(later);
        let most = MOST_WINDOWS / self.devices.len().max(1);
        self.devices.iter_mut().for_each(|device| device.keep_last(most));
    }
}

row!(CpuQuota, String, |quota| quota.cgroup.clone());

impl Merge for CpuQuota {
    /// A changed quota is that of the later interval.
    fn merge_with(&mut self, later: &Self) {
        let throttled = self.throttled_periods.saturating_add(later.throttled_periods);
        let mut processes = std::mem::take(&mut self.processes);
        how::each(&mut processes, &later.processes);
        *self = Self { throttled_periods: throttled, processes, ..later.clone() };
    }
}

impl Summary for SystemSummary {
    fn settle(&mut self) {
        self.cpu.settle();
        self.cpu_quotas.iter_mut().for_each(|quota| quota.processes.sort_unstable());
    }

    /// Nothing to prefix: CPUs belong to a whole machine.
    fn name_host(&mut self, _: &str) {}

    fn window(&mut self) -> Option<&mut u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::cpu::{CpuLeftOut, CpuRow};
    use crate::analyze::rates::RateInterval;

    fn row(cpus: &[u32], wall_ns: u64, system_ns: u64, cycles: Option<u64>) -> CpuRow {
        let times = [0, 0, system_ns, 0, 0, 0, wall_ns - system_ns];
        CpuRow { cpus: cpus.to_vec(), wall_ns, times, cycles, error_ns: 80, ..CpuRow::default() }
    }

    fn system(cycles: Option<u64>) -> SystemSummary {
        let rows = vec![row(&[0], 1_000, 300, cycles), row(&[1], 1_000, 100, cycles)];
        let cpu = CpuSummary {
            duration_ns: 1_000,
            all: Some(row(&[0, 1], 2_000, 400, cycles)),
            cores: rows.clone(),
            cpus: rows,
            counted: CounterTotals {
                counter: Some("cycles".to_string()),
                kernel_cycles: cycles,
                counted_share: Some(if cycles.is_some() { 1.0 } else { 0.5 }),
                ..CounterTotals::default()
            },
            context_switches: Some(7),
            ..CpuSummary::default()
        };
        let quota = CpuQuota {
            cgroup: "/a".to_string(),
            throttled_periods: 2,
            processes: vec![9, 4],
            ..CpuQuota::default()
        };
        let windows =
            vec![RateInterval { seconds: 0.1, ios: 5, busy_seconds: 0.05, ..RateInterval::default() }; 10];
        SystemSummary::new(cpu, vec![quota], vec![DeviceWindows { name: "vda".to_string(), windows }])
    }

    #[test]
    fn it_is_read_back_as_it_was() {
        let system = system(Some(11));
        let json = serde_json::to_string(&system).unwrap();
        let read: SystemSummary = serde_json::from_str(&json).unwrap();
        assert_eq!((read.cpu(), read.rates()), (system.cpu(), system.rates()));
        assert_eq!(read.cpu().context_switches, Some(7));
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
    }

    #[test]
    fn intervals_are_merged() {
        let mut whole = system(Some(11));
        whole.merge_with(&system(Some(4)));
        whole.settle();
        let cpu = whole.cpu();
        assert_eq!(cpu.duration_ns, 2_000);
        assert_eq!((cpu.cpus[0].times[2], cpu.cpus[0].wall_ns, cpu.cpus[1].cycles), (600, 2_000, Some(15)));
        // The time between two intervals belongs to neither.
        assert_eq!((cpu.cpus[0].error_ns, cpu.all.as_ref().unwrap().times[2]), (80, 800));
        assert_eq!((cpu.counted.kernel_cycles, cpu.context_switches), (Some(15), Some(14)));
        assert_eq!(
            (whole.cpu_quotas[0].throttled_periods, &whole.cpu_quotas[0].processes[..]),
            (4, &[4, 9][..])
        );
        assert_eq!(whole.devices[0].windows.len(), 20);
        // A partial count counts as none.
        whole.merge_with(&system(None));
        assert_eq!((whole.cpu().counted.kernel_cycles, whole.cpu().cpus[0].cycles), (None, None));
        assert_eq!(whole.counted.counted_share, Some(0.5));
    }

    #[test]
    fn a_cpu_that_was_not_there_all_the_time_has_no_row() {
        let (mut whole, mut later) = (system(Some(1)), system(Some(1)));
        later.cpu.cpus.pop();
        later.cpu.left_out.push(CpuLeftOut { cpu: 1, why: "it went offline during the run".into() });
        whole.merge_with(&later);
        whole.settle();
        assert_eq!(whole.cpu.cpus.iter().map(|row| row.cpus[0]).collect::<Vec<_>>(), [0]);
        assert_eq!(whole.cpu.left_out.len(), 1);
    }

    #[test]
    fn a_core_has_one_row_whichever_of_its_cpus_were_there() {
        let of_core = |cpus: &[CpuRow]| {
            let ids: Vec<u32> = cpus.iter().flat_map(|row| &row.cpus).copied().collect();
            let times = cpus.iter().map(|row| row.times[2]).sum();
            CpuRow { socket: Some(0), ..row(&ids, 1_000 * cpus.len() as u64, times, None) }
        };
        let interval = |cpus: &[CpuRow], left_out: Vec<CpuLeftOut>| {
            let core = of_core(cpus);
            let rows = cpus.iter().map(|row| CpuRow { socket: Some(0), ..row.clone() }).collect();
            let cores = vec![core.clone(), row(&[7], 1_000, 5, None)];
            let cpus = [rows, vec![row(&[7], 1_000, 5, None)]].concat();
            let all = Some(of_core(&cpus));
            let cpu = CpuSummary {
                duration_ns: 1_000,
                all,
                cores,
                sockets: vec![core],
                cpus,
                left_out,
                ..CpuSummary::default()
            };
            SystemSummary::new(cpu, Vec::new(), Vec::new())
        };
        let [one, other] = [row(&[0], 1_000, 300, None), row(&[1], 1_000, 100, None)];
        let both = interval(&[one.clone(), other], Vec::new());
        let goes =
            interval(std::slice::from_ref(&one), vec![CpuLeftOut { cpu: 1, why: "it went offline".into() }]);
        let without = interval(&[one], Vec::new());
        // A CPU may also go and come between two intervals.
        for intervals in [vec![&both, &goes, &both], vec![&both, &without], vec![&without, &both, &without]] {
            let mut whole = SystemSummary::default();
            whole.cpu.all = Some(CpuRow::default());
            intervals.iter().for_each(|interval| whole.merge_with(interval));
            whole.settle();
            let (cpu, n) = (&whole.cpu, intervals.len() as u64);
            for rows in [&cpu.cpus, &cpu.cores] {
                let seen: Vec<_> =
                    rows.iter().map(|row| (&row.cpus[..], row.wall_ns, row.times[2])).collect();
                assert_eq!(seen, [(&[0][..], n * 1_000, n * 300), (&[7], n * 1_000, n * 5)]);
            }
            assert_eq!(cpu.sockets.iter().map(|row| &row.cpus[..]).collect::<Vec<_>>(), [&[0][..]]);
            assert_eq!(cpu.all.as_ref().map(|row| (row.wall_ns, row.times[2])), Some((n * 2_000, n * 305)));
            assert_eq!(cpu.left_out.iter().map(|gone| gone.cpu).collect::<Vec<_>>(), [1]);
        }
    }
}
