//! Programs that are built with sanitizers (`-fsanitize=address`, `thread`): questions of their runtimes, and
//! hints for them.

use core::ffi::{c_char, c_int, c_void};
use vshmem_pool::Mem;

/// The options of a runtime of AddressSanitizer in a library, unless the program has a function of this name:
/// it would end a program to which something is preloaded before it. Nothing here takes its place: what both
/// stand in for, this library passes on.
#[no_mangle]
pub extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

// Runtimes of ThreadSanitizer have the function; all others know of none.
core::arch::global_asm!(".weak AnnotateBenignRaceSized");
extern "C" {
    #[link_name = "AnnotateBenignRaceSized"]
    static ANNOTATE_BENIGN_RACE_SIZED: u8;
}

type Annotate = unsafe extern "C" fn(*const c_char, c_int, *const c_void, usize, *const c_char);

/// Tells a runtime of ThreadSanitizer that it does not see how the structures of a pool are kept from races:
/// it sees the library's copies there, and none of its atomics. Segments are mapped elsewhere, so races in
/// them are found.
pub fn expect_races(memory: Mem) {
    let function = crate::process::raw::opaque(&raw const ANNOTATE_BENIGN_RACE_SIZED as isize);
    if function == 0 {
        return;
    }
    let (file, what) = (c"libvshmem".as_ptr(), c"a pool's structures".as_ptr());
    // SAFETY: the runtime's function, which has these arguments, and remembers the range.
    unsafe {
        let annotate: Annotate = core::mem::transmute(function);
        annotate(file, 0, memory.base().cast(), memory.mapped(), what);
    }
}
