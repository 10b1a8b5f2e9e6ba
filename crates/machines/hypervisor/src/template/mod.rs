//! Templates: machines that were frozen before they became anybody. Later machines of the same kind thaw from
//! one instead of booting.
//!
//! | module | subject |
//! | --- | --- |
//! | [`key`] | all that makes a template differ from another one |
//! | [`memory`] | its memory, which machines map privately |
//! | [`store`] | a user's templates, on disk |
//! | [`templates`] | those that one command uses |
//!
//! A hypervisor may load a state into a machine of another kind without a word. So what a template is for is
//! compared here, as the text of a [`key::Key`].
//!
//! A template is a state and its memory. Machines share pages of that which they have not changed: it is a
//! file without a name, which is sealed. Whoever has it can map and copy it, and nobody can change it, an
//! attacker that has taken over a machine's hypervisor process included. That process never gets the file on
//! disk, of which it is a copy. For machines whose pages are to be large, or come from certain nodes, the
//! state has the memory in it, and each loads it into memory of its own.

pub mod key;
pub mod memory;
pub mod store;
pub mod templates;

use std::os::fd::OwnedFd;

/// A template, ready for machines to thaw from.
pub struct Template {
    /// Its memory, a sealed file, unless the state has it.
    pub memory: Option<OwnedFd>,
    /// Its state, as its launcher has saved it.
    pub state: Vec<u8>,
}
