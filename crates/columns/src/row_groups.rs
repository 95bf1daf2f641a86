//! List of the row groups of a table. Copies share their common parts, so that adding row groups to a new version costs
//! the logarithm of their number.
//!
//! The list is a tree of fixed fan-out with the row groups at its leaves, as in Bagwell's persistent vectors (*Ideal
//! Hash Trees*, EPFL 2001). A change copies only those nodes between the root and the leaf that are shared with other
//! lists.
//!
//! Invariant: all leaves are at the same depth, and all nodes but the last of each level are full.

use crate::chunk::RowGroup;
use std::ops::Index;
use std::sync::Arc;

/// Number of children per node. Reason: copying a node increments only this many reference counts, and a million row
/// groups are only four levels deep.
const FAN_OUT: usize = 32;

/// A list of row groups whose copies share their common parts; see the comment of this file.
#[derive(Clone, Debug, Default)]
pub struct RowGroups {
    root: Option<Arc<Node>>,
    /// Number of levels above the leaves.
    height: u32,
    len: usize,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Vec<Arc<RowGroup>>),
    Inner(Vec<Arc<Node>>),
}

impl RowGroups {
    /// Returns the number of row groups.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the row group at index `place`.
    pub fn get(&self, place: usize) -> Option<&Arc<RowGroup>> {
        if place >= self.len {
            return None;
        }
        let mut node = self.root.as_deref()?;
        let mut height = self.height;
        loop {
            match node {
                Node::Leaf(groups) => return groups.get(place % FAN_OUT),
                Node::Inner(children) => {
                    node = children.get(place / span(height) % FAN_OUT)?;
                    height -= 1;
                }
            }
        }
    }

    /// Iterates over the row groups in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RowGroup>> + Clone {
        self.from(0)
    }

    /// Iterates over the row groups from index `place` on.
    pub fn from(&self, place: usize) -> impl Iterator<Item = &Arc<RowGroup>> + Clone {
        (place..self.len).map(|place| &self[place])
    }

    /// Appends a row group.
    pub fn push(&mut self, group: Arc<RowGroup>) {
        match self.root.as_mut() {
            Some(root) if self.len < FAN_OUT * span(self.height) => {
                push(Arc::make_mut(root), self.height, self.len, group);
            }
            Some(root) => {
                let beside = path_to(group, self.height);
                *root = Arc::new(Node::Inner(vec![root.clone(), beside]));
                self.height += 1;
            }
            None => self.root = Some(path_to(group, 0)),
        }
        self.len += 1;
    }

    /// Keeps only the first `len` row groups.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        self.len = len;
        let Some(root) = self.root.as_mut().filter(|_| len > 0) else {
            *self = RowGroups::default();
            return;
        };
        truncate(Arc::make_mut(root), self.height, len);
        while let Node::Inner(children) = &**root
            && let [only] = &children[..]
        {
            *root = only.clone();
            self.height -= 1;
        }
    }
}

/// Returns the number of row groups below each child of a node at `height`, for a full child.
fn span(height: u32) -> usize {
    FAN_OUT.pow(height)
}

/// Creates a node at `height` whose only leaf is `group`.
fn path_to(group: Arc<RowGroup>, height: u32) -> Arc<Node> {
    let leaf = Arc::new(Node::Leaf(vec![group]));
    (0..height).fold(leaf, |child, _| Arc::new(Node::Inner(vec![child])))
}

/// Adds `group` at index `place`, which must be the first free one below `node`.
fn push(node: &mut Node, height: u32, place: usize, group: Arc<RowGroup>) {
    match node {
        Node::Leaf(groups) => groups.push(group),
        Node::Inner(children) => match children.get_mut(place / span(height) % FAN_OUT) {
            Some(child) => push(Arc::make_mut(child), height - 1, place, group),
            None => children.push(path_to(group, height - 1)),
        },
    }
}

/// Keeps only the first `len` row groups below `node`; `len` must be at least one.
fn truncate(node: &mut Node, height: u32, len: usize) {
    match node {
        Node::Leaf(groups) => groups.truncate(len),
        Node::Inner(children) => {
            let before = (len - 1) / span(height);
            children.truncate(before + 1);
            truncate(Arc::make_mut(&mut children[before]), height - 1, len - before * span(height));
        }
    }
}

impl Index<usize> for RowGroups {
    type Output = Arc<RowGroup>;

    fn index(&self, place: usize) -> &Arc<RowGroup> {
        self.get(place).expect("there is such a row group")
    }
}

impl<'a> IntoIterator for &'a RowGroups {
    type Item = &'a Arc<RowGroup>;
    type IntoIter = Box<dyn Iterator<Item = &'a Arc<RowGroup>> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

impl FromIterator<Arc<RowGroup>> for RowGroups {
    fn from_iter<I: IntoIterator<Item = Arc<RowGroup>>>(groups: I) -> Self {
        let mut all = RowGroups::default();
        groups.into_iter().for_each(|group| all.push(group));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(rows: usize) -> Arc<RowGroup> {
        Arc::new(RowGroup { rows, chunks: Vec::new() })
    }

    fn rows(groups: &RowGroups) -> Vec<usize> {
        groups.iter().map(|group| group.rows).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn it_is_a_list_and_copies_do_not_see_what_is_done_to_others(
            steps in prop::collection::vec((0..2_500_usize, 0..1_000_usize), 1..12),
        ) {
            let (mut groups, mut naive) = (RowGroups::default(), Vec::new());
            let mut copies = Vec::new();
            for (pushed, permille) in steps {
                copies.push((groups.clone(), naive.clone()));
                for rows in 0..pushed {
                    groups.push(group(rows));
                    naive.push(rows);
                }
                prop_assert_eq!(rows(&groups), naive.clone());
                groups.truncate(naive.len() * permille / 1_000);
                naive.truncate(naive.len() * permille / 1_000);
                prop_assert_eq!(rows(&groups), naive.clone());
                prop_assert_eq!((groups.len(), groups.is_empty()), (naive.len(), naive.is_empty()));
                prop_assert!(groups.get(naive.len()).is_none());
            }
            for (copy, naive) in copies {
                prop_assert_eq!(rows(&copy), naive);
            }
        }
    }

    #[test]
    fn a_copy_that_grows_shares_all_but_a_path() {
        let base: RowGroups = (0..3 * FAN_OUT * FAN_OUT).map(group).collect();
        let mut grown = base.clone();
        grown.push(group(0));
        let children = |groups: &RowGroups| match groups.root.as_deref() {
            Some(Node::Inner(children)) => children.clone(),
            _ => panic!("a large list has inner nodes"),
        };
        let (base, grown) = (children(&base), children(&grown));
        assert!(base.iter().zip(&grown).all(|(one, other)| Arc::ptr_eq(one, other)));
        assert_eq!((base.len(), grown.len()), (3, 4));
    }
}
