//! The names that the kernel command line gives to pools. A machine that boots an image has a file in its
//! place.

use crate::descriptor::Owned;
use crate::given::address::Address;
use crate::pool_ref::is_name;
use crate::sys;
use crate::text::Text;
use core::ffi::CStr;

/// Settings of a machine that has its kernel's command line from a boot loader; its agent writes the file.
pub const SETTINGS: &CStr = c"/run/vshmem/settings";

/// Names of devices that show their memory in a BAR.
pub(crate) const POOLS: &[u8] = b"vshmem.pools=";
/// Names of DAX devices.
pub(crate) const DAX: &[u8] = b"vshmem.dax=";
/// Bytes of the longest command line that Linux takes on the architectures that we know.
pub(crate) const LONGEST: usize = 2048;

/// The value of a parameter of the kernel; empty if it isn't there.
#[inline(never)] // Keeps its buffer off the caller's stack.
pub(crate) fn value(parameter: &[u8]) -> Text<LONGEST> {
    let mut buffer = [0; LONGEST];
    let open = |path| sys::open(path, libc::O_RDONLY, 0).map(Owned::new);
    let file = open(SETTINGS).or_else(|_| open(c"/proc/cmdline"));
    let line = file.and_then(|file| sys::read_all(file.fd(), &mut buffer));
    let mut value = Text::new();
    let _ = value.push(value_in(line.unwrap_or(&[]), parameter));
    value
}

/// The value of the parameter in a command line. The last one counts, as with the kernel's own.
pub(crate) fn value_in<'l>(line: &'l [u8], parameter: &[u8]) -> &'l [u8] {
    line.split(|c| c.is_ascii_whitespace())
        .filter_map(|word| word.strip_prefix(parameter))
        .next_back()
        .unwrap_or(&[])
}

/// A name, and the device it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The pool's name.
    pub name: &'a [u8],
    /// The device; none: the next one in order.
    pub address: Option<Address>,
}

/// The entries of a value. Malformed ones are left out.
pub(crate) fn entries(value: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    value.split(|&c| c == b',').filter_map(|item| {
        let (name, address) = match item.iter().position(|&c| c == b':') {
            None => (item, None),
            Some(colon) => (&item[..colon], Some(Address::parse(&item[colon + 1..])?)),
        };
        is_name(name).then_some(Entry { name, address })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_last_parameter_counts() {
        assert_eq!(
            value_in(b"quiet vshmem.pools=a console=ttyS0 vshmem.dax=d vshmem.pools=b,c\n", POOLS),
            b"b,c"
        );
        assert_eq!(value_in(b"quiet xvshmem.pools=a\n", POOLS), b"");
        assert_eq!(value_in(b"", DAX), b"");
    }

    #[test]
    fn entries_have_a_name_and_perhaps_an_address() {
        let all: Vec<_> = entries(b"a,b:0000:00:04.0,c:00:05.0,,bad name,d:nowhere,e").collect();
        let expected = [
            Entry { name: b"a", address: None },
            Entry { name: b"b", address: Address::parse(b"00:04.0") },
            Entry { name: b"c", address: Address::parse(b"0000:00:05.0") },
            Entry { name: b"e", address: None },
        ];
        assert_eq!(all, expected);
    }
}
