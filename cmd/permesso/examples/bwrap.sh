#!/bin/sh
# bwrap.sh FOLDER COMMAND ...: run an agent with its files in FOLDER in bubblewrap. For example:
#
#	./bwrap.sh . /agent/agent.sh hello name=you
#
# It sees its own files (in /agent, read-only), the host's programs, an empty /tmp and the two folders of
# WORKSPACE (default "default"): no network, and no variable, process or other file of the host. An agent that
# calls its model needs more behind the printed arguments:
# --share-net --ro-bind /etc/resolv.conf /etc/resolv.conf --ro-bind /etc/ssl /etc/ssl
set -eu

[ $# -ge 2 ] || {
	echo 'usage: bwrap.sh FOLDER COMMAND ...' >&2
	exit 2
}
mounts=$(permesso mounts "${WORKSPACE:-default}" --bwrap)
agent=$1
shift
# shellcheck disable=SC2016 # the shell inside expands it
set -- --ro-bind "$agent" /agent /bin/sh -c 'cd /agent && exec "$@"' sh "$@"
eval "exec bwrap $mounts \"\$@\""
