//! PEM readers for certificates and keys.

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

fn unreadable(what: &'static str, error: &PemError) -> TlsError {
    let why = match error {
        PemError::NoItemsFound => "there is none in it".to_owned(),
        // Messages contain no content of the file: it can be a key.
        PemError::MissingSectionEnd { .. } => "a section does not end".to_owned(),
        PemError::IllegalSectionStart { .. } => "a section does not begin as it should".to_owned(),
        PemError::Base64Decode(_) => "it is not base64".to_owned(),
        _ => "it is no PEM file".to_owned(),
    };
    TlsError::Pem { what, why }
}

/// Reads a certificate chain, leaf first. `what` names it in errors.
///
/// # Errors
/// [`TlsError::Pem`].
pub fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| unreadable(what, &error))?;
    if chain.is_empty() {
        return Err(unreadable(what, &PemError::NoItemsFound));
    }
    Ok(chain)
}

/// Reads a private key in PKCS #8, SEC1 or PKCS #1 form.
///
/// # Errors
/// [`TlsError::Pem`].
pub fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| unreadable("the key", &error))
}

/// Reads the certificates of trusted authorities.
///
/// # Errors
/// [`TlsError`].
pub fn authorities(pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(pem, "the authorities")? {
        roots.add(authority).map_err(TlsError::Authority)?;
    }
    Ok(roots)
}
