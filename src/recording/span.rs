//! A part of a recording: `--from` and `--to`.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// See [`Span::holds`].
const SLACK: Duration = Duration::from_millis(50);

/// A time within a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment {
    At(Timestamp),
    /// UTC, like the recording: its first occurrence after the recording's start.
    TimeOfDay(Time),
    /// Time since the recording's start.
    After(Duration),
}

impl Moment {
    /// Converts it to nanoseconds since 1970; `begin` is the recording's start in the same unit. None: out of the
    /// calendar's range.
    pub fn unix_ns(self, begin: u64) -> Option<u64> {
        let begin = Timestamp::from_nanosecond(begin.into()).ok()?;
        u64::try_from(self.of(begin)?.as_nanosecond()).ok()
    }

    fn of(self, begin: Timestamp) -> Option<Timestamp> {
        match self {
            Self::At(time) => Some(time),
            Self::After(length) => begin.checked_add(SignedDuration::try_from(length).ok()?).ok(),
            Self::TimeOfDay(time) => {
                let day = begin.to_zoned(TimeZone::UTC).date();
                let of = |day: jiff::civil::Date| day.to_datetime(time).to_zoned(TimeZone::UTC).ok();
                let today = of(day)?.timestamp();
                if today >= begin {
                    Some(today)
                } else {
                    of(day.tomorrow().ok()?).map(|time| time.timestamp())
                }
            }
        }
    }
}

/// From `from`, inclusive, to `to`, exclusive.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Span {
    pub from: Option<Moment>,
    pub to: Option<Moment>,
}

impl Span {
    /// Whether the span contains a result that starts at `start`. `begin` is the start of the first result. Intervals
    /// start some ms earlier or later than their nominal length, differently in each view: a time since the begin is
    /// therefore taken [`SLACK`] early.
    pub fn holds(&self, begin: &str, start: &str) -> Result<bool> {
        if *self == Self::default() {
            return Ok(true);
        }
        let time = |text: &str| text.parse::<Timestamp>().context("its start is not a time");
        let (begin, start) = (time(begin)?, time(start)?);
        let early = |moment| match moment {
            Moment::After(length) => Moment::After(length.saturating_sub(SLACK)),
            other => other,
        };
        let bound = |moment: Option<Moment>| moment.and_then(|moment| early(moment).of(begin));
        Ok(bound(self.from).is_none_or(|from| start >= from) && bound(self.to).is_none_or(|to| start < to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "2026-11-28T23:59:00.500Z";

    fn holds(from: Option<Moment>, to: Option<Moment>, start: &str) -> bool {
        Span { from, to }.holds(BEGIN, start).unwrap()
    }

    #[test]
    fn a_result_is_where_it_begins() {
        let after = |seconds| Some(Moment::After(Duration::from_secs(seconds)));
        assert!(holds(None, None, "no time at all"));
        assert!(holds(after(1), None, "2026-11-28T23:59:01.500Z") && !holds(after(1), None, BEGIN));
        assert!(!holds(None, after(1), "2026-11-28T23:59:01.500Z") && holds(None, after(1), BEGIN));
        // Each result is on one side of a boundary, also one that began slightly early.
        for (start, is_later) in [("2026-11-28T23:59:01.449Z", false), ("2026-11-28T23:59:01.451Z", true)] {
            assert_eq!([holds(after(1), None, start), holds(None, after(1), start)], [is_later, !is_later]);
        }
        let at = |text: &str| Some(Moment::At(text.parse().unwrap()));
        assert!(holds(
            at("2026-11-29T00:59:01+01:00"),
            at("2026-11-28T23:59:03Z"),
            "2026-11-28T23:59:02.000Z"
        ));
        // A time of day before the start belongs to the next day.
        let clock = |hour, minute| Some(Moment::TimeOfDay(Time::constant(hour, minute, 0, 0)));
        assert!(holds(clock(0, 1), clock(0, 2), "2026-11-29T00:01:30.000Z"));
        assert!(!holds(clock(0, 1), clock(0, 2), BEGIN));
        assert!(Span { from: after(1), to: None }.holds(BEGIN, "soon").is_err());
    }
}
