//! Variables of the surroundings that launchers would take for their own.

/// How they begin: those of batch systems, of a launcher that started this process, and of what chooses where
/// a launcher has its hosts from.
const PREFIXES: [&str; 18] = [
    "COBALT_",
    "HYDRA_",
    "LOADL_",
    "LSB_",
    "OMPI_COMM_WORLD",
    "OMPI_MCA_plm",
    "OMPI_MCA_ras",
    "OMPI_UNIVERSE",
    "PBS_",
    "PE_HOSTFILE",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMIX_SERVER",
    "PMI_",
    "PRTE_MCA_plm",
    "PRTE_MCA_ras",
    "SGE_",
    "SLURM_",
];

/// Whether a variable would have a launcher look for its hosts elsewhere than where it is told: a batch
/// system's allocation knows no machines.
pub fn misleads_launchers(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
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
