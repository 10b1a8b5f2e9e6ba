//! Changes to a kernel that is modelled, with kills at each step.

mod fake;
mod kills;
mod looks;
