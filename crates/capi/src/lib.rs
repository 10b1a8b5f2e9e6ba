//! Room `capi`; see DESIGN.md.
