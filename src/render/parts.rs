//! Parts of stages in words, for the pages of a diagnosis.

use crate::analyze::latency::OpLatency;
use crate::analyze::stage::Stage;
use crate::hist::Histogram;
use crate::units::{count, time};

/// `alloc 12.1 µs in 1,204 (80 %)`: each measured part, with its share of the stage's whole time. Parts that did not
/// occur are left out, so the shares need not add up to 100 %.
pub fn of_stages(latency: &OpLatency) -> Vec<(Stage, Vec<String>)> {
    let (_, stages) = latency.stages();
    let parts = |stage: &Stage| {
        let all = stages.get(stage).map(Histogram::sum).filter(|all| *all > 0)?;
        let of_stage = latency.parts().get(stage).into_iter().flatten();
        let words = of_stage.filter_map(|(part, hist)| {
            let share = hist.sum() as f64 / all as f64 * 100.0;
            let mean = time(hist.mean()? as u64);
            Some(format!("{} {mean} in {} ({share:.0} %)", part.name(), count(hist.count())))
        });
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then_some((*stage, words))
    };
    Stage::ALL.iter().filter_map(parts).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::parts::Part;

    #[test]
    fn a_part_is_a_share_of_its_stage() {
        let hist = |ns: u64, n: usize| std::iter::repeat_n(ns, n).collect::<Histogram>();
        let mut latency = OpLatency {
            request_stages: BTreeMap::from([
                (Stage::Queue, hist(10_000, 1000)),
                (Stage::Device, hist(90_000, 1000)),
            ]),
            ..OpLatency::default()
        };
        assert!(of_stages(&latency).is_empty(), "nobody took them apart");
        latency.request_parts = BTreeMap::from([(
            Stage::Queue,
            BTreeMap::from([(Part::Alloc, hist(32_000, 250)), (Part::Plug, hist(2_000, 1000))]),
        )]);
        let expected =
            ["alloc 32.0 µs in 250 (80 %)", "plug 2.00 µs in 1,000 (20 %)"].map(String::from).to_vec();
        assert_eq!(of_stages(&latency), [(Stage::Queue, expected)]);
    }
}
