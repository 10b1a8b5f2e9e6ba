//! Instruments: they measure this kernel, or have measurements that were recorded.

use crate::cpus;

mod clock;
pub mod energy;
mod memory;
mod processor;
mod quantum;
pub mod wake;

pub use clock::Clock;
pub use memory::Touch;
pub use processor::Kvm;
pub use quantum::Quantum;
pub use wake::Wake;

/// The measurements that checks ask for. `None`: it can't be measured here.
pub trait Instruments {
    /// The signature of the hypervisor, as the processor tells it.
    fn hypervisor(&self) -> Option<String>;
    /// The promises of KVM, if it is the hypervisor.
    fn kvm(&self) -> Option<Kvm>;
    /// The time of a look at the clock.
    fn clock(&self) -> Option<Clock>;
    /// The time of the first touch of memory.
    fn touch(&self) -> Option<Touch>;
    /// The evenness of the processor's work.
    fn quantum(&self) -> Option<Quantum>;
    /// The times of wake-ups of processors that idle.
    fn wake(&self) -> Option<Wake>;
}

/// Instruments that measure this kernel.
pub struct Live;

impl Instruments for Live {
    fn hypervisor(&self) -> Option<String> {
        processor::hypervisor()
    }

    fn kvm(&self) -> Option<Kvm> {
        processor::kvm()
    }

    fn clock(&self) -> Option<Clock> {
        Some(clock::measure())
    }

    fn touch(&self) -> Option<Touch> {
        memory::measure()
    }

    fn quantum(&self) -> Option<Quantum> {
        quantum::measure()
    }

    fn wake(&self) -> Option<Wake> {
        wake::measure(&cpus::admitted().ok()?).ok()
    }
}

/// Measurements that were recorded beside a tree.
#[derive(Default)]
pub struct Recorded {
    /// The hypervisor's signature.
    pub hypervisor: Option<String>,
    /// The promises of KVM, if it was the hypervisor.
    pub kvm: Option<Kvm>,
    /// The time of a look at the clock.
    pub clock: Option<Clock>,
    /// The time of the first touch of memory.
    pub touch: Option<Touch>,
    /// The evenness of the work.
    pub quantum: Option<Quantum>,
    /// The times of wake-ups.
    pub wake: Option<Wake>,
}

impl Instruments for Recorded {
    fn hypervisor(&self) -> Option<String> {
        self.hypervisor.clone()
    }

    fn kvm(&self) -> Option<Kvm> {
        self.kvm
    }

    fn clock(&self) -> Option<Clock> {
        self.clock
    }

    fn touch(&self) -> Option<Touch> {
        self.touch
    }

    fn quantum(&self) -> Option<Quantum> {
        self.quantum
    }

    fn wake(&self) -> Option<Wake> {
        self.wake
    }
}
