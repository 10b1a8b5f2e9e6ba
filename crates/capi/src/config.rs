//! What the environment says: which pool, and which keys go to it. Read once, when the library is loaded.

use crate::log::level::Level;
use crate::text::Text;
use core::ffi::{c_char, CStr};
use core::sync::atomic::{AtomicU32, Ordering};
use vshmem_transport::ids::IdMap;

/// Longest name or path of a pool, in bytes.
pub const LONGEST_NAME: usize = 1024;
const MOST_RANGES: usize = 64;
const MIB: u64 = 1 << 20;

/// A pool's name, or a path if it contains a slash.
pub type PoolName = Text<{ LONGEST_NAME + 1 }>;

/// The whole configuration, in fixed storage.
pub struct Config {
    /// The pool that is used unless the program opens another.
    pub pool: PoolName,
    /// Size of a local pool that is made at first use; `None`: the default.
    pub pool_size: Option<u64>,
    /// How this kernel's users are called in pools; `None`: as a file says.
    pub uid_map: Option<IdMap>,
    /// The same for groups.
    pub gid_map: Option<IdMap>,
    /// How much is said of what happens.
    pub log_level: Level,
    /// The file that it is written to; empty: standard error.
    pub log_file: PoolName,
    keys: Keys,
    /// Are `dlopen` and its like left as they are?
    keeps_dl: bool,
    /// Why nothing can be served, if so.
    mistake: Option<Mistake>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Keys {
    all: bool,
    private: bool,
    ranges: [(i64, i64); MOST_RANGES],
    count: usize,
}

impl Keys {
    const NONE: Keys = Keys { all: false, private: false, ranges: [(0, 0); MOST_RANGES], count: 0 };
    const ALL: Keys = Keys { all: true, ..Keys::NONE };
}

/// What is wrong with the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// VSHMEM_KEYS can't be read.
    Keys,
    /// VSHMEM_KEYS has more entries than fit.
    TooManyKeys,
    /// VSHMEM_POOL is empty or too long.
    Pool,
    /// VSHMEM_POOL_SIZE can't be read.
    PoolSize,
    /// VSHMEM_UID_MAP can't be read.
    UidMap,
    /// VSHMEM_GID_MAP can't be read.
    GidMap,
    /// VSHMEM_DL is neither of its words.
    Dl,
    /// VSHMEM_LOG has no level, or its file no name.
    Log,
}

impl core::fmt::Display for Mistake {
    fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
        f.write_str(match self {
            Mistake::Keys => {
                "VSHMEM_KEYS can't be understood; it takes all, none, private, keys such as 1234 or 0x4d2, \
                 and ranges such as 1000-1999, separated by commas"
            }
            Mistake::TooManyKeys => "VSHMEM_KEYS has more than 64 keys and ranges; join some into ranges",
            Mistake::Pool => "VSHMEM_POOL must be a name of up to 64 letters, digits, dots, dashes and underscores, or a path",
            Mistake::PoolSize => "VSHMEM_POOL_SIZE must be a number of bytes of at least 1M; K, M, G and T may follow it",
            Mistake::UidMap => "VSHMEM_UID_MAP must be up to 32 times three numbers, INSIDE OUTSIDE COUNT, with commas between them, that don't overlap",
            Mistake::GidMap => "VSHMEM_GID_MAP must be up to 32 times three numbers, INSIDE OUTSIDE COUNT, with commas between them, that don't overlap",
            Mistake::Dl => "VSHMEM_DL must be take or keep",
            Mistake::Log => "VSHMEM_LOG must be off, error, warn, info or debug; a colon and a file may follow it",
        })
    }
}

impl Config {
    const EMPTY: Config = Config {
        pool: PoolName::new(),
        pool_size: None,
        uid_map: None,
        gid_map: None,
        log_level: Level::Off,
        log_file: PoolName::new(),
        keys: Keys::NONE,
        keeps_dl: false,
        mistake: None,
    };

    /// What is wrong with the environment, if anything.
    #[inline]
    pub fn mistake(&self) -> Option<Mistake> {
        self.mistake
    }

    /// Do IPC objects of this key go to the pool?
    pub fn takes(&self, key: i32) -> bool {
        let keys = &self.keys;
        if keys.all {
            return true;
        }
        if key == libc::IPC_PRIVATE {
            return keys.private;
        }
        // A key is 32 bits; people write it with or without sign.
        let (signed, unsigned) = (i64::from(key), i64::from(key as u32));
        let hit =
            |(low, high): &(i64, i64)| (*low..=*high).contains(&signed) || (*low..=*high).contains(&unsigned);
        keys.ranges[..keys.count].iter().any(hit)
    }

