"""Containers of podman's that see this host's files: it keeps nothing but what a run needs."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from vshmem_lab import paths
from vshmem_lab.model import Failed, Missing
from vshmem_lab.process import run

# Where control groups of both versions are mixed, which crun does not take, it sees the older ones.
OLDER = '[ ! -d /sys/fs/cgroup/unified ] || umount /sys/fs/cgroup/unified; exec "$@"'
LOCKS = Path("/dev/shm/libpod_lock")


class Podman:
    """`with Podman() as p`: containers with storage of their own; nothing is left of them."""

    def __enter__(self) -> Podman:
        if shutil.which("podman") is None:
            raise Missing("podman is not installed.")
        with ExitStack() as stack:
            self._folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vshmem-lab-"))
            # Podman's locks are kept until the computer is turned off.
            if not LOCKS.exists():
                stack.callback(LOCKS.unlink, missing_ok=True)
            # To raise limits is not allowed everywhere.
            files = ":".join(map(str, resource.getrlimit(resource.RLIMIT_NOFILE)))
            Path(self._folder, "containers.conf").write_text(
                f'[containers]\ndefault_ulimits = ["nofile={files}", "nproc=1024:1024"]\n'
                '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
            )
            stack.callback(self._end)
            try:
                run(self.enclose(["true"]))
            except Failed as failure:
                raise Missing(f"podman runs no container: {failure}") from None
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc) -> None:
        self._stack.close()

    def enclose(self, argv: list[str]) -> list[str]:
        """A command line in a container, whose files are the host's below a layer of its own."""
        programs = str(paths.programs())
        options = ["--rm", "--network", "none", "--cgroups", "disabled", "--env-host"]
        files = ["--volume", f"{programs}:{programs}:ro", "--rootfs", "/:O"]
        return [*self._podman(), "run", *options, *files, *argv]

    def _podman(self) -> list[str]:
        places = (("root", "root"), ("runroot", "run"), ("tmpdir", "tmp"))
        words = [word for name, at in places for word in (f"--{name}", f"{self._folder}/{at}")]
        line = ["env", f"CONTAINERS_CONF={self._folder}/containers.conf", "podman", *words]
        line += ["--storage-driver", "vfs"]
        if os.geteuid() != 0:
            return line
        private = ["unshare", "--mount", "--propagation", "private"]
        return [*private, "sh", "-c", OLDER, "sh", *line]

    def _end(self) -> None:
        """Containers of a run that was interrupted."""
        words = ["rm", "--all", "--force", "--time", "0"]
        subprocess.run([*self._podman(), *words], capture_output=True, stdin=subprocess.DEVNULL)
