//! Parses values in fio's syntax. Each error says what is wrong and shows a valid value, without the option's name.

use std::path::PathBuf;
use std::time::Duration;

use crate::load::job::{BlockShare, BlockSizes, Direction, Distribution, Extent};

/// An empty extent.
pub const NOTHING: Extent = Extent::Bytes(0);

/// The user's text, shortened and with control characters escaped.
pub fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "..." } else { "" };
    format!("'{shown}{more}'")
}

/// A whole number, decimal or `0x`, with a unit of 1024: `4k`, `0x1000`, `2M`.
pub fn number(text: &str) -> Result<u64, String> {
    let wrong = || format!("{} is not a number, as in 4, 4k or 0x1000", quoted(text));
    let lower = text.trim().to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0x") {
        return match digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            true => u64::from_str_radix(digits, 16).map_err(|_| wrong()),
            false => Err(wrong()),
        };
    }
    let digits = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (value, unit) = lower.split_at(digits);
    let value: u64 = value.parse().map_err(|_| wrong())?;
    let power = match unit {
        "" | "b" => 0,
        "k" | "ki" | "kb" => 1,
        "m" | "mi" | "mb" => 2,
        "g" | "gi" | "gb" => 3,
        "t" | "ti" | "tb" => 4,
        "p" | "pi" | "pb" => 5,
        // fio uses powers of 1000 for these units, everyone else powers of 1024, so they are refused.
        "kib" | "mib" | "gib" | "tib" | "pib" => {
            let short = &unit[..1];
            return Err(format!(
                "{} means powers of 1000 to fio and powers of 1024 elsewhere: write {value}{short} for powers of \
                 1024, or all digits",
                quoted(text)
            ));
        }
        _ => return Err(wrong()),
    };
    value
        .checked_mul(1 << (10 * power))
        .filter(|bytes| *bytes <= 1 << 60)
        .ok_or_else(|| format!("{} is too large", quoted(text)))
}

/// Bytes, at least one.
pub fn size(text: &str) -> Result<u64, String> {
    match number(text)? {
        0 => Err("a size must be above 0".to_string()),
        bytes => Ok(bytes),
    }
}

/// Bytes or percent.
pub fn extent(text: &str) -> Result<Extent, String> {
    let Some(percent) = text.trim().strip_suffix('%') else { return number(text).map(Extent::Bytes) };
    match percent.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Extent::Percent(percent)),
        _ => Err(format!("{} is not a share, as in 50%", quoted(text))),
    }
}

/// A number between `least` and `most`.
pub fn count(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let value = number(text)?;
    match u32::try_from(value) {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ if most == u32::MAX => Err(format!("{value} is not {least} or more")),
        _ => Err(format!("{value} is not from {least} to {most}")),
    }
}

/// A time; `unit` is the unit of a bare number.
pub fn time(text: &str, unit: Duration) -> Result<Duration, String> {
    let wrong = || format!("{} is not a time, as in 10s (d, h, m, s, ms, us)", quoted(text));
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (value, suffix) = lower.split_at(digits);
    let scale = match suffix {
        "" => unit.as_secs_f64(),
        "d" => 86400.0,
        "h" => 3600.0,
        "m" => 60.0,
        "s" => 1.0,
        "ms" | "msec" => 1e-3,
        "us" | "usec" => 1e-6,
        _ => return Err(wrong()),
    };
    let seconds = value.parse::<f64>().map_err(|_| wrong())? * scale;
    if !(0.0..=366.0 * 86400.0).contains(&seconds) {
        return Err(format!("{} is more than a year", quoted(text)));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A percentage above 0.
pub fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim().parse::<f64>().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
    percent.ok_or_else(|| format!("{} is not a percentage, as in 99.9", quoted(text)))
}

/// 0 or 1.
pub fn switch(text: &str) -> Result<bool, String> {
    match text.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("{} is not 0 or 1", quoted(text))),
    }
}

/// One of these words.
pub fn one_of<T>(text: &str, words: &[&str], named: impl Fn(&str) -> Option<T>) -> Result<T, String> {
    named(text).ok_or_else(|| format!("{} is not one of {}", quoted(text), words.join(", ")))
}

/// fio's list of percentiles, sorted ascending.
pub fn percentiles(text: &str) -> Result<Vec<f64>, String> {
    let one = |part: &str| part.trim().parse().ok().filter(|at: &f64| *at > 0.0 && *at <= 100.0);
    let mut all: Vec<f64> =
        text.split(':').map(one).collect::<Option<_>>().filter(|all: &Vec<f64>| all.len() <= 20).ok_or_else(
            || format!("{} is not a list of at most 20 percentiles above 0, as in 50:99:99.9", quoted(text)),
        )?;
    all.sort_unstable_by(f64::total_cmp);
    Ok(all)
}