    /// Does every IPC object go to the pool?
    #[inline]
    pub fn takes_all(&self) -> bool {
        self.keys.all
    }

    /// Which keys go to the pool, as the beginning of a sentence.
    pub fn keys_in_words(&self) -> &'static str {
        match (self.takes_all(), self.takes_any()) {
            (true, _) => "all System V calls go",
            (false, true) => "calls go by VSHMEM_KEYS to the kernel, or",
            (false, false) => "no call goes",
        }
    }

    /// Can an IPC object of the pool come out of the calls that have libc's names?
    pub fn takes_any(&self) -> bool {
        let keys = &self.keys;
        keys.all || keys.private || keys.count > 0
    }

    /// Shall what is opened and looked up at run time lead to the pool, too?
    pub fn takes_lookups(&self) -> bool {
        self.takes_any() && !self.keeps_dl
    }

    fn understand(mut self, env: &Environment) -> Config {
        let mut mistake = None;
        match env.pool {
            None => drop(self.pool.push(b"default")),
            Some(name) => match absolute(name) {
                Some(path) => drop(self.pool.push(path.path().to_bytes())),
                None if good_name(name) => drop(self.pool.push(name)),
                None => mistake = Some(Mistake::Pool),
            },
        }
        match env.pool_size.map(parse_size) {
            None => {}
            Some(Some(size)) if size >= MIB => self.pool_size = Some(size),
            Some(_) => mistake = Some(Mistake::PoolSize),
        }
        match env.uid_map.map(IdMap::from_text).transpose() {
            Ok(map) => self.uid_map = map,
            Err(_) => mistake = Some(Mistake::UidMap),
        }
        match env.gid_map.map(IdMap::from_text).transpose() {
            Ok(map) => self.gid_map = map,
            Err(_) => mistake = Some(Mistake::GidMap),
        }
        match env.dl {
            None | Some(b"take") => {}
            Some(b"keep") => self.keeps_dl = true,
            Some(_) => mistake = Some(Mistake::Dl),
        }
        match env.log.map(parse_log) {
            None => {}
            Some(Some((level, file))) => (self.log_level, self.log_file) = (level, file),
            // Said where it is looked for.
            Some(None) => (self.log_level, mistake) = (Level::Error, Some(Mistake::Log)),
        }
        match env.keys.map(parse_keys) {
            None if env.preloaded || env.pool.is_some() => self.keys = Keys::ALL,
            None => self.keys = Keys::NONE,
            Some(Ok(keys)) => self.keys = keys,
            Some(Err(why)) => mistake = Some(why),
        }
        if mistake.is_some() {
            self.keys = Keys::ALL; // whatever was meant: every call shall say that it can't be served
        }
        self.mistake = mistake;
        self
    }
}

/// The variables that matter.
#[derive(Clone, Copy, Default)]
struct Environment<'e> {
    pool: Option<&'e [u8]>,
    pool_size: Option<&'e [u8]>,
    keys: Option<&'e [u8]>,
    uid_map: Option<&'e [u8]>,
    gid_map: Option<&'e [u8]>,
    dl: Option<&'e [u8]>,
    log: Option<&'e [u8]>,
    preloaded: bool,
}

/// A path, made absolute now: the program may change its directory before the first use.
fn absolute(path: &[u8]) -> Option<vshmem_transport::PoolRef> {
    path.contains(&b'/').then(|| vshmem_transport::PoolRef::at(path).ok()).flatten()
}

/// `LEVEL` or `LEVEL:FILE`.
fn parse_log(text: &[u8]) -> Option<(Level, PoolName)> {
    let mut parts = text.splitn(2, |b| *b == b':');
    let level = Level::from_text(parts.next()?)?;
    let mut file = PoolName::new();
    match parts.next() {
        None => {}
        Some(path) if path.contains(&b'/') => drop(file.push(absolute(path)?.path().to_bytes())),
        Some(b"") => return None,
        Some(name) => {
            let mut here = PoolName::new();
            (here.push(b"./") && here.push(name)).then_some(())?;
            file.push(absolute(here.bytes())?.path().to_bytes());
        }
    }
    Some((level, file))
}

/// May `name` name a pool? Paths are judged when they are opened.
fn good_name(name: &[u8]) -> bool {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
    (1..=vshmem_transport::NAME_MAX).contains(&name.len()) && name.iter().all(plain)
}

