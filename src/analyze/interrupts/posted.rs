//! Posted MSI: the drives' messages are collected in memory, and one notification interrupt reports several to a CPU.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::merge::merge;

/// Notifications and messages of one window. Since 6.10 (`intremap=posted_msi`); counted in the row `PMN` of
/// `/proc/interrupts`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PostedMsi {
    pub notifications: u64,
    /// Of every device, as are the notifications.
    pub msis: u64,
    pub notifications_per_second: f64,
    pub notifications_per_msi: f64,
    pub msis_per_notification: f64,
    /// Of the interrupts that there would be without it: 1 − notifications / messages. What is left, 78 % of
    /// them for example, has been called a "coalescing ratio": it is not what was saved.
    pub avoided_fraction: f64,
    /// I/Os of the traced devices.
    pub ios_per_msi: f64,
    pub ios_per_notification: f64,
}

merge!(PostedMsi {
    add: notifications msis;
    derived: notifications_per_second notifications_per_msi msis_per_notification avoided_fraction ios_per_msi
        ios_per_notification;
});

impl PostedMsi {
    /// None where no notification came: it is off, or nothing happened.
    pub fn new(notifications: u64, msis: u64, ios: u64, seconds: f64) -> Option<Self> {
        let ratio = |a: u64, b: u64| a as f64 / b as f64;
        (notifications > 0 && msis > 0 && seconds > 0.0).then(|| Self {
            notifications,
            msis,
            notifications_per_second: notifications as f64 / seconds,
            notifications_per_msi: ratio(notifications, msis),
            msis_per_notification: ratio(msis, notifications),
            avoided_fraction: 1.0 - ratio(notifications, msis),
            ios_per_msi: ratio(ios, msis),
            ios_per_notification: ratio(ios, notifications),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One second of irqtop and iostat with 32 vectors of four drives on Sapphire Rapids, as posted with the patch. For
    /// 29 vectors it says only "similar irq rate", so they get the mean of the other three here.
    #[test]
    fn the_published_figures_read_the_right_way_round() {
        let shown = [220_128, 219_963, 219_890];
        let msis = shown.iter().sum::<u64>() * 32 / 3;
        let ios = 2_184_313 + 2_184_241 + 2_184_269 + 2_184_003;
        let posted = PostedMsi::new(5_502_657, msis, ios, 1.0).unwrap();
        let rounded = |value: f64, digits: i32| (value * 10f64.powi(digits)).round() / 10f64.powi(digits);
        assert_eq!(rounded(posted.notifications_per_msi, 2), 0.78);
        assert_eq!(rounded(posted.msis_per_notification, 2), 1.28);
        assert_eq!(rounded(100.0 * posted.avoided_fraction, 1), 21.8);
        assert_eq!(rounded(posted.ios_per_msi, 2), 1.24);
        assert_eq!(rounded(posted.ios_per_notification, 2), 1.59);
    }

    #[test]
    fn without_notifications_there_is_nothing_to_say() {
        assert_eq!(PostedMsi::new(0, 100, 100, 1.0), None);
    }
}
