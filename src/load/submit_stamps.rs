//! Publishes when a generator thread submits and reaps, to the latency programs of the same process. With these stamps,
//! operations that the programs see begin and end exactly where the generator's own do: those of io_uring and of
//! blocking system calls. Operations of libaio begin and end with its system calls.

use std::sync::atomic::Ordering;

use crate::wire::generator::WireGenerator;

/// The calling thread's slot in the memory shared with the programs.
#[derive(Debug)]
pub struct SubmitStamps<'a>(&'a WireGenerator);

impl<'a> SubmitStamps<'a> {
    /// Takes the slot of the calling thread; None: another thread has it.
    pub fn new(places: &'a [WireGenerator]) -> Option<Self> {
        // SAFETY: takes nothing and always succeeds.
        let tid = u32::try_from(unsafe { libc::gettid() }).ok()?;
        let place = places.get(tid as usize % places.len().max(1))?;
        // Sets `tid` last: the programs ignore the stamps of a free slot.
        place.tid.compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(Self(place))
    }

    /// The operations of the next system call count as submitted from `ns` on.
    #[inline]
    pub fn handed(&self, ns: u64) {
        self.0.handed.store(ns, Ordering::Release);
    }

    /// Completions that are there now are reaped with this stamp. A check that finds none must not be published: the
    /// programs would take it for the one that reaped earlier completions.
    #[inline]
    pub fn looked(&self, ns: u64) {
        self.0.looked.store(ns, Ordering::Release);
    }
}

impl Drop for SubmitStamps<'_> {
    /// The programs notice a stamp at the thread's next system call.
    fn drop(&mut self) {
        self.0.handed.store(0, Ordering::Release);
        // SAFETY: touches no memory. It fails, since there is no such descriptor; only the system call itself matters.
        unsafe { libc::fdatasync(-1) };
        self.0.looked.store(0, Ordering::Release);
        self.0.tid.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Vec<WireGenerator> {
        (0..8).map(|_| WireGenerator::default()).collect()
    }

    #[test]
    fn a_place_is_one_thread_s_while_it_has_it() {
        let places = places();
        let taken = || places.iter().filter(|place| place.tid.load(Ordering::Relaxed) != 0).count();
        let first = SubmitStamps::new(&places).unwrap();
        assert!(SubmitStamps::new(&places).is_none(), "this thread's place is taken");
        first.handed(5);
        first.looked(7);
        let stamps = |stamp: fn(&WireGenerator) -> u64| places.iter().map(stamp).sum::<u64>();
        assert_eq!((taken(), stamps(|p| p.handed.load(Ordering::Relaxed))), (1, 5));
        assert_eq!(stamps(|p| p.looked.load(Ordering::Relaxed)), 7);
        drop(first);
        assert_eq!((taken(), stamps(|p| p.handed.load(Ordering::Relaxed))), (0, 0));
        assert!(SubmitStamps::new(&places).is_some());
    }

    #[test]
    fn without_places_there_is_no_beacon() {
        assert!(SubmitStamps::new(&[]).is_none());
    }
}
