//! A real `nats-server` for tests, where one is installed.
//!
//! Without one, [`NatsSite::start`] returns `None` with a notice, and such a test has nothing to test with.
//! `CONDUCTOR_REQUIRE_NATS` makes the server required.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// Address of the servers. Other tests bind ports of 127.0.0.1 by the hundred, and one might take the port of a server
/// that is stopped.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);

/// Pause between two attempts to connect to a server that starts.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// Address at which a site holds the port of its server, so that no other site gets it.
const HOLDING: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 80);

/// Address and folder of a server, which outlive its runs.
#[derive(Debug)]
pub struct NatsSite {
    address: SocketAddr,
    _held: TcpListener,
    folder: TempDir,
    settings: String,
}

/// Server that ends with its test.
#[derive(Debug)]
pub struct NatsServer(Child);

impl NatsSite {
    /// Returns a site with a port of its own and an empty folder.
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
        let held = TcpListener::bind((HOLDING, 0))?;
        Ok(Self {
            address: (ADDRESS, held.local_addr()?.port()).into(),
            _held: held,
            folder: tempfile::tempdir()?,
            settings: settings.to_owned(),
        })
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Returns the folder, for files of the test.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a server with JetStream, whose entries stay in the folder. `None` where none is installed.
    ///
    /// # Panics
    /// If none can be started and `CONDUCTOR_REQUIRE_NATS` is set, if it ends at its start, or without room for its
    /// files.
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
            "listen: \"{}\"\njetstream {{ store_dir: \"{}\", max_file: 1073741824 }}\n{}\n",
            self.address,
            store.display(),
            settings
        );
        fs::write(&file, text).expect("the folder of the test takes a file");
        let log_file = self.folder.path().join("nats.log");
        let log = fs::File::create(&log_file).expect("the folder of the test takes a file");
        let server = Command::new("nats-server")
            .arg("-c")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let is_required = std::env::var_os("CONDUCTOR_REQUIRE_NATS").is_some();
        assert!(
            server.is_ok() || !is_required,
            "CONDUCTOR_REQUIRE_NATS is set, but nats-server cannot be started"
        );
        if server.is_err() {
            eprintln!("no nats-server is installed: nothing is tested");
        }
        let mut server = NatsServer(server.ok()?);
        while TcpStream::connect(self.address).is_err() {
            let has_ended = server.0.try_wait().is_ok_and(|status| status.is_some());
            let log = || fs::read_to_string(&log_file).unwrap_or_default();
            assert!(!has_ended, "nats-server ended at its start: {}", log());
            thread::sleep(POLL_EVERY);
        }
        Some(server)
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