/// fio's `read,write,trim`: a single value applies to all, the second of two also to the third, and an empty one leaves
/// the setting unchanged (None).
pub fn by_direction<T: Clone>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<[Option<T>; 3], String> {
    let parts: Vec<Option<T>> = text
        .split(',')
        .map(|part| if part.trim().is_empty() { Ok(None) } else { parse(part).map(Some) })
        .collect::<Result<_, _>>()?;
    if parts.iter().all(Option::is_none) {
        return Err("a value is missing".to_string());
    }
    match parts.as_slice() {
        [all] => Ok([all.clone(), all.clone(), all.clone()]),
        [read, others] => Ok([read.clone(), others.clone(), others.clone()]),
        [read, write, trim] => Ok([read.clone(), write.clone(), trim.clone()]),
        _ => Err(format!("{} has more values than read,write,trim", quoted(text))),
    }
}

/// `4k-64k`, for one direction.
pub fn range(text: &str) -> Result<BlockSizes, String> {
    let Some((low, high)) = text.split_once(['-', ':']) else {
        return Err(format!("{} is not a range, as in 4k-64k", quoted(text)));
    };
    let (low, high) = (size(low)?, size(high)?);
    if low > high {
        return Err(format!("{} starts above its end", quoted(text)));
    }
    Ok(BlockSizes(vec![BlockShare { low, high, percent: 100.0 }]))
}

/// `4k/60:64k/40`, for one direction; sizes without a share divide the rest equally.
pub fn split(text: &str) -> Result<BlockSizes, String> {
    let mut sizes = Vec::new();
    for part in text.split(':') {
        let (bytes, percent) = part.split_once('/').unwrap_or((part, ""));
        let percent = if percent.trim().is_empty() { None } else { Some(share(percent)?) };
        sizes.push((size(bytes)?, percent));
    }
    let said: f64 = sizes.iter().filter_map(|(_, percent)| *percent).sum();
    let open = sizes.iter().filter(|(_, percent)| percent.is_none()).count();
    if said > 100.0 + 1e-9 || (open == 0 && said < 100.0 - 1e-9) || (open > 0 && said > 100.0 - 1e-9) {
        let rest = if open > 0 { ", and some have none of them" } else { "" };
        return Err(format!("the shares add up to {said} %{rest}: they must add up to 100 %"));
    }
    let rest = (100.0 - said) / open.max(1) as f64;
    let shares = sizes.into_iter().map(|(bytes, percent)| BlockShare {
        low: bytes,
        high: bytes,
        percent: percent.unwrap_or(rest),
    });
    Ok(BlockSizes(shares.filter(|share| share.percent > 0.0).collect()))
}

/// 0 to 100.
fn share(text: &str) -> Result<f64, String> {
    match text.trim().trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{} is not a share in percent, as in 60", quoted(text))),
    }
}

/// `random`, `zipf:1.2`, `pareto:0.9`, `normal:20`, `zoned:60/10:40/90`.
pub fn distribution(text: &str) -> Result<Distribution, String> {
    let (word, value) = match text.split_once(':') {
        Some((word, value)) => (word, Some(value)),
        None => (text, None),
    };
    // fio's default, where no value is given.
    let number = |default: f64, good: fn(f64) -> bool, limits: &str| match value {
        None => Ok(default),
        Some(text) => match text.parse::<f64>() {
            Ok(number) if good(number) => Ok(number),
            _ => Err(format!("{} is not a number {limits}", quoted(text))),
        },
    };
    match word {
        "random" if value.is_none() => Ok(Distribution::Uniform),
        "zipf" => number(1.1, |theta| theta > 0.0 && theta < 100.0 && theta != 1.0, "above 0 and not 1")
            .map(Distribution::Zipf),
        "pareto" => {
            number(0.2, |power| power > 0.0 && power < 1.0, "between 0 and 1").map(Distribution::Pareto)
        }
        "normal" | "gauss" => {
            number(0.0, |deviation| (0.0..100.0).contains(&deviation), "from 0 to below 100")
                .map(Distribution::Normal)
        }
        "zoned" => zones(value.unwrap_or_default()),
        _ => Err(format!(
            "{} is not one of random, zipf:THETA, pareto:POWER, normal:DEVIATION, zoned:ACCESSES/RANGE:...",
            quoted(text)
        )),
    }
}

