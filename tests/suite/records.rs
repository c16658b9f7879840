//! Tests every decoder of bytes from the kernel side with bytes that the kernel side never wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use biopsy::wire::events::Event;
use biopsy::wire::files::FileSample;
use biopsy::wire::locks::stacks::{self as lock_stacks, Whos};
use biopsy::wire::parts::PartRow;
use biopsy::wire::process_ios::ProcessIos;
use biopsy::wire::records::*;
use biopsy::wire::rows::{IoRow, OperationRow};
use biopsy::wire::{Record as _, blocked, stacks, submits};
use proptest::collection::vec;
use proptest::prelude::*;

/// A decoder.
struct Decoder {
    file: &'static str,
    /// The lengths of the key and value that the kernel side writes, in bytes; 0: no key, or a value that contains its
    /// own length.
    key: usize,
    value: usize,
    accepts: fn(&[u8], &[u8]) -> bool,
}

macro_rules! decoders {
    ($($file:literal [$($key:ty)?] [$($value:ty)?] $decode:expr;)+) => {
        [$(Decoder {
            file: $file,
            key: 0 $(+ size_of::<$key>())?,
            value: 0 $(+ size_of::<$value>())?,
            accepts: |key, value| {
                let decode: fn(&[u8], &[u8]) -> bool = $decode;
                decode(key, value)
            },
        }),+]
    };
}

/// All decoders in `src/wire`.
fn decoders() -> impl Iterator<Item = Decoder> {
    decoders! {
        "blocked.rs" [WireStackKey] [WireWaitStack] |k, v| blocked::decode_stack(k, v).is_ok();
        "blocked.rs" [WireWaitProcess] [WireWaiter] |k, v| blocked::decode_waiter(k, v).is_ok();
        "events.rs" [] [] |_, v| Event::decode(v).is_ok();
        "files.rs" [WireFileKey] [WireFileIos] |k, v| FileSample::decode(k, v).is_ok();
        "interrupts.rs" [] [WireVector] |_, v| WireVector::decode(v, vec![u64::MAX; 4], true).is_ok();
        "interrupts.rs" [] [WireSoftirq] |_, v| WireSoftirq::decode(v).is_ok();
        "locks.rs" [] [WireLock] |_, v| WireLock::decode(v).is_ok();
        "locks.rs" [] [WireLockRecent] |_, v| WireLockRecent::decode(v).is_ok();
        "locks.rs" [] [WireLockRecentProcess] |_, v| WireLockRecentProcess::decode(v).is_ok();
        "locks.rs" [] [WireLockProcess] |_, v| WireLockProcess::decode(v).is_ok();
        "locks.rs" [] [WireLockHolder] |_, v| WireLockHolder::decode(v).is_ok();
        "locks.rs" [] [WireLockWaiter] |_, v| WireLockWaiter::decode(v).is_ok();
        "stacks.rs" [] [] |_, v| stacks::decode(v).is_ok();
        "stacks.rs" [WireLockWhoKey] [WireLockWho] |k, v| WireLockWho::decode(k, v).is_ok();
        "stacks.rs" [WireLockStackKey] [WireLockStack] |k, v| lock_stacks::decode_stack(k, v, &Whos::new()).is_ok();
        "pagecache.rs" [] [WireReclaim] |_, v| WireReclaim::decode(v).is_ok();
        "pagecache.rs" [] [WireReclaimerKey] |_, v| WireReclaimerKey::decode(v).is_ok();
        "parts.rs" [] [WirePartRow] |_, v| PartRow::decode(v).is_ok();
        "process_ios.rs" [WireProcessKey] [WireProcessIos] |k, v| ProcessIos::decode(k, v).is_ok();
        "rows.rs" [] [WireRow] |_, v| IoRow::decode(v).is_ok();
        "rows.rs" [] [WireOperationRow] |_, v| OperationRow::decode(v).is_ok();
        "submits.rs" [WireStackKey] [WireSubmitStack] |k, v| submits::decode_stack(k, v).is_ok();
        "threads.rs" [] [] |_, v| WireThread::decode(v).is_ok();
        // All other types are decoded by the same trait.
        "wire.rs" [] [WireCounters] |_, v| WireCounters::decode(v).is_ok();
    }
    .into_iter()
}

fn count_decoders(folder: &Path, into: &mut BTreeMap<String, usize>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            count_decoders(&path, into);
            continue;
        }
        let here = fs::read_to_string(&path).unwrap().matches("pub fn decode").count();
        if here > 0 {
            *into.entry(path.file_name().unwrap().to_string_lossy().into_owned()).or_default() += here;
        }
    }
}

#[test]
fn every_decoder_is_tried_here() {
    let mut written = BTreeMap::from([("wire.rs".to_string(), 1)]);
    count_decoders(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wire"), &mut written);
    let mut tried = BTreeMap::new();
    for decoder in decoders() {
        *tried.entry(decoder.file.to_string()).or_default() += 1;
    }
    assert_eq!(tried, written);
}

/// A kernel side that is older or newer than the reader writes records of another length: those are errors.
#[test]
fn a_record_of_another_length_is_an_error() {
    for decoder in decoders().filter(|decoder| decoder.value > 0) {
        let (key, value) = (vec![0; decoder.key], vec![0; decoder.value]);
        let accepts = |key: &[u8], value: &[u8]| (decoder.accepts)(key, value);
        let what = format!("{} of {} and {} bytes", decoder.file, decoder.key, decoder.value);
        assert!(accepts(&key, &value), "{what}");
        assert!(!accepts(&key, &value[1..]) && !accepts(&key, &[]), "a shorter {what}");
        assert!(!accepts(&key, &[&value[..], &[0; 8]].concat()), "a longer {what}");
        if decoder.key > 0 {
            assert!(!accepts(&key[1..], &value), "a shorter key: {what}");
            assert!(!accepts(&[&key[..], &[0]].concat(), &value), "a longer key: {what}");
        }
    }
}

proptest! {
    /// Any bytes of the right length are a record; bytes of any length cause no panic.
    #[test]
    fn any_bytes_are_decoded_or_refused(seed in vec(any::<u8>(), 1..400), key in vec(any::<u8>(), 0..100)) {
        for decoder in decoders() {
            let value: Vec<u8> = seed.iter().copied().cycle().take(decoder.value).collect();
            let right: Vec<u8> = key.iter().chain(&seed).copied().cycle().take(decoder.key).collect();
            if decoder.value > 0 {
                prop_assert!((decoder.accepts)(&right, &value), "{}", decoder.file);
            }
            (decoder.accepts)(&key, &seed);
        }
    }

    /// Also with a number of frames that the kernel side never writes.
    #[test]
    fn any_stack_sample_keeps_within_its_bounds(bytes in vec(any::<u8>(), 0..2200)) {
        if let Ok((sample, _)) = stacks::decode(&bytes) {
            prop_assert!(sample.kernel().len() <= stacks::MAX_FRAMES && sample.user().len() <= stacks::MAX_FRAMES);
        }
        if let Ok((head, stack)) = WireThread::decode(&bytes) {
            prop_assert!(stack.len() <= biopsy::wire::threads::MAX_FRAMES);
            head.letter();
        }
    }
}