fn parse_number(text: &[u8]) -> Option<i64> {
    let text = core::str::from_utf8(text).ok()?.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let value = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with(['+', '-']) => i64::from_str_radix(hex, 16).ok()?,
        Some(_) => return None,
        None => digits.parse().ok()?,
    };
    let value = if negative { -value } else { value };
    (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(&value).then_some(value)
}

/// `a` or `a-b`. The dash is looked for from the second character on, for keys may be negative.
fn parse_range(text: &[u8]) -> Option<(i64, i64)> {
    let dash = text.iter().skip(1).position(|b| *b == b'-').map(|at| at + 1);
    let (low, high) = match dash {
        None => (parse_number(text)?, parse_number(text)?),
        Some(at) => (parse_number(&text[..at])?, parse_number(&text[at + 1..])?),
    };
    (low <= high).then_some((low, high))
}

fn parse_keys(text: &[u8]) -> Result<Keys, Mistake> {
    let mut keys = Keys::NONE;
    let mut none = false;
    for (i, part) in text.split(|b| *b == b',').enumerate() {
        match part.trim_ascii() {
            b"all" => keys.all = true,
            b"private" => keys.private = true,
            b"none" if i == 0 => none = true,
            part => {
                let range = parse_range(part).ok_or(Mistake::Keys)?;
                *keys.ranges.get_mut(keys.count).ok_or(Mistake::TooManyKeys)? = range;
                keys.count += 1;
            }
        }
    }
    if none && keys != Keys::NONE {
        return Err(Mistake::Keys);
    }
    Ok(keys)
}

/// A size in bytes, with K, M, G or T for powers of 1024.
pub fn parse_size(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let (digits, shift) = match text.last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        b'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    if !digits.first()?.is_ascii_digit() {
        return None;
    }
    let number: u64 = core::str::from_utf8(digits).ok()?.parse().ok()?;
    number.checked_mul(1 << shift)
}

struct Store(core::cell::UnsafeCell<Config>);
// SAFETY: written once by `load`, before STATE says that it may be read; only read after that.
unsafe impl Sync for Store {}

static STORE: Store = Store(core::cell::UnsafeCell::new(Config::EMPTY));
static LOADED: AtomicU32 = AtomicU32::new(UNLOADED);
const UNLOADED: u32 = 0;
const LOADING: u32 = 1;
const READY: u32 = 2;

/// The configuration. Loads it if the library's constructor has not run yet (a constructor that ran earlier
/// calls us).
#[inline]
pub fn config() -> &'static Config {
    if LOADED.load(Ordering::Acquire) != READY {
        load();
    }
    // SAFETY: `load` has returned, so the store is written for good.
    unsafe { &*STORE.0.get() }
}

/// Reads the environment, once. With signals blocked, so that a handler never waits for its own thread.
#[cold]
pub fn load() {
    let mask = crate::raw::block_signals();
    let first = LOADED.compare_exchange(UNLOADED, LOADING, Ordering::AcqRel, Ordering::Acquire);
    if first.is_ok() {
        let config = Config::EMPTY.understand(&environment());
        // SAFETY: only the winner of the exchange gets here, and nobody reads before READY.
        unsafe { STORE.0.get().write(config) };
        LOADED.store(READY, Ordering::Release);
    }
    // Threads can't exist before the constructor has run, unless an earlier constructor made one.
    while LOADED.load(Ordering::Acquire) != READY {
        std::thread::yield_now();
    }
    crate::raw::restore_signals(mask);
}

fn environment() -> Environment<'static> {
    Environment {
        pool: variable(c"VSHMEM_POOL"),
        pool_size: variable(c"VSHMEM_POOL_SIZE"),
        keys: variable(c"VSHMEM_KEYS"),
        uid_map: variable(c"VSHMEM_UID_MAP"),
        gid_map: variable(c"VSHMEM_GID_MAP"),
        dl: variable(c"VSHMEM_DL"),
        log: variable(c"VSHMEM_LOG"),
        preloaded: variable(c"LD_PRELOAD").is_some_and(|list| list.windows(9).any(|w| w == b"libvshmem")),
    }
}

