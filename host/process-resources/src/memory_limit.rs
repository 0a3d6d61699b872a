//! Memory limit of the process, which its control group sets, and the room below it.

use std::path::{Path, PathBuf};

/// Mount point of the control groups.
const MOUNT: &str = "/sys/fs/cgroup";
/// Value of version 1 for "no limit": more than any amount of memory.
const NO_LIMIT: u64 = 1 << 60;

/// Part of the limit that stays free for this process, which may grow: one of so many.
const KEPT: u64 = 8;

/// Files of a control group, by version.
struct GroupFiles {
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` with the page cache of files, which the kernel gives back before it ends a process.
    cache: [&'static str; 2],
}

static VERSION_2: GroupFiles = GroupFiles {
    limit: "memory.max",
    usage: "memory.current",
    cache: ["inactive_file", "active_file"],
};
static VERSION_1: GroupFiles = GroupFiles {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};

/// Returns the limit in bytes. `None` without one.
#[must_use]
pub fn control_group_limit() -> Option<u64> {
    of_group(read_file)
}

/// Returns the most bytes that a child process may use, so that the kernel does not end this one: the free memory of
/// the control group, less an eighth of the limit. `None` without a limit.
#[must_use]
pub fn room_for_child() -> Option<u64> {
    room(read_file)
}

fn read_file(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok()
}

/// Returns the least limit of the process' control group and of those it is in (cgroups(7)), of either version.
fn of_group(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = groups(&read)?;
    let limits = groups
        .iter()
        .filter_map(|(group, files)| limit(&read, group, files));
    limits.min()
}

fn room(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = groups(&read)?;
    let rooms = groups.iter().filter_map(|(group, files)| {
        let limit = limit(&read, group, files)?;
        let usage = number(&read(&group.join(files.usage))?)?;
        let stat = read(&group.join("memory.stat")).unwrap_or_default();
        let cache = stat.lines().filter_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            files.cache.contains(&name).then(|| number(bytes))?
        });
        let used = usage.saturating_sub(cache.sum());
        Some(limit.saturating_sub(used).saturating_sub(limit / KEPT))
    });
    rooms.min()
}

/// Returns the folders of the process' control group and of those it is in.
fn groups(read: impl Fn(&Path) -> Option<String>) -> Option<Vec<(PathBuf, &'static GroupFiles)>> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let folders = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (root, files) = match controllers {
            "" => (PathBuf::from(MOUNT), &VERSION_2),
            one if one.split(',').any(|name| name == "memory") => {
                (Path::new(MOUNT).join("memory"), &VERSION_1)
            }
            _ => return Vec::new(),
        };
        let path = Path::new(path.trim_start_matches('/'));
        // The last of them is the root, which in a container is the container's.
        path.ancestors().map(|group| (root.join(group), files)).collect()
    });
    Some(folders.collect())
}

fn limit(read: impl Fn(&Path) -> Option<String>, group: &Path, files: &GroupFiles) -> Option<u64> {
    number(&read(&group.join(files.limit))?)
}

/// Parses a number. `None` for `max`.
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(files: &[(&str, &str)]) -> impl Fn(&Path) -> Option<String> {
        |wanted| {
            let found = files.iter().find(|(file, _)| Path::new(file) == wanted);
            found.map(|(_, text)| (*text).to_owned())
        }
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: Option<u64>) {
        assert_eq!(of_group(reader(files)), expected, "{files:?}");
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

    #[test]
    fn a_child_has_the_room_of_the_fullest_group_without_its_page_cache_and_an_eighth_of_its_limit() {
        let group = ("/proc/self/cgroup", "0::/a\n");
        let inner = [
            group,
            ("/sys/fs/cgroup/a/memory.max", "8000\n"),
            ("/sys/fs/cgroup/a/memory.current", "6000\n"),
        ];
        let left = |files: &[(&str, &str)]| room(reader(files));
        assert_eq!(left(&[group]), None);
        assert_eq!(left(&inner), Some(1_000));
        let stat = (
            "/sys/fs/cgroup/a/memory.stat",
            "anon 2500\nfile 3500\nactive_file 1000\ninactive_file 2000\nshmem 500\n",
        );
        let cached = [&inner[..], &[stat]].concat();
        assert_eq!(left(&cached), Some(4_000));
        let full = ("/sys/fs/cgroup/memory.current", "15900\n");
        let outer = [&cached[..], &[("/sys/fs/cgroup/memory.max", "16000\n"), full]].concat();
        assert_eq!(left(&outer), Some(0));
        let first_version = [
            ("/proc/self/cgroup", "5:memory:/\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8000\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "6000\n"),
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "inactive_file 9\ntotal_inactive_file 3000\n",
            ),
        ];
        assert_eq!(left(&first_version), Some(4_000));
    }
}
