//! The words of a remote command. A launcher passes them as one text for a shell, which here is none.

use std::ffi::OsString;

/// Stands for `#` while words are split: a comment would hide what follows it. It is no character of any
/// text.
const HASH: char = '\u{fdd0}';

/// The words of a command. `None`: a quote does not end, or this is no text. Other syntax of shells stays in
/// the words as it is, so that [`super::Launch::admit`] can refuse it.
pub fn split(command: &str) -> Option<Vec<OsString>> {
    let text = (!command.contains(HASH)).then(|| command.replace('#', HASH.encode_utf8(&mut [0; 4])))?;
    Some(shlex::split(&text)?.iter().map(|word| word.replace(HASH, "#").into()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &str) -> Vec<String> {
        let words = split(command).expect("they can be split");
        words.into_iter().map(|word| word.into_string().expect("UTF-8")).collect()
    }

    /// As Debian's packages of Open MPI 4.1.4 and MPICH 4.0.2 say it.
    #[test]
    fn launchers_commands_are_split() {
        let open_mpi = " orted --daemonize -mca ess \"env\" -mca orte_node_regex \"vm,vm[1:0-1]@0(3)\" \
            -mca orte_hnp_uri \"16941.0;tcp://10.77.0.1:37553;tcp6://[fd00::2]:46807\" -mca foo \"a b\"";
        let open_mpi = words(open_mpi);
        assert_eq!(open_mpi[..4], ["orted", "--daemonize", "-mca", "ess"]);
        assert_eq!(open_mpi[7], "vm,vm[1:0-1]@0(3)");
        assert_eq!(open_mpi[10], "16941.0;tcp://10.77.0.1:37553;tcp6://[fd00::2]:46807");
        assert_eq!(open_mpi[13], "a b");
        let hydra = "\"/usr/bin/hydra_pmi_proxy\" --control-port vm:37185 --usize -2";
        assert_eq!(words(hydra), ["/usr/bin/hydra_pmi_proxy", "--control-port", "vm:37185", "--usize", "-2"]);
    }

    #[test]
    fn other_syntax_of_shells_stays() {
        assert_eq!(words("PATH=/opt/bin:$PATH ; orted")[..2], ["PATH=/opt/bin:$PATH", ";"]);
        assert_eq!(words("orted ; rm x"), ["orted", ";", "rm", "x"]);
        assert_eq!(words("orted # x\n y"), ["orted", "#", "x", "y"]);
        assert_eq!(words("orted '#' \"a#\" \\# b#c"), ["orted", "#", "a#", "#", "b#c"]);
        assert_eq!(split("orted \u{fdd0}"), None);
        assert_eq!(split("orted 'x"), None);
        assert_eq!(words(""), [""; 0]);
    }
}
