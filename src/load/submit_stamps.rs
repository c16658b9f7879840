//! What a thread of the generator says to the latency programs of the same process: when it hands in, and when
//! it looks for results. With that the operations that they see begin and end where the generator's own do: those
//! of io_uring and of system calls that wait. libaio's begin and end with its system calls.

use std::sync::atomic::Ordering;

use crate::wire::generator::WireGenerator;

/// The calling thread's place among those that are shared with the programs.
#[derive(Debug)]
pub struct SubmitStamps<'a>(&'a WireGenerator);

impl<'a> SubmitStamps<'a> {
    /// Takes the place of the calling thread; None: another thread has it.
    pub fn new(places: &'a [WireGenerator]) -> Option<Self> {
        // SAFETY: takes nothing and always succeeds.
        let tid = u32::try_from(unsafe { libc::gettid() }).ok()?;
        let place = places.get(tid as usize % places.len().max(1))?;
        // Before the place is the thread's: the programs do not look at the stamps of a free one.
        place.tid.compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(Self(place))
    }

    /// From this moment on what the next system call carries is handed in.
    #[inline]
    pub fn handed(&self, ns: u64) {
        self.0.handed.store(ns, Ordering::Release);
    }

    /// The results that are there are taken with this stamp. A look that finds none is not told: the programs would
    /// take it for the one that found what came before.
    #[inline]
    pub fn looked(&self, ns: u64) {
        self.0.looked.store(ns, Ordering::Release);
    }
}

impl Drop for SubmitStamps<'_> {
    /// The programs learn of a look by the next system call of the thread.
    fn drop(&mut self) {
        self.0.handed.store(0, Ordering::Release);
        // SAFETY: touches no memory. It fails, as there is no such descriptor, and that is all it is to do.
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
