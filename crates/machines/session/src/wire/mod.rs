//! The protocol between `vshmem` on the host and the agent in a machine, over a virtio-serial port; and the
//! messages of an MPI launcher's relay (see [`relay`]).
//!
//! A session begins with a greeting: the host sends [`greeting::HELLO`] and 16 random bytes, and the agent
//! answers with [`greeting::WELCOME`] and the same bytes. Each side discards its input until it has seen the
//! greeting: the port may still hold the rest of an earlier session whose host end was killed. Frames follow
//! (see [`frame`]).
//!
//! A session runs any number of commands, at most [`frame::MAX_STREAMS`] at once; each frame carries its
//! command's number. The host chooses a number that is not in use as far as it knows. A frame for a command
//! that has ended crossed the report of its end, and is ignored.
//!
//! Input has a window per command ([`frame::STDIN_WINDOW`]). Output has none: commands share the channel in
//! turn, and the host reads all that arrives, since it goes to the same terminal or file.
//!
//! The host repeats its greeting now and then, between frames. An agent that answers with a welcome has
//! forgotten the session, because its machine was reset. One that knows the session answers with a frame, and
//! an agent that does not answer is in a machine that is stopped.

pub mod ended;
pub mod frame;
pub mod greeting;
pub mod lines;
pub mod message;
pub mod relay;
pub mod start;