fn zones(text: &str) -> Result<Distribution, String> {
    if text.contains(',') {
        return Err("zones must be the same for all directions: leave out what follows the comma".to_string());
    }
    let mut zones = Vec::new();
    for part in text.split(':') {
        let Some((accesses, range)) = part.split_once('/') else {
            return Err(format!(
                "{} is not a zone: write percent of the accesses/percent of the range",
                quoted(part)
            ));
        };
        let range = if range.trim().is_empty() { None } else { Some(share(range)?) };
        zones.push((share(accesses)?, range));
    }
    // As in fio, zones without a range share the rest.
    let said: f64 = zones.iter().filter_map(|zone| zone.1).sum();
    let unsaid = zones.iter().filter(|zone| zone.1.is_none()).count();
    let each = (100.0 - said).max(0.0) / unsaid.max(1) as f64;
    let zones: Vec<(f64, f64)> =
        zones.into_iter().map(|(accesses, range)| (accesses, range.unwrap_or(each))).collect();
    for (what, sum) in [
        ("accesses", zones.iter().map(|zone| zone.0).sum::<f64>()),
        ("range", zones.iter().map(|zone| zone.1).sum::<f64>()),
    ] {
        if (sum - 100.0).abs() > 1e-6 {
            return Err(format!("the zones add up to {sum} % of the {what}: they must add up to 100 %"));
        }
    }
    if zones.iter().any(|zone| zone.0 > 0.0 && zone.1 == 0.0) {
        return Err("a zone has accesses and no range".to_string());
    }
    Ok(Distribution::Zoned(zones))
}

/// `0-3,8`, ascending.
pub fn cpus(text: &str) -> Result<Vec<u32>, String> {
    // The kernel's maximum.
    const MOST: u32 = 8191;
    let mut found = Vec::new();
    for part in text.split(',') {
        let one = |text: &str| match text.trim().parse::<u32>() {
            Ok(cpu) if cpu <= MOST => Ok(cpu),
            _ => Err(format!("{} is not a list of CPUs, as in 0-3,8", quoted(part))),
        };
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (one(first)?, one(last)?),
            None => (one(part)?, one(part)?),
        };
        if first > last {
            return Err(format!("{} starts above its end", quoted(part)));
        }
        found.extend(first..=last);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// File names separated by `:`; `\:` is a colon within a name.
pub fn files(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut names = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('\\', Some(':')) => {
                letters.next();
                names.last_mut().into_iter().for_each(|name| name.push(':'));
            }
            (':', _) => names.push(String::new()),
            _ => names.last_mut().into_iter().for_each(|name| name.push(letter)),
        }
    }
    if names.iter().any(String::is_empty) {
        return Err(format!("{} has an empty name: write one, or several separated by :", quoted(text)));
    }
    if names.len() > usize::from(u16::MAX) {
        return Err(format!("{} names are too many: give fewer", names.len()));
    }
    Ok(names.into_iter().map(PathBuf::from).collect())
}

