//! The endpoint for metrics, and the response to a scrape.

use super::{Server, ACCEPTS_PER_EVENT};
use crate::http::{Answer, Endpoint, Request};
use crate::ivshmem::fd_store::{REMOVE, STORE};
use crate::ivshmem::served_pool::ServedPool;
use crate::ivshmem::stored::METRICS;
use crate::metrics;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use vshmem_base::error::Result;

/// Age from which metrics are collected again for a scrape; until then, scrapes get the same text.
const MAX_AGE: Duration = Duration::from_millis(100);
/// Time for which metrics of pools are collected for a scrape: the loop has other work to do.
const MAX_COLLECTING: Duration = Duration::from_millis(100);

impl Server<'_> {
    /// The address at which metrics are served.
    pub(super) fn metrics_address(&self) -> Option<String> {
        self.endpoint.as_ref().map(|endpoint| endpoint.address.clone())
    }

    /// Serves metrics at this address from now on; `None`: no longer.
    pub(super) fn serve_metrics(&mut self, address: Option<String>) -> Result<Option<String>> {
        let wanted = address.map(|address| match address.as_str() {
            "socket" => self.program.directory.metrics().to_string_lossy().into_owned(),
            _ => address,
        });
        if wanted.is_some() && wanted == self.metrics_address() {
            return Ok(wanted);
        }
        let new = wanted.as_deref().map(Endpoint::listen).transpose()?;
        if let Some(old) = std::mem::replace(&mut self.endpoint, new) {
            self.tell_keeper(REMOVE, METRICS, &[]);
            old.close();
        }
        self.store_endpoint();
        Ok(self.metrics_address())
    }

    /// Has the keeper store the listening socket.
    pub(super) fn store_endpoint(&self) {
        if let Some(endpoint) = &self.endpoint {
            let label = format!("{METRICS}{}", endpoint.address);
            self.tell_keeper(STORE, &label, &[endpoint.listener.as_fd()]);
        }
    }

    /// Accepts connections.
    pub(super) fn accept_scrapes(&mut self) {
        for _ in 0..ACCEPTS_PER_EVENT {
            self.serial += 1;
            let serial = self.serial;
            if !self.endpoint.as_mut().is_some_and(|endpoint| endpoint.accept(serial)) {
                return;
            }
        }
    }

    /// Handles an event of a connection.
    pub(super) fn scrape_event(&mut self, number: u32) {
        let (pools, since, last) = (&mut self.pools, self.since, &mut self.last_metrics);
        let mut text = || match last {
            Some((at, text)) if at.elapsed() <= MAX_AGE => text.clone(),
            _ => last.insert((Instant::now(), collect(pools, since))).1.clone(),
        };
        let answer = |request: &Request<'_>| {
            (request.path == "/metrics").then(|| Answer { kind: metrics::CONTENT_TYPE, body: text() })
        };
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.advance(number, answer);
        }
    }
}

/// Collects the metrics of pools, the oldest first, as long as there is time. The others keep their last
/// ones.
fn collect(pools: &mut BTreeMap<u32, ServedPool>, since: u64) -> String {
    let begun = Instant::now();
    let mut oldest_first: Vec<_> = pools.values_mut().collect();
    oldest_first.sort_by_key(|served| served.collected_at());
    for served in oldest_first {
        if begun.elapsed() > MAX_COLLECTING {
            break;
        }
        served.collect_metrics();
    }
    let metrics: Vec<_> = pools.values().filter_map(ServedPool::metrics).collect();
    metrics::text(pools.len(), &metrics, since)
}
