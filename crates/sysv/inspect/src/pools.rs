//! Pools on this kernel: the files that `VSHMEM_POOL` names, and in a machine its devices.

use crate::limits::Limit;
use crate::view::OpenPool;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::ffi::CString;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use vshmem_base::error::{error, Error, Result};
use vshmem_base::memory;
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::layout::PAGE;
use vshmem_pool::{Limits, Mem, Params, Pool, Uuid};

pub use vshmem_pool::DEFAULT_POOL;
use vshmem_transport::{
    create_resolved, create_with_head, list_local, page_size_for, random_uuid, remove_local, reserve_local,
    resolve_new, transports, CreateError, Handle, OpenError, PoolRef, ResolveError,
};

/// A pool, as its file shows it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The UUID that tells it from all other pools; null if an older version made it, or it can't be opened.
    #[serde(serialize_with = "text")]
    #[schemars(with = "Option<String>")]
    pub uuid: Option<Uuid>,
    /// Its file.
    pub path: String,
    /// Its length in bytes.
    pub size: u64,
    /// Bytes that are backed by memory.
    pub used: u64,
    /// Permission bits, in octal.
    #[serde(serialize_with = "octal")]
    #[schemars(with = "String")]
    pub mode: u32,
    /// All of its memory is reserved.
    pub reserved: bool,
    /// Why this version can't use it, as one that another version made; null: it can.
    pub unusable: Option<String>,
    /// The way in which this kernel reaches it.
    #[serde(flatten)]
    pub access: Access,
}

/// Permission bits, in octal.
pub fn octal<S: Serializer>(mode: &u32, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{mode:03o}"))
}

/// A UUID as it is written.
fn text<S: Serializer>(uuid: &Option<Uuid>, to: S) -> std::result::Result<S::Ok, S::Error> {
    uuid.map(|uuid| uuid.to_string()).serialize(to)
}

/// The way in which a kernel reaches a pool, which determines the cost of using it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Access {
    /// The processor caches its memory; otherwise every access goes to the device.
    pub cached: bool,
    /// A waiter sleeps until another kernel wakes it; otherwise it polls every 2 ms, also if the other kernel
    /// can't ring doorbells.
    pub woken: bool,
}

impl Access {
    /// The way in which an open pool is reached.
    fn of(handle: &Handle) -> Access {
        Access { cached: handle.is_cached(), woken: !handle.is_device() || handle.peer().is_some() }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = if self.cached { "cached" } else { "uncached" };
        let waiters = if self.woken { "sleep" } else { "poll" };
        write!(f, "{memory}, {waiters}")
    }
}

/// The pool of this name or path; without a name, all pools of this user on this kernel.
pub fn find(name: Option<&str>) -> Result<Vec<PoolRef>> {
    if let Some(name) = name {
        let found = vshmem_transport::resolve(name.as_bytes())
            .map_err(|e| error!("there is no pool {name}: {e}").code(1))?;
        return Ok(vec![found]);
    }
    let mut found = Vec::new();
    for transport in transports() {
        transport
            .discover(&mut |pool| {
                found.push(pool.clone());
                true
            })
            .map_err(|e| {
                let transport = transport.name();
                error!("could not look for pools ({transport}): {e}")
            })?;
    }
    found.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(found)
}

/// A pool's name, or its path.
pub fn name_of(pool: &PoolRef) -> String {
    let name = String::from_utf8_lossy(pool.name()).into_owned();
    if name.is_empty() {
        pool.path().to_string_lossy().into_owned()
    } else {
        name
    }
}

/// The pool that a program would find by a name.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// Its file.
    pub path: String,
    /// Its length in bytes; `None` if it will be made at first use.
    pub size: Option<u64>,
}

/// Looks up the pool that `VSHMEM_POOL` would name by `name`, without creating or changing it.
pub fn lookup(name: &str) -> Result<Lookup> {
    let refused = |why: &dyn fmt::Display| error!("the pool {name}: {why}");
    let pool = vshmem_transport::resolve(name.as_bytes()).map_err(|error| refused(&error))?;
    let path = pool.path().to_string_lossy().into_owned();
    let handle = match vshmem_transport::open(&pool) {
        Ok(handle) => handle,
        Err(OpenError::NotFound) if pool.is_local() => {
            check_directory(name).map_err(|error| refused(&error))?;
            return Ok(Lookup { path, size: None });
        }
        Err(error) => return Err(refused(&error)),
    };
    let size = Some(handle.mem().len() as u64);
    OpenPool::of(handle).map_err(|error| refused(&error))?;
    Ok(Lookup { path, size })
}

