//! Variables of the surroundings that launchers would take for their own.

use crate::implementations::IMPLEMENTATIONS;

/// Beginnings of the variables of batch systems, whose allocations know no machines.
const BATCH_SYSTEMS: [&str; 7] = ["COBALT_", "LOADL_", "LSB_", "PBS_", "PE_HOSTFILE", "SGE_", "SLURM_"];

/// True if a variable would have a launcher look for its hosts elsewhere than where it is told: those of
/// batch systems, of a launcher that started this process, and of the choice between them.
pub fn misleads_launchers(name: &str) -> bool {
    let launchers = IMPLEMENTATIONS.iter().flat_map(|it| it.misleading_variables());
    BATCH_SYSTEMS.iter().chain(launchers).any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_systems_are_left_out() {
        for name in
            ["SLURM_JOB_ID", "PBS_NODEFILE", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "HYDRA_RMK"]
        {
            assert!(misleads_launchers(name), "{name}");
        }
        for name in ["PATH", "OMPI_MCA_btl", "PMIX_MCA_gds", "UCX_TLS", "SLURMISH"] {
            assert!(!misleads_launchers(name), "{name}");
        }
    }
}
