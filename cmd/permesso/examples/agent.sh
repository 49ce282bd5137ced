#!/bin/sh
# A custom agent that requests approval before it acts, for any POSIX shell with od, sed and sha256sum.
#
#	agent.sh TOOL [NAME=VALUE ...]
#
# Prints the status, and then the whole response as a line of JSON.
# Exit codes: 0 done, 1 no response to this request, 2 usage, 3 nothing ran, 4 it ran and failed or may have run, 5 timeout,
# 130 cancelled by Ctrl-C.
set -eu

requests=${PERMESSO_REQUESTS:-/permesso/requests}
responses=${PERMESSO_RESPONSES:-/permesso/responses}
timeout=${AGENT_TIMEOUT:-600} # seconds

[ $# -gt 0 ] || {
	echo 'usage: agent.sh TOOL [NAME=VALUE ...]' >&2
	exit 2
}

case $timeout in
'' | *[!0-9]*)
	echo "agent.sh: AGENT_TIMEOUT=$timeout: not a number of seconds" >&2
	exit 2
	;;
esac

# quote prints its argument as a JSON string. The second sed joins all lines first.
tab=$(printf '\t') return=$(printf '\r')
quote() {
	printf '%s.\n' "$1" |
		LC_ALL=C sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e "s/$tab/\\\\t/g" -e "s/$return/\\\\r/g" |
		LC_ALL=C sed -e ':more' -e '$!N' -e '$!b more' -e 's/\n/\\n/g' -e 's/^/"/' -e 's/\.$/"/'
}

tool=$1
shift
data=
for arg in "$tool" "$@"; do
	[ "$(printf '%s.' "$arg" | LC_ALL=C tr -d '\001-\010\013\014\016-\037')" = "$arg." ] || {
		echo 'agent.sh: a control character in an argument: only tab, line feed and carriage return are sent' >&2
		exit 2
	}
done
for arg in "$@"; do
	case $arg in
	*=*) data="$data${data:+,}$(quote "${arg%%=*}"):$(quote "${arg#*=}")" ;;
	*)
		echo "agent.sh: $arg: not NAME=VALUE" >&2
		exit 2
		;;
	esac
done

# Random: people type its first eight digits. 16 to 64 lower-case hex digits, or a UUID.
id=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')

# Write atomically: to a dot-name first, then rename. Readable, because the daemon is another user.
temporary=$requests/.$id.$$
umask 022
printf '{"request_id":"%s","tool_name":%s,"request_data":{%s}}' "$id" "$(quote "$tool")" "$data" >"$temporary"
sum=$(sha256sum <"$temporary")
sum=${sum%% *}

# On Ctrl-C cancel the request.
trap ': >"$requests/$id.cancel"; exit 130' INT
mv "$temporary" "$requests/$id.json"
echo "submitted request $id" >&2

# read_response reads the response as one line: its line breaks are between its parts, those in strings are escaped. A zero
# byte, which no shell keeps, becomes one that no JSON has.
zero=$(printf '\001')
read_response() { response=$(tr '\000\n\r' '\001  ' <"$responses/$id.json"); }

# whole is true if the response is a whole JSON object. One that was torn by a power cut is about to be restored. Without
# its strings, and then without pairs of braces, nothing of a whole object is left.
whole() {
	case $response in *"$zero"*) return 1 ;; *'{'*) ;; *) return 1 ;; esac
	[ -z "$(printf '%s' "$response" |
		LC_ALL=C sed -e 's/\\.//g' -e 's/"[^"]*"//g' -e 's/[^{}"]//g' -e ':more' -e 's/{}//g' -e 't more')" ]
}

# Every accepted request gets a response. Until there is one, the shell starts nothing in the foreground: bash can lose a
# Ctrl-C that comes just as such a command ends.
response=
until [ -s "$responses/$id.json" ] && read_response && whole; do
	# The request stays pending. Wait for the same id: a new request could run twice.
	[ "$timeout" -gt 0 ] || {
		echo "agent.sh: timeout waiting for the response to $id" >&2
		exit 5
	}
	timeout=$((timeout - 1))
	sleep 1 >/dev/null 2>&1 & # who reads the agent's output waits for no sleep
	wait $!
done

# The first member of that name, before any inner object: a result may have its own status.
field() {
	printf '%s\n' "$response" | LC_ALL=C sed -n 's/^ *{[^{]*"'"$1"'" *: *"\([0-9a-z_]*\)".*/\1/p'
}

[ "$(field request_sha256)" = "$sum" ] || {
	echo 'agent.sh: the response is for another request under this id, or for none' >&2
	exit 1
}
status=$(field status)
printf '%s\n' "$status" "$response"
case $status in
approved | auto_approved | answered) exit 0 ;;
denied | auto_rejected | expired | cancelled | overridden | request_more | malformed) exit 3 ;; # nothing ran
*) exit 4 ;; # partly done, or done: check before you submit again
esac
