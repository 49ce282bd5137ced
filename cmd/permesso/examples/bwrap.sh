#!/bin/sh
# bwrap.sh FOLDER COMMAND ...: run an agent with its files in FOLDER in bubblewrap. For example:
#
#	./bwrap.sh . /agent/agent.sh hello name=you
#
# It sees its own files (in /agent, read-only), the host's programs, an empty /tmp and the two folders of
# WORKSPACE (default "default"): no network, and no variable, process or other file of the host. An agent that
# calls its model needs --share-net after --unshare-all, and then --ro-bind /etc/ssl /etc/ssl and so on.
set -eu

agent=$1
shift
eval "exec bwrap --unshare-all --die-with-parent --new-session --uid 1000 --gid 1000 \
	--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
	--proc /proc --dev /dev --tmpfs /tmp --ro-bind \"\$agent\" /agent --chdir /agent \
	--clearenv --setenv PATH /usr/bin $(permesso mounts "${WORKSPACE:-default}" --bwrap) \"\$@\""
