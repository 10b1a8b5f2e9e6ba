"""The papers' tables and figures, one by one, beside what kept runs have: docs/papers.md."""