/// Checks that a pool that is given by path could be made there. The directory of named pools is made with
/// them.
fn check_directory(path: &str) -> std::result::Result<(), CreateError> {
    let Some((directory, _)) = path.rsplit_once('/') else {
        return Ok(());
    };
    let directory = if directory.is_empty() { "/" } else { directory };
    match rustix::fs::access(directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Err(CreateError::NoDirectory),
        Err(_) => Err(CreateError::Denied),
    }
}

/// Demands on a new pool's file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    /// Virtual machines can be given it as persistent memory ([`vshmem_transport::head`]).
    pub head: bool,
    /// The alignment of segments, in bytes, if that is more than what its memory is mapped in multiples of
    /// here.
    pub align: u64,
}

/// The device that a path leads to, if it does.
pub fn device_at(path: &str) -> Option<PoolRef> {
    let is_path = path.contains('/');
    is_path.then(|| vshmem_transport::resolve(path.as_bytes()).ok()).flatten().filter(|pool| !pool.is_local())
}

/// Makes an empty pool of all memory of a device, which has to begin with zeros: what else lies there is
/// lost. Its limits are as those of [`create`].
pub fn create_on(device: &PoolRef, chosen: &[Limit], align: u64) -> Result<()> {
    let failed = |why: String| error!("could not make a pool of {device}: {why}");
    let handle = vshmem_transport::open(device).map_err(|error| failed(error.to_string()).code(1))?;
    let mem = handle.mem();
    let begins = mem.words(0, PAGE / 8);
    let made = if begins.is_none_or(|words| words.iter().any(|word| word.load(Relaxed) != 0)) {
        Err(failed("it does not begin with zeros, so it is a pool already, or something else".into())
            .code(1)
            .hint("If nobody needs what is there, have root write zeros over its first 4 KiB."))
    } else {
        let limits = Limit::all(chosen, Limits::default());
        mem.zero(0, mem.len() as u64);
        let params = Params { limits, align: align.max(handle.page_size()), uuid: random_uuid() };
        format(mem, &params, chosen).map_err(|why| {
            mem.zero(0, PAGE);
            failed(why).code(2)
        })
    };
    // SAFETY: nothing refers to the memory.
    unsafe { handle.close() };
    made
}

/// Makes an empty pool with Linux's default limits, except for the given ones. A `name` with a slash is a
/// path. A limit that the pool can't have is an error, and no pool is left then.
pub fn create(name: &str, size: u64, mode: u32, chosen: &[Limit], form: Form) -> Result<()> {
    let limits = Limit::all(chosen, Limits::default());
    let failed = |why: String| error!("could not make the pool {name}: {why}");
    let pool = resolve_new(name.as_bytes()).map_err(|error| match error {
        ResolveError::Given => failed(error.to_string()).code(1),
        ResolveError::BadName | ResolveError::PathTooLong => failed(error.to_string()).code(2),
        _ => failed(error.to_string()),
    })?;
    let mut refused: Option<String> = None;
    let made = page_size_for(&pool).and_then(|page| {
        let params = Params { limits, align: form.align.max(page), uuid: random_uuid() };
        let init = &mut |memory| {
            refused = format(memory, &params, chosen).err();
            refused.is_none()
        };
        match form.head {
            true => create_with_head(&pool, form.align, size, mode, init),
            false => create_resolved(&pool, size, mode, init),
        }
    });
    made.map_err(|error| {
        let exists = matches!(error, CreateError::Exists);
        let never = refused.is_some() || matches!(error, CreateError::TooSmall);
        let error = failed(refused.unwrap_or_else(|| error.to_string()));
        if exists {
            error.code(1).hint(format!("Remove it first with: vshmem pool rm {name}"))
        } else if never {
            error.code(2)
        } else {
            error
        }
    })
}

/// An error unless a kernel that backs a whole pool with memory need not kill a process for it. `otherwise`
/// is the hint then.
pub fn check_room(name: &str, otherwise: &str) -> Result<()> {
    let pool = PoolRef::local(name.as_bytes()).map_err(|error| refused(name, error.to_string()))?;
    let wanted = lacking(&pool);
    match memory::available_for(pool.path()).filter(|left| *left < wanted) {
        Some(free) => Err(lacks(name, wanted, free, "this host").hint(otherwise)),
        None => Ok(()),
    }
}