extern "C" {
    /// As getenv, but nothing in a program that runs with raised privileges.
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name is a C string; what comes back is one too, read before the program can change it.
    unsafe {
        let value = secure_getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pool: Option<&'static str>, keys: Option<&'static str>, preloaded: bool) -> Config {
        Config::EMPTY.understand(&Environment {
            pool: pool.map(str::as_bytes),
            keys: keys.map(str::as_bytes),
            preloaded,
            ..Environment::default()
        })
    }

    #[test]
    fn a_map_of_ids_is_read_or_refused() {
        let with_map = |uid_map: &'static str| {
            Config::EMPTY.understand(&Environment {
                uid_map: Some(uid_map.as_bytes()),
                preloaded: true,
                ..Environment::default()
            })
        };
        let map = with_map("0 100000 10").uid_map.expect("a map");
        assert_eq!(map.outside(3), 100_003);
        assert_eq!(with_map("0 100000").mistake(), Some(Mistake::UidMap));
    }

    #[test]
    fn lookups_are_taken_where_objects_are() {
        let with_dl = |dl: &'static str, preloaded: bool| {
            Config::EMPTY.understand(&Environment {
                dl: Some(dl.as_bytes()),
                preloaded,
                ..Environment::default()
            })
        };
        assert!(with(None, None, true).takes_lookups());
        assert!(!with(None, Some("none"), true).takes_lookups());
        assert!(with_dl("take", true).takes_lookups());
        assert!(!with_dl("take", false).takes_lookups());
        assert!(!with_dl("keep", true).takes_lookups());
        assert_eq!(with_dl("", true).mistake(), Some(Mistake::Dl));
    }

    #[test]
    fn a_log_has_a_level_and_perhaps_a_file() {
        let with_log = |log: &'static str| {
            Config::EMPTY.understand(&Environment {
                log: Some(log.as_bytes()),
                preloaded: true,
                ..Environment::default()
            })
        };
        assert_eq!(with(None, None, true).log_level, Level::Off);
        let c = with_log("info");
        assert_eq!((c.log_level, c.log_file.bytes()), (Level::Info, &b""[..]));
        let c = with_log("debug:/var/log/a:b");
        assert_eq!((c.log_level, c.log_file.bytes()), (Level::Debug, &b"/var/log/a:b"[..]));
        assert!(with_log("warn:here").log_file.bytes().ends_with(b"/here"));
        for wrong in ["", "loud", "info:", ":x"] {
            assert_eq!(with_log(wrong).mistake(), Some(Mistake::Log), "{wrong}");
        }
    }

    #[test]
    fn preloading_alone_takes_everything_to_the_default_pool() {
        let c = with(None, None, true);
        assert_eq!(c.pool.bytes(), b"default");
        assert!(c.takes_all() && c.takes(0) && c.takes(-5) && c.mistake().is_none());
    }

    #[test]
    fn linking_alone_takes_nothing() {
        let c = with(None, None, false);
        assert!(!c.takes_any() && !c.takes(0) && !c.takes(1));
    }

    #[test]
    fn keys_combine() {
        let c = with(Some("p"), Some("private, 5,0x10-0x20 ,-3--1"), false);
        assert!(c.mistake().is_none());
        for key in [0, 5, 16, 32, -1, -3] {
            assert!(c.takes(key), "{key}");
        }
        for key in [4, 6, 15, 33, -4, i32::MIN, i32::MAX] {
            assert!(!c.takes(key), "{key}");
        }
        assert!(!with(None, Some("7"), false).takes(0));
        assert!(with(None, Some("0xfffffff0-0xffffffff"), false).takes(-1));
        assert!(!with(None, Some("none"), true).takes_any());
    }

    #[test]
    fn mistakes_are_named_and_nothing_is_guessed() {
        for keys in ["", "alles", "1,,2", "9-1", "0x", "5-", "99999999999", "none,5", "5,none", "1 2", "+1"] {
            let c = with(None, Some(keys), true);
            assert_eq!(c.mistake(), Some(Mistake::Keys), "{keys:?}");
            assert!(c.takes(1));
        }
        let many: &'static str = vec!["1"; 65].join(",").leak();
        assert_eq!(with(None, Some(many), true).mistake(), Some(Mistake::TooManyKeys));
        for pool in ["", "a b", "a:b", "/nul/\u{fc}\0"] {
            assert_eq!(with(Some(pool), None, true).mistake(), Some(Mistake::Pool), "{pool:?}");
        }
        assert_eq!(with(Some("/tmp/x y"), None, true).mistake(), None);
        assert!(with(Some("./x"), None, true).pool.bytes().starts_with(b"/"), "made absolute at once");
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size(b"1048576"), Some(1 << 20));
        assert_eq!(parse_size(b"64m"), Some(64 << 20));
        assert_eq!(parse_size(b"2G"), Some(2 << 30));
        for bad in ["", "G", "-1", "+5", "1.5G", "99999999999T", "1 G"] {
            assert_eq!(parse_size(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
