//! A preload for the ranks of an MPI job whose machines share a pool: it answers UCX's questions about the
//! machine below it.
//!
//! UCX's transport `sysv` is plain System V shared memory, which libvshmem carries out in a pool. But UCX
//! uses it only where it takes its peer for a process of its own kernel, and goes on only while it can see
//! that the peer lives. Both it asks by functions of its own, which it exports and calls through the dynamic
//! linker. This library has functions of the same names; preloaded, it is asked instead. Besides it has ranks
//! wait in a way that suits their host, answer the others at their end, and end where a message would be
//! lost. In a program without UCX nothing changes.
//!
//! | UCX asks | the answer |
//! | --- | --- |
//! | for the id of its system | a number that is made of the UUID of the process's pool |
//! | for its IPC name space | the initial one, for everybody |
//! | for its other name spaces | numbers that no other kernel has |
//! | when a peer started, by its pid | the same as long as it lives, wherever in the pool it is |
//! | only for addresses for other nodes (Open MPI does) | all of its addresses |
//!
//! Where the process has no pool, or its private segments don't go there, UCX's own functions answer, and
//! all is as without this library. docs/design/mpi-ranks.md says why the answers are safe.
//!
//! | module | subject |
//! | --- | --- |
//! | `names` | the functions with UCX's names |
//! | `pool` | the pool that the process shares with its peers |
//! | `library` | libvshmem's functions |
//! | `peers` | pids that were found in the pool |
//! | `next` | UCX's own functions |
//! | `waiting` | ranks that wait, and leave their processor or not |
//! | `closing` | progress for others while a rank waits for their end |
//! | `room` | a pool that has no room for messages |

mod closing;
mod library;
mod names;
mod next;
mod peers;
mod pool;
mod room;
mod waiting;
