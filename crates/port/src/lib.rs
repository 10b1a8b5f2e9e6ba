//! Room `port`; see DESIGN.md.
