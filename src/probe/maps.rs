//! Reads BPF maps completely, or returns an error that names the map. (The iterators of libbpf-rs treat the first error
//! like the end of the map.)

use std::ops::Range;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail, ensure};
use libbpf_rs::{MapCore, MapFlags, libbpf_sys};

use crate::wire::Record;

/// Most bytes of values that a system call reads, if a value is not larger.
const BATCH_BYTES: usize = 256 << 10;

fn name(map: &impl MapCore) -> String {
    format!("reading the BPF map {} failed", map.name().to_string_lossy())
}

/// The value of a key; None: the key does not exist.
///
/// # Errors
/// When the kernel does not read it.
pub fn lookup(map: &impl MapCore, key: &[u8]) -> Result<Option<Vec<u8>>> {
    map.lookup(key, MapFlags::ANY).with_context(|| name(map))
}

/// An element of an array.
///
/// # Errors
/// When the kernel does not read it, or has none.
pub fn element(map: &impl MapCore, index: u32) -> Result<Vec<u8>> {
    lookup(map, &index.to_ne_bytes())?.with_context(|| format!("{}: no element {index}", name(map)))
}

/// Sum over all CPUs of an element of a per-CPU array.
///
/// # Errors
/// When the kernel does not read it, or the record has another length.
pub fn per_cpu<T: Record + Default>(map: &impl MapCore, index: u32) -> Result<T> {
    let each = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).with_context(|| name(map))?;
    let each = each.with_context(|| format!("{}: no element {index}", name(map)))?;
    each.iter().try_fold(T::default(), |all, cpu| Ok(all.plus(&<T as Record>::decode(cpu)?)))
}

/// Calls `each` for every element of an array.
///
/// # Errors
/// When the kernel does not read all, or `each` fails.
pub fn array<T>(map: &impl MapCore, each: impl FnMut(u32, &[u8]) -> Result<T>) -> Result<Vec<T>> {
    elements(map, 0..map.max_entries(), each)
}

/// Calls `each` for these elements of an array. Reads them in batches: one system call per element takes a second for
/// the largest arrays.
///
/// # Errors
/// When the kernel does not read all, or `each` fails.
pub fn elements<T>(
    map: &impl MapCore,
    range: Range<u32>,
    mut each: impl FnMut(u32, &[u8]) -> Result<T>,
) -> Result<Vec<T>> {
    ensure!(range.end <= map.max_entries(), "{}: no element {}", name(map), range.end.saturating_sub(1));
    let mut all = Vec::with_capacity(range.len());
    let mut batch = MapBatch::new(map, range.len());
    // The kernel continues behind the element whose index it gets.
    batch.position = range.start.checked_sub(1);
    while all.len() < range.len() {
        batch.most = batch.most.min((range.len() - all.len()) as u32);
        let is_last = batch.read(map)?;
        for (key, value) in batch.entries() {
            let index = u32::from_ne_bytes(key.try_into().context("an index has four bytes")?);
            all.push(each(index, value)?);
        }
        if is_last {
            break;
        }
    }
    ensure!(all.len() == range.len(), "{}: {} of {} elements", name(map), all.len(), range.len());
    Ok(all)
}

/// Calls `each` for every key and value of a hash table from which nothing is removed meanwhile.
///
/// # Errors
/// When the kernel does not read all, or `each` fails.
pub fn each_entry(map: &impl MapCore, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let mut batch = MapBatch::new(map, FEW);
    loop {
        let is_last = batch.read(map)?;
        for (key, value) in batch.entries() {
            each(key, value)?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Keys and values of a hash table.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Entries of a hash table that the first system call reads: tables hold far fewer than they have room for.
const FEW: usize = 256;

/// All keys and values of a hash table from which nothing is removed meanwhile.
///
/// # Errors
/// When the kernel does not read all.
pub fn entries(map: &impl MapCore) -> Result<Entries> {
    let mut all = Vec::new();
    each_entry(map, |key, value| {
        all.push((key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    Ok(all)
}

/// Part of a map, read by one system call (since 5.6, for hash tables 057996380a42). Its buffers are used again for the
/// next part.
struct MapBatch {
    key_size: usize,
    value_size: usize,
    keys: Vec<u8>,
    values: Vec<u8>,
    /// Entries to read at most, and those that were read.
    most: u32,
    read: usize,
    /// Where the kernel continues; None: at the begin. A position in a hash table, and an index, have four bytes.
    position: Option<u32>,
}

impl MapBatch {
    fn new(map: &impl MapCore, most: usize) -> Self {
        let value_size = map.value_size() as usize;
        let most = most.min(map.max_entries() as usize).min(BATCH_BYTES / value_size.max(1)).max(1) as u32;
        Self {
            key_size: map.key_size() as usize,
            value_size,
            keys: Vec::new(),
            values: Vec::new(),
            most,
            read: 0,
            position: None,
        }
    }

    /// Reads the next part; true: it was the last one.
    fn read(&mut self, map: &impl MapCore) -> Result<bool> {
        let options = libbpf_sys::bpf_map_batch_opts {
            sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as _,
            ..Default::default()
        };
        loop {
            self.keys.resize(self.most as usize * self.key_size, 0u8);
            self.values.resize(self.most as usize * self.value_size, 0u8);
            let (mut next, mut count) = (0u32, self.most);
            let from = self.position.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
            // SAFETY: `keys` and `values` have room for `count` entries. They and the positions live across the call, in
            // which the kernel writes no more than that.
            let done = unsafe {
                libbpf_sys::bpf_map_lookup_batch(
                    map.as_fd().as_raw_fd(),
                    from.cast(),
                    std::ptr::from_mut(&mut next).cast(),
                    self.keys.as_mut_ptr().cast(),
                    self.values.as_mut_ptr().cast(),
                    &raw mut count,
                    &raw const options,
                )
            };
            match -done {
                0 | libc::ENOENT => {
                    self.read = count as usize;
                    self.position = Some(next);
                    return Ok(done != 0);
                }
                // A bucket has more entries than fit: retry from the same position.
                libc::ENOSPC => {
                    self.most = self.most.saturating_mul(2);
                    let bound = map.max_entries().saturating_mul(2);
                    ensure!(self.most <= bound, "{}: a bucket without end", name(map));
                }
                libc::EINTR => {}
                error => bail!("{}: {}", name(map), std::io::Error::from_raw_os_error(error)),
            }
        }
    }

    fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let found = self.keys.chunks_exact(self.key_size).zip(self.values.chunks_exact(self.value_size));
        found.take(self.read)
    }
}
