//! What is measured: by this kernel, or as it was recorded.

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

/// What measures. `None`: it can't be measured here.
pub trait Instruments {
    /// The signature of the hypervisor, as the processor tells it.
    fn hypervisor(&self) -> Option<String>;
    /// What KVM promises, if it is the hypervisor.
    fn kvm(&self) -> Option<Kvm>;
    /// What it takes to read the clock.
    fn clock(&self) -> Option<Clock>;
    /// What it takes to touch new memory.
    fn touch(&self) -> Option<Touch>;
    /// How even the processor's work is.
    fn quantum(&self) -> Option<Quantum>;
    /// What it takes to wake a processor that idles.
    fn wake(&self) -> Option<Wake>;
}

/// This kernel's.
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

/// What was recorded beside a tree, if anything.
#[derive(Default)]
pub struct Recorded {
    /// The hypervisor's signature.
    pub hypervisor: Option<String>,
    /// What KVM promised, if it was the hypervisor.
    pub kvm: Option<Kvm>,
    /// What it took to read the clock.
    pub clock: Option<Clock>,
    /// What it took to touch new memory.
    pub touch: Option<Touch>,
    /// How even the work was.
    pub quantum: Option<Quantum>,
    /// What it took to wake a processor.
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
