//! Compilation in a child process, which isolates the memory and time of the compiler.
//!
//! The child is this very program, started with a private command ([`COMMAND`]). It has no environment, no files
//! except its three pipes, and sets limits on itself before it reads a byte ([`serve`]). The component goes to its
//! standard input. The code comes from its standard output, limited in bytes. A refusal comes from its standard error.

mod error;
mod serve;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

pub use self::error::ChildError;
pub use self::serve::{CompileProcessLimits, ServeError, serve};

/// Command that makes the program compile its standard input.
pub const COMMAND: &str = "compile-policy";
/// Exit code of a refused component; the reason is on standard error.
const REFUSED: u8 = 65;
/// Most code accepted from a child, in bytes; componentised Python has about 100 MB.
const MOST_CODE: u64 = 512 << 20;
/// Most bytes read from a child's standard error.
const MOST_WORDS: u64 = 8 << 10;
/// Least memory in bytes with which a child is started.
const LEAST_ROOM: u64 = 64 << 20;
/// Threads of a child: each compiles a function, and holds the memory for it.
const THREADS: usize = 4;
/// Interval of checks if a child with closed pipes has ended.
const ENDING: Duration = Duration::from_millis(2);
/// Linux's path of the running program, also after its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Limits of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildLimits {
    /// Address space, in bytes.
    pub memory_bytes: u64,
    /// CPU time of all its threads, in whole seconds.
    pub cpu: Duration,
    /// Real time after which it is killed.
    pub time: Duration,
}

impl Default for ChildLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 2 << 30,
            cpu: Duration::from_secs(120),
            time: Duration::from_secs(300),
        }
    }
}

/// Result of a child.
pub(crate) enum CompileVerdict {
    /// Machine code for an engine of the same settings.
    Code(Vec<u8>),
    /// The component is refused, with the reason.
    Refused(String),
}

/// Compiles components in child processes.
#[derive(Debug)]
pub struct ChildCompiler {
    program: PathBuf,
    limits: ChildLimits,
    room: fn() -> Option<u64>,
    results: Mutex<BTreeMap<&'static str, u64>>,
}

impl ChildCompiler {
    /// Creates a compiler whose children run this very program. It must call [`serve`] for the command [`COMMAND`].
    ///
    /// # Errors
    /// Returns an error if the system does not know the path of this program.
    pub fn of_this_program(limits: ChildLimits) -> io::Result<Self> {
        let own = Path::new(OWN_PROGRAM);
        let program = if own.exists() {
            own.to_owned()
        } else {
            env::current_exe()?
        };
        Ok(Self::of_program(program, limits))
    }

    /// Creates a compiler whose children run another file of the same program, for tests. Its output runs as machine
    /// code.
    #[must_use]
    pub fn of_program(program: PathBuf, limits: ChildLimits) -> Self {
        Self {
            program,
            limits,
            room: || None,
            results: Mutex::default(),
        }
    }

    /// Limits children by the memory that `room` returns at their start as well, in bytes.
    #[must_use]
    pub fn with_room(mut self, room: fn() -> Option<u64>) -> Self {
        self.room = room;
        self
    }

    /// Returns the number of results since the start, by name.
    pub(crate) fn results(&self) -> Vec<(&'static str, u64)> {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.iter().map(|(result, count)| (*result, *count)).collect()
    }

    /// Compiles a component in a child. Blocks for at most [`ChildLimits::time`].
    pub(crate) fn compile(&self, bytes: &[u8]) -> Result<CompileVerdict, ChildError> {
        let compiled = self.run(bytes);
        let result = match &compiled {
            Ok(CompileVerdict::Code(_)) => "done",
            Ok(CompileVerdict::Refused(_)) => "refused",
            Err(error) => error.result(),
        };
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        *results.entry(result).or_default() += 1;
        compiled
    }

    fn run(&self, bytes: &[u8]) -> Result<CompileVerdict, ChildError> {
        let start = |source| ChildError::Start {
            program: self.program.clone(),
            source,
        };
        let most = self.limits.memory_bytes;
        let data = (self.room)().map_or(most, |room| room.min(most));
        if data < LEAST_ROOM.min(most) {
            return Err(ChildError::Room { room: data });
        }
        let mut child = RunningChild(self.command(data).spawn().map_err(start)?);
        let deadline = Instant::now() + self.limits.time;
        let talk = thread::scope(|scope| {
            let talk = child.talk(scope, bytes, deadline);
            // Whatever the result, its pipes close now, and their threads end.
            let status = child.end(deadline);
            talk.map(|talk| (talk.stdout, talk.stderr.join().unwrap_or_default(), status))
        });
        let (code, words, status) = talk.map_err(start)?;
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        let late = ChildError::Time {
            most: self.limits.time,
        };
        let code = match code {
            PipeOutput::All(code) => code,
            PipeOutput::TooMuch => return Err(ChildError::Code { most: MOST_CODE }),
            PipeOutput::TooLate => return Err(late),
        };
        let Some(status) = status.map_err(start)? else {
            return Err(late);
        };
        match status.code().map(u8::try_from) {
            Some(Ok(0)) => Ok(CompileVerdict::Code(code)),
            Some(Ok(REFUSED)) => Ok(CompileVerdict::Refused(words)),
            _ => Err(self.cause(data, status, words)),
        }
    }

