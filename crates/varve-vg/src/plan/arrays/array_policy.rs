//! What the arrays of a volume or pool declare, put into the group's text and into words.

use super::super::{Draft, Plan, PlanError};
use crate::model::{ArrayPolicy, Group, LogicalVolume};
use crate::size::format_size;

impl Draft<'_> {
    pub(in crate::plan) fn set_array_policy(
        &mut self,
        volume: &str,
        policy: ArrayPolicy,
    ) -> Result<(), PlanError> {
        let step = declare(self.lv(volume)?, policy)?;
        self.step(format!("let the arrays of {} {step}", self.full(volume)));
        Ok(())
    }
}

impl Plan {
    /// The same plan, after which a volume or pool of it declares `policy` for its arrays.
    pub fn with_array_policy(mut self, volume: &str, policy: ArrayPolicy) -> Result<Plan, PlanError> {
        let mut description = self.after.description().clone();
        for lv in description.logical_volumes.iter_mut().filter(|lv| lv.name == volume) {
            self.steps.push(format!("let its arrays {}", declare(lv, policy)?));
        }
        self.after = Group::new(description).map_err(PlanError::Invalid)?;
        Ok(self)
    }
}

/// Defaults are not written. Returns what the arrays do, as shown to users.
fn declare(lv: &mut LogicalVolume, policy: ArrayPolicy) -> Result<String, PlanError> {
    policy.problem().map_or(Ok(()), |problem| Err(PlanError::Layout(problem)))?;
    lv.array_policy = (policy != ArrayPolicy::default()).then_some(policy);
    let seconds = policy.slow_after_ms as f64 / 1000.0;
    let least = format_size(policy.resync_rate_min);
    let most = policy.resync_rate_max.map(|most| format!(", and at most {}", format_size(most)));
    let most = most.unwrap_or_default();
    let idle = match policy.release_after_ms == ArrayPolicy::default().release_after_ms {
        true => String::new(),
        false => format!(
            "; regions are clean again after {} s without writes",
            policy.release_after_ms as f64 / 1000.0
        ),
    };
    Ok(format!("wait {seconds} s for a member, and be made equal by at least {least}{most} a second{idle}"))
}
