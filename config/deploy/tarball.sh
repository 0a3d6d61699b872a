#!/bin/sh
# Makes conductor-VERSION-x86_64-linux.tar.gz and a tarball with the debug info from a release binary:
#
#   config/deploy/tarball.sh target/release/conductor target/packages
#
# The packages promise that the program needs only the libraries below and the glibc version below. The script fails if
# the binary needs another library or a newer version.
set -eu
binary=$1
out=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
oldest_glibc=2.34
# libstdc++ of GCC 12.
oldest_glibcxx=3.4.30
libraries='ld-linux-x86-64.so.2 libc.so.6 libgcc_s.so.1 libm.so.6 libstdc++.so.6'

mkdir -p "$out"
objcopy --only-keep-debug "$binary" "$out/conductor.debug"
strip -o "$out/conductor" "$binary"
(cd "$out" && objcopy --add-gnu-debuglink=conductor.debug conductor)

# check_version NAME PROMISED: prints the newest symbol version that the program needs of a library. Fails if it is
# newer than the promised version.
check_version() {
    found=$(objdump -T "$out/conductor" | grep -o "$1_[0-9.]*" | sed "s/$1_//" | sort -Vu | tail -1)
    if [ "$(printf '%s\n%s\n' "$found" "$2" | sort -V | tail -1)" != "$2" ]; then
        echo "the program needs $1 $found, but the packages promise $2" >&2
        exit 1
    fi
    echo "$found"
}
needed=$(check_version GLIBC "$oldest_glibc")
check_version GLIBCXX "$oldest_glibcxx" >/dev/null
for library in $(objdump -p "$out/conductor" | sed -n 's/ *NEEDED *//p'); do
    case " $libraries " in
    *" $library "*) ;;
    *)
        echo "the program needs $library, which is not in the list of the packages' libraries" >&2
        exit 1
        ;;
    esac
done

version=$("$out/conductor" version | sed 's/conductor \([^,]*\),.*/\1/')
name=conductor-$version-x86_64-linux
stage=$out/$name
rm -rf "$stage"
mkdir -p "$stage/bin" "$stage/share/doc/conductor/examples" "$stage/lib/systemd/system" "$stage/etc/conductor/policies.d"
cp "$out/conductor" "$stage/bin/"
cp "$root/LICENSE" "$root/NOTICE" "$root/README.md" "$root/config/conductor.toml" "$stage/share/doc/conductor/"
cp "$root"/config/examples/*.toml "$stage/share/doc/conductor/examples/"
cp "$root/config/deploy/deb/conductor.toml" "$stage/etc/conductor/"
cp "$root/config/deploy/systemd/conductor.service" "$stage/lib/systemd/system/"
if ! [ "$out/THIRD-PARTY.txt" -nt "$root/Cargo.lock" ]; then
    python3 "$root/config/deploy/third-party.py" >"$out/THIRD-PARTY.txt.new"
    mv "$out/THIRD-PARTY.txt.new" "$out/THIRD-PARTY.txt"
fi
cp "$out/THIRD-PARTY.txt" "$stage/share/doc/conductor/"
# The Debian package uses the same files.
rm -rf "$out/man" "$out/completions"
"$out/conductor" man-pages "$out/man"
mkdir -p "$out/completions"
"$out/conductor" completions bash >"$out/completions/conductor.bash"
"$out/conductor" completions zsh >"$out/completions/_conductor"
"$out/conductor" completions fish >"$out/completions/conductor.fish"
mkdir -p "$stage/share/man"
cp -r "$out/man" "$stage/share/man/man1"
cp -r "$out/completions" "$stage/share/completions"
# Reproducible archive: fixed owners, times and order.
pack() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" -C "$out" -cf - "$@" | gzip -n
}
pack "$name" >"$out/$name.tar.gz"
pack conductor.debug >"$out/$name-debug.tar.gz"
rm -rf "$stage"
(cd "$out" && sha256sum "$name.tar.gz" "$name-debug.tar.gz" >"$name.sha256")
echo "$name.tar.gz: needs glibc $needed (promised: $oldest_glibc), $(stat -c %s "$out/$name.tar.gz") bytes"
