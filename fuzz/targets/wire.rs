//! Bytes of any kind as the records that cross from the kernel, and as texts of /proc and of fio's job files.
//!
//! The first byte says as what. A record is read as it is and with exactly its length, and as two readings of
//! the same record: what came between them, and both together.

#![no_main]

use biopsy::host::cpu_time::{parse_schedstat, parse_stat};
use biopsy::host::elf::{BuildId, Elf};
use biopsy::host::interrupts::Interrupts;
use biopsy::host::kallsyms::Kallsyms;
use biopsy::host::meminfo::Meminfo;
use biopsy::host::memory_reading::CpuTotals;
use biopsy::host::mounts;
use biopsy::host::pressure::Pressure;
use biopsy::host::vmstat::Vmstat;
use biopsy::host::zones::Zone;
use biopsy::load::jobfile;
use biopsy::wire::blocked::{self, WireWaitProcess, WireWaitStack, WireWaiter};
use biopsy::wire::events::{Event, EventCounts, WireEmitter};
use biopsy::wire::files::{FileSample, WireFileIos, WireFileKey};
use biopsy::wire::interrupts::{WireSoftirq, WireVector};
use biopsy::wire::locks::stacks::{self as lock_stacks, Whos, WireLockStack, WireLockStackKey, WireLockWho};
use biopsy::wire::locks::{WireLock, WireLockProcess, WireLockRecent, WireLockRecentProcess};
use biopsy::wire::pagecache::{WireReclaim, WireReclaimerKey};
use biopsy::wire::parts::{PartRow, WirePartRow};
use biopsy::wire::process_ios::{ProcessIos, WireProcessIos, WireProcessKey};
use biopsy::wire::rows::{IoRow, OperationRow, WireOperationRow, WireRow};
use biopsy::wire::stacks::{self, WireStackKey};
use biopsy::wire::submits::{self, WireSubmitStack};
use biopsy::wire::threads::WireThread;
use biopsy::wire::{Count, DamagedRecord, process_events};
use libfuzzer_sys::fuzz_target;

/// CPUs of which a vector knows how many interrupts came to them.
const CPUS: usize = 4;

/// The first bytes, with zeros where there are too few. The allocator aligns them as the kernel's maps are.
fn exactly<T>(bytes: &[u8]) -> Vec<u8> {
    let mut record = bytes[..bytes.len().min(size_of::<T>())].to_vec();
    record.resize(size_of::<T>(), 0);
    record
}

/// Two records of the same kind, one behind the other.
fn both<T, V: Count>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<V, DamagedRecord>) {
    let _short = decode(bytes);
    let behind = bytes.get(size_of::<T>()..).unwrap_or_default();
    let (one, two) = (decode(&exactly::<T>(bytes)), decode(&exactly::<T>(behind)));
    let (Ok(one), Ok(two)) = (one, two) else { panic!("a record of its length is damaged") };
    one.since(&two);
    one.plus(&two);
}

/// A key and a value.
fn pair<K, V, T>(bytes: &[u8], decode: impl Fn(&[u8], &[u8]) -> Result<T, DamagedRecord>) -> (T, T) {
    let (key, value) = bytes.split_at(bytes.len() / 2);
    let _short = decode(key, value);
    let half = |bytes: &[u8]| {
        let behind = bytes.get(size_of::<K>()..).unwrap_or_default();
        decode(&exactly::<K>(bytes), &exactly::<V>(behind)).expect("a record of its length is damaged")
    };
    (half(key), half(value))
}

