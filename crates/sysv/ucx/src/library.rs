//! libvshmem's functions. They are looked up rather than linked: libvshmem has to be preloaded itself, so
//! that System V calls go there.

use core::ffi::{c_int, c_void, CStr};
use core::mem::transmute;

type Uuid = unsafe extern "C" fn(*mut u8) -> c_int;
type Member = unsafe extern "C" fn() -> c_int;
type TakesKey = unsafe extern "C" fn(c_int) -> c_int;
/// `vshm_process_lives`.
pub type ProcessLives = unsafe extern "C" fn(c_int) -> c_int;

/// Functions of libvshmem; `vshmem.h` documents them.
#[derive(Clone, Copy)]
pub struct Library {
    uuid: Uuid,
    member: Member,
    takes_key: TakesKey,
    /// Tells if a process of the pool lives.
    pub process_lives: ProcessLives,
}

impl Library {
    /// The library that this process's System V calls reach; `None` if they reach the kernel.
    pub fn find() -> Option<Library> {
        let uuid = look_up(c"vshm_pool_uuid")?;
        // One that somebody has only opened stands behind libc.
        if base(uuid)? != base(libc::shmat as *const c_void)? {
            return None;
        }
        // SAFETY: libvshmem's functions have these types.
        unsafe {
            Some(Library {
                uuid: transmute::<*const c_void, Uuid>(uuid),
                member: transmute::<*const c_void, Member>(look_up(c"vshm_pool_member")?),
                takes_key: transmute::<*const c_void, TakesKey>(look_up(c"vshm_takes_key")?),
                process_lives: transmute::<*const c_void, ProcessLives>(look_up(c"vshm_process_lives")?),
            })
        }
    }

    /// True if segments without a key go to a pool.
    pub fn takes_private(&self) -> bool {
        // SAFETY: takes any number.
        unsafe { (self.takes_key)(libc::IPC_PRIVATE) == 1 }
    }

    /// The pool's UUID. The pool is opened if it is not open yet. Where that fails, or it has none, libvshmem
    /// writes the reason to its log.
    pub fn uuid(&self) -> Option<u128> {
        let mut uuid = [0; 16];
        // SAFETY: there is room for sixteen bytes.
        let found = unsafe { (self.uuid)(uuid.as_mut_ptr()) } == 0;
        found.then_some(u128::from_be_bytes(uuid))
    }

    /// The number of this kernel in the pool.
    pub fn member(&self) -> Option<u32> {
        // SAFETY: takes nothing.
        u32::try_from(unsafe { (self.member)() }).ok()
    }
}

fn look_up(name: &CStr) -> Option<*const c_void> {
    // SAFETY: a string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const())
}

/// Address at which the library begins that has this one.
fn base(address: *const c_void) -> Option<usize> {
    let mut info = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: any address may be asked about.
    let known = unsafe { libc::dladdr(address, &mut info) } != 0;
    known.then_some(info.dli_fbase as usize)
}
