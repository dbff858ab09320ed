//! The process's TLS provider. Every HTTP client needs one as soon as any crate of the build speaks TLS.

/// Installs ring as the provider; a second call changes nothing.
pub fn install() {
    // An error only says that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
