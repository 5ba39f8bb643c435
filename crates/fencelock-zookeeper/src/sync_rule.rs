//! From which moment on the session timeout certainly counts.
