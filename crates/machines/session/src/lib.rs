//! Sessions of commands that run elsewhere, at both ends: in machines, in containers, on other kernels.
//!
//! | module | subject |
//! | --- | --- |
//! | [`commands`] | the host's end: starting commands, their input and output, and how they end |
//! | [`agent`] | the other end, which starts and reaps them |
//! | [`wire`] | the protocol between both |
//! | [`remote_shell`] | an MPI launcher's remote shell, and its relay |
//! | [`share`] | the files of the host that a machine sees |

pub mod agent;
pub mod commands;
pub mod remote_shell;
pub mod share;
pub mod wire;
