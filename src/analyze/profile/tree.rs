//! Builds the tree of a profile's stacks, with parts that are too narrow folded into one frame each.
//!
//! The full tree is never in memory: rows come sorted, so a part is closed when the next row leaves it, and dropped at
//! once if it is narrow.

/// A stack to add to a tree.
#[derive(Debug, Clone, Copy)]
pub struct StackRow<'a> {
    /// Root first. Rows must be sorted, so that stacks with a common prefix are adjacent.
    pub frames: &'a [u32],
    pub value: u64,
    /// The part of `value` that belongs to the first profile in a comparison; otherwise 0.
    pub before: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The id of its frame; None: a folded part, or the root of all.
    pub frame: Option<u32>,
    /// 0: the root of all.
    pub depth: u32,
    /// Value of stacks that end here.
    pub own: u64,
    /// Value of stacks through this node.
    pub total: u64,
    /// The parts of `own` and of `total` that belong to the first profile.
    pub before_own: u64,
    pub before: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    nodes: Vec<Node>,
    min_share: f64,
}

impl Tree {
    /// The tree of sorted rows without the parts that hold less than `min_share` of the total.
    pub fn new<'a>(rows: impl Iterator<Item = StackRow<'a>> + Clone, min_share: f64) -> Tree {
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

    /// The same tree with a larger minimum share.
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

    /// Root of all first, then in depth-first order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Parts with less than this share of the total are folded.
    pub fn min_share(&self) -> f64 {
        self.min_share
    }

    /// The share of the total in folded frames, 0 to 1.
    pub fn narrow_share(&self) -> f64 {
        let folded = self.nodes[1..].iter().filter(|n| n.frame.is_none()).map(|n| n.own as f64).sum::<f64>();
        if self.nodes[0].total == 0 { 0.0 } else { folded / self.nodes[0].total as f64 }
    }

    /// Visits every node in which a stack ends, with its path from the root, itself last. The root of all is excluded.
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

/// The name of a folded frame.
pub fn narrow_name(min_share: f64) -> String {
    format!("(narrower than {} %)", percent(min_share))
}

/// A share as a percentage with at most three digits, without trailing zeros.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let decimals = if percent >= 1.0 { 1 } else { 3 };
    let text = format!("{percent:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// Opens and closes nodes in depth-first order.
struct Builder {
    nodes: Vec<Node>,
    /// The open nodes from the root of all, each with what was folded below it (value, before).
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

    /// Closes all but `depth` frames above the root of all.
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
