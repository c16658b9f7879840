//! Unpacks gzip (RFC 1951 and 1952): the kernel keeps its configuration in that form, in `/proc/config.gz`.
//!
//! Small and slow: it reads a file of 30 KB once. The checksum is not verified, for a part that is looked for is there
//! or not.

/// A kernel's configuration has 300 KB. A bound on what a damaged file can cost.
const MOST: usize = 16 << 20;

const LENGTHS: [(u16, u8); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// The order in which lengths of lengths stand.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// The first member of a gzip file; None when it is none, or damaged.
pub fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let [0x1f, 0x8b, 8, flags, ..] = *bytes else { return None };
    let mut at = 10;
    if flags & 4 != 0 {
        let len = u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]);
        at += 2 + usize::from(len);
    }
    // A name, and a comment: each up to its zero byte.
    for flag in [8, 16] {
        if flags & flag != 0 {
            at += 1 + bytes.get(at..)?.iter().position(|byte| *byte == 0)?;
        }
    }
    if flags & 2 != 0 {
        at += 2;
    }
    inflate(bytes.get(at..)?)
}

/// Bits, lowest first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> Option<u16> {
        let bit = self.bytes.get(self.at / 8)? >> (self.at % 8) & 1;
        self.at += 1;
        Some(bit.into())
    }

    fn take(&mut self, count: u8) -> Option<u16> {
        (0..count).try_fold(0, |value, i| Some(value | self.bit()? << i))
    }
}

/// A canonical Huffman code: how many codes have each length, and the symbols in the order of their codes.
struct Code {
    counts: [u16; 16],
    symbols: Vec<u16>,
}

impl Code {
    fn new(lengths: &[u8]) -> Self {
        let mut counts = [0; 16];
        let mut symbols = Vec::new();
        for len in 1..16u8 {
            let of_this = lengths.iter().enumerate().filter(|(_, found)| **found == len);
            symbols.extend(of_this.map(|(symbol, _)| symbol as u16));
            counts[usize::from(len)] = lengths.iter().filter(|found| **found == len).count() as u16;
        }
        Self { counts, symbols }
    }

    fn symbol(&self, bits: &mut Bits<'_>) -> Option<u16> {
        let (mut code, mut first, mut index) = (0i32, 0i32, 0i32);
        for count in &self.counts[1..] {
            let count = i32::from(*count);
            code |= i32::from(bits.bit()?);
            if code - count < first {
                // Below zero for codes that promise more than there is room for.
                return self.symbols.get(usize::try_from(index + code - first).ok()?).copied();
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }
}

fn inflate(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bits = Bits { bytes, at: 0 };
    let mut out = Vec::new();
    loop {
        let last = bits.bit()? == 1;
        match bits.take(2)? {
            0 => stored(&mut bits, &mut out)?,
            1 => {
                let mut lengths = [8u8; 288];
                lengths[144..256].fill(9);
                lengths[256..280].fill(7);
                packed(&mut bits, &mut out, &Code::new(&lengths), &Code::new(&[5; 30]))?;
            }
            2 => {
                let (literals, distances) = codes(&mut bits)?;
                packed(&mut bits, &mut out, &literals, &distances)?;
            }
            _ => return None,
        }
        if last {
            return Some(out);
        }
    }
}

fn stored(bits: &mut Bits<'_>, out: &mut Vec<u8>) -> Option<()> {
    let at = bits.at.div_ceil(8);
    let head = bits.bytes.get(at..at + 4)?;
    let len = u16::from_le_bytes([head[0], head[1]]);
    if len != !u16::from_le_bytes([head[2], head[3]]) || out.len() > MOST {
        return None;
    }
    let end = at + 4 + usize::from(len);
    out.extend_from_slice(bits.bytes.get(at + 4..end)?);
    bits.at = end * 8;
    Some(())
}

/// The two codes that stand before a block.
fn codes(bits: &mut Bits<'_>) -> Option<(Code, Code)> {
    let literals = usize::from(bits.take(5)?) + 257;
    let distances = usize::from(bits.take(5)?) + 1;
    let mut lengths = [0u8; 19];
    let given = usize::from(bits.take(4)?) + 4;
    for place in &ORDER[..given] {
        lengths[*place] = bits.take(3)? as u8;
    }
    let code = Code::new(&lengths);
    let mut lengths: Vec<u8> = Vec::new();
    while lengths.len() < literals + distances {
        let (value, times) = match code.symbol(bits)? {
            16 => (*lengths.last()?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            len => (len as u8, 1),
        };
        lengths.extend(std::iter::repeat_n(value, times.into()));
    }
    if lengths.len() > literals + distances {
        return None;
    }
    let (literals, distances) = lengths.split_at(literals);
    Some((Code::new(literals), Code::new(distances)))
}

fn packed(bits: &mut Bits<'_>, out: &mut Vec<u8>, literals: &Code, distances: &Code) -> Option<()> {
    loop {
        if out.len() > MOST {
            return None;
        }
        match literals.symbol(bits)? {
            256 => return Some(()),
            byte @ 0..256 => out.push(byte as u8),
            symbol => {
                let (base, extra) = *LENGTHS.get(usize::from(symbol) - 257)?;
                let len = base + bits.take(extra)?;
                let symbol = distances.symbol(bits)?;
                let distance = usize::from(distance(bits, symbol)?);
                // One by one: a copy may read what it has just written.
                for _ in 0..len {
                    out.push(*out.get(out.len().checked_sub(distance)?)?);
                }
            }
        }
    }
}

/// 1, 2, 3, 4, then two symbols for each number of extra bits.
fn distance(bits: &mut Bits<'_>, symbol: u16) -> Option<u16> {
    if symbol < 4 {
        return Some(symbol + 1);
    }
    let extra = u8::try_from(symbol / 2 - 1).ok().filter(|extra| *extra <= 13)?;
    Some(((2 + symbol % 2) << extra) + 1 + bits.take(extra)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn blocks_with_the_fixed_code_and_stored_ones() {
        let fixed = "1f8b080000000000020373f6f773f3748ff788b2353235e072c6c34b4c4a0600b207c62c2d000000";
        let text = gzip(&bytes(fixed)).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), format!("{}abc", "CONFIG_HZ=250\n".repeat(3)));
        let stored = "1f8b0800000000000403010600f9ff73746f7265640bf9435606000000";
        assert_eq!(gzip(&bytes(stored)).unwrap(), b"stored");
    }

    /// Long texts have codes of their own: this machine's configuration, where it has one.
    #[test]
    fn a_real_file_has_the_length_that_it_promises() {
        let Ok(packed) = std::fs::read("/proc/config.gz") else {
            println!("skipped: there is no /proc/config.gz");
            return;
        };
        let text = gzip(&packed).unwrap();
        let promised = packed.last_chunk().map(|end| u32::from_le_bytes(*end)).unwrap();
        assert_eq!(text.len(), promised as usize);
        assert!(text.windows(10).any(|word| word == b"CONFIG_HZ="));
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_survived() {
        let good = bytes("1f8b080000000000020373f6f773f3748ff788b2353235e072c6c34b4c4a0600b207c62c2d000000");
        // Behind the last block there are checksum and length only.
        for end in 0..good.len() - 8 {
            assert_eq!(gzip(&good[..end]), None, "{end} bytes");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let _ = gzip(&bad);
            }
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(block in 0u8..3, bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1 | block << 1];
            let _ = gzip(&[&head[..], &bytes].concat());
            let _ = gzip(&bytes);
        }
    }
}
