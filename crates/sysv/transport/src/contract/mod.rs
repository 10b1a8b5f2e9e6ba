//! The contract of a transport: what [`Transport::open`] and [`Handle`] promise, as one suite of checks for
//! all transports.
//!
//! [`run`] takes a pool that nobody else uses and whose contents don't matter: the checks write to its last
//! pages. They start processes, change root, user and limits there, and end by printing one verdict each.
//! `cargo test -p vshmem-transport --features contract` runs the suite on local pools; the command
//! `transport-contract` runs it on any pool, in a machine too.

mod child;
mod descriptors;
mod liveness;
mod memory;
mod sleep;
mod sources;
mod subject;

pub use subject::{Subject, Verdict};

/// Makes all checks, and passes each name and verdict to `report`. Returns whether none failed.
pub fn run(subject: &Subject, report: &mut dyn FnMut(&str, &Verdict)) -> bool {
    let mut good = true;
    for check in [memory::CHECKS, descriptors::CHECKS, liveness::CHECKS, sources::CHECKS, sleep::CHECKS]
        .into_iter()
        .flatten()
    {
        let verdict = (check.make)(subject).unwrap_or_else(Verdict::Failed);
        good &= !matches!(verdict, Verdict::Failed(_));
        report(check.name, &verdict);
    }
    good
}
