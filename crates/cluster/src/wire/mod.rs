//! What passes between `vshmem` on the host and the agent in a machine, over a virtio-serial port.
//!
//! A session begins with a greeting: the host sends [`HELLO`] and 16 random bytes, the agent answers with
//! [`WELCOME`] and the same bytes. Until it has seen the greeting, each side throws away what comes in: the port may
//! still hold the rest of an earlier session whose host end was killed. After it come frames (see [`frame`]).
//!
//! A session runs any number of commands, [`frame::MAX_STREAMS`] at once at the most: the frames of each have its number. The host chooses a
//! number that no command has whose end it was not told; frames for a command that has ended cross the message of its end, and mean nothing.
//!
//! Input has a window for each command ([`STDIN_WINDOW`]). Output has none: the commands take turns at a channel, and the host reads what
//! comes, since all of it goes to the same place there.
//!
//! The host repeats its greeting now and then, between frames. An agent that welcomes it again has forgotten the session, for its machine was
//! reset; one that knows it answers by a frame, and one that does not answer is in a machine that stands still.

pub mod ended;
pub mod frame;
pub mod greeting;
pub mod start;
