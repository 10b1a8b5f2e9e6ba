//! The endpoint for metrics, in the back end's loop.

use super::{Server, Token};
use crate::error::{Explain, Result};
use crate::http::{After, Endpoint};
use crate::ivshmem::link::{FORGET, STORE};
use crate::ivshmem::served::Served;
use crate::metrics;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Under which label the keeper has the listening socket; its address follows.
pub const METRICS: &str = "metrics/";
/// What was found is told to all who ask within this time: who asks often costs no more.
const FRESH: Duration = Duration::from_millis(100);
/// No pool is looked at any more, for an answer, after so long: the loop has others to serve.
const LOOKING: Duration = Duration::from_millis(100);

/// The endpoint, if there is one, and what it told last.
#[derive(Default)]
pub struct Scrapes {
    endpoint: Option<Endpoint>,
    told: Option<(Instant, String)>,
}

impl Server<'_> {
    /// Where metrics are told.
    pub(super) fn metrics_address(&self) -> Option<String> {
        self.scrapes
            .endpoint
            .as_ref()
            .map(|endpoint| endpoint.address.clone())
    }

    /// Tells metrics at an address from now on, or nowhere.
    pub(super) fn serve_metrics(&mut self, address: Option<String>) -> Result<Option<String>> {
        let wanted = address.map(|address| match address.as_str() {
            "socket" => self
                .program
                .directory
                .metrics()
                .to_string_lossy()
                .into_owned(),
            _ => address,
        });
        if wanted.is_some() && wanted == self.metrics_address() {
            return Ok(wanted);
        }
        let new = wanted.as_deref().map(Endpoint::listen).transpose()?;
        if let Some(old) = self.scrapes.endpoint.take() {
            self.tell_keeper(FORGET, METRICS, &[]);
            let _ = epoll::delete(&self.epoll, &old.listener);
            old.close();
        }
        if let Some(new) = new {
            self.watch(new.listener.as_fd(), Token::Endpoint, EventFlags::IN)
                .explain(|| "could not watch the endpoint for metrics".into())?;
            self.scrapes.endpoint = Some(new);
            self.store_endpoint();
        }
        Ok(self.metrics_address())
    }

    /// Goes on with the listening socket of a back end before this one.
    pub(super) fn adopt_endpoint(&mut self, address: String, listener: OwnedFd) {
        if self
            .watch(listener.as_fd(), Token::Endpoint, EventFlags::IN)
            .is_ok()
        {
            self.scrapes.endpoint = Some(Endpoint::adopt(address, listener));
        }
    }

    /// Another keeper gets it, too.
    pub(super) fn store_endpoint(&self) {
        if let Some(endpoint) = &self.scrapes.endpoint {
            let label = format!("{METRICS}{}", endpoint.address);
            self.tell_keeper(STORE, &label, &[endpoint.listener.as_fd()]);
        }
    }

    /// Somebody connects.
    pub(super) fn accept_scrapes(&mut self) {
        while let Some(endpoint) = self.scrapes.endpoint.as_mut().filter(|e| e.has_room()) {
            self.serial += 1;
            let data = EventData::new_u64(Token::Scrape(self.serial).word());
            let Some(socket) = endpoint.accept(self.serial) else {
                return;
            };
            if epoll::add(&self.epoll, socket, data, EventFlags::IN).is_err() {
                endpoint.drop(self.serial);
            }
        }
        self.listen_to_scrapes(false);
    }

    /// Listens to who connects, or leaves them waiting while there is no room: else the loop would be told of them all the time.
    fn listen_to_scrapes(&self, on: bool) {
        if let Some(endpoint) = &self.scrapes.endpoint {
            let flags = if on {
                EventFlags::IN
            } else {
                EventFlags::empty()
            };
            let data = EventData::new_u64(Token::Endpoint.word());
            let _ = epoll::modify(&self.epoll, &endpoint.listener, data, flags);
        }
    }

    /// Something happened on a connection.
    pub(super) fn scrape(&mut self, number: u32) {
        let Some(endpoint) = &mut self.scrapes.endpoint else {
            return;
        };
        let mut after = endpoint.go_on(number);
        if matches!(after, After::Asks) {
            let told = &mut self.scrapes.told;
            if told.as_ref().is_none_or(|(when, _)| when.elapsed() > FRESH) {
                look_at_all(self.pools.values_mut().collect());
                let pools: Vec<_> = self.pools.values().filter_map(Served::metrics).collect();
                let text = metrics::text(self.pools.len(), &pools, self.since);
                *told = Some((Instant::now(), text));
            }
            let text = told.as_ref().map_or("", |(_, text)| text);
            after = endpoint.answer(number, || text.into());
        }
        let flags = match after {
            After::Over => {
                endpoint.drop(number);
                return self.listen_to_scrapes(true);
            }
            After::Reads | After::Asks => EventFlags::IN,
            After::Writes => EventFlags::OUT,
        };
        let data = EventData::new_u64(Token::Scrape(number).word());
        if let Some(socket) = endpoint.socket(number) {
            let _ = epoll::modify(&self.epoll, socket, data, flags);
        }
    }

    /// Once a second: who takes too long is let go.
    pub(super) fn expire_scrapes(&mut self) {
        if let Some(endpoint) = &mut self.scrapes.endpoint {
            endpoint.expire();
            self.listen_to_scrapes(true);
        }
    }

    /// The back end ends.
    pub(super) fn end_metrics(&mut self) {
        if let Some(endpoint) = self.scrapes.endpoint.take() {
            endpoint.close();
        }
    }
}

/// Looks at pools, those first that were not looked at for the longest time, as long as there is time for another one. The others are told
/// as they were.
fn look_at_all(mut pools: Vec<&mut Served>) {
    let begun = Instant::now();
    pools.sort_by_key(|served| served.looked_at());
    for served in pools {
        if begun.elapsed() > LOOKING {
            return;
        }
        served.look();
    }
}