    fn command(&self, data: u64) -> Command {
        let threads = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(THREADS);
        let mut command = Command::new(&self.program);
        command
            .args(arguments(self.limits, data))
            .env_clear()
            .env("RAYON_NUM_THREADS", threads.to_string())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }

    /// Returns the probable cause of an abnormal end.
    fn cause(&self, data: u64, status: ExitStatus, words: String) -> ChildError {
        let signal = status.signal();
        let is = |wanted: Signal| signal == Some(wanted.as_raw());
        // The kernel's limit is a signal. A failed allocation ends in an abort, of a thread's stack in a panic, of the
        // engine in an error text.
        let of_memory = [
            "memory allocation of",
            "Cannot allocate memory",
            "out of memory",
            "os error 11",
        ];
        if is(Signal::XCPU) {
            return ChildError::Cpu {
                most: self.limits.cpu,
            };
        }
        if of_memory.iter().any(|complaint| words.contains(complaint)) {
            let most = self.limits.memory_bytes;
            return if data < most {
                ChildError::Room { room: data }
            } else {
                ChildError::Memory { most }
            };
        }
        ChildError::Died { status, words }
    }
}

/// Output of a child on a pipe.
enum PipeOutput {
    All(Vec<u8>),
    TooMuch,
    TooLate,
}

struct ChildOutput<'s> {
    stdout: PipeOutput,
    stderr: thread::ScopedJoinHandle<'s, Vec<u8>>,
}

/// A child process; dropping this kills it.
struct RunningChild(Child);

impl RunningChild {
    /// Sends the component and reads the child's output to its end, or until its time is over.
    fn talk<'s>(
        &mut self,
        scope: &'s thread::Scope<'s, '_>,
        bytes: &'s [u8],
        deadline: Instant,
    ) -> io::Result<ChildOutput<'s>> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut stdin = self.0.stdin.take().ok_or_else(gone)?;
        let stdout = self.0.stdout.take().ok_or_else(gone)?;
        let stderr = self.0.stderr.take().ok_or_else(gone)?;
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        // A child that ends early does not read everything: its status has the reason.
        named("compile-in").spawn_scoped(scope, move || drop(stdin.write_all(bytes)))?;
        let stderr =
            named("compile-err").spawn_scoped(scope, move || match read_output(stderr, MOST_WORDS) {
                Ok(PipeOutput::All(words)) => words,
                _ => b"too much to be kept".to_vec(),
            })?;
        let (finished, result) = sync_channel(1);
        named("compile-out")
            .spawn_scoped(scope, move || drop(finished.send(read_output(stdout, MOST_CODE))))?;
        let left = deadline.saturating_duration_since(Instant::now());
        let stdout = result.recv_timeout(left).unwrap_or(Ok(PipeOutput::TooLate))?;
        Ok(ChildOutput { stdout, stderr })
    }

    /// Waits for its end until the deadline, then kills its process group. `None`: it was killed.
    fn end(&mut self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        // A closed pipe ends a child that still writes.
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            thread::sleep(ENDING);
        }
        self.kill();
        self.0.wait()?;
        Ok(None)
    }

    fn kill(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        // The child may have ended by itself, and there is nothing to kill.
        if let Some(pid) = pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.0.kill();
    }
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            self.kill();
            let _ = self.0.wait();
        }
    }
}

fn read_output(pipe: impl Read, most: u64) -> io::Result<PipeOutput> {
    let mut output = Vec::new();
    pipe.take(most + 1).read_to_end(&mut output)?;
    Ok(if output.len() as u64 > most {
        PipeOutput::TooMuch
    } else {
        PipeOutput::All(output)
    })
}