/// Backs a whole pool with memory, for good: no process that uses it is killed later because the host is
/// full. `otherwise` is the hint if there is not enough memory.
pub fn reserve(name: &str, otherwise: &str) -> Result<()> {
    check_room(name, otherwise)?;
    let pool = PoolRef::local(name.as_bytes()).map_err(|error| refused(name, error.to_string()))?;
    reserve_local(&c_name(name)?).map_err(|error| match error {
        CreateError::NoRoom => {
            let room = memory::free_space(pool.path()).unwrap_or(0);
            let directory = fs::canonicalize(&*pool.path().to_string_lossy()).ok();
            let directory = directory.as_deref().and_then(Path::parent);
            let of = directory.unwrap_or(Path::new("its directory")).to_string_lossy();
            lacks(name, lacking(&pool), room, &of).hint(otherwise)
        }
        CreateError::Denied => refused(name, "only its owner can do that".into()).hint(otherwise),
        other => refused(name, other.to_string()).hint(otherwise),
    })
}

fn refused(name: &str, why: String) -> Error {
    error!("could not reserve the pool {name}: {why}")
}

fn lacks(name: &str, wanted: u64, free: u64, of: &str) -> Error {
    let (wanted, free) = (wanted.div_ceil(1 << 20), free >> 20);
    refused(name, format!("it takes {wanted} MiB more, and {of} has {free} MiB"))
}

/// Bytes of a pool's file that have no memory yet.
fn lacking(pool: &PoolRef) -> u64 {
    let file = fs::metadata(&*pool.path().to_string_lossy());
    file.map_or(0, |file| file.len().saturating_sub(file.blocks() * 512))
}

fn format(memory: Mem, params: &Params, chosen: &[Limit]) -> std::result::Result<(), String> {
    Pool::format(memory, params).map_err(|e| e.to_string())?;
    let pool = Pool::open(memory).map_err(|e| e.to_string())?;
    chosen.iter().try_for_each(|limit| limit.check(*pool.limits()))
}

/// The pools of this machine's devices, in their order, then this user's named pools, by name.
pub fn list() -> Result<Vec<Listed>> {
    let mut all = Vec::new();
    for transport in transports() {
        let listed = transport.discover(&mut |pool| {
            if !pool.is_local() {
                // A device that this user may not open is skipped.
                let handle = transport.open(pool).ok();
                all.extend(handle.and_then(|handle| device(pool, handle)));
            }
            true
        });
        listed.map_err(|error| error!("could not list the machine's pools: {error}"))?;
    }
    let devices = all.len();
    list_local(&mut |found| {
        let (uuid, unusable) = looked(vshmem_transport::open(&found.pool).ok().map(OpenPool::of));
        all.push(Listed {
            name: String::from_utf8_lossy(found.pool.name()).into_owned(),
            uuid,
            unusable,
            path: found.pool.path().to_string_lossy().into_owned(),
            size: found.size,
            used: found.used,
            mode: found.mode,
            reserved: found.reserved,
            access: Access { cached: true, woken: true },
        });
        true
    })
    .map_err(|error| error!("could not list the pools: {error}"))?;
    all[devices..].sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// A pool's UUID, or why it can't be used; neither of one that can't be opened.
fn looked(opened: Option<std::result::Result<OpenPool, String>>) -> (Option<Uuid>, Option<String>) {
    match opened {
        None => (None, None),
        Some(Ok(pool)) => (pool.uuid(), None),
        Some(Err(why)) => (None, Some(why)),
    }
}

/// The pool behind a device. Closes it.
fn device(pool: &PoolRef, handle: Handle) -> Option<Listed> {
    let path = handle.path().to_string_lossy().into_owned();
    let (size, access) = (handle.mem().len() as u64, Access::of(&handle));
    let (uuid, unusable) = looked(Some(OpenPool::of(handle)));
    let mode = fs::metadata(&path).ok()?.mode() & 0o7777;
    Some(Listed {
        name: String::from_utf8_lossy(pool.name()).into_owned(),
        uuid,
        unusable,
        path,
        size,
        used: size,
        mode,
        // The owner may have reserved it; that can't be seen from here.
        reserved: false,
        access,
    })
}

/// Removes a pool, even if it is in use. Programs that use it keep it until they end.
pub fn remove(name: &str) -> Result<()> {
    remove_local(&c_name(name)?).map_err(|error| error!("could not remove the pool {name}: {error}").code(1))
}

fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Error::new("a name can't have a zero byte in it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_new_pool_has_a_uuid_of_its_own() {
        let made = |name: &str| {
            let path = std::env::temp_dir().join(format!("vshmem-uuid-{name}-{}", std::process::id()));
            let path = path.to_str().unwrap();
            create(path, 1 << 20, 0o600, &[], Form::default()).unwrap();
            let pool = OpenPool::open(&find(Some(path)).unwrap()[0]).unwrap();
            remove(path).unwrap();
            pool.uuid().expect("a UUID")
        };
        assert_ne!(made("one"), made("two"));
    }
}
