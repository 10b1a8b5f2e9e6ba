//! The checks, a file for each subject; the order is that in which they are shown.

mod accel;
mod balloon;
mod clock;
mod cores;
mod delay;
mod devices;
mod drift;
mod governor;
mod holding;
mod idle;
mod interrupts;
mod isolation;
mod jitter;
mod nodes;
mod pages;
mod polling;
mod pools;
mod processor;
mod quota;
mod rivals;
mod samepage;
mod second;
mod slack;
mod sleep;
mod steal;
mod swap;
mod topology;
mod virtio;

use crate::check::Check;

/// All checks.
pub const CHECKS: &[Check] = &[
    accel::EMULATION,
    processor::INVARIANT_TSC,
    clock::SOURCE,
    processor::VECTORS,
    processor::CX16,
    processor::PCID,
    pages::HUGE,
    pages::SHARED,
    pages::POOL,
    second::SECOND,
    pools::DRIVER,
    cores::CPUS,
    cores::EMULATOR,
    cores::SIBLINGS,
    topology::TOPOLOGY,
    holding::HOLDING,
    isolation::ISOLATED,
    quota::QUOTA,
    delay::DELAY,
    rivals::PLACES,
    interrupts::INTERRUPTS,
    nodes::MEMORY,
    nodes::BALANCING,
    devices::NODE,
    governor::GOVERNOR,
    sleep::DEPTH,
    idle::GUEST,
    idle::HOST,
    polling::DOUBLE,
    steal::STEAL,
    jitter::JITTER,
    balloon::BALLOON,
    swap::SWAP,
    samepage::KSM,
    slack::SLACK,
    accel::VHOST,
    virtio::QUEUES,
    virtio::PACKED,
    drift::DRIFT,
];

/// A check by its name.
pub fn by_id(id: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_causes_stand_before_what_they_cause() {
        for (place, check) in CHECKS.iter().enumerate() {
            let before = &CHECKS[..place];
            assert!(before.iter().all(|other| other.id != check.id), "{}", check.id);
            for cause in check.causes {
                assert!(before.iter().any(|other| other.id == *cause), "{}: {cause}", check.id);
            }
        }
    }
}
