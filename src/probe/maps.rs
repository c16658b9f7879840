//! Reads BPF maps completely, or returns an error that names the map. (The iterators of libbpf-rs treat the first error
//! like the end of the map.)

use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail, ensure};
use libbpf_rs::{MapCore, MapFlags, libbpf_sys};

use crate::wire::Record;

/// Elements of an array that are read per system call.
const BATCH: u32 = 4096;

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

/// Calls `each` for every element of an array. Reads them in batches: one system call per element takes a second for
/// the largest arrays.
///
/// # Errors
/// When the kernel does not read all, or `each` fails.
pub fn array<T>(map: &impl MapCore, mut each: impl FnMut(u32, &[u8]) -> Result<T>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for (key, value) in map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).with_context(|| name(map))? {
        let index = u32::from_ne_bytes(key.as_slice().try_into().context("an index has four bytes")?);
        all.push(each(index, &value)?);
    }
    let (read, wanted) = (all.len(), map.max_entries());
    ensure!(read == wanted as usize, "{}: {read} of {wanted} elements", name(map));
    Ok(all)
}

/// Keys and values of a hash table.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Entries of a hash table that the first system call reads: tables hold far fewer than they have room for.
const FEW: u32 = 256;

/// All keys and values of a hash table from which nothing is removed meanwhile, in batches (since 5.6, 057996380a42).
///
/// # Errors
/// When the kernel does not read all.
pub fn entries(map: &impl MapCore) -> Result<Entries> {
    let (key_size, value_size) = (map.key_size() as usize, map.value_size() as usize);
    let mut all = Vec::new();
    let mut most = FEW.min(map.max_entries()).max(1);
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    // The kernel's position in a hash table has four bytes.
    let mut place: Option<u32> = None;
    let options = libbpf_sys::bpf_map_batch_opts {
        sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as _,
        ..Default::default()
    };
    loop {
        keys.resize(most as usize * key_size, 0u8);
        values.resize(most as usize * value_size, 0u8);
        let (mut next, mut count) = (0u32, most);
        let from = place.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        // SAFETY: `keys` and `values` have room for `count` entries. They and the positions live across the call, in
        // which the kernel writes no more than that.
        let done = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                from.cast(),
                std::ptr::from_mut(&mut next).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                &raw const options,
            )
        };
        match -done {
            0 | libc::ENOENT => {
                let found = keys.chunks_exact(key_size).zip(values.chunks_exact(value_size));
                all.extend(found.take(count as usize).map(|(key, value)| (key.to_vec(), value.to_vec())));
                if done != 0 {
                    return Ok(all);
                }
                place = Some(next);
            }
            // A bucket has more entries than fit: retry from the same position.
            libc::ENOSPC => {
                most = most.saturating_mul(2);
                ensure!(most <= map.max_entries().saturating_mul(2), "{}: a bucket without end", name(map));
            }
            libc::EINTR => {}
            error => bail!("{}: {}", name(map), std::io::Error::from_raw_os_error(error)),
        }
    }
}
