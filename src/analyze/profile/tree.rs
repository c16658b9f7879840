//! The stacks of a profile as a tree, and what is too narrow to be seen folded into one frame per place.
//!
//! The tree is never whole in memory: rows come sorted, so that a part of it is closed when the next row leaves it,
//! and is dropped at once where it turns out narrow.

/// A stack that goes into a tree.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Root first. Rows come sorted: what shares frames from the root on stands together.
    pub frames: &'a [u32],
    pub value: u64,
    /// The part of `value` that was there before, where two profiles are compared; else 0.
    pub before: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The id of its frame; None: what was folded here, or the root of all.
    pub frame: Option<u32>,
    /// 0: the root of all.
    pub depth: u32,
    /// What ends here.
    pub own: u64,
    /// That and all above it.
    pub total: u64,
    /// The part of `own` and of `total` that was there before.
    pub before_own: u64,
    pub before: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    nodes: Vec<Node>,
    min_share: f64,
}

impl Tree {
    /// The tree of sorted rows without the parts that hold less than `min_share` of all.
    pub fn new<'a>(rows: impl Iterator<Item = Row<'a>> + Clone, min_share: f64) -> Tree {
        let total = rows.clone().fold(0u64, |sum, row| sum.saturating_add(row.value));
        let mut builder = Builder::new(total, min_share);
        let mut last: &[u32] = &[];
        for row in rows {
            let shared = last.iter().zip(row.frames).take_while(|(a, b)| a == b).count();
            builder.close_to(shared);
            row.frames[shared..].iter().for_each(|frame| builder.open(Some(*frame)));
            builder.add(row.value, row.before);
            last = row.frames;
        }
        builder.finish()
    }

    /// The same tree without the parts that hold less than a larger share.
    pub fn narrower(&self, min_share: f64) -> Tree {
        let mut builder = Builder::new(self.nodes[0].total, min_share);
        for node in &self.nodes[1..] {
            builder.close_to(node.depth as usize - 1);
            match node.frame {
                Some(_) => {
                    builder.open(node.frame);
                    builder.add(node.own, node.before_own);
                }
                None => builder.fold(node.total, node.before),
            }
        }
        builder.finish()
    }

    /// The root of all first, then each frame before those above it.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// What holds less than this share of all is folded.
    pub fn min_share(&self) -> f64 {
        self.min_share
    }

    /// The share of all values that is in folded frames, 0 to 1.
    pub fn narrow_share(&self) -> f64 {
        let folded = self.nodes[1..].iter().filter(|n| n.frame.is_none()).map(|n| n.own as f64).sum::<f64>();
        if self.nodes[0].total == 0 { 0.0 } else { folded / self.nodes[0].total as f64 }
    }

    /// Every node in which something ends, with those on the way to it from the root on, itself last. The root of all
    /// is not among them.
    pub fn each_path(&self, mut visit: impl FnMut(&[&Node], &Node)) {
        let mut path: Vec<&Node> = Vec::new();
        for node in &self.nodes[1..] {
            path.truncate(node.depth as usize - 1);
            path.push(node);
            if node.own > 0 {
                visit(&path, node);
            }
        }
    }
}

/// What a folded frame is called.
pub fn narrow_name(min_share: f64) -> String {
    format!("(narrower than {} %)", percent(min_share))
}

/// A share as a percentage of three digits at most, without zeros at its end.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let decimals = if percent >= 1.0 { 1 } else { 3 };
    let text = format!("{percent:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// Nodes are opened and closed as in a depth-first walk.
struct Builder {
    nodes: Vec<Node>,
    /// The open nodes from the root of all on, each with what was folded below it (value, before).
    open: Vec<(usize, u64, u64)>,
    min_share: f64,
    min: f64,
}

impl Builder {
    fn new(total: u64, min_share: f64) -> Builder {
        let min = total as f64 * min_share;
        let mut builder = Builder { nodes: Vec::new(), open: Vec::new(), min_share, min };
        builder.open(None);
        builder
    }

    fn open(&mut self, frame: Option<u32>) {
        let depth = self.open.len() as u32;
        self.open.push((self.nodes.len(), 0, 0));
        self.nodes.push(Node { frame, depth, own: 0, total: 0, before_own: 0, before: 0 });
    }

    fn add(&mut self, value: u64, before: u64) {
        let Some((at, ..)) = self.open.last() else { return };
        let node = &mut self.nodes[*at];
        node.own += value;
        node.total += value;
        node.before_own += before;
        node.before += before;
    }

    fn fold(&mut self, value: u64, before: u64) {
        let Some((_, folded, folded_before)) = self.open.last_mut() else { return };
        *folded += value;
        *folded_before += before;
    }

    /// Closes all but so many frames above the root of all.
    fn close_to(&mut self, depth: usize) {
        while self.open.len() > depth + 1 {
            self.close();
        }
    }

    fn close(&mut self) {
        let Some((at, folded, folded_before)) = self.open.pop() else { return };
        let (total, before) = (self.nodes[at].total + folded, self.nodes[at].before + folded_before);
        let root = self.open.is_empty();
        if !root && (total as f64) < self.min {
            self.nodes.truncate(at);
            self.fold(total, before);
            return;
        }
        (self.nodes[at].total, self.nodes[at].before) = (total, before);
        if folded > 0 {
            let depth = self.nodes[at].depth + 1;
            self.nodes.push(Node {
                frame: None,
                depth,
                own: folded,
                total: folded,
                before_own: folded_before,
                before: folded_before,
            });
        }
        if let Some((below, ..)) = self.open.last() {
            self.nodes[*below].total += total;
            self.nodes[*below].before += before;
        }
    }

    fn finish(mut self) -> Tree {
        while !self.open.is_empty() {
            self.close();
        }
        Tree { nodes: self.nodes, min_share: self.min_share }
    }
}
