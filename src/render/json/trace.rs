//! Renders the lines of `biopsy trace --json`, one I/O each. The last line is a [`TraceSummary`].
//!
//! Written without serde, because there are hundreds of thousands of lines per second.

use serde_json::json;

use crate::analyze::trace::TraceSummary;
use crate::analyze::trace::io::{StageTimes, TracedIo};
use crate::analyze::trace::operation::TracedOperation;
use crate::analyze::trace::scene::Scene;
use crate::envelope::View;

/// Adds the line of one I/O.
pub fn io(out: &mut Vec<u8>, scene: &Scene, io: &TracedIo) {
    let mut object = Object::begin(out);
    object.text("schema", TraceSummary::SCHEMA);
    object.number("io", io.number);
    object.number("at_ns", scene.at_ns(io));
    object.text("device", scene.name(io));
    object.optional("queue", io.queue);
    object.optional("qid", scene.qid(io));
    if let Some(op) = io.op {
        object.text("op", op.name());
    }
    object.key("flags");
    list(object.out, scene.flag_names(io), string);
    object.optional("offset", io.offset);
    object.optional("bytes", io.bytes);
    if io.further > 0 {
        object.number("counted", io.further + 1);
    }
    object.optional("queued_ns", io.queued_ns);
    object.optional("issued_ns", io.issued_ns);
    object.stages("request_stages", &io.stages);
    // A bio of a device without requests has no stages that add up to this.
    let total = if io.queue.is_some() { "request_total_ns" } else { "bio_ns" };
    object.optional(total, io.total_ns);
    for (key, set) in
        [("started_before", io.started_before), ("negative", io.negative), ("flushed", io.flushed)]
    {
        if set {
            object.flag(key, set);
        }
    }
    let node = |cpu: u32| scene.nodes.get(&cpu).copied();
    if let Some(owner) = &io.owner {
        object.number("submit_cpu", owner.cpu);
        object.optional("submit_node", node(owner.cpu));
    }
    object.number("completion_cpu", io.completion_cpu);
    object.optional("completion_node", node(io.completion_cpu));
    if let Some(owner) = &io.owner {
        object.key("owner");
        let mut inner = Object::begin(object.out);
        inner.number("pid", owner.pid);
        inner.number("tid", owner.tid);
        inner.text("comm", &owner.name());
        inner.flag("kernel_thread", owner.kernel);
        if let Some(path) = owner.cgroup.and_then(|id| scene.cgroup(id)) {
            inner.text("cgroup", path);
        }
        inner.optional("cgroup_id", owner.cgroup);
        inner.end();
    }
    if let Some(file) = scene.file(io) {
        object.key("file");
        object.out.extend(json!(file).to_string().into_bytes());
    }
    if let Some(of) = &io.operation {
        object.key("operation");
        operation(object.out, of);
    }
    if !io.merged.is_empty() {
        object.key("merged_operations");
        list(object.out, io.merged.iter(), operation);
    }
    object.end();
    out.push(b'\n');
}

fn operation(out: &mut Vec<u8>, operation: &TracedOperation) {
    let mut object = Object::begin(out);
    object.number("id", operation.id);
    if let Some(end) = &operation.end {
        object.text("kind", end.kind.name());
        object.optional("user_data", end.user_data);
        object.optional("opcode", end.opcode);
        object.number("ios", end.ios);
        object.flag("last", end.last);
        if let Some(stages) = &end.stages {
            object.stages("stages", stages);
        }
        object.optional("total_ns", end.total_ns);
    }
    object.end();
}

