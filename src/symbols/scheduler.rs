//! Finds the address ranges of the kernel's scheduler.

use super::kernel;
use crate::host::kallsyms::Kallsyms;

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
        Self::of(&kernel::table())
    }

    fn of(symbols: &Kallsyms) -> Self {
        let range = |start, end| {
            Some((symbols.function(start)?, symbols.function(end)?)).filter(|(start, end)| start < end)
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
        let symbols = "ffffffff81000000 T _stext\nffffffff82000000 T __sched_text_start\n\
            ffffffff82001000 T __sched_text_end\nffffffff82001000 T __lock_text_start\n\
            ffffffff82001000 T __lock_text_end\nshort\n";
        assert_eq!(
            Scheduler::of(&Kallsyms::parse(symbols)).ranges,
            [(0xffff_ffff_8200_0000, 0xffff_ffff_8200_1000)]
        );
        let hidden = "0000000000000000 T __sched_text_start\n0000000000000000 T __sched_text_end\n";
        assert_eq!(Scheduler::of(&Kallsyms::parse(hidden)), Scheduler::default());
    }
}
