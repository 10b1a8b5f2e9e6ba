//! Room `pool`; see DESIGN.md.
