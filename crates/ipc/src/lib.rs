//! Room `ipc`; see DESIGN.md.
