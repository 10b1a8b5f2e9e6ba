//! The implementations of MPI.

use crate::versions::{Tested, MPICH, OPEN_MPI};
use std::fmt;

/// An implementation of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// MPICH, launched by Hydra.
    Mpich,
    /// Open MPI.
    OpenMpi,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Mpich => "MPICH",
            Kind::OpenMpi => "Open MPI",
        })
    }
}

impl Kind {
    /// What its library has, and no other.
    pub fn mark(self) -> &'static [u8] {
        match self {
            Kind::Mpich => b"MPICH Version:",
            Kind::OpenMpi => b"ompi_version_string",
        }
    }

    /// Its versions that were tested.
    pub fn tested(self) -> Tested {
        match self {
            Kind::Mpich => MPICH,
            Kind::OpenMpi => OPEN_MPI,
        }
    }
}
