//! All checks, root causes first.

use crate::check::Check;
use crate::checks::CHECKS;
use crate::finding::{Finding, Outcome, Verdict};
use crate::instruments::Instruments;
use crate::look::Look;
use crate::saved::Saved;
use crate::system::System;

/// Runs all checks: first what costs, root causes before what follows from them, then what can't be told,
/// then the rest.
pub fn examine(system: &System, instruments: &dyn Instruments, saved: &Saved) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        CHECKS.iter().map(|check| examine_one(check, system, instruments, saved)).collect();
    let costly: Vec<&str> = found.iter().filter(|it| it.verdict == Outcome::Costs).map(|it| it.id).collect();
    for (finding, check) in found.iter_mut().zip(CHECKS) {
        if finding.verdict == Outcome::Costs {
            finding.causes = check.causes.iter().copied().filter(|cause| costly.contains(cause)).collect();
        }
    }
    // Sorting keeps the table's order.
    found.sort_by_key(|it| (it.verdict as u8, !it.causes.is_empty()));
    found
}

/// Runs a check.
pub fn examine_one(
    check: &'static Check,
    system: &System,
    instruments: &dyn Instruments,
    saved: &Saved,
) -> Finding {
    let mut look = Look::new(system, instruments, saved);
    let verdict = (check.look)(&mut look).unwrap_or_else(|unseen| Verdict::Unknown(unseen.to_string()));
    let Look { evidence, measured, .. } = look;
    let mut finding = Finding {
        id: check.id,
        title: check.title,
        verdict: Outcome::Fine,
        why: String::new(),
        causes: Vec::new(),
        evidence,
        measured,
        cost: None,
        proven: None,
        remedy: check.remedy.into(),
        class: check.class,
        risk: check.risk,
        source: check.source,
        changes: Vec::new(),
    };
    match verdict {
        Verdict::Fine(why) => finding.why = why,
        Verdict::Unknown(why) => (finding.verdict, finding.why) = (Outcome::Unknown, why),
        Verdict::Costs(costs) => {
            (finding.verdict, finding.why) = (Outcome::Costs, costs.why);
            (finding.cost, finding.proven) = (Some(costs.estimate), Some(costs.proven));
            finding.changes = costs.changes;
            if let Some((class, remedy)) = costs.remedy {
                (finding.class, finding.remedy) = (class, remedy);
            }
        }
    }
    finding
}
