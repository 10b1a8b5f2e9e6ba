//! PCI addresses, by which devices are told apart.

use core::fmt;

use crate::text::{hexadecimal, Text};

/// A PCI address, ordered as `lspci` lists them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl Address {
    /// Reads `domain:bus:device.function`, all in hexadecimal, or without the domain.
    pub fn parse(text: &[u8]) -> Option<Address> {
        let dot = text.iter().position(|&c| c == b'.')?;
        let function = hexadecimal(&text[dot + 1..]).filter(|&function| function < 8)?;
        let mut parts = text[..dot].rsplit(|&c| c == b':');
        let device = hexadecimal(parts.next()?).filter(|&device| device < 32)?;
        let bus = hexadecimal(parts.next()?)?;
        let domain = parts.next().map_or(Some(0), hexadecimal)?;
        if parts.next().is_some() {
            return None;
        }
        Some(Address {
            domain: u32::try_from(domain).ok()?,
            bus: u8::try_from(bus).ok()?,
            device: device as u8,
            function: function as u8,
        })
    }

    /// The address as sysfs writes it.
    pub(crate) fn text(self) -> Option<Text<24>> {
        let mut text = Text::new();
        push_hexadecimal(&mut text, self.domain, 4)?;
        text.push(b":")?;
        push_hexadecimal(&mut text, u32::from(self.bus), 2)?;
        text.push(b":")?;
        push_hexadecimal(&mut text, u32::from(self.device), 2)?;
        text.push(b".")?;
        push_hexadecimal(&mut text, u32::from(self.function), 1)?;
        Some(text)
    }
}

impl fmt::Display for Address {
    /// As sysfs writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().ok_or(fmt::Error)?.fmt(f)
    }
}

/// Appends a number in hexadecimal with at least so many digits.
fn push_hexadecimal<const N: usize>(text: &mut Text<N>, value: u32, least: u32) -> Option<()> {
    let needed = (32 - value.leading_zeros()).div_ceil(4);
    for place in (0..needed.max(least)).rev() {
        let digit = (value >> (4 * place) & 15) as usize;
        text.push(&[b"0123456789abcdef"[digit]])?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        let address = Address::parse(b"0000:0a:1f.7").expect("an address");
        assert_eq!(address, Address { domain: 0, bus: 10, device: 31, function: 7 });
        assert_eq!(address.text().expect("short").bytes(), b"0000:0a:1f.7");
        assert_eq!(Address::parse(b"0a:1f.7"), Some(address));
        let far = Address::parse(b"10000:e1:00.0").expect("an address");
        assert_eq!(far.text().expect("short").bytes(), b"10000:e1:00.0");
        assert!(far > address);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in [&b""[..], b"0", b"00:20.0", b"00:1f.8", b"100:00.0", b"1:2:3:4.0", b"00:00.", b":.0"] {
            assert_eq!(Address::parse(bad), None, "{bad:?}");
        }
    }
}