fn of_kernel(kind: u8, bytes: &[u8]) {
    match kind % 17 {
        0 => both::<WireRow, _>(bytes, IoRow::decode),
        1 => both::<WireOperationRow, _>(bytes, OperationRow::decode),
        2 => both::<WirePartRow, _>(bytes, PartRow::decode),
        3 => both::<WireVector, _>(bytes, |bytes| WireVector::decode(bytes, vec![u64::MAX; CPUS], true)),
        4 => both::<WireSoftirq, _>(bytes, WireSoftirq::decode),
        5 => both::<WireReclaim, _>(bytes, WireReclaim::decode),
        6 => {
            both::<WireLock, _>(bytes, WireLock::decode);
            let mut lock = WireLock::decode(&exactly::<WireLock>(bytes)).expect("it has its length");
            for recent in bytes.chunks(size_of::<WireLockRecent>()) {
                let recent = WireLockRecent::decode(&exactly::<WireLockRecent>(recent));
                recent.expect("it has its length").iter().for_each(|recent| lock.add(recent));
            }
        }
        7 => {
            let mut process =
                WireLockProcess::decode(&exactly::<WireLockProcess>(bytes)).expect("it has its length");
            for recent in bytes.chunks(size_of::<WireLockRecentProcess>()) {
                let recent = WireLockRecentProcess::decode(&exactly::<WireLockRecentProcess>(recent));
                recent.expect("it has its length").iter().for_each(|(_, recent)| process.add(recent));
            }
        }
        8 => {
            let decode = |key: &[u8], value: &[u8]| lock_stacks::decode_stack(key, value, &Whos::new());
            pair::<WireLockStackKey, WireLockStack, _>(bytes, decode);
            let _who = WireLockWho::decode(bytes, bytes);
        }
        9 => {
            let (one, two) = pair::<WireProcessKey, WireProcessIos, _>(bytes, ProcessIos::decode);
            ProcessIos::since(&[one.1.clone(), two.1.clone()], &[two.1, one.1]);
        }
        10 => {
            let (one, two) = pair::<WireFileKey, WireFileIos, _>(bytes, FileSample::decode);
            FileSample::since(&[one.1.clone(), two.1.clone()], &[two.1, one.1]);
        }
        11 => {
            let (one, two) = pair::<WireStackKey, WireWaitStack, _>(bytes, blocked::decode_stack);
            if let (Some((_, mut waits)), Some((_, more))) = (one, two) {
                waits.add(more);
            }
            pair::<WireWaitProcess, WireWaiter, _>(bytes, blocked::decode_waiter);
        }
        12 => {
            pair::<WireStackKey, WireSubmitStack, _>(bytes, submits::decode_stack);
            let _key = WireReclaimerKey::decode(&exactly::<WireReclaimerKey>(bytes));
        }
        13 => drop(Event::decode(bytes)),
        14 => {
            if let Ok((sample, _)) = stacks::decode(bytes) {
                sample.kernel_lookups().chain(sample.user_lookups()).for_each(drop);
                (sample.comm_bytes(), sample.work(), sample.is_of_ring());
            }
        }
        15 => {
            if let Ok((thread, _)) = WireThread::decode(bytes) {
                thread.letter();
            }
        }
        _ => {
            let mut rest = bytes;
            while process_events::next(&mut rest).is_some() {}
            let mut emitted = EventCounts::default();
            for emitter in bytes.chunks(size_of::<WireEmitter>()) {
                let emitter = <WireEmitter as biopsy::wire::Record>::decode(&exactly::<WireEmitter>(emitter));
                emitted.add(&emitter.expect("it has its length"));
            }
        }
    }
}

fn of_files(kind: u8, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // Two readings of the same file.
    let (earlier, now) = text.split_once('\u{1}').unwrap_or((&text, &text));
    match kind % 12 {
        0 => {
            Meminfo::parse(&text).absent();
        }
        1 => {
            let (earlier, now) = (Vmstat::parse(earlier), Vmstat::parse(now));
            now.absent();
            for name in &biopsy::host::vmstat::NAMES {
                now.since(&earlier, name.counter);
            }
            let all: Vec<_> = biopsy::host::vmstat::NAMES.iter().map(|name| name.counter).collect();
            now.sum_since(&earlier, &all);
        }
        2 => {
            mounts::by_id(bytes);
            let all = mounts::parse(&text);
            mounts::mount_of(&all, "/a/b");
            all.iter().for_each(|mount| {
                let _path = mount.device_path();
            });
        }
        3 => {
            if let Some(elf) = Elf::of(bytes) {
                elf.address(4096);
                elf.has(4096);
            }
        }
        4 => drop(BuildId::parse(&text)),
        5 => drop(CpuTotals::parse(&text)),
        6 => drop(Zone::parse(&text)),
        7 => drop(Pressure::parse(&text)),
        8 => {
            parse_stat(&text);
            let _wakeups = parse_schedstat(&text);
        }
        9 => {
            if let (Some(earlier), Some(now)) = (Interrupts::parse(earlier), Interrupts::parse(now)) {
                for number in [0, 1, 24] {
                    now.since(&earlier, number);
                    now.total_since(&earlier, number);
                    now.restarted_since(&earlier, number);
                }
                now.named_since(&earlier, "RES");
                now.messages_since(&earlier);
            }
        }
        10 => {
            let symbols = Kallsyms::parse(&text);
            symbols.functions(|_| true);
            symbols.variable(0xffff_ffff_8100_0000);
            symbols.function_at(0xffff_ffff_8100_0000);
        }
        _ => drop(jobfile::read(&text, "job.fio")),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind & 0x80 {
        0 => of_kernel(*kind, bytes),
        _ => of_files(kind & 0x7f, bytes),
    }
});
