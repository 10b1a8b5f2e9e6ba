//! Room `wait`; see DESIGN.md.
