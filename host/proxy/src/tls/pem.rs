//! PEM files: certificates and keys.

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

fn wrong(what: &'static str, error: &PemError) -> TlsError {
    let why = match error {
        PemError::NoItemsFound => "there is none in it".to_owned(),
        // Nothing of the file's content is repeated: it may be a key.
        PemError::MissingSectionEnd { .. } => "a section does not end".to_owned(),
        PemError::IllegalSectionStart { .. } => "a section does not begin as it should".to_owned(),
        PemError::Base64Decode(_) => "it is not base64".to_owned(),
        _ => "it is no PEM file".to_owned(),
    };
    TlsError::Pem { what, why }
}

/// A chain, the server's or client's own first.
pub(super) fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| wrong(what, &error))?;
    if chain.is_empty() {
        return Err(wrong(what, &PemError::NoItemsFound));
    }
    Ok(chain)
}

/// PKCS #8, SEC1 or PKCS #1.
pub(super) fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| wrong("the key", &error))
}

/// Authorities to trust.
pub(super) fn authorities(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(pem, "the authorities")? {
        roots.add(authority).map_err(TlsError::Authority)?;
    }
    Ok(roots)
}
