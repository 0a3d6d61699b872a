//! A real `nats-server` for tests, where one is installed.
//!
//! Without one, [`NatsSite::start`] returns `None` with a notice, and such a test has nothing to test with.
//! `CONDUCTOR_REQUIRE_NATS` makes the server required.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Port and folder of a server, which outlive its runs.
#[derive(Debug)]
pub struct NatsSite {
    port: u16,
    folder: TempDir,
    settings: String,
}

/// Server that ends with its test.
#[derive(Debug)]
pub struct NatsServer(Child);

impl NatsSite {
    /// Returns a site with a free port and an empty folder.
    ///
    /// # Errors
    /// The system's error without a port or a folder.
    pub fn new() -> io::Result<Self> {
        Self::with("")
    }

    /// Returns a site whose server has these settings besides, in the server's format.
    ///
    /// # Errors
    /// The system's error without a port or a folder.
    pub fn with(settings: &str) -> io::Result<Self> {
        Ok(Self {
            port: TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(),
            folder: tempfile::tempdir()?,
            settings: settings.to_owned(),
        })
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the server's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns the folder, for files of the test.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a server with JetStream, whose entries stay in the folder. `None` where none is installed.
    ///
    /// # Panics
    /// If none can be started and `CONDUCTOR_REQUIRE_NATS` is set, or without room for its files.
    #[must_use]
    pub fn start(&self) -> Option<NatsServer> {
        self.start_with(&self.settings)
    }

    /// Starts a server with these settings instead, in the server's format.
    ///
    /// # Panics
    /// As [`NatsSite::start`].
    #[must_use]
    pub fn start_with(&self, settings: &str) -> Option<NatsServer> {
        let store = self.folder.path().join("jetstream");
        let file = self.folder.path().join("nats.conf");
        let text = format!(
            "listen: \"127.0.0.1:{}\"\njetstream {{ store_dir: \"{}\", max_file: 1073741824 }}\n{}\n",
            self.port,
            store.display(),
            settings
        );
        fs::write(&file, text).expect("the folder of the test takes a file");
        let server = Command::new("nats-server")
            .arg("-c")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let is_required = std::env::var_os("CONDUCTOR_REQUIRE_NATS").is_some();
        assert!(
            server.is_ok() || !is_required,
            "CONDUCTOR_REQUIRE_NATS is set, but nats-server cannot be started"
        );
        if server.is_err() {
            eprintln!("no nats-server is installed: nothing is tested");
        }
        server.ok().map(NatsServer)
    }

    /// Removes the entries of the server, which must not run.
    ///
    /// # Errors
    /// The system's error.
    pub fn forget(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.folder.path().join("jetstream")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

impl NatsServer {
    /// Stops the process without ending it, as a partition of the network does.
    ///
    /// # Errors
    /// The system's error if it cannot send signals.
    pub fn pause(&self) -> io::Result<()> {
        self.signal("STOP")
    }

    /// Lets a paused process go on.
    ///
    /// # Errors
    /// The system's error if it cannot send signals.
    pub fn resume(&self) -> io::Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> io::Result<()> {
        let status = Command::new("kill")
            .args([format!("-{name}"), self.0.id().to_string()])
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("kill -{name}: {status}")))
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
