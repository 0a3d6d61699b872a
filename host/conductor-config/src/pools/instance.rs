//! Validation of workers from other sources than the file.

use crate::document::report::Report;
use crate::document::source::Source;
use crate::document::value::Text;
use crate::name;
use crate::pools::endpoint::{plain_url, worker_url};

/// Returns a worker's URL, `http://host:port` with the host in lower case.
///
/// # Errors
/// The fault, and a valid example.
pub fn worker_address(url: &str) -> Result<String, String> {
    judged(url, worker_url)
}

/// Returns the URL of a prefill worker's bootstrap server, `http://host:port` with the host in lower case.
///
/// # Errors
/// The fault, and a valid example.
pub fn bootstrap_address(url: &str) -> Result<String, String> {
    judged(url, plain_url)
}

/// Reads a URL as the file's reader does.
fn judged(url: &str, read: impl FnOnce(&Text<'_>, &Report) -> Option<String>) -> Result<String, String> {
    let report = Report::new(Source::new("url", url));
    let text = Text {
        text: url,
        span: 0..url.len(),
    };
    read(&text, &report).ok_or_else(|| report.first_problem())
}

/// Checks the name of a worker.
///
/// # Errors
/// The fault, and the allowed characters.
pub fn check_worker_name(name: &str) -> Result<(), String> {
    let report = Report::new(Source::new("name", name));
    let is_fine = name::check(name, name::IN_WORKER_NAMES, "a worker", &(0..name.len()), &report);
    if is_fine {
        Ok(())
    } else {
        Err(report.first_problem())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_judged_as_the_files_are() {
        assert_eq!(
            worker_address("http://GPU-1:8000/"),
            Ok("http://gpu-1:8000".into())
        );
        assert_eq!(worker_address("http://gpu-1"), Ok("http://gpu-1:80".into()));
        assert_eq!(worker_address("https://gpu-1/"), Ok("https://gpu-1:443".into()));
        let wrong = worker_address("http://gpu-1:0").unwrap_err();
        assert!(
            wrong.contains("its port") && wrong.contains("http://HOST:PORT"),
            "{wrong}"
        );
        let secret = worker_address("http://user:secret@gpu-1:1").unwrap_err();
        assert!(!secret.contains("secret"), "{secret}");
        let unnamed = worker_address("https://10.0.0.300:1").unwrap_err();
        assert!(unnamed.contains("no certificate"), "{unnamed}");
        assert!(worker_address("http://10.0.0.300:1").is_ok());
    }

    #[test]
    fn a_bootstrap_server_is_judged_as_the_files_are() {
        assert_eq!(
            bootstrap_address("http://GPU-1:8998"),
            Ok("http://gpu-1:8998".into())
        );
        let secure = bootstrap_address("https://gpu-1:8998").unwrap_err();
        assert!(
            secure.contains("over https") && secure.contains("http://"),
            "{secure}"
        );
    }

    #[test]
    fn a_name_is_judged_as_the_files_are() {
        assert_eq!(check_worker_name("rack-1/gpu@0"), Ok(()));
        assert!(check_worker_name("a b").unwrap_err().contains("at most 128"));
        assert!(check_worker_name("").is_err());
    }
}
