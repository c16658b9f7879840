//! Reads `/proc/zoneinfo`: the watermarks of each zone, below which the kernel reclaims.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attribute::file;

/// A zone of a node, in pages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Zone {
    #[serde(skip)]
    pub node: u32,
    /// `DMA32`, `Normal`.
    #[serde(rename = "zone")]
    pub name: String,
    pub free_pages: Option<u64>,
    /// Below this watermark a task has to reclaim by itself.
    pub min_pages: Option<u64>,
    /// Below this watermark kswapd wakes up.
    pub low_pages: Option<u64>,
    /// Above this watermark kswapd goes to sleep.
    pub high_pages: Option<u64>,
    pub managed_pages: Option<u64>,
}

impl Zone {
    /// The zones with pages, in the kernel's order; none if the file cannot be read.
    pub fn read(root: &Path) -> Vec<Self> {
        file(&root.join("proc/zoneinfo")).map_or_else(|_| Vec::new(), |text| Self::parse(&text))
    }

    pub fn parse(text: &str) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        // The lists of per-CPU pages that follow use the same words.
        let mut done = true;
        for line in text.lines() {
            if let Some(zone) = line.strip_prefix("Node ").and_then(head) {
                all.push(zone);
                done = false;
                continue;
            }
            let Some(zone) = all.last_mut().filter(|_| !done) else { continue };
            let mut words = line.split_whitespace();
            let place = match words.next() {
                Some("pages") if words.next() == Some("free") => &mut zone.free_pages,
                Some("min") => &mut zone.min_pages,
                Some("low") => &mut zone.low_pages,
                Some("high") => &mut zone.high_pages,
                Some("managed") => &mut zone.managed_pages,
                Some("pagesets") => {
                    done = true;
                    continue;
                }
                _ => continue,
            };
            *place = words.next().and_then(|word| word.parse().ok());
        }
        all.retain(|zone| zone.managed_pages != Some(0));
        all
    }
}

/// Parses `0, zone Normal`.
fn head(rest: &str) -> Option<Zone> {
    let (node, zone) = rest.split_once(',')?;
    let name = zone.trim().strip_prefix("zone")?.trim();
    let node = node.trim().parse().ok()?;
    (!name.is_empty()).then(|| Zone { node, name: name.to_string(), ..Zone::default() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 97492\n  pages free     3840\n\
        \x20       boost    0\n        min      10\n        low      13\n        high     16\n        promo    19\n\
        \x20       spanned  4095\n        present  3998\n        managed  3840\n        cma      0\n  pagesets\n\
        \x20   cpu: 0\n              count:    0\n              high:     9\n\
        Node 0, zone   Device\n  pages free     0\n        min      0\n        managed  0\n\
        Node 1, zone   Normal\n  pages free     x\n        min      -3\n        low      7\n        managed  9\n";

    #[test]
    fn the_watermarks_of_each_zone_with_pages_are_read() {
        let zones = Zone::parse(TEXT);
        assert_eq!(zones.len(), 2, "{zones:?}");
        let dma = &zones[0];
        assert_eq!((dma.node, dma.name.as_str(), dma.free_pages), (0, "DMA", Some(3840)));
        assert_eq!((dma.min_pages, dma.low_pages, dma.high_pages), (Some(10), Some(13), Some(16)));
        let damaged = &zones[1];
        assert_eq!((damaged.node, damaged.free_pages, damaged.min_pages), (1, None, None));
        assert_eq!((damaged.low_pages, damaged.high_pages), (Some(7), None));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in "(Node [0-9]{1,11}, zone [A-Z]{0,5}\n|  pages free [0-9x]{1,21}\n|\\PC{0,20}\n){0,20}") {
            prop_assert!(Zone::parse(&text).len() <= text.lines().count());
        }
    }
}
