#!/bin/sh
# What the image does, where no container engine runs: the server in namespaces of its own, by the command of the
# Dockerfile. Another user, a read-only file system but for one directory, no network but loopback. Needs root and unshare.
#   docker/install.sh /opt/holobind          once; any environment with holobind[serve] does
#   docker/layout.sh ENVIRONMENT MODEL       starts the server, asks for health and labels, ends it; prints JSON
set -eu
if [ $# -eq 2 ]; then
  writable=$(mktemp -d /var/tmp/holobind-XXXXXX)
  trap 'rm -rf "$writable"' EXIT
  cp "$2" "$writable/model.safetensors"
  cp "$(dirname "$0")/check.py" "$writable/check.py"
  mkdir "$writable/tmp"
  chown -R 10001:10001 "$writable"
  unshare --net --mount --pid --fork --mount-proc sh "$(realpath "$0")" "$(realpath "$1")" "$writable" inside
  exit
fi
environment=$1 writable=$2
python=$environment/bin/python
"$python" -c '
import fcntl, socket, struct
with socket.socket() as s:  # SIOCSIFFLAGS, IFF_UP: loopback
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1))'
mount --make-rprivate /
base=$("$python" -c 'import sys; print(sys.base_prefix)')
case $base in /root/*)  # an interpreter that other users cannot reach
  mount --bind "$base" /mnt
  mount -t tmpfs -o mode=755 tmpfs /root
  mkdir -p "$base"
  mount --move /mnt "$base" ;;
esac
mount --bind "$writable" "$writable"
cd "$writable"
mount -o bind,remount,ro /
for mounted in $(cut -d' ' -f5 /proc/self/mountinfo); do  # other file systems under /
  case $mounted in
    / | /proc | /proc/* | /dev | /dev/* | /sys | /sys/* | "$writable") ;;
    *) mount -o bind,remount,ro "$mounted" 2> /dev/null || true ;;
  esac
done
kernels=$environment/kernels
[ -d "$kernels" ] || kernels=$writable/kernels
as_user() {
  exec setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs --bounding-set=-all env -i \
    PATH="$environment/bin:/usr/bin:/bin" NUMBA_CACHE_DIR="$kernels" HOLOBIND_CACHE="$writable/cache" HOME="$writable" \
    TMPDIR="$writable/tmp" PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="${PYTHONPATH:-}" HOLOBIND_TOKEN=0123456789abcdef0123 "$@"
}
(as_user "$python" -m holobind serve --host 0.0.0.0 --port 8000 model.safetensors --journal journal --quiet) &
server=$!
(as_user "$python" check.py) || { kill "$server"; exit 1; }
kill -TERM "$server"
wait "$server"
