"""Ansible's connection to a machine of Vshmem: commands and files go by `vshmem exec`."""

from __future__ import annotations

import shlex
import subprocess

from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: vshmem
author: Vshmem
short_description: Run tasks in machines that vshmem up has started
description:
  - Commands and files go by C(vshmem exec), through the machine's channel.
  - The machine needs no ssh server, no key and no network.
options:
  machine:
    description: The machine.
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: ansible_host
  cluster:
    description: Its cluster.
    default: default
    env:
      - name: VSHMEM_CLUSTER
    vars:
      - name: vshmem_cluster
  program:
    description: The command C(vshmem).
    default: vshmem
    vars:
      - name: vshmem_program
  remote_user:
    description: The user that commands run as.
    default: root
    vars:
      - name: ansible_user
"""

# The exit code where Vshmem itself failed, and reached no machine.
UNREACHED = 125


class Connection(ConnectionBase):
    """A machine."""

    transport = "vshmem"
    has_pipelining = True

    def _connect(self):
        # Each command has a connection of its own.
        self._connected = True
        return self

    def close(self):
        """Nothing is open between commands."""
        self._connected = False

    def exec_command(self, cmd, in_data=None, sudoable=True):
        """Runs a command of a shell; returns its exit code and what it has printed."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        stream = {"stdin": subprocess.DEVNULL} if in_data is None else {"input": in_data}
        done = self._run(cmd, **stream)
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path, out_path):
        """Copies a file to the machine."""
        super().put_file(in_path, out_path)
        try:
            source = open(in_path, "rb")
        except FileNotFoundError as missing:
            raise AnsibleFileNotFound(f"there is no file {in_path}") from missing
        with source:
            self._copied(self._run(f"cat >{shlex.quote(out_path)}", stdin=source), out_path)

    def fetch_file(self, in_path, out_path):
        """Copies a file from the machine."""
        super().fetch_file(in_path, out_path)
        done = self._run(f"cat {shlex.quote(in_path)}", stdin=subprocess.DEVNULL)
        self._copied(done, in_path)
        with open(out_path, "wb") as target:
            target.write(done.stdout)

    def _run(self, script, **stream):
        line = [self.get_option("program"), "exec", "-c", self.get_option("cluster")]
        line += ["-u", self.get_option("remote_user"), "-C", "/", self.get_option("machine")]
        done = subprocess.run(
            [*line, "--", "/bin/sh", "-c", script], capture_output=True, check=False, **stream
        )
        if done.returncode == UNREACHED:
            raise AnsibleConnectionFailure(done.stderr.decode(errors="replace").strip())
        return done

    def _copied(self, done, path):
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip()
            raise AnsibleError(f"could not copy {path}: {why}")
