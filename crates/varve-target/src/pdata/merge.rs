//! Nodes that have become too small: they are merged with a neighbour that is in memory, or share entries with it.
//!
//! Nothing is read for that (EDIT3 of `edit.rs`), and nothing believed that only happens to be in memory: a neighbour is
//! looked at as any other child is (DESCENT1 and DESCENT3 of `down.rs`), or what is elsewhere would become part of the map.

use super::down::Down;
use super::pages::Pages;
use super::tree::capacity;
use std::rc::Rc;
use varve_format::pdata::link::Link;
use varve_format::pdata::node::{Entries, Key, Node};

/// Merges the child at `index` of `branch`, if it is too small, with a neighbour that is in memory if both fit into one
/// node; else shares their entries out. An empty child without a neighbour is taken out.
pub(super) fn mend(pages: &mut Pages, branch: Down, index: usize) {
    let parent = branch.link;
    let Some((_, link)) = pages.branch(parent).get(index).copied() else { return };
    let child = pages.node(link).expect("EDIT3: the path of a change is in memory");
    if child.len() > capacity(&child) / 4 {
        return;
    }
    let entries = pages.branch(parent).clone();
    let Some((left, right)) = neighbours(pages, branch, &entries, index) else {
        if child.is_empty() {
            pages.take_child(parent, index);
            pages.release(link.block());
        }
        return;
    };
    assert!(left + 1 == right && (left == index || right == index), "NODE4: neighbours lie side by side");
    let (left_node, right_node) = (sibling(pages, entries[left].1), sibling(pages, entries[right].1));
    let joined = join(&left_node, &right_node, entries[right].0);
    let target = pages.shadow(entries[left].1);
    pages.branch(parent)[left].1 = target;
    if joined_len(&joined) <= capacity(&left_node) * 3 / 4 {
        pages.change(target.block()).entries = joined;
        pages.release(entries[right].1.block());
        pages.branch(parent).remove(right);
        return;
    }
    let other = pages.shadow(entries[right].1);
    let (first, second, key) = halve(joined);
    pages.change(target.block()).entries = first;
    pages.change(other.block()).entries = second;
    pages.branch(parent)[right] = (key, other);
}

/// The child at `index` of `branch` and a neighbour, the left one first, that may be changed without reading or taking a
/// block, and is believed (DESCENT1 and DESCENT3 of `down.rs`).
fn neighbours(
    pages: &mut Pages,
    branch: Down,
    entries: &[(Key, Link)],
    index: usize,
) -> Option<(usize, usize)> {
    let parent = pages.node(branch.link).expect("EDIT3: the path of a change is in memory");
    let pairs = [index.checked_sub(1).map(|left| (left, index)), Some((index, index + 1))];
    pairs.into_iter().flatten().filter(|(_, right)| *right < entries.len()).find(|(left, right)| {
        let other = if *left == index { *right } else { *left };
        let Some(node) = branch.to_child(&parent, entries, other).node_in_memory(pages) else { return false };
        pages.is_new(&node) || pages.has_reserve()
    })
}

fn sibling(pages: &mut Pages, link: Link) -> Rc<Node> {
    pages.node(link).expect("a neighbour was looked at before")
}

/// The entries of two neighbours; the second one's first child begins where its parent says.
fn join(left: &Node, right: &Node, right_key: Key) -> Entries {
    match (&left.entries, &right.entries) {
        (Entries::Leaf(left), Entries::Leaf(right)) => {
            assert!(
                left.last().is_none_or(|last| last.0 < right_key),
                "NODE4: a leaf ends where the next begins"
            );
            Entries::Leaf([&left[..], &right[..]].concat())
        }
        (Entries::Branch(left), Entries::Branch(right)) => {
            let mut joined = [&left[..], &right[..]].concat();
            joined[left.len()].0 = right_key;
            Entries::Branch(joined)
        }
        _ => unreachable!("NODE3: neighbours are on one level"),
    }
}

fn joined_len(entries: &Entries) -> usize {
    match entries {
        Entries::Leaf(entries) => entries.len(),
        Entries::Branch(entries) => entries.len(),
    }
}

/// Two halves, and the key where the second begins.
fn halve(entries: Entries) -> (Entries, Entries, Key) {
    assert!(joined_len(&entries) > 1, "NODE3: no half is empty");
    match entries {
        Entries::Leaf(mut first) => {
            let second = first.split_off(first.len() / 2);
            let key = second[0].0;
            (Entries::Leaf(first), Entries::Leaf(second), key)
        }
        Entries::Branch(mut first) => {
            let second = first.split_off(first.len() / 2);
            let key = second[0].0;
            (Entries::Branch(first), Entries::Branch(second), key)
        }
    }
}
