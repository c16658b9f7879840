//! Shares one table of kernel symbols among all symbolizers of this process.
//!
//! Uses only the running kernel's own list: a vmlinux file on disk may be of another build, and its line tables would
//! take longer to read than the measurement took.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::host::kallsyms::Kallsyms;

/// Age at which a table is not shared any more, since modules and BPF programs may have been loaded. The views of a
/// recorder need theirs at the end of the first interval, all at once; to read one takes 30 ms of CPU time, and to keep
/// it 5 MB.
const FRESH: Duration = Duration::from_secs(5);

/// The last table that was read, if a symbolizer still has it, and when it was read.
static LAST: Mutex<Option<(Instant, Weak<Kallsyms>)>> = Mutex::new(None);

pub(super) fn table() -> Arc<Kallsyms> {
    // Held during the read, so that others wait for it and do not read as well.
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = last.as_ref().filter(|(read_at, _)| read_at.elapsed() < FRESH);
    if let Some(table) = fresh.and_then(|(_, table)| table.upgrade()) {
        return table;
    }
    let table = Arc::new(Kallsyms::read(Path::new("/")));
    *last = Some((Instant::now(), Arc::downgrade(&table)));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_at_the_same_time_share_one() {
        let (one, other) = (table(), table());
        // Of another test that runs meanwhile, at most one of the two is older than it may be.
        assert!(Arc::ptr_eq(&one, &other) || Arc::ptr_eq(&other, &table()));
    }
}
