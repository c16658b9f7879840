//! Finds the address ranges of the kernel's scheduler.

use std::collections::HashMap;
use std::fs;

/// Address ranges of the kernel's scheduler and of functions that wait on behalf of others. A thread's wait channel is
/// the first frame outside of them, as for the kernel's own `wchan`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scheduler {
    /// First address, and the address after the last one.
    pub ranges: Vec<(u64, u64)>,
}

impl Scheduler {
    /// Uses the kernel's own marks (`__sched` and `__lockfunc`) in `/proc/kallsyms`; empty if it shows no addresses.
    pub fn read() -> Self {
        fs::read("/proc/kallsyms").map_or_else(|_| Self::default(), |symbols| Self::of(&symbols))
    }

    fn of(symbols: &[u8]) -> Self {
        let mut marks: HashMap<&[u8], u64> = HashMap::new();
        for line in symbols.split(|&b| b == b'\n') {
            // `ffffffff81c00000 T __sched_text_start`
            let Some(name) =
                line.get(19..).filter(|name| name.ends_with(b"_start") || name.ends_with(b"_end"))
            else {
                continue;
            };
            if !name.starts_with(b"__sched_text_") && !name.starts_with(b"__lock_text_") {
                continue;
            }
            let address =
                std::str::from_utf8(&line[..16]).ok().and_then(|hex| u64::from_str_radix(hex, 16).ok());
            marks.extend(address.filter(|address| *address > 0).map(|address| (name, address)));
        }
        let range = |start: &str, end: &str| {
            Some((*marks.get(start.as_bytes())?, *marks.get(end.as_bytes())?))
                .filter(|(start, end)| start < end)
        };
        let all =
            [range("__sched_text_start", "__sched_text_end"), range("__lock_text_start", "__lock_text_end")];
        Self { ranges: all.into_iter().flatten().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_is_between_its_marks() {
        let symbols = b"ffffffff81000000 T _stext\nffffffff82000000 T __sched_text_start\n\
            ffffffff82001000 T __sched_text_end\nffffffff82001000 T __lock_text_start\n\
            ffffffff82001000 T __lock_text_end\nshort\n";
        assert_eq!(Scheduler::of(symbols).ranges, [(0xffff_ffff_8200_0000, 0xffff_ffff_8200_1000)]);
        let hidden = b"0000000000000000 T __sched_text_start\n0000000000000000 T __sched_text_end\n";
        assert_eq!(Scheduler::of(hidden), Scheduler::default());
    }
}