/// Sets the block sizes of the directions that have a value.
pub fn blocks(
    into: &mut [BlockSizes; 3],
    text: &str,
    parse: impl Fn(&str) -> Result<BlockSizes, String>,
) -> Result<(), String> {
    let said = by_direction(text, parse)?;
    for direction in Direction::ALL {
        if let Some(sizes) = &said[direction.index()] {
            into[direction.index()] = sizes.clone();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_fios_units() {
        let cases = [
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4ki", 4096),
            ("4KB", 4096),
            ("4b", 4),
            ("0x1000", 4096),
            ("0X10", 16),
            ("1m", 1 << 20),
            ("100g", 100 << 30),
            ("2T", 2 << 40),
            ("1p", 1 << 50),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in
            ["", "k", "0", "-1", "1.5k", "4kk", "4x", "1e3", "0x10k", "0x", "0x+1", "99999999t", "4k 8k"]
        {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        let trap = size("4KiB").unwrap_err();
        assert!(trap.contains("powers of 1000 to fio") && trap.contains("write 4k"), "{trap}");
    }

    #[test]
    fn an_extent_is_bytes_or_percent() {
        assert_eq!(extent("1m"), Ok(Extent::Bytes(1 << 20)));
        assert_eq!(extent("20%"), Ok(Extent::Percent(20.0)));
        assert!(
            extent("101%").is_err()
                && extent("-1%").is_err()
                && extent("NaN%").is_err()
                && extent("%").is_err()
        );
    }

    #[test]
    fn times_have_fios_units() {
        let second = Duration::from_secs(1);
        let cases = [
            ("30", 30_000_000),
            ("30s", 30_000_000),
            ("1.5", 1_500_000),
            ("10ms", 10_000),
            ("10us", 10),
            ("10usec", 10),
            ("1M", 60_000_000),
            ("2h", 7_200_000_000),
            ("1d", 86_400_000_000),
            ("0", 0),
        ];
        for (text, us) in cases {
            assert_eq!(time(text, second), Ok(Duration::from_micros(us)), "{text}");
        }
        assert_eq!(time("250", Duration::from_micros(1)), Ok(Duration::from_micros(250)));
        for wrong in ["", "s", "1:30", "5y", "1.2.3", "-1", "400d", "1 s", "inf"] {
            assert!(time(wrong, second).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_by_direction_are_filled_as_fio_fills_them() {
        let parse = |text| by_direction(text, number);
        assert_eq!(parse("8"), Ok([Some(8); 3]));
        assert_eq!(parse("8,4"), Ok([Some(8), Some(4), Some(4)]));
        assert_eq!(parse("8,4,"), Ok([Some(8), Some(4), None]));
        assert_eq!(parse(",4"), Ok([None, Some(4), Some(4)]));
        assert_eq!(parse("8,"), Ok([Some(8), None, None]));
        assert_eq!(parse("8,,2"), Ok([Some(8), None, Some(2)]));
        assert!(
            parse("1,2,3,4").is_err() && parse("").is_err() && parse(",").is_err() && parse("1,x").is_err()
        );
    }

    #[test]
    fn shares_of_block_sizes_make_up_the_whole() {
        let parts = |text: &str| {
            split(text).map(|sizes| sizes.0.iter().map(|s| (s.low, s.percent)).collect::<Vec<_>>())
        };
        assert_eq!(parts("4k/60:64k/40"), Ok(vec![(4096, 60.0), (65536, 40.0)]));
        assert_eq!(parts("4k/50:8k/:16k"), Ok(vec![(4096, 50.0), (8192, 25.0), (16384, 25.0)]));
        assert_eq!(parts("4k/100:8k/0"), Ok(vec![(4096, 100.0)]));
        for wrong in ["4k/50:8k/60", "4k/50", "4k/100:8k", "/50", "", "4k/50:8k/x", "4k/-50:8k/150"] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            range("4k-64k"),
            Ok(BlockSizes(vec![BlockShare { low: 4096, high: 65536, percent: 100.0 }]))
        );
        assert!(range("64k-4k").is_err() && range("4k").is_err() && range("4k-").is_err());
    }

    #[test]
    fn distributions_have_fios_limits() {
        assert_eq!(distribution("random"), Ok(Distribution::Uniform));
        assert_eq!(distribution("zipf"), Ok(Distribution::Zipf(1.1)));
        assert_eq!(distribution("zipf:1.2"), Ok(Distribution::Zipf(1.2)));
        assert_eq!(distribution("pareto:0.9"), Ok(Distribution::Pareto(0.9)));
        assert_eq!(distribution("normal:20"), Ok(Distribution::Normal(20.0)));
        assert_eq!(distribution("normal"), Ok(Distribution::Normal(0.0)));
        assert_eq!(
            distribution("zoned:50/5:30/15:20/"),
            Ok(Distribution::Zoned(vec![(50.0, 5.0), (30.0, 15.0), (20.0, 80.0)]))
        );
        assert_eq!(
            distribution("zoned:60/10:30/20:10/70"),
            Ok(Distribution::Zoned(vec![(60.0, 10.0), (30.0, 20.0), (10.0, 70.0)]))
        );
        let wrong = [
            "zipf:1",
            "zipf:0",
            "zipf:NaN",
            "zipf:1.2:0.5",
            "pareto:1",
            "normal:100",
            "normal:-1",
            "zoned",
            "zoned:50/50",
            "zoned:100/0:0/100",
            "zoned:60/10:30/20:8/30",
            "zoned:50/50:50/50,100/100",
            "random:1",
            "even",
            "",
        ];
        for text in wrong {
            assert!(distribution(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_of_cpus_and_files_are_taken_apart() {
        assert_eq!(cpus("8,0-2,1"), Ok(vec![0, 1, 2, 8]));
        for wrong in ["", "3-1", "a", "0-", "-1", "0,,1", "9999", "0-4294967295"] {
            assert!(cpus(wrong).is_err(), "{wrong}");
        }
        let paths = |names: &[&str]| Ok(names.iter().map(PathBuf::from).collect());
        assert_eq!(files("/dev/sda:/dev/sdb"), paths(&["/dev/sda", "/dev/sdb"]));
        assert_eq!(files("/dev/by-path/pci-0000\\:01\\:00.0"), paths(&["/dev/by-path/pci-0000:01:00.0"]));
        assert_eq!(files("a\\b"), paths(&["a\\b"]));
        assert!(files("").is_err() && files("a:").is_err() && files("a::b").is_err());
    }

    #[test]
    fn what_is_quoted_is_short_and_harmless() {
        assert_eq!(quoted("a\u{1b}[31m"), "'a\\u{1b}[31m'");
        assert_eq!(quoted(&"x".repeat(99)).len(), 65);
    }
}
