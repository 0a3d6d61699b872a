//! Memory limit of the process, which its control group sets.

use std::path::{Path, PathBuf};

/// Mount point of the control groups.
const MOUNT: &str = "/sys/fs/cgroup";
/// Value of version 1 for "no limit": more than any amount of memory.
const NO_LIMIT: u64 = 1 << 60;

/// Returns the limit in bytes. `None` without one.
#[must_use]
pub fn control_group_limit() -> Option<u64> {
    of_group(|file| std::fs::read_to_string(file).ok())
}

/// Returns the least limit of the process' control group and of those it is in (cgroups(7)), of either version.
fn of_group(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (root, file) = match controllers {
            "" => (PathBuf::from(MOUNT), "memory.max"),
            one if one.split(',').any(|name| name == "memory") => {
                (Path::new(MOUNT).join("memory"), "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let path = Path::new(path.trim_start_matches('/'));
        // The last of them is the root, which in a container is the container's.
        let limits = path
            .ancestors()
            .filter_map(|group| number(&read(&root.join(group).join(file))?));
        limits.collect()
    });
    limits.min()
}

/// Parses a number. `None` for `max`.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: Option<u64>) {
        let read = |wanted: &Path| {
            let found = files.iter().find(|(file, _)| Path::new(file) == wanted);
            found.map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(of_group(read), expected, "{files:?}");
    }

    #[test]
    fn the_least_limit_of_all_groups_around_the_process_counts() {
        check(&[], None);
        let group = ("/proc/self/cgroup", "0::/a/b\n");
        check(&[group, ("/sys/fs/cgroup/a/b/memory.max", "max\n")], None);
        let outer = ("/sys/fs/cgroup/a/memory.max", "1024\n");
        check(
            &[group, ("/sys/fs/cgroup/a/b/memory.max", "max\n"), outer],
            Some(1_024),
        );
        check(
            &[group, ("/sys/fs/cgroup/a/b/memory.max", "512\n"), outer],
            Some(512),
        );
        let container = ("/sys/fs/cgroup/memory.max", "2048\n");
        check(&[("/proc/self/cgroup", "0::/\n"), container], Some(2_048));
        check(&[group, container], Some(2_048));
    }

    #[test]
    fn the_first_version_of_control_groups_is_read_too() {
        let group = ("/proc/self/cgroup", "7:cpu,cpuacct:/a\n5:memory:/a\n");
        let file = "/sys/fs/cgroup/memory/a/memory.limit_in_bytes";
        check(&[group, (file, "4096\n")], Some(4_096));
        check(&[group, (file, "9223372036854771712\n")], None);
    }
}
