//! A part of a recording: `--from` and `--to`.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::temporal::Pieces;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use crate::clock;

/// See [`Span::holds`].
const SLACK: Duration = Duration::from_millis(50);

/// The zone of a time of day.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Zone {
    /// The reader's, as in interval lines.
    Local,
    Fixed(Offset),
}

/// A time within a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment {
    At(Timestamp),
    /// Local time with its date.
    Local(DateTime),
    /// Its first occurrence after the recording's start.
    TimeOfDay(Time, Zone),
    /// Time since the recording's start.
    After(Duration),
}

impl Moment {
    /// Parses `14:30:05`, `14:30Z`, `2026-11-28 14:30:05` or `2026-11-28T14:30:05Z`; an offset (`+01:00`) may take the
    /// place of Z. None: it is none of these.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(time) = text.parse() {
            return Some(Self::At(time));
        }
        // A zone in brackets would be ignored.
        if !text.contains(':') || text.contains('[') {
            return None;
        }
        if let Ok(time) = text.parse() {
            return Some(Self::Local(time));
        }
        // A time alone would be parsed without its offset.
        let dated = format!("2000-01-01T{text}");
        let pieces = Pieces::parse(&dated).ok()?;
        Some(Self::TimeOfDay(pieces.time()?, pieces.to_numeric_offset().map_or(Zone::Local, Zone::Fixed)))
    }

    /// Takes a time without a zone as UTC.
    pub fn in_utc(self) -> Self {
        match self {
            Self::TimeOfDay(time, Zone::Local) => Self::TimeOfDay(time, Zone::Fixed(Offset::UTC)),
            Self::Local(time) => at(time, Zone::Fixed(Offset::UTC))[0].map_or(self, Self::At),
            other => other,
        }
    }

    /// Converts it to nanoseconds since 1970; `begin` is the recording's start in the same unit. None: out of the
    /// calendar's range.
    pub fn unix_ns(self, begin: u64) -> Option<u64> {
        let begin = Timestamp::from_nanosecond(begin.into()).ok()?;
        u64::try_from(self.of(begin)?.as_nanosecond()).ok()
    }

    fn of(self, begin: Timestamp) -> Option<Timestamp> {
        match self {
            Self::At(time) => Some(time),
            Self::Local(time) => at(time, Zone::Local).into_iter().flatten().min(),
            Self::After(length) => begin.checked_add(SignedDuration::try_from(length).ok()?).ok(),
            Self::TimeOfDay(time, zone) => {
                let day = begin.to_zoned(TimeZone::fixed(zone.offset(begin))).date();
                let of = |day: Date| at(day.to_datetime(time), zone);
                let all = [of(day), day.tomorrow().map_or([None; 2], of)];
                all.into_iter().flatten().flatten().filter(|time| *time >= begin).min()
            }
        }
    }
}

impl Zone {
    fn offset(self, time: Timestamp) -> Offset {
        match self {
            Self::Fixed(offset) => offset,
            Self::Local => Offset::from_seconds(clock::local_offset(time.as_second())).unwrap_or(Offset::UTC),
        }
    }
}

/// Equal, but for a time that exists twice because summer time ends. One that does not exist because summer time begins
/// is taken with the offset before it.
fn at(time: DateTime, zone: Zone) -> [Option<Timestamp>; 2] {
    let with = |offset: Offset| offset.to_timestamp(time).ok();
    let Some(near) = with(Offset::UTC) else { return [None; 2] };
    let day = SignedDuration::from_hours(24);
    let around =
        [near.checked_sub(day), near.checked_add(day)].map(|time| time.ok().map(|at| zone.offset(at)));
    let exact = around.map(|offset| with(offset?).filter(|time| Some(zone.offset(*time)) == offset));
    match exact {
        [None, None] => [around[0].and_then(with); 2],
        [one, other] => [one.or(other), other.or(one)],
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
        let clock = |hour, minute| Moment::parse(&format!("{hour:02}:{minute:02}Z"));
        assert!(holds(clock(0, 1), clock(0, 2), "2026-11-29T00:01:30.000Z"));
        assert!(!holds(clock(0, 1), clock(0, 2), BEGIN));
        assert!(Span { from: after(1), to: None }.holds(BEGIN, "soon").is_err());
    }

    #[test]
    fn a_time_has_a_zone_or_is_local() {
        let time = |text: &str| Moment::parse(text).and_then(|moment| moment.of(BEGIN.parse().unwrap()));
        let is = |text: &str, expected: &str| assert_eq!(time(text), expected.parse().ok(), "{text}");
        is("23:59:30Z", "2026-11-28T23:59:30Z");
        is("23:58Z", "2026-11-29T23:58:00Z");
        // There, the recording begins at 00:59 of the next day.
        is("01:00+01:00", "2026-11-29T00:00:00Z");
        is("00:58:00+01:00", "2026-11-29T23:58:00Z");
        is("18:59:30-05", "2026-11-28T23:59:30Z");
        is("2026-11-29 00:59:01+01:00", "2026-11-28T23:59:01Z");
        is("20261128T235930Z", "2026-11-28T23:59:30Z");
        let not = ["soon", "90s", "2026-11-28", "25:00", "14:30[Europe/Berlin]"];
        assert_eq!(not.map(Moment::parse), [None; 5]);
        for text in ["23:59:30", "2026-11-28T23:59:30", "2026-11-28 23:59:30"] {
            let local = Moment::parse(text).unwrap();
            let expected: Option<Timestamp> = "2026-11-28T23:59:30Z".parse().ok();
            assert_eq!(local.in_utc().of(BEGIN.parse().unwrap()), expected, "{text}");
            assert_ne!(local.in_utc(), local, "{text} has no zone");
        }
    }
}
