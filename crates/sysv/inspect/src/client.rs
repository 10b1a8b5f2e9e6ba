//! A client of a pool: this process joins it to read or remove something, as any program on Vshmem does.

use crate::ids;
use crate::participants::MemberId;
use crate::view::View;
use std::mem::ManuallyDrop;
use std::time::Duration;
use vshmem_agent::JoinedPool;
use vshmem_base::error::{error, Result};
use vshmem_base::user::Identity;
use vshmem_ipc::{liveness, Ctx};
use vshmem_pool::{Budget, Kernel, Pool, ProcId};
use vshmem_transport::{Handle, Liveness, PoolRef};

/// An open pool, with a process slot for this process.
pub struct Client {
    kernel: ManuallyDrop<JoinedPool<Handle>>,
    me: ProcId,
    // Held, so that others see that this process is alive.
    liveness: ManuallyDrop<Liveness>,
}

/// Takes a process slot, as [`liveness::claim`] does.
type Claim = fn(&Pool, &dyn Kernel, u16, u32, u64, &mut dyn FnMut(u32) -> bool) -> Option<ProcId>;

impl Client {
    /// Opens a pool and joins it.
    pub fn join(reference: &PoolRef) -> Result<Client> {
        Client::join_by(reference, None, liveness::claim)
    }

    /// Opens a pool and joins it to read, for which locks are no must: none is waited for longer than
    /// `timeout`.
    pub fn join_within(reference: &PoolRef, timeout: Duration) -> Result<Client> {
        Client::join_by(reference, Some(timeout), liveness::claim)
    }

    /// Opens a pool and joins it. If there is a free process slot, nothing is reaped, so that it can be
    /// counted what dead processes have left.
    pub fn join_without_cleanup(reference: &PoolRef) -> Result<Client> {
        Client::join_by(reference, None, |pool, kernel, member, pid, started, claim| {
            let me = pool.claim_process(kernel, &Budget::default(), member, pid, started, claim);
            me.or_else(|| liveness::claim(pool, kernel, member, pid, started, claim))
        })
    }

    fn join_by(reference: &PoolRef, timeout: Option<Duration>, claim: Claim) -> Result<Client> {
        let refused = |why: String| error!("could not open the pool {reference}: {why}");
        ids::check()?;
        let handle = vshmem_transport::open(reference).map_err(|e| refused(e.to_string()).code(1))?;
        let pool = Pool::open(handle.mem()).map_err(|e| refused(e.to_string()))?;
        let member = handle.join(&pool).map_err(|e| refused(e.to_string()))?;
        let groups = Identity::current().groups;
        let mut kernel = JoinedPool::for_command(handle, pool, member, &groups, ids::maps());
        if let Some(most) = timeout {
            kernel.limit_lock_wait(most);
        }
        kernel.across().join();
        let mut liveness = None;
        let pid = std::process::id();
        let me = claim(&pool, &kernel, member, pid, 0, &mut |slot| {
            if let Some(other) = liveness.take() {
                // SAFETY: claimed by this process for a slot that it did not get, or does not need any more.
                unsafe { Liveness::end(other) };
            }
            liveness = kernel.handle.claim_liveness(slot);
            liveness.is_some()
        });
        match (me, liveness) {
            (Some(me), Some(liveness)) => {
                Ok(Client { kernel: ManuallyDrop::new(kernel), me, liveness: ManuallyDrop::new(liveness) })
            }
            _ => Err(refused("it has no room for another process".into())),
        }
    }

    /// The context for calls of the upper half.
    pub fn context(&self) -> Ctx<'_> {
        self.kernel.context(self.me)
    }

    /// Ends as by SIGKILL, for tests.
    #[doc(hidden)]
    pub fn die(self) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, from what is never dropped or used again.
        unsafe { ManuallyDrop::take(&mut this.liveness).end() };
    }

    /// Declares the machine of this name dead, so that nobody waits for what its processes held. `others` are
    /// machines that may have the same name.
    pub fn declare_dead(&self, machine: &str, others: &[MemberId]) {
        let JoinedPool { pool, member, .. } = &*self.kernel;
        pool.members(|index, name, alive| {
            // This kernel may have the same name, too.
            let is_other = index == *member || others.iter().any(|it| self.member(index) == Some(*it));
            if alive && !is_other && name == machine.as_bytes() {
                pool.declare_dead(index);
            }
        });
    }

    /// Declares the machine of this name dead if only one member has the name: other clusters may use it too.
    pub fn declare_only_dead(&self, machine: &str) {
        let JoinedPool { pool, member, .. } = &*self.kernel;
        let mut found = Vec::new();
        pool.members(|index, name, alive| {
            if alive && index != *member && name == machine.as_bytes() {
                found.push(index);
            }
        });
        if let [index] = found[..] {
            pool.declare_dead(index);
        }
    }

    /// The identity of the member with this number now.
    pub fn member(&self, number: u16) -> Option<MemberId> {
        let identity = self.kernel.pool.member_identity(number)?;
        Some(MemberId { number, identity })
    }

    /// Declares a member dead, unless it is this kernel. False if the number belongs to another member by
    /// now.
    pub fn declare_member_dead(&self, member: MemberId) -> bool {
        let is_it = self.member(member.number) == Some(member);
        if is_it && member.number != self.kernel.member {
            self.kernel.pool.declare_dead(member.number);
        }
        is_it
    }

    /// A view of the pool, for which no lock is waited for.
    pub(crate) fn view(&self) -> View<'_> {
        View::of(&self.kernel.pool, &self.kernel.handle)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        vshmem_ipc::leave(&self.context());
        self.kernel.pool.free_process(self.me);
        // A pool's memory is free once its file is gone and nobody has it mapped.
        // SAFETY: both are taken here and nowhere else; nothing borrows from what is dropped, and the page of
        // the liveness is this process's, whose slot is free.
        unsafe {
            ManuallyDrop::take(&mut self.liveness).end();
            ManuallyDrop::take(&mut self.kernel).handle.close();
        }
    }
}
