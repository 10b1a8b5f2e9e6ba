//! The protocol of network block devices (NBD), as far as it takes to read: the fixed newstyle handshake and
//! simple replies.
//!
//! Numbers are big-endian. What a client says is checked before anything is done with it: the length of an
//! option, of a request, of what it wants to write. Nothing is read into memory for it but an option of a few
//! KiB and the answer to one request.

use std::io::{self, ErrorKind, Read, Write};

/// The longest answer to a request. Clients are told, and ask for more in pieces.
pub const MAX_REQUEST: u32 = 4 << 20;
/// The longest option: an export's name of 4,096 bytes, and a few words.
const MAX_OPTION: u32 = 8 << 10;
/// The most options in a handshake.
const MAX_OPTIONS: u32 = 64;
/// What an ordinary request fills; a buffer that has become larger is given back.
const USUAL_REQUEST: usize = 1 << 20;
/// The most bytes that are read only to be dropped: what a client wants to write, and may not.
const MAX_DROPPED: u32 = 32 << 20;

const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
/// It has flags, is read-only, and may be read by several connections.
const FLAGS: u16 = 1 | 1 << 1 | 1 << 8;

const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_LIST: u32 = 3;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;

const REPLY_ACK: u32 = 1;
const REPLY_SERVER: u32 = 2;
const REPLY_INFO: u32 = 3;
const ERROR_UNSUPPORTED: u32 = 1 << 31 | 1;
const ERROR_INVALID: u32 = 1 << 31 | 3;
const ERROR_UNKNOWN: u32 = 1 << 31 | 6;
const ERROR_TOO_BIG: u32 = 1 << 31 | 9;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;
const COMMAND_DISCONNECT: u16 = 2;
const COMMAND_TRIM: u16 = 4;
const COMMAND_WRITE_ZEROES: u16 = 6;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;

/// What is served.
pub trait Export {
    /// Its name. Clients may leave it out.
    fn name(&self) -> &str;
    /// Its length in bytes.
    fn length(&self) -> u64;
    /// Reads a part of it, or nothing.
    fn read(&self, into: &mut [u8], at: u64) -> io::Result<()>;
}

