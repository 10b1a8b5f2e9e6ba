//! The little that we say to a running QEMU over its monitor protocol.

use crate::error::{Error, Explain, Result};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A monitor connection.
pub struct Qmp {
    reader: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects and leaves the negotiation mode.
    pub fn connect(socket: &Path) -> Result<Qmp> {
        let open = || -> std::io::Result<Qmp> {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            Ok(Qmp {
                reader: BufReader::new(stream),
            })
        };
        let mut qmp = open().explain(|| format!("could not reach QEMU at {}", socket.display()))?;
        qmp.line()?;
        qmp.call("qmp_capabilities")?;
        Ok(qmp)
    }

    /// The thread of each virtual core, in their order.
    pub fn core_threads(&mut self) -> Result<Vec<i32>> {
        let answer = self.call("query-cpus-fast")?;
        parse_threads(&answer)
            .ok_or_else(|| Error::new(format!("QEMU's answer about its cores is odd: {answer}")))
    }

    fn call(&mut self, command: &str) -> Result<Value> {
        let order = json!({ "execute": command }).to_string();
        let stream = self.reader.get_mut();
        stream
            .write_all(order.as_bytes())
            .explain(|| format!("asking QEMU to {command}"))?;
        loop {
            let answer = self.line()?;
            if let Some(error) = answer.get("error") {
                return Err(Error::new(format!("QEMU refused {command}: {error}")));
            }
            // Events come in between.
            if let Some(value) = answer.get("return") {
                return Ok(value.clone());
            }
        }
    }

    fn line(&mut self) -> Result<Value> {
        let mut text = String::new();
        let len = self
            .reader
            .read_line(&mut text)
            .explain(|| "reading QEMU's answer".into())?;
        if len == 0 {
            return Err(Error::new("QEMU closed its monitor"));
        }
        serde_json::from_str(&text)
            .map_err(|e| Error::new(format!("QEMU's answer is not JSON ({e}): {text}")))
    }
}

fn parse_threads(answer: &Value) -> Option<Vec<i32>> {
    let mut cores: Vec<(u64, i32)> = Vec::new();
    for core in answer.as_array()? {
        let thread = i32::try_from(core.get("thread-id")?.as_i64()?).ok()?;
        cores.push((core.get("cpu-index")?.as_u64()?, thread));
    }
    cores.sort_unstable();
    Some(cores.into_iter().map(|(_, thread)| thread).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_come_in_the_order_of_cores() {
        let answer = json!([
            {"cpu-index": 1, "thread-id": 20, "target": "x86_64"},
            {"cpu-index": 0, "thread-id": 10},
        ]);
        assert_eq!(parse_threads(&answer), Some(vec![10, 20]));
        assert_eq!(parse_threads(&json!({"cpus": 1})), None);
        assert_eq!(parse_threads(&json!([{"cpu-index": 0}])), None);
    }
}
