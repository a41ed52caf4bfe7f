//! Several tasks that do the same thing at one instant, in steps: none takes the next step before all have taken this one.
//!
//! Invariant BARRIER1: if one of them does not come, none goes on.

use futures_channel::oneshot::{Receiver, Sender, channel};
use futures_util::future::join_all;
use varve_target::snapshot::StoreError;

/// One of them, with as many steps as were agreed upon.
pub struct Barrier(std::vec::IntoIter<(Sender<()>, Receiver<()>)>);

/// Releases the members from a step when all have come to it. None goes on when it is dropped.
pub struct Caller(Vec<Vec<(Sender<()>, Receiver<()>)>>);

/// `members` barriers, of `steps` steps each.
pub fn barriers(members: usize, steps: usize) -> (Vec<Barrier>, Caller) {
    let mut all = Vec::with_capacity(members);
    let mut caller: Vec<Vec<_>> = (0..steps).map(|_| Vec::with_capacity(members)).collect();
    for _ in 0..members {
        let mut own = Vec::with_capacity(steps);
        for step in &mut caller {
            let ((here, is_here), (go, may_go)) = (channel(), channel());
            own.push((here, may_go));
            step.push((go, is_here));
        }
        all.push(Barrier(own.into_iter()));
    }
    (all, Caller(caller))
}

impl Barrier {
    /// Waits until all are here; [`StoreError::Busy`] if one of them will not come (BARRIER1).
    pub async fn all_are_here(&mut self) -> Result<(), StoreError> {
        let (here, may_go) = self.0.next().ok_or(StoreError::Busy)?;
        let _ = here.send(());
        may_go.await.map_err(|_| StoreError::Busy)
    }
}

impl Caller {
    /// Leads them through all steps, or as many as all of them take.
    pub async fn call(self) {
        for step in self.0 {
            let (go, here): (Vec<_>, Vec<_>) = step.into_iter().unzip();
            let all_are_here = join_all(here).await.into_iter().all(|here| here.is_ok());
            if !all_are_here {
                return; // BARRIER1
            }
            for go in go {
                let _ = go.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn nobody_takes_a_step_before_all_have_taken_the_last_one() {
        let (mut all, caller) = barriers(2, 2);
        let mut caller = Box::pin(caller.call());
        let (mut second, mut first) = (all.pop().expect("two"), all.pop().expect("two"));
        for _ in 0..2 {
            let mut wait = Box::pin(first.all_are_here());
            assert!((&mut wait).now_or_never().is_none() && (&mut caller).now_or_never().is_none());
            let mut other = Box::pin(second.all_are_here());
            assert!((&mut other).now_or_never().is_none());
            let _ended = (&mut caller).now_or_never();
            assert_eq!((wait.now_or_never(), other.now_or_never()), (Some(Ok(())), Some(Ok(()))));
        }
        assert_eq!(
            first.all_are_here().now_or_never(),
            Some(Err(StoreError::Busy)),
            "two steps were agreed upon"
        );
    }

    #[test]
    fn if_one_does_not_come_nobody_goes_on() {
        let (mut all, caller) = barriers(3, 2);
        drop(all.remove(1));
        let mut caller = Box::pin(caller.call());
        let mut waits: Vec<_> = all.iter_mut().map(|barrier| Box::pin(barrier.all_are_here())).collect();
        for wait in &mut waits {
            assert!(wait.now_or_never().is_none());
        }
        assert!((&mut caller).now_or_never().is_some());
        for wait in waits {
            assert_eq!(wait.now_or_never(), Some(Err(StoreError::Busy)), "BARRIER1");
        }
    }
}
