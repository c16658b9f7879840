//! Counts samples by batch, and estimates averages with their error.

use super::ThreadShare;
use crate::wire::threads::ThreadSamples;

/// With fewer batches of equal length the spread is unknown.
const LEAST_BATCHES: usize = 8;

/// Number of samples by batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchCounts(Vec<u64>);

impl BatchCounts {
    pub fn add(&mut self, batch: usize, n: u64) {
        if self.0.len() <= batch {
            self.0.resize(batch + 1, 0);
        }
        self.0[batch] += n;
    }

    pub fn merge(&mut self, other: &Self) {
        other.0.iter().enumerate().for_each(|(batch, n)| self.add(batch, *n));
    }

    /// The average over the whole interval.
    pub fn share(&self, sampled: &ThreadSamples) -> ThreadShare {
        let samples: u64 = self.0.iter().sum();
        let rounds = sampled.rounds.max(1) as f64;
        ThreadShare { samples, average_threads: samples as f64 / rounds, error: self.error(sampled) }
    }

    /// From the spread of the batches' averages: rounds are not independent, because a thread's state lasts longer than
    /// a round, but batches nearly are.
    fn error(&self, sampled: &ThreadSamples) -> Option<f64> {
        let full = sampled.batches.iter().map(|batch| batch.rounds).max()?;
        let of = |(at, rounds): (usize, u64)| self.0.get(at).copied().unwrap_or(0) as f64 / rounds as f64;
        let whole = sampled.batches.iter().enumerate().filter(|(_, batch)| batch.rounds == full);
        let averages: Vec<f64> = whole.map(|(at, batch)| of((at, batch.rounds))).collect();
        if averages.len() < LEAST_BATCHES {
            return None;
        }
        let n = averages.len() as f64;
        let mean = averages.iter().sum::<f64>() / n;
        let variance = averages.iter().map(|average| (average - mean).powi(2)).sum::<f64>() / (n - 1.0);
        // Student's factor for 95 %, from 2.37 for 8 batches to 2.05 for 32.
        let student = 1.96 + 2.83 / (n - 1.0);
        Some(student * (variance / n).sqrt())
    }
}
