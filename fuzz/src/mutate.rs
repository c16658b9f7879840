//! Mutates lines of JSON. libFuzzer's own mutations rarely keep a line readable, and a histogram is only read
//! where its count is the sum of its buckets.

/// Where sums overflow, and where floats stop being exact.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "0.5",
    "1e300",
    "-1e300",
    "4294967295",
    "9007199254740992",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551614",
    "18446744073709551615",
    "null",
    "1000000000",
];

/// Counts, sums and values of a histogram with one bucket.
const COUNTS: [&str; 4] = ["1", "9007199254740992", "9223372036854775808", "18446744073709551615"];
const BUCKETS: [(&str, &str); 3] =
    [("0,1", "0"), ("16,17", "16"), ("1065151889408,1099511627776", "18446744073709551615")];

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A place in a line, and whether a histogram is there.
struct Place {
    start: usize,
    end: usize,
    is_histogram: bool,
}

/// The new size of what is in `data`. Where it has no number, it stays as it is.
pub fn lines(data: &mut [u8], size: usize, seed: u32) -> usize {
    let mut random = Random(u64::from(seed) << 1 | 1);
    let mut line = data[..size].to_vec();
    for _ in 0..=random.below(6) {
        let mut places = places(&line);
        let wants_histogram = random.below(4) == 0;
        if places.iter().any(|place| place.is_histogram == wants_histogram) {
            places.retain(|place| place.is_histogram == wants_histogram);
        }
        if places.is_empty() {
            break;
        }
        let Place { start, end, is_histogram } = places.swap_remove(random.below(places.len()));
        let new = match is_histogram {
            true => histogram(&line[start..end], &mut random),
            false => random.one_of(&NUMBERS).to_string(),
        };
        if line.len() - (end - start) + new.len() <= data.len() {
            line.splice(start..end, new.into_bytes());
        }
    }
    data[..line.len()].copy_from_slice(&line);
    line.len()
}

/// One bucket in place of all, with the keys of its unit.
fn histogram(old: &[u8], random: &mut Random) -> String {
    let unit = if old.windows(8).any(|word| word == b"\"sum_ns\"") { "_ns" } else { "" };
    let (count, sum) = (random.one_of(&COUNTS), random.one_of(&COUNTS));
    let (bucket, value) = random.one_of(&BUCKETS);
    let extremes = format!(r#""max{unit}":{value},"min{unit}":{value}"#);
    format!(r#"{{"buckets":[[{bucket},{count}]],"count":{count},{extremes},"sum{unit}":{sum}}}"#)
}

/// Histograms, and numbers that are in none.
fn places(line: &[u8]) -> Vec<Place> {
    const BEGIN: &[u8] = b"{\"buckets\":";
    let mut all = Vec::new();
    let mut at = 0;
    while at < line.len() {
        let start = at;
        match line[at] {
            b'"' => at = end_of_string(line, at),
            b'{' if line[at..].starts_with(BEGIN) => {
                at = end_of_object(line, at);
                all.push(Place { start, end: at, is_histogram: true });
            }
            b'-' | b'0'..=b'9' => {
                let is_of_number = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                at += line[at..].iter().take_while(|byte| is_of_number(byte)).count();
                all.push(Place { start, end: at, is_histogram: false });
            }
            _ => at += 1,
        }
    }
    all
}

/// Behind the quote that ends it.
fn end_of_string(line: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < line.len() {
        match line[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    line.len()
}

fn end_of_object(line: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < line.len() {
        match line[at] {
            b'"' => at = end_of_string(line, at) - 1,
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    line.len()
}
