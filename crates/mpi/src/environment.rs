//! Variables of the surroundings that launchers would take for their own.

/// How they begin: those of batch systems, and of a launcher that started this process.
const PREFIXES: [&str; 10] = [
    "SLURM_",
    "PBS_",
    "LSB_",
    "PMI_",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMIX_SERVER",
    "OMPI_COMM_WORLD",
    "OMPI_UNIVERSE",
    "HYDRA_HOST_FILE",
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
        for name in ["SLURM_JOB_ID", "PBS_NODEFILE", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"] {
            assert!(misleads_launchers(name), "{name}");
        }
        for name in ["PATH", "OMPI_MCA_btl", "PMIX_MCA_gds", "UCX_TLS", "SLURMISH"] {
            assert!(!misleads_launchers(name), "{name}");
        }
    }
}
