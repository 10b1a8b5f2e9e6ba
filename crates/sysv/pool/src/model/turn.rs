//! The actor whose turn it is: loom's threads are all one to the operating system.

use core::cell::Cell;

std::thread_local! {
    static ACTOR: Cell<usize> = const { Cell::new(0) };
}

/// Does what loom may switch threads in.
pub fn switching<T>(act: impl FnOnce() -> T) -> T {
    let me = ACTOR.get();
    let result = act();
    ACTOR.set(me);
    result
}

/// Says who the calling thread is.
pub fn enter(actor: usize) {
    ACTOR.set(actor);
}

/// The number of the calling thread's actor.
pub fn actor() -> usize {
    ACTOR.get()
}
