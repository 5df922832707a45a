#!/bin/sh
# Installs the Node.js of the lock file beside it and makes it the `node` of npm scripts. `npm ci` runs it last: the
# install scripts of dependencies run on the Node.js of the host, which its packages have made sure of.
set -eu
folder=$(dirname "$0")

fail() {
  printf 'muster: %s\n' "$1" >&2
  exit 1
}

(cd "$folder" && npm ci --include=optional > /dev/null)
node=$(echo "$folder"/node_modules/node-linux-*/bin/node)
[ -x "$node" ] || fail "Node.js 26 exists for Linux on x64 and arm64, not for $(uname -s) on $(uname -m)."

if ! error=$("$node" --version 2>&1); then
  library=$(printf '%s\n' "$error" | sed -n 's/.*loading shared libraries: \([^:]*\):.*/\1/p')
  case $library in
    libatomic.so.1) package="libatomic1 (Debian, Ubuntu) or libatomic (Fedora)" ;;
    libstdc++.so.6) package="libstdc++6 (Debian, Ubuntu) or libstdc++ (Fedora)" ;;
    '') fail "Node.js 26 does not start: $error" ;;
    *) package="the package of your distribution with $library" ;;
  esac
  fail "Node.js 26 needs $library, which this machine lacks: install $package, then run the command again."
fi

ln -sfn "../../$node" node_modules/.bin/node
