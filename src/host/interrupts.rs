//! Reads the kernel's own counters of interrupts, against which biopsy checks its counts.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::attribute::file;

/// The content of `/proc/interrupts` at one time. Its counters have 32 bits and wrap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// By number.
    pub lines: BTreeMap<u32, InterruptLine>,
    /// Lines with a name in place of a number (`PMN`, `CAL`, `LOC`), by CPU.
    pub named: BTreeMap<String, BTreeMap<u32, u32>>,
}

/// An interrupt with a number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterruptLine {
    /// By CPU; offline CPUs are absent.
    pub counts: BTreeMap<u32, u32>,
    /// A message-signalled interrupt, not a pin.
    pub msi: bool,
}

impl Interrupts {
    /// Fails if the file cannot be read or has no header of CPUs.
    pub fn read(root: &Path) -> io::Result<Self> {
        let text = file(&root.join("proc/interrupts"))?;
        Self::parse(&text)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its first line names no CPU"))
    }

    /// Parses the table; lines of another form are left out.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let cpus: Vec<u32> = lines
            .next()?
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
            .collect();
        if cpus.is_empty() {
            return None;
        }
        let mut all = Self::default();
        for line in lines {
            let Some((label, rest)) = line.split_once(':') else { continue };
            let mut words = rest.split_whitespace().peekable();
            let mut counts = BTreeMap::new();
            for cpu in &cpus {
                // A line for the whole machine (`ERR: 0`) has fewer counts.
                let Some(count) = words.peek().and_then(|word| word.parse::<u64>().ok()) else { break };
                words.next();
                counts.insert(*cpu, count as u32);
            }
            let label = label.trim();
            if let Ok(number) = label.parse() {
                // The interrupt controller is the first word after the counts: `PCI-MSIX-0000:00:04.0`, `IR-PCI-MSI`.
                let msi = words.peek().is_some_and(|chip| chip.contains("MSI"));
                all.lines.insert(number, InterruptLine { counts, msi });
            } else {
                all.named.insert(label.to_string(), counts);
            }
        }
        Some(all)
    }

    /// The number of interrupts of this number since `earlier`, by CPU. None if one of the two readings lacks it, if
    /// the counter restarted, or if a CPU went online or offline: the table omits offline CPUs with all their counts.
    pub fn since(&self, earlier: &Self, number: u32) -> Option<BTreeMap<u32, u64>> {
        grown(&self.lines.get(&number)?.counts, &earlier.lines.get(&number)?.counts)
    }

    /// The sum over all CPUs.
    pub fn total_since(&self, earlier: &Self, number: u32) -> Option<u64> {
        Some(self.since(earlier, number)?.values().sum())
    }

    /// Whether the counter of this number restarted since `earlier`: a driver freed the interrupt and requested it
    /// again (a reset of NVMe), so the count of some CPU is lower than before.
    pub fn restarted_since(&self, earlier: &Self, number: u32) -> bool {
        let counts = |of: &Self| of.lines.get(&number).map(|line| line.counts.clone());
        let (Some(now), Some(then)) = (counts(self), counts(earlier)) else { return false };
        now.iter().any(|(cpu, n)| then.get(cpu).is_some_and(|then| n.wrapping_sub(*then) >= 1 << 31))
    }

    /// The increase of a line with a name.
    pub fn named_since(&self, earlier: &Self, name: &str) -> Option<u64> {
        Some(grown(self.named.get(name)?, earlier.named.get(name)?)?.values().sum())
    }

    /// All message-signalled interrupts since `earlier`, without those that were added or removed in between.
    pub fn messages_since(&self, earlier: &Self) -> u64 {
        let messages = self.lines.iter().filter(|(_, line)| line.msi);
        messages.filter_map(|(number, _)| self.total_since(earlier, *number)).sum()
    }
}

fn grown(now: &BTreeMap<u32, u32>, then: &BTreeMap<u32, u32>) -> Option<BTreeMap<u32, u64>> {
    let same = now.len() == then.len() && now.keys().eq(then.keys());
    // A driver that freed its vector and requested it again (a reset of NVMe) starts at 0: that is not a wrap.
    let grown = |(cpu, n): (&u32, &u32)| {
        let grown = n.wrapping_sub(*then.get(cpu)?);
        (grown < 1 << 31).then_some((*cpu, u64::from(grown)))
    };
    if same { now.iter().map(grown).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
           CPU0       CPU2
  9:          0          4   IO-APIC   9-fasteoi   acpi
 24: 4294967290         17  PCI-MSIX-0000:00:04.0   1-edge      nvme0q1
PMN:        100        200   Posted MSI notification event
ERR:          7
MIS:          0
garbage
";

    #[test]
    fn counts_are_by_cpu_and_wrap() {
        let before = Interrupts::parse(TABLE).unwrap();
        assert_eq!(before.lines[&24].counts, BTreeMap::from([(0, 4_294_967_290), (2, 17)]));
        assert!(before.lines[&24].msi && !before.lines[&9].msi);
        let after = Interrupts::parse(&TABLE.replace("4294967290", "4").replace(" 17 ", " 20 ")).unwrap();
        assert_eq!(after.since(&before, 24), Some(BTreeMap::from([(0, 10), (2, 3)])));
        assert_eq!(after.messages_since(&before), 13);
        assert_eq!(after.named_since(&before, "PMN"), Some(0));
        assert_eq!(before.named["ERR"], BTreeMap::from([(0, 7)]));
    }

    #[test]
    fn absent_is_absent() {
        let table = Interrupts::parse(TABLE).unwrap();
        assert_eq!(table.since(&table, 25), None);
        assert_eq!(table.named_since(&table, "CAL"), None);
        for text in ["", "\n", "no header\n 1: 2\n", "CPUx\n"] {
            assert_eq!(Interrupts::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_counter_that_is_lower_than_it_was_was_begun_anew() {
        let before = Interrupts::parse(TABLE).unwrap();
        // From 2^32 - 6 to 4 is a wrap; from 17 to 3 is a restart.
        let wrapped = Interrupts::parse(&TABLE.replace("4294967290", "4")).unwrap();
        assert!(!wrapped.restarted_since(&before, 24));
        let anew = Interrupts::parse(&TABLE.replace(" 17 ", " 3 ")).unwrap();
        assert!(anew.restarted_since(&before, 24) && !anew.restarted_since(&before, 9));
        assert!(!anew.restarted_since(&before, 25), "nobody knows it");
    }

    #[test]
    fn a_counter_that_begins_anew_tells_nothing() {
        let (before, after) = ("CPU0\n 1: 1000000\n", "CPU0\n 1: 500\n");
        let read = |text| Interrupts::parse(text).unwrap();
        assert_eq!(read(after).total_since(&read(before), 1), None);
    }

    /// The table omits the counts of offline CPUs.
    #[test]
    fn with_other_cpus_nothing_is_said() {
        let before = Interrupts::parse("CPU0\n 1: 5\n").unwrap();
        let after = Interrupts::parse("CPU0 CPU1\n 1: 7 900\n").unwrap();
        assert_eq!((after.total_since(&before, 1), before.total_since(&after, 1)), (None, None));
    }
}
