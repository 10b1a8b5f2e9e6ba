"""The papers whose figures stand beside ours, by the numbers that reports give them."""

from __future__ import annotations

from vshmem_lab.analysis import Run

NOTE = "papers: what they measured, on machines of their time; the end of the report names them."
PAPERS = {
    "000": "Youseff et al., Paravirtualization Effect on Single- and Multi-threaded "
    "Memory-Intensive Linear Algebra Software, HPDC 2008",
    "001": "Song, Chen and Zang, Characterizing the Performance and Scalability of Many-core "
    "Applications on Virtualized Platforms, Fudan University 2011",
    "002": "Younge, Architectural Principles and Experimentation of Distributed High Performance "
    "Virtual Clusters, Indiana University 2015",
    "003": "Han et al., The Effect of Multi-core on HPC Applications in Virtualized Systems, KAIST",
    "004": "Youseff and Wolski, Vshmem: Shared-Memory OS-Support for Multicore-based HPC systems",
}


def cited(run: Run) -> list[tuple[str, str]]:
    """The papers, if the run has figures of theirs."""
    found = any(line.paper for table in run.tables for line in table.lines)
    return [(f"paper {number}", title) for number, title in PAPERS.items()] if found else []
