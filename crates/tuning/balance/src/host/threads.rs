//! The processors on which threads may run. A thread may end at any time.

use rustix::io::Errno;
use std::io;
use std::path::Path;
use vshmem_hypervisor::shared::affinity;

/// The processors that a thread may run on; `None` if there is no such thread.
pub fn allowed(thread: i32) -> io::Result<Option<Vec<u32>>> {
    match affinity::allowed(thread) {
        Ok(processors) => Ok(Some(processors.iter().collect())),
        Err(Errno::SRCH) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// Lets a thread run on these processors. It is no error if it has ended.
pub fn allow(thread: i32, processors: &[u32]) -> io::Result<()> {
    match affinity::set_allowed(thread, &processors.iter().copied().collect()) {
        Err(Errno::SRCH) => Ok(()),
        done => Ok(done?),
    }
}

/// Whether a thread is one of that process.
pub fn is_of(process: i32, thread: i32) -> bool {
    Path::new(&format!("/proc/{process}/task/{thread}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_may() {
        std::thread::spawn(|| {
            let all = allowed(0).unwrap().unwrap();
            let one = vec![*all.last().unwrap()];
            allow(0, &one).unwrap();
            assert_eq!(allowed(0).unwrap().unwrap(), one);
            // What does not exist is left out, unless nothing is left.
            allow(0, &[one[0], 900]).unwrap();
            assert_eq!(allowed(0).unwrap().unwrap(), one);
            assert!(allow(0, &[900]).is_err());
        })
        .join()
        .unwrap();
        assert_eq!(allowed(i32::MAX).unwrap(), None);
        allow(i32::MAX, &[0]).unwrap();
    }
}
