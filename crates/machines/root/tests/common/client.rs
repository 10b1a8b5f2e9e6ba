//! A client of NBD, which may lie.

use std::io::{Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub struct Client(pub UnixStream);

impl Client {
    pub fn connect(socket: &Path) -> Client {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client(stream)
    }

    pub fn put(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.0.write_all(&parts.concat())
    }

    pub fn take(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub fn greet(&mut self) -> Result<()> {
        assert_eq!(self.take(18)?, b"NBDMAGICIHAVEOPT\0\x03");
        self.put(&[&3u32.to_be_bytes()])
    }

    pub fn option(&mut self, option: u32, data: &[u8]) -> Result<()> {
        self.put(&[b"IHAVEOPT", &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data])
    }

    /// The kind and the data of a reply to an option.
    pub fn reply(&mut self) -> Result<(u32, Vec<u8>)> {
        let head = self.take(20)?;
        assert_eq!(head[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
        let length = u32::from_be_bytes(head[16..].try_into().unwrap());
        Ok((u32::from_be_bytes(head[12..16].try_into().unwrap()), self.take(length as usize)?))
    }

    /// Goes on with an export; returns its length, or the error.
    pub fn go(&mut self, name: &str) -> Result<std::result::Result<u64, u32>> {
        let data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat();
        self.option(7, &data)?;
        let mut length = 0;
        loop {
            match self.reply()? {
                (1, _) => return Ok(Ok(length)),
                (3, info) if info[..2] == [0, 0] => {
                    length = u64::from_be_bytes(info[2..10].try_into().unwrap())
                }
                (3, _) => (),
                (error, _) => return Ok(Err(error)),
            }
        }
    }

    pub fn ask(&mut self, command: u16, at: u64, length: u32) -> Result<()> {
        let flags = 0u16.to_be_bytes();
        let begin = 0x2560_9513u32.to_be_bytes();
        self.put(&[
            &begin,
            &flags,
            &command.to_be_bytes(),
            b"a handle",
            &at.to_be_bytes(),
            &length.to_be_bytes(),
        ])
    }

    /// The error of an answer, and its data if there is none.
    pub fn answer(&mut self, length: u32) -> Result<std::result::Result<Vec<u8>, u32>> {
        let head = self.take(16)?;
        assert_eq!((&head[..4], &head[8..]), (&0x6744_6698u32.to_be_bytes()[..], &b"a handle"[..]));
        match u32::from_be_bytes(head[4..8].try_into().unwrap()) {
            0 => Ok(Ok(self.take(length as usize)?)),
            error => Ok(Err(error)),
        }
    }

    pub fn read(&mut self, at: u64, length: u32) -> std::result::Result<Vec<u8>, u32> {
        self.ask(0, at, length).unwrap();
        self.answer(length).unwrap()
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(why) => why.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