/// Serves a client until it leaves. `ready` is called after the handshake.
pub fn serve<S: Read + Write>(
    stream: &mut S,
    export: &dyn Export,
    ready: &mut dyn FnMut(&mut S) -> io::Result<()>,
) -> io::Result<()> {
    if handshake(stream, export)? {
        ready(stream)?;
        transmission(stream, export)?;
    }
    Ok(())
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn take<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn take_u32(stream: &mut impl Read) -> io::Result<u32> {
    Ok(u32::from_be_bytes(take(stream)?))
}

/// Agrees with a client on what it reads. Returns whether it goes on.
fn handshake<S: Read + Write>(stream: &mut S, export: &dyn Export) -> io::Result<bool> {
    let mut hello = Vec::from(*b"NBDMAGICIHAVEOPT");
    hello.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    stream.write_all(&hello)?;
    let flags = take_u32(stream)?;
    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(wrong("a client has unknown flags"));
    }
    for _ in 0..MAX_OPTIONS {
        if u64::from_be_bytes(take(stream)?) != OPTION_MAGIC {
            return Err(wrong("a client's option does not begin as one"));
        }
        let (option, length) = (take_u32(stream)?, take_u32(stream)?);
        if length > MAX_OPTION {
            if option == OPTION_EXPORT_NAME || length > MAX_DROPPED {
                return Err(wrong("a client's option is too long"));
            }
            drop_bytes(stream, length)?;
            reply(stream, option, ERROR_TOO_BIG, &[])?;
            continue;
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        match option {
            OPTION_EXPORT_NAME if is_name(export, &data) => {
                let mut answer = export.length().to_be_bytes().to_vec();
                answer.extend(FLAGS.to_be_bytes());
                if flags & u32::from(NO_ZEROES) == 0 {
                    answer.extend([0; 124]);
                }
                stream.write_all(&answer)?;
                return Ok(true);
            }
            // There is no way to refuse it but this.
            OPTION_EXPORT_NAME => return Err(wrong("a client asks for another export")),
            OPTION_ABORT => {
                reply(stream, option, REPLY_ACK, &[])?;
                return Ok(false);
            }
            OPTION_LIST if data.is_empty() => {
                let mut answer = (export.name().len() as u32).to_be_bytes().to_vec();
                answer.extend(export.name().as_bytes());
                reply(stream, option, REPLY_SERVER, &answer)?;
                reply(stream, option, REPLY_ACK, &[])?;
            }
            OPTION_LIST => reply(stream, option, ERROR_INVALID, &[])?,
            OPTION_INFO | OPTION_GO => match name_in(&data) {
                None => reply(stream, option, ERROR_INVALID, &[])?,
                Some(name) if !is_name(export, name) => reply(stream, option, ERROR_UNKNOWN, &[])?,
                Some(_) => {
                    tell_of(stream, option, export)?;
                    if option == OPTION_GO {
                        return Ok(true);
                    }
                }
            },
            _ => reply(stream, option, ERROR_UNSUPPORTED, &[])?,
        }
    }
    Err(wrong("a client has too many options"))
}

fn is_name(export: &dyn Export, name: &[u8]) -> bool {
    name.is_empty() || name == export.name().as_bytes()
}

/// The name in an option that asks for information.
fn name_in(data: &[u8]) -> Option<&[u8]> {
    let (length, rest) = data.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (count, rest) = rest.split_first_chunk()?;
    (rest.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some(name)
}

/// Says what can be known of the export, asked for or not.
fn tell_of(stream: &mut impl Write, option: u32, export: &dyn Export) -> io::Result<()> {
    let mut info = INFO_EXPORT.to_be_bytes().to_vec();
    info.extend(export.length().to_be_bytes());
    info.extend(FLAGS.to_be_bytes());
    reply(stream, option, REPLY_INFO, &info)?;
    let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
    for size in [1, 4096, MAX_REQUEST] {
        sizes.extend(size.to_be_bytes());
    }
    reply(stream, option, REPLY_INFO, &sizes)?;
    reply(stream, option, REPLY_ACK, &[])
}

fn reply(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}

fn drop_bytes(stream: &mut impl Read, length: u32) -> io::Result<()> {
    let dropped = io::copy(&mut stream.take(length.into()), &mut io::sink())?;
    match dropped == u64::from(length) {
        true => Ok(()),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Answers requests, one after the other.
fn transmission<S: Read + Write>(stream: &mut S, export: &dyn Export) -> io::Result<()> {
    const HEAD: usize = 16;
    let mut answer: Vec<u8> = Vec::new();
    loop {
        let mut first = [0; 1];
        // One that hangs up between requests is done.
        if stream.read(&mut first)? == 0 {
            return Ok(());
        }
        let rest: [u8; 27] = take(stream)?;
        let request: Vec<u8> = first.into_iter().chain(rest).collect();
        let field = |at: usize, length: usize| {
            request[at..at + length].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        if field(0, 4) as u32 != REQUEST_MAGIC {
            return Err(wrong("a client's request does not begin as one"));
        }
        let (command, at, length) = (field(6, 2) as u16, field(16, 8), field(24, 4) as u32);
        let mut error = EINVAL;
        answer.clear();
        answer.resize(HEAD, 0);
        match command {
            COMMAND_READ if length <= MAX_REQUEST && length > 0 => {
                let fits = at.checked_add(length.into()).is_some_and(|end| end <= export.length());
                if fits {
                    answer.resize(HEAD + length as usize, 0);
                    error = match export.read(&mut answer[HEAD..], at) {
                        Ok(()) => 0,
                        Err(_) => EIO,
                    };
                }
            }
            COMMAND_WRITE if length <= MAX_DROPPED => {
                drop_bytes(stream, length)?;
                error = EPERM;
            }
            COMMAND_WRITE => return Err(wrong("a client writes too much")),
            COMMAND_TRIM | COMMAND_WRITE_ZEROES => error = EPERM,
            COMMAND_DISCONNECT => return Ok(()),
            _ => (),
        }
        if error != 0 {
            answer.truncate(HEAD);
        }
        answer[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        answer[4..8].copy_from_slice(&error.to_be_bytes());
        answer[8..HEAD].copy_from_slice(&request[8..16]);
        stream.write_all(&answer)?;
        if answer.capacity() > USUAL_REQUEST {
            answer = Vec::new();
        }
    }
}
