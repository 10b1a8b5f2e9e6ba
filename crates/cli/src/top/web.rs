//! `vshmem top --web`: a page for a browser of this host. It shows and changes nothing.
//!
//! The page is served on the loopback interface alone, where every user of the host can connect. So each
//! request needs a token that is in the printed address and nowhere else, and names the host by an address:
//! no page of another site reads it through a name that leads here.

use super::watch::Watch;
use crate::doctor;
use crate::machines;
use crate::output::print;
use serde::Serialize;
use std::cmp::Reverse;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vshmem_agent::http::{Answer, Endpoint, Request};
use vshmem_base::error::{error, Explain};
use vshmem_base::{interrupt, random, Result};
use vshmem_doctor::Finding;
use vshmem_inspect::sample::Sample;

/// The page, which refers to nothing else.
const PAGE: &str = include_str!("page.html");
/// Of a pool's IPC objects of each kind, so many are shown: those that are busiest, or largest.
const MAX_SHOWN: usize = 100;
/// Waiting threads of a pool that are shown.
const MAX_WAITERS: usize = 500;
/// Time after which the host is examined again.
const EXAMINED_EACH: Duration = Duration::from_secs(600);
/// Time that the loop waits for a request, before it looks for signals.
const PATIENCE: Duration = Duration::from_millis(100);

/// The contents of the page.
#[derive(Serialize)]
struct Shown<'a> {
    /// Processors of this host.
    processors: usize,
    /// The machines, as `vshmem ps --json` has them.
    machines: serde_json::Value,
    pools: Vec<Pool>,
    /// The doctor's findings; null: it is not done yet.
    findings: Option<&'a [Finding]>,
}

/// A pool, with the number of objects that it has beside those that are shown.
#[derive(Serialize)]
struct Pool {
    #[serde(flatten)]
    sample: Sample,
    counts: [usize; 4],
}

impl Pool {
    fn of(sample: &Sample) -> Pool {
        let mut sample = sample.clone();
        let counts = [sample.segments.len(), sample.sets.len(), sample.queues.len(), sample.waiters.len()];
        sample.segments.sort_by_key(|it| Reverse((it.attached, it.size)));
        sample.sets.sort_by_key(|it| Reverse((it.object.waiting, it.object.used)));
        let rate =
            |rates: Option<_>| rates.map_or(0.0, |it: vshmem_inspect::rates::Rates| it.sent + it.received);
        sample.queues.sort_by(|one, other| {
            rate(other.rates).total_cmp(&rate(one.rates)).then(other.object.used.cmp(&one.object.used))
        });
        sample.waiters.sort_by_key(|it| it.since);
        sample.segments.truncate(MAX_SHOWN);
        sample.sets.truncate(MAX_SHOWN);
        sample.queues.truncate(MAX_SHOWN);
        sample.waiters.truncate(MAX_WAITERS);
        Pool { sample, counts }
    }
}

/// The findings of a thread that examines the host now and then.
#[derive(Default)]
struct Examined(Arc<Mutex<Option<Vec<Finding>>>>);

impl Examined {
    /// Begins. The thread ends with the process.
    fn begin() -> Examined {
        let examined = Examined::default();
        let shared = examined.0.clone();
        std::thread::spawn(move || loop {
            let found = doctor::findings().unwrap_or_default();
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            std::thread::sleep(EXAMINED_EACH);
        });
        examined
    }

    fn with<T>(&self, use_it: impl FnOnce(Option<&[Finding]>) -> T) -> T {
        use_it(self.0.lock().unwrap_or_else(PoisonError::into_inner).as_deref())
    }
}

