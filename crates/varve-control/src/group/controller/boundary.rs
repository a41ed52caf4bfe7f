//! The boundaries between actions: where a test lets the daemon crash, or an action be carried out again.

#[cfg(not(test))]
pub(super) const fn times() -> usize {
    1
}

#[cfg(test)]
type Hook = Box<dyn Fn() -> usize>;

#[cfg(test)]
thread_local! {
    static HOOK: std::cell::RefCell<Option<Hook>> = const { std::cell::RefCell::new(None) };
}

/// How often the action is to be carried out that comes next.
#[cfg(test)]
pub(super) fn times() -> usize {
    HOOK.with_borrow(|hook| hook.as_ref().map_or(1, |hook| hook()))
}

/// Asks `hook` at every boundary on this thread from now on.
#[cfg(test)]
pub(crate) fn at_each(hook: Option<Hook>) {
    HOOK.replace(hook);
}
