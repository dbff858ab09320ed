//! Names of states → indexes. A name is looked up among the state's own children, then among its siblings, then outwards;
//! dots lead further in.

use super::codes;
use super::definition::Definition;
use super::diagnostic::Problems;
use super::source::{Spanned, clip};
use std::collections::HashMap;

/// Every target of the file, by state.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// Of `initial`.
    pub initial: Vec<Vec<u32>>,
    /// Of a history state's `to`.
    pub default: Vec<Vec<u32>>,
    /// Of each transition.
    pub targets: Vec<Vec<Vec<u32>>>,
}

/// The tree of states by name.
struct Tree<'d> {
    definition: &'d Definition,
    children: HashMap<(usize, &'d str), usize>,
}

/// Resolves everything; what does not exist is reported and left out.
pub fn resolve(definition: &Definition, problems: &mut Problems) -> Resolved {
    let children = definition.states.iter().enumerate().skip(1);
    let children = children.map(|(ix, s)| ((s.parent.unwrap_or(0), s.key.value.as_str()), ix)).collect();
    let tree = Tree { definition, children };
    let mut resolved = Resolved::default();
    for (ix, state) in definition.states.iter().enumerate() {
        let initial = state
            .initial
            .as_ref()
            .filter(|_| !state.children.is_empty())
            .map(|(to, _)| tree.inside(ix, to, "`initial`", problems));
        resolved.initial.push(initial.unwrap_or_default());
        let parent = state.parent.unwrap_or(0);
        let default = state.history.map(|_| tree.inside(parent, &state.default, "a history default", problems));
        resolved.default.push(default.unwrap_or_default());
        let targets = state.transitions.iter().map(|t| tree.outwards(ix, &t.to, problems)).collect();
        resolved.targets.push(targets);
    }
    resolved
}

impl Tree<'_> {
    /// The descendant of `scope` that a path names.
    fn descend(&self, scope: usize, path: &str) -> Option<usize> {
        path.split('.').try_fold(scope, |at, key| self.children.get(&(at, key)).copied())
    }

    /// Looks a target up from inside out.
    fn find(&self, from: usize, path: &str) -> Option<usize> {
        let mut scope = Some(from);
        while let Some(at) = scope {
            if let Some(found) = self.descend(at, path) {
                return Some(found);
            }
            scope = self.definition.states[at].parent;
        }
        None
    }

    fn outwards(&self, from: usize, names: &[Spanned<String>], problems: &mut Problems) -> Vec<u32> {
        let found = |name: &Spanned<String>, problems: &mut Problems| match self.find(from, &name.value) {
            Some(ix) => Some(ix as u32),
            None => {
                self.unknown(from, name, problems);
                None
            }
        };
        let targets: Vec<u32> = names.iter().filter_map(|name| found(name, problems)).collect();
        self.together(&targets, names, problems);
        targets
    }

    fn inside(&self, scope: usize, names: &[Spanned<String>], what: &str, problems: &mut Problems) -> Vec<u32> {
        let mut targets = Vec::new();
        for name in names {
            if let Some(ix) = self.descend(scope, &name.value) {
                targets.push(ix as u32);
            } else if self.find(scope, &name.value).is_some() {
                let message = format!("{what} names `{}`, which lies outside", clip(&name.value));
                let children = self.definition.states[scope].children.iter();
                let help =
                    problems.suggest(&name.value, children.map(|c| self.definition.states[*c].key.value.as_str()));
                problems.add(&codes::INITIAL_OUTSIDE, name.span, message, help);
            } else {
                self.unknown(scope, name, problems);
            }
        }
        self.together(&targets, names, problems);
        targets
    }

    fn unknown(&self, from: usize, name: &Spanned<String>, problems: &mut Problems) {
        let states = &self.definition.states;
        if problems.is_full() {
            problems.add(&codes::UNKNOWN_TARGET, name.span, "", "");
            return;
        }
        let key = name.value.rsplit('.').next().unwrap_or(&name.value);
        let elsewhere: Vec<&str> =
            states.iter().skip(1).filter(|s| s.key.value == key).map(|s| s.path.as_str()).collect();
        let help = match elsewhere.as_slice() {
            [path] => format!("did you mean `{path}`?"),
            _ => {
                let mut visible = Vec::new();
                let mut scope = Some(from);
                while let Some(at) = scope {
                    visible.extend(states[at].children.iter().map(|c| states[*c].key.value.as_str()));
                    scope = states[at].parent;
                }
                problems.suggest(&name.value, visible.into_iter().chain(elsewhere))
            }
        };
        problems.add(
            &codes::UNKNOWN_TARGET,
            name.span,
            format!("there is no state `{}` here", clip(&name.value)),
            help,
        );
    }

    /// Several targets must lie in different regions of a parallel state.
    fn together(&self, targets: &[u32], names: &[Spanned<String>], problems: &mut Problems) {
        if targets.len() < 2 || targets.len() != names.len() {
            return;
        }
        for (n, later) in targets.iter().enumerate() {
            for (m, earlier) in targets[..n].iter().enumerate() {
                let (a, b) = (*earlier as usize, *later as usize);
                if !self.definition.beside(a, b) {
                    let message = format!(
                        "`{}` and `{}` cannot be active together",
                        clip(&names[m].value),
                        clip(&names[n].value)
                    );
                    let help = "name one target, or one in each region of a parallel state";
                    problems.add(&codes::TARGETS_CLASH, names[n].span, message, help);
                    return;
                }
            }
        }
    }
}

impl Definition {
    /// Is `a` an ancestor of `b`?
    pub fn is_ancestor(&self, a: usize, b: usize) -> bool {
        a < b && b <= self.states[a].last
    }

    /// Do two states lie in different regions of a parallel state?
    pub fn beside(&self, a: usize, b: usize) -> bool {
        if a == b || self.is_ancestor(a, b) || self.is_ancestor(b, a) {
            return false;
        }
        let mut at = a;
        while let Some(parent) = self.states[at].parent {
            if self.is_ancestor(parent, b) {
                return self.states[parent].parallel;
            }
            at = parent;
        }
        false
    }
}