fn arguments(limits: ChildLimits, data: u64) -> [OsString; 4] {
    [
        COMMAND.into(),
        limits.memory_bytes.to_string().into(),
        data.to_string().into(),
        limits.cpu.as_secs().max(1).to_string().into(),
    ]
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    /// Runs a shell script in place of a compiler, and waits for it.
    fn compile(script: &str, time: Duration) -> (TempDir, Result<CompileVerdict, ChildError>) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let limits = ChildLimits {
            time,
            ..ChildLimits::default()
        };
        let compiler = ChildCompiler::of_program(program, limits);
        let output = compiler.compile(&vec![0; 1 << 20]);
        let counted = compiler.results();
        assert_eq!(counted.len(), 1, "{counted:?}");
        (folder, output)
    }

    #[track_caller]
    fn failed(script: &str, time: Duration) -> ChildError {
        match compile(script, time).1 {
            Err(error) => error,
            Ok(CompileVerdict::Code(code)) => panic!("{script} gave {} bytes", code.len()),
            Ok(CompileVerdict::Refused(why)) => panic!("{script} refused: {why}"),
        }
    }

    /// Longer than any test waits.
    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_child_that_says_nothing_or_does_not_end_is_killed_at_the_deadline() {
        let soon = Duration::from_millis(100);
        for script in [
            "exec sleep 1000",
            "sleep 1000 & sleep 1000",
            "exec >&-; exec sleep 1000",
        ] {
            let error = failed(script, soon);
            assert!(matches!(error, ChildError::Time { .. }), "{script}: {error}");
        }
    }

    #[test]
    fn the_failure_of_a_child_process_is_reported_by_its_cause() {
        let died = failed("echo this is bad >&2; exit 3", LONG).to_string();
        assert!(died.contains("this is bad") && died.contains('3'), "{died}");
        assert!(matches!(failed("kill -9 $$", LONG), ChildError::Died { .. }));
        assert!(matches!(failed("kill -XCPU $$", LONG), ChildError::Cpu { .. }));
        let memory = failed(
            "echo memory allocation of 8 bytes failed >&2; kill -ABRT $$",
            LONG,
        );
        assert!(matches!(memory, ChildError::Memory { .. }), "{memory}");
        let refused = compile("cat > /dev/null; echo no good >&2; exit 65", LONG).1;
        assert!(matches!(refused, Ok(CompileVerdict::Refused(why)) if why == "no good"));
        let limits = ChildLimits::default();
        let missing = ChildCompiler::of_program("/nowhere/conductor".into(), limits).compile(b"");
        assert!(matches!(missing, Err(ChildError::Start { .. })));
    }

    #[test]
    fn a_child_stays_within_the_room_below_the_memory_limit_and_is_not_started_with_too_little() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let script = "#!/bin/sh\ncat > /dev/null\necho $@ memory allocation of 8 bytes failed >&2\nexit 1\n";
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let compile = |room: fn() -> Option<u64>| {
            let compiler = ChildCompiler::of_program(program.clone(), ChildLimits::default());
            compiler.with_room(room).compile(b"").err().unwrap()
        };
        let limited = compile(|| Some(512 << 20));
        assert!(
            matches!(limited, ChildError::Room { room } if room == 512 << 20),
            "{limited}"
        );
        assert!(limited.is_transient() && limited.result() == "memory");
        let refused = compile(|| Some(1 << 20));
        assert!(
            matches!(refused, ChildError::Room { room } if room == 1 << 20),
            "{refused}"
        );
        assert!(matches!(compile(|| Some(8 << 30)), ChildError::Memory { .. }));
    }

    #[test]
    fn a_child_that_pours_out_bytes_is_stopped() {
        let words = failed("yes this is wrong | head -c 100000000 >&2; exit 1", LONG);
        assert!(
            matches!(&words, ChildError::Died { words, .. } if words.len() < 100),
            "{words}"
        );
        assert!(matches!(
            read_output(io::repeat(0), 10).unwrap(),
            PipeOutput::TooMuch
        ));
        assert!(
            matches!(read_output(io::repeat(0).take(10), 10).unwrap(), PipeOutput::All(output) if output.len() == 10)
        );
    }

    #[test]
    fn a_child_has_no_environment_and_its_arguments_are_its_limits() {
        let output = compile("cat > /dev/null; env; echo $0 \"$@\"; pwd", LONG).1;
        let Ok(CompileVerdict::Code(output)) = output else {
            panic!()
        };
        let output = String::from_utf8(output).unwrap();
        // Variables of the shell itself.
        let own = ["PWD=", "SHLVL=", "_=", "OLDPWD=", "RAYON_NUM_THREADS="];
        let variables = output.lines().filter(|line| line.contains('='));
        let strange: Vec<_> = variables
            .filter(|line| !own.iter().any(|own| line.starts_with(own)))
            .collect();
        assert!(strange.is_empty(), "{strange:?}");
        assert!(
            output.contains("compile-policy 2147483648 2147483648 120"),
            "{output}"
        );
        assert!(output.ends_with("\n/\n"), "{output}");
    }
}
