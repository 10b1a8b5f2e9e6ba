//! The endpoint for metrics in the back end's loop.

use super::stored::METRICS;
use super::{Server, Token};
use crate::error::{Explain, Result};
use crate::http::{Endpoint, Progress};
use crate::ivshmem::fd_store::{REMOVE, STORE};
use crate::ivshmem::served_pool::ServedPool;
use crate::metrics;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Metrics are collected again for a scrape after this time; earlier ones get the same.
const MAX_AGE: Duration = Duration::from_millis(100);
/// After this time no further pool's metrics are collected for a scrape: the loop has other work to do.
const MAX_COLLECTING: Duration = Duration::from_millis(100);

impl Server<'_> {
    /// The address at which metrics are served.
    pub(super) fn metrics_address(&self) -> Option<String> {
        self.scrapes.endpoint.as_ref().map(|endpoint| endpoint.address.clone())
    }

    /// Serves metrics at an address from now on, or nowhere.
    pub(super) fn serve_metrics(&mut self, address: Option<String>) -> Result<Option<String>> {
        let wanted = address.map(|address| match address.as_str() {
            "socket" => self.program.directory.metrics().to_string_lossy().into_owned(),
            _ => address,
        });
        if wanted.is_some() && wanted == self.metrics_address() {
            return Ok(wanted);
        }
        let new = wanted.as_deref().map(Endpoint::listen).transpose()?;
        if let Some(old) = self.scrapes.endpoint.take() {
            self.tell_keeper(REMOVE, METRICS, &[]);
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

    /// Takes over the listening socket of a previous back end.
    pub(super) fn adopt_endpoint(&mut self, address: String, listener: OwnedFd) {
        if self.watch(listener.as_fd(), Token::Endpoint, EventFlags::IN).is_ok() {
            self.scrapes.endpoint = Some(Endpoint::adopt(address, listener));
        }
    }

    /// Has the keeper store the listening socket.
    pub(super) fn store_endpoint(&self) {
        if let Some(endpoint) = &self.scrapes.endpoint {
            let label = format!("{METRICS}{}", endpoint.address);
            self.tell_keeper(STORE, &label, &[endpoint.listener.as_fd()]);
        }
    }

    /// Accepts connections.
    pub(super) fn accept_scrapes(&mut self) {
        while let Some(endpoint) = self.scrapes.endpoint.as_mut().filter(|e| e.can_accept()) {
            self.serial += 1;
            let data = EventData::new_u64(Token::Scrape(self.serial).word());
            let Some(socket) = endpoint.accept(self.serial) else {
                return;
            };
            if epoll::add(&self.epoll, socket, data, EventFlags::IN).is_err() {
                endpoint.drop(self.serial);
            }
        }
        self.watch_endpoint(false);
    }

    /// Watches the listening socket, or not, while no connection can be accepted: else the loop would never
    /// sleep.
    fn watch_endpoint(&self, on: bool) {
        if let Some(endpoint) = &self.scrapes.endpoint {
            let flags = if on { EventFlags::IN } else { EventFlags::empty() };
            let data = EventData::new_u64(Token::Endpoint.word());
            let _ = epoll::modify(&self.epoll, &endpoint.listener, data, flags);
        }
    }

    /// A connection can be read or written.
    pub(super) fn scrape_event(&mut self, number: u32) {
        let Some(endpoint) = &mut self.scrapes.endpoint else {
            return;
        };
        let mut progress = endpoint.advance(number);
        if matches!(progress, Progress::Requested) {
            let last = &mut self.scrapes.last;
            if last.as_ref().is_none_or(|(at, _)| at.elapsed() > MAX_AGE) {
                collect(self.pools.values_mut().collect());
                let pools = self.pools.values().filter_map(ServedPool::metrics);
                let pools: Vec<_> = pools.collect();
                let text = metrics::text(self.pools.len(), &pools, self.since);
                *last = Some((Instant::now(), text));
            }
            let text = last.as_ref().map_or("", |(_, text)| text);
            progress = endpoint.respond(number, || text.into());
        }
        let flags = match progress {
            Progress::Closed => {
                endpoint.drop(number);
                return self.watch_endpoint(true);
            }
            Progress::Reading | Progress::Requested => EventFlags::IN,
            Progress::Writing => EventFlags::OUT,
        };
        let data = EventData::new_u64(Token::Scrape(number).word());
        if let Some(socket) = endpoint.socket(number) {
            let _ = epoll::modify(&self.epoll, socket, data, flags);
        }
    }

    /// Once a second: closes connections that take too long.
    pub(super) fn expire_scrapes(&mut self) {
        if let Some(endpoint) = &mut self.scrapes.endpoint {
            endpoint.expire();
            self.watch_endpoint(true);
        }
    }

    /// Closes the endpoint, when the back end ends.
    pub(super) fn end_metrics(&mut self) {
        if let Some(endpoint) = self.scrapes.endpoint.take() {
            endpoint.close();
        }
    }
}

/// Collects the metrics of pools, the oldest first, as long as there is time. The others keep their last
/// ones.
fn collect(mut pools: Vec<&mut ServedPool>) {
    let begun = Instant::now();
    pools.sort_by_key(|served| served.collected_at());
    for served in pools {
        if begun.elapsed() > MAX_COLLECTING {
            return;
        }
        served.collect_metrics();
    }
}