/// An object being written.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    fn end(self) {
        self.out.push(b'}');
    }

    /// Keys are constants and need no escapes. Inlined, so that the length of each is known and no call is needed to
    /// copy it.
    #[inline(always)]
    fn key(&mut self, key: &str) {
        let before: &[u8] = if std::mem::take(&mut self.first) { b"\"" } else { b",\"" };
        self.out.extend_from_slice(before);
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    #[inline(always)]
    fn number(&mut self, key: &str, value: impl Into<u64>) {
        self.key(key);
        number(self.out, value.into());
    }

    /// Adds a key only if there is a value.
    #[inline(always)]
    fn optional(&mut self, key: &str, value: Option<impl Into<u64>>) {
        if let Some(value) = value {
            self.number(key, value);
        }
    }

    #[inline(always)]
    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        string(self.out, value);
    }

    fn flag(&mut self, key: &str, value: bool) {
        self.key(key);
        self.out.extend(if value { &b"true"[..] } else { b"false" });
    }

    fn stages(&mut self, key: &str, stages: &StageTimes) {
        self.key(key);
        let mut inner = Object::begin(self.out);
        for (stage, ns) in stages.iter() {
            inner.number(stage.name(), ns);
        }
        inner.end();
    }
}

fn list<T>(out: &mut Vec<u8>, items: impl Iterator<Item = T>, mut write: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

fn string(out: &mut Vec<u8>, value: &str) {
    // The common case: plain words.
    if value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\') {
        out.push(b'"');
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
        return;
    }
    // Writing a JSON string to memory cannot fail.
    let _never = serde_json::to_writer(&mut *out, value);
}

/// The two digits of each number below a hundred.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut i = 0;
    while i < pairs.len() {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

/// Takes a fraction of the time of `write!`; a line has thirty numbers.
fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    while value >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
        value /= 100;
    }
    // One more digit, unless the last pair began with 0.
    if value > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::analyze::op::Op;
    use crate::analyze::trace::io::Owner;
    use crate::analyze::trace::scene::TracedDevice;

    fn scene() -> Scene {
        let device = TracedDevice { name: "nvme0n1".into(), nvme: true, ..TracedDevice::default() };
        Scene {
            start_ns: 100,
            devices: vec![device],
            nodes: BTreeMap::from([(3, 1)]),
            flags: BTreeMap::from([(11, "sync".into()), (12, "meta".into())]),
            cgroups: BTreeMap::from([(7, "/a\"b".into())]),
            ..Scene::default()
        }
    }

    fn rendered(io: &TracedIo) -> Value {
        let mut out = Vec::new();
        super::io(&mut out, &scene(), io);
        assert_eq!(out.iter().filter(|b| **b == b'\n').count(), 1);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn numbers_are_written_to_the_last_digit() {
        let powers = (0..20).map(|power| 10u64.pow(power));
        let around = powers.flat_map(|power| [power - 1, power, power + 1, power.saturating_mul(7)]);
        for value in around.chain([1234567890, u64::MAX]) {
            let mut out = Vec::new();
            number(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }

    #[test]
    fn a_line_is_json_whatever_the_names_are() {
        let owner = Owner {
            pid: 4,
            tid: 5,
            comm: *b"\"\x1b\n\xff\\\0rubbish...",
            cgroup: Some(7),
            cpu: 3,
            kernel: true,
        };
        let io = TracedIo {
            number: 9,
            queue: Some(2),
            op: Some(Op::WriteZeroes),
            flags: 1 << 12 | 9,
            offset: Some(0),
            bytes: Some(512),
            ended_ns: 350,
            owner: Some(owner),
            completion_cpu: 8,
            operation: Some(TracedOperation { id: 1, end: None }),
            ..TracedIo::default()
        };
        let line = rendered(&io);
        assert_eq!(line["owner"]["comm"], "\"\u{1b}\n\u{fffd}\\");
        assert_eq!((&line["owner"]["cgroup"], &line["owner"]["cgroup_id"]), (&"/a\"b".into(), &7.into()));
        assert_eq!(
            (&line["at_ns"], &line["qid"], &line["op"]),
            (&250.into(), &3.into(), &"write_zeroes".into())
        );
        assert_eq!((&line["flags"], &line["submit_node"]), (&json!(["meta"]), &1.into()));
        assert_eq!(line["operation"], json!({"id": 1}));
    }

    #[test]
    fn what_is_not_known_has_no_key() {
        let line = rendered(&TracedIo::default());
        let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
        let always = ["at_ns", "completion_cpu", "device", "flags", "io", "request_stages", "schema"];
        assert_eq!(keys, always);
    }
}
