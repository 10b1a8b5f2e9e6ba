"""The five papers, in the order of the page."""

from __future__ import annotations

from vshmem_lab.papers import p000, p001, p002, p003, p004
from vshmem_lab.papers.model import Paper

ALL: tuple[Paper, ...] = tuple(one.PAPER for one in (p004, p000, p001, p002, p003))
