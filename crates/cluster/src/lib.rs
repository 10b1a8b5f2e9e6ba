//! Room `cluster`; see DESIGN.md.