/// Serves the page until a signal ends it.
pub fn serve(mut watch: Watch, address: &str, interval: Duration) -> Result<u8> {
    let mut endpoint = Endpoint::listen(loopback(address)?)?;
    let token = random::hex::<16>()?;
    interrupt::watch();
    let at = endpoint.address.clone();
    print(&format!("http://{at}/?token={token}\n"))?;
    tell!("Open it in a browser of this host; ctrl-C ends it. From elsewhere: ssh -L {at}:{at} HOST");
    let examined = Examined::begin();
    let mut last: Option<(Instant, String)> = None;
    loop {
        if let Some(signal) = interrupt::signal() {
            return Ok(128u8.saturating_add(signal as u8));
        }
        let served = endpoint.serve(PATIENCE, |request| {
            if !is_allowed(request, &token) {
                return None;
            }
            match request.path {
                "/" => Some(Answer { kind: "text/html; charset=utf-8", body: PAGE.into() }),
                "/data" => {
                    let is_fresh = last.as_ref().is_some_and(|(at, _)| at.elapsed() < interval);
                    if !is_fresh {
                        last = Some((Instant::now(), shown(&mut watch, &examined)));
                    }
                    let (_, body) = last.as_ref()?;
                    Some(Answer { kind: "application/json", body: body.clone() })
                }
                _ => None,
            }
        });
        match served {
            Err(why) if why.kind() != ErrorKind::Interrupted => {
                return Err(why).explain(|| "waiting for requests".into())
            }
            _ => (),
        }
    }
}

/// The contents of the page as JSON, or the error for which there are none.
fn shown(watch: &mut Watch, examined: &Examined) -> String {
    let all = watch.sample().and_then(|()| machines::snapshot()).and_then(|machines| {
        examined.with(|findings| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            let pools = watch.samples.iter().map(Pool::of).collect();
            serde_json::to_string(&Shown { processors, machines, pools, findings })
                .explain(|| "writing it".into())
        })
    });
    all.unwrap_or_else(|why| serde_json::json!({ "error": why.to_string() }).to_string())
}

/// True if a request has the token, and names this host by an address.
fn is_allowed(request: &Request<'_>, token: &str) -> bool {
    let given = request.query.split('&').find_map(|word| word.strip_prefix("token="));
    let host = request.host.unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_here && given.is_some_and(|given| same(given.as_bytes(), token.as_bytes()))
}

/// Compares all bytes, so that the time tells nothing of how many are right.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// The address, if it is one of the loopback interface.
fn loopback(address: &str) -> Result<&str> {
    let ip = address.rsplit_once(':').map(|(ip, _)| ip.trim_matches(['[', ']']));
    let is_port = address.parse::<u16>().is_ok();
    if is_port || ip.and_then(|ip| ip.parse::<IpAddr>().ok()).is_some_and(|ip| ip.is_loopback()) {
        return Ok(address);
    }
    Err(error!("{address} is no address of the loopback interface")
        .hint("Give a port, or 127.0.0.1:PORT. From elsewhere, ssh -L leads to it.")
        .code(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_loopback_interface_is_served() {
        for good in ["0", "9000", "127.0.0.1:80", "127.1.2.3:0", "[::1]:80"] {
            assert_eq!(loopback(good).unwrap(), good);
        }
        for bad in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "/tmp/socket", "localhost:80", "", "65536"] {
            assert!(loopback(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn requests_need_the_token_and_an_address_of_this_host() {
        let asks = |query, host| is_allowed(&Request { path: "/data", query, host }, "0123");
        assert!(asks("token=0123", Some("127.0.0.1")) && asks("a=b&token=0123", Some("[::1]")));
        assert!(asks("token=0123", Some("localhost")));
        for (query, host) in [
            ("token=0123", Some("evil.example")),
            ("token=0123", Some("10.0.0.1")),
            ("token=0123", None),
            ("token=0124", Some("127.0.0.1")),
            ("token=01234", Some("127.0.0.1")),
            ("token=", Some("127.0.0.1")),
            ("", Some("127.0.0.1")),
        ] {
            assert!(!asks(query, host), "{query} {host:?}");
        }
    }

    #[test]
    fn the_page_refers_to_nothing_else() {
        for word in ["http://", "https://", "src=", "@import", "url("] {
            let found = PAGE.replace("http://www.w3.org/2000/svg", "").contains(word);
            assert!(!found, "{word}");
        }
        // Names come from machines: they are text, and never HTML.
        assert!(!PAGE.contains("innerHTML") && !PAGE.contains("document.write"));
    }
}
