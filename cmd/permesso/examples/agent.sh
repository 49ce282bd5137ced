#!/bin/sh
# A home-grown agent that asks before it acts, for any POSIX shell with od, sed and sha256sum.
#
#	agent.sh TOOL [NAME=VALUE ...]
#
# Prints the status and then the whole response, which is JSON.
# Exit codes: 0 done, 3 nothing ran, 4 it ran and failed or may have run, 5 no answer in time.
set -eu

requests=${PERMESSO_REQUESTS:-/permesso/requests}
responses=${PERMESSO_RESPONSES:-/permesso/responses}
timeout=${AGENT_TIMEOUT:-600} # seconds

[ $# -gt 0 ] || {
	echo 'usage: agent.sh TOOL [NAME=VALUE ...]' >&2
	exit 2
}

# quote makes a JSON string of its argument: two steps of sed, of which the second takes all lines as one.
tab=$(printf '\t')
quote() {
	printf '%s.\n' "$1" | tr '\001-\010\013-\037\177' '?' |
		LC_ALL=C sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e "s/$tab/\\\\t/g" |
		LC_ALL=C sed -e ':more' -e '$!N' -e '$!b more' -e 's/\n/\\n/g' -e 's/^/"/' -e 's/\.$/"/'
}

tool=$1
shift
data=
for arg in "$@"; do
	case $arg in
	*=*) data="$data${data:+,}$(quote "${arg%%=*}"):$(quote "${arg#*=}")" ;;
	*)
		echo "agent.sh: $arg: not NAME=VALUE" >&2
		exit 2
		;;
	esac
done

# Random, because its first eight digits must be free; 16 to 64 lower-case hex digits.
id=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')

# Whole or not at all: under a dot-name first, then renamed. Readable, because the gate is another user.
temporary=$requests/.$id.$$
umask 022
printf '{"request_id":"%s","tool_name":%s,"request_data":{%s}}' "$id" "$(quote "$tool")" "$data" >"$temporary"
sum=$(sha256sum <"$temporary")
sum=${sum%% *}
mv "$temporary" "$requests/$id.json"
echo "asked, request $id" >&2

# Whoever interrupts us does not want it any more.
trap ': >"$requests/$id.cancel"; exit 130' INT

# The gate answers every request that it has taken in. What does not end in } was torn by a power cut, and
# is about to be restored.
response=
until response=$(cat "$responses/$id.json" 2>/dev/null) && [ "${response%\}}" != "$response" ]; do
	# The request stays. Wait again under the same id: asking anew could do it twice.
	[ "$timeout" -gt 0 ] || {
		echo "agent.sh: no response to $id yet" >&2
		exit 5
	}
	timeout=$((timeout - 1))
	sleep 1
done

# The first of that name, before any object inside: a result may have a status of its own.
field() { printf '%s\n' "$response" | sed -n 's/^{[^{]*"'"$1"'":"\([0-9a-z_]*\)".*/\1/p'; }

[ "$(field request_sha256)" = "$sum" ] || {
	echo 'agent.sh: the response is for another request under this id' >&2
	exit 1
}
status=$(field status)
echo "$status"
echo "$response"
case $status in
approved | auto_approved | answered) exit 0 ;;
failed | interrupted) exit 4 ;; # half done, or done: look before asking for it again
*) exit 3 ;;                    # nothing ran
esac
