//! Tests what is reported when names are missing.

use super::*;

/// A process that cannot exist: above the highest pid of Linux.
const ENDED: u32 = 1 << 30;

/// Without the kernel's records, exited processes have no names: the report has the reason and the remedy.
#[test]
fn records_that_were_refused_have_a_reason_and_a_remedy() {
    for (why, reason, remedy) in [
        (NoRecords::LockedMemory, "locked memory", "CAP_IPC_LOCK"),
        (NoRecords::Refused, "perf events", "CAP_PERFMON"),
        (NoRecords::PidNamespace, "pid namespace", "pid namespace of the host"),
    ] {
        let user = BTreeMap::from([(ENDED, BTreeSet::from([1]))]);
        let mut addresses = Addresses { user, ..Addresses::default() };
        addresses.maps.set_no_records(Some(why));
        let names = Symbolizer::new(Helper::at("/nonexistent")).names(&addresses);
        let [missing] = names.missing.as_slice() else { panic!("{:?}", names.missing) };
        assert!(missing.why.contains(reason), "{}", missing.why);
        assert!(missing.remedy.as_ref().is_some_and(|text| text.contains(remedy)), "{missing:?}");
    }
}
