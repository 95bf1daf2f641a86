//! Checks that tenants share the node by weight: start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996,
//! theorem 1).
//!
//! Invariant: over any interval in which two tenants always have work, their charges, each divided by the
//! tenant's weight, differ by no more than one step of each.

use crate::checks::Checked;
use crate::clock::LOOK_NS_MAX;
use farpool_pipeline::ShareUse;
use std::collections::BTreeMap;

/// Maximal nanoseconds that a step may be charged for its bytes: a row group of the simulation's tables, 4 MB at 8
/// GB/s.
const STEP_BYTES_NS_MAX: u64 = 500_000;

/// Charges of the tenants, as needed for the check.
#[derive(Debug, Default)]
pub struct Fairness {
    last: BTreeMap<u64, ShareUse>,
    /// For pairs of tenants that have had work ever since: the minimal and the maximal lead of the first tenant's
    /// charges over the second's.
    leads: BTreeMap<(u64, u64), (i128, i128)>,
    step_ns_max: u64,
}

impl Fairness {
    /// Checks the tenants' charges after one more step, which took `cpu_ns`.
    ///
    /// # Errors
    /// Fails if no tenant was charged for the step, or one tenant got more than its share.
    pub fn check(&mut self, uses: Vec<ShareUse>, cpu_ns: u64) -> Checked {
        self.step_ns_max = self.step_ns_max.max(cpu_ns).max(STEP_BYTES_NS_MAX);
        let now: BTreeMap<u64, ShareUse> = uses.into_iter().map(|share| (share.id, share)).collect();
        self.check_paid(&now, cpu_ns)?;
        let last = &self.last;
        self.leads.retain(|(one, other), _| [one, other].iter().all(|id| was_backlogged(last, &now, **id)));
        let backlogged: Vec<&ShareUse> = now.values().filter(|share| share.is_backlogged).collect();
        for (index, one) in backlogged.iter().enumerate() {
            for other in &backlogged[index + 1..] {
                self.check_pair(one, other)?;
            }
        }
        self.last = now;
        Ok(())
    }

    /// Checks that a tenant is charged for the time of a step, except for the time before its first reading of the
    /// clock.
    fn check_paid(&self, now: &BTreeMap<u64, ShareUse>, cpu_ns: u64) -> Checked {
        let charged = |(id, last): (&u64, &ShareUse)| Some(now.get(id)?.charged_ns - last.charged_ns);
        // If a tenant disappeared with the step, its charge is unknown.
        let charged: Option<Vec<i128>> = self.last.iter().map(charged).collect();
        let is_paid = |charged: Vec<i128>| {
            charged.into_iter().sum::<i128>() + i128::from(LOOK_NS_MAX as u64) >= i128::from(cpu_ns)
        };
        match charged.is_none_or(is_paid) || self.last.len() < now.len() {
            true => Ok(()),
            false => {
                Err(format!("nobody is charged for a step of {cpu_ns} ns: {:?}, then {now:?}", self.last))
            }
        }
    }

    fn check_pair(&mut self, one: &ShareUse, other: &ShareUse) -> Checked {
        let weighted = |share: &ShareUse| share.charged_ns / i128::from(share.weight);
        let lead = weighted(one) - weighted(other);
        let (least, most) = self.leads.entry((one.id, other.id)).or_insert((lead, lead));
        (*least, *most) = (lead.min(*least), lead.max(*most));
        let step = |share: &ShareUse| i128::from(self.step_ns_max) / i128::from(share.weight);
        // Rounding loses less than a nanosecond for each of the two tenants.
        let bound = step(one) + step(other) + 2;
        match *most - *least <= bound {
            true => Ok(()),
            false => Err(format!(
                "one tenant got {} ns more than its share beside another, of at most {bound}: {one:?}, {other:?}",
                *most - *least
            )),
        }
    }
}

/// Returns whether a tenant had work throughout from the `last` step to the one `now`. It may have had none in between:
/// its tasks were found waiting when it was their turn, and a step of another tenant woke them.
fn was_backlogged(last: &BTreeMap<u64, ShareUse>, now: &BTreeMap<u64, ShareUse>, id: u64) -> bool {
    let rests = |shares: &BTreeMap<u64, ShareUse>| {
        shares.get(&id).filter(|share| share.is_backlogged).map(|share| share.rests)
    };
    rests(now).is_some_and(|now| rests(last) == Some(now))
}
