#!/bin/sh
# install.sh: install permesso from a release, after a check of its SHA-256. It asks nothing.
#
#	install.sh [--user | --system] [--version VERSION] [--from URL|FOLDER]
#	install.sh --uninstall [--user | --system]
#
#	--user       into ~/.local (the default, except for root)
#	--system     into /usr/local (the default for root)
#	--version    another release than the newest, as v1.2.3
#	--from       a mirror, or a folder with the files of a release
#	--uninstall  remove the program, its manuals and its service; configuration and state stay
#
# It leaves a copy of itself in share/permesso, for --uninstall, and replaces no file that it has not installed.
# Needs tar, one of curl and wget, and one of sha256sum, shasum and openssl.
set -eu
umask 022

releases=https://github.com/permesso-dev/permesso/releases

say() { printf 'install: %s\n' "$*"; }

# die MESSAGE HINT
die() {
	printf 'install: %s\nhint: %s\n' "$1" "$2" >&2
	exit 1
}

usage() {
	cat <<'END'
install.sh [--user | --system] [--version VERSION] [--from URL|FOLDER]
install.sh --uninstall [--user | --system]

Installs permesso from a release, after a check of its SHA-256. It asks nothing.

  --user       into ~/.local (the default, except for root)
  --system     into /usr/local (the default for root)
  --version    another release than the newest, as v1.2.3
  --from       a mirror, or a folder with the files of a release
  --uninstall  remove the program, its manuals and its service; configuration and state stay
END
}

# get NAME FILE: fetch one file of the release. A key or a program may only come over TLS or from this machine.
get() {
	case $from in
	/*) cp "$from/$1" "$2" ;;
	http://*@*) die "--from $from: a name before @ only with https://" 'leave it out' ;;
	https://*) download "$from/$1" "$2" ;;
	http://127.0.0.1[:/]* | http://localhost[:/]*)
		# No proxy, which is elsewhere.
		(unset http_proxy && download "$from/$1" "$2")
		;;
	*) die "--from $from: neither https:// nor a folder" 'give the URL of a mirror, or the absolute path of a folder' ;;
	esac || die "cannot get $from/$1" "check the connection, the room in ${TMPDIR:-/tmp}, and --version; --from FOLDER installs what you copied there"
}

# download URL FILE: never by a redirect to where http:// leads.
download() {
	if command -v curl >/dev/null; then
		case $1 in
		https://*) curl -fsSL --proto =https "$1" -o "$2" ;;
		*) curl -fsSL --proto =http --max-redirs 0 --noproxy '*' "$1" -o "$2" ;;
		esac
	elif command -v wget >/dev/null; then
		wget -S "$1" -O "$2" 2>"$work/said" || {
			tail -n 1 "$work/said" >&2
			return 1
		}
		case $1 in https://*) to=http: ;; *) to= ;; esac
		! grep -qi "^ *location: *$to" "$work/said" || {
			echo 'there was a redirect that is not followed' >&2
			return 1
		}
	else
		die 'neither curl nor wget is here' 'install one of them, or copy the files of a release here and give --from FOLDER'
	fi
}

# sum FILE: its SHA-256.
sum() {
	if command -v sha256sum >/dev/null; then
		sha256sum <"$1"
	elif command -v shasum >/dev/null; then
		shasum -a 256 <"$1"
	elif command -v openssl >/dev/null; then
		openssl dgst -sha256 -r <"$1"
	else
		die 'no program here computes SHA-256' 'install sha256sum (coreutils), shasum or openssl'
	fi | cut -d ' ' -f 1
}

# platform: OS_ARCH as in the names of the archives.
platform() {
	case $(uname -s) in
	Linux) os=linux ;;
	Darwin) os=darwin ;;
	*) die "no archive for $(uname -s)" "on Windows take the .zip from $releases; elsewhere build from source" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) echo ${os}_amd64 ;;
	aarch64 | arm64) echo ${os}_arm64 ;;
	*) die "no archive for $(uname -m)" 'build from source: go install github.com/permesso-dev/permesso/cmd/permesso@latest' ;;
	esac
}

# fetch: unpack the archive of this platform into $work/root, if its checksum is right.
fetch() {
	kind=$(platform)
	get SHA256SUMS "$work/SHA256SUMS"
	grep -q '^[0-9a-f]\{64\}  [^ ]' "$work/SHA256SUMS" ||
		die "SHA256SUMS of $from is not a list of checksums" 'something on the way, as a proxy, gave another file: try again, or --from FOLDER'
	name=$(sed -n "s/^[0-9a-f]\{64\}  \(permesso_[A-Za-z0-9.+~-]*_$kind\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS")
	case $name in
	'' | *'
'*) die "SHA256SUMS of $from names no single archive for $kind" 'give a release that has one: --version' ;;
	esac
	say "getting $name"
	get "$name" "$work/archive"
	want=$(grep "  $name\$" "$work/SHA256SUMS" | cut -d ' ' -f 1)
	[ "$(sum "$work/archive")" = "$want" ] ||
		die "$name has another SHA-256 than SHA256SUMS says; nothing was installed" 'try again; if it stays so, the mirror is damaged: report it'
	mkdir "$work/root"
	said=$(tar -xzf "$work/archive" -C "$work/root" 2>&1) || {
		printf '%s\n' "$said" | tail -n 1 >&2
		die "cannot unpack $name in $work; nothing was installed" 'is the disk full? TMPDIR names another folder, for 100 MB'
	}
}

# parents FILE: the folders above it that are missing in $prefix, deepest first; ./ is $prefix.
parents() {
	dir=$(dirname "$1")
	while [ ! -d "$prefix/$dir" ]; do
		printf '%s/\n' "$dir"
		[ "$dir" != . ] || break
		dir=$(dirname "$dir")
	done
}

# beside FILE: the name under which it is written, until it is whole.
beside() { printf '%s/.permesso-install-%s\n' "$prefix/$(dirname "$1")" "$(basename "$1")"; }

# stage SOURCE FILE: copy it beside the place of FILE in $prefix, as $new. It follows no link there.
stage() {
	new=$(beside "$2")
	{
		mkdir -p "$(dirname "$new")" && rm -f "$new" && (set -C && cat "$1" >"$new") &&
			if [ -x "$1" ]; then chmod 755 "$new"; fi
	} || die "cannot write to $(dirname "$new"): the program is as it was" 'is the disk full? Then make room, and run this again'
}

# settle FILE: put what is staged in its place.
settle() {
	mv -f "$new" "$prefix/$1"
	new=
}

# forget: remove the files, and the empty folders, that standard input lists.
forget() {
	LC_ALL=C sort -r | while read -r name; do
		case $name in
		./) rmdir "$prefix" 2>/dev/null || true ;;
		*/) rmdir "$prefix/$name" 2>/dev/null || true ;;
		*) rm -f "$prefix/$name" "$(beside "$name")" ;;
		esac
	done
}

# remove what the list has, and the list last: a removal that was interrupted can be repeated.
remove() {
	names=$(cat "$list")
	printf '%s\n' "$names" | forget
	rm -f "$list" "$(beside share/permesso/files)"
	printf '%s\n' "$names" | grep '/$' | forget || true
}

# clean_up after install_it: a first installation that did not succeed leaves nothing.
clean_up() {
	rm -f ${new:+"$new"}
	[ -z "$begun" ] || [ ! -f "$list" ] || remove
	rm -rf "$work"
}

# write_list FILE: make it the list of what is installed.
write_list() {
	stage "$1" share/permesso/files
	settle share/permesso/files
}

# check_place FILE: there is nothing in its place, or what this script has put there.
check_place() {
	[ -e "$prefix/$1" ] || [ -L "$prefix/$1" ] || return 0
	if [ ! -d "$prefix/$1" ] && grep -Fxq "$1" "$work/old"; then return 0; fi
	die "$prefix/$1 is there, and was not installed by this script; nothing was changed" 'move it away, then run this again'
}

install_it() {
	new='' begun=''
	work=$(mktemp -d "${TMPDIR:-/tmp}/permesso.XXXXXX") || die 'there is no folder for temporary files' 'set TMPDIR to one with 100 MB'
	trap clean_up EXIT
	trap 'exit 1' INT TERM HUP
	fetch
	(cd "$work/root" && find . -type f | sed 's,^\./,,' | LC_ALL=C sort -r) >"$work/files" # the program last
	{ cat "$list" 2>/dev/null || true; } >"$work/old"
	while read -r file; do
		check_place "$file"
	done <"$work/files"
	{
		cat "$work/files"
		grep '/$' "$work/old" || true # folders that an earlier version made
		{ cat "$work/files"; echo share/permesso/files; } | while read -r file; do parents "$file"; done
	} | LC_ALL=C sort -u >"$work/new"
	[ -s "$work/old" ] || begun=yes
	mkdir -p "$prefix/share/permesso" 2>/dev/null || true
	[ -w "$prefix/share/permesso" ] || die "cannot write to $prefix" "$owner"
	# Until all are in place the list has the files of both versions: --uninstall finds everything.
	LC_ALL=C sort -u "$work/old" "$work/new" >"$work/both"
	write_list "$work/both"
	stage "$work/root/bin/permesso" bin/permesso
	said=$("$new" --version) ||
		die "the program does not run in $prefix/bin; nothing was installed" 'a file system that is mounted with noexec? Then elsewhere: --system or --user, or with another HOME'
	while read -r file; do
		stage "$work/root/$file" "$file"
		settle "$file"
	done <"$work/files"
	grep -Fxv -f "$work/new" "$work/both" | forget || true
	write_list "$work/new"
	begun=
	say "installed $said in $prefix"
	word=$(printf '%s\n' "$prefix" | sed "s/'/'\\\\''/g; /[^A-Za-z0-9_.\/+-]/s/.*/'&'/")
	case :$PATH: in
	*":$prefix/bin:"*)
		found=$(command -v permesso)
		[ "$found" = "$prefix/bin/permesso" ] || say "note: the shell finds $found first"
		;;
	*) say "add it to the PATH: export PATH=$word/bin:\"\$PATH\"" ;;
	esac
	"$prefix/bin/permesso" version | sed -n "s/^Restart /install: restart /p"
	say "to remove it: sh $word/share/permesso/install.sh --uninstall --$scope"
	say 'next: permesso init --yes, then permesso serve'
}

uninstall_it() {
	[ -f "$list" ] || die "nothing to remove: $list is not there" "it may be installed elsewhere: --user or --system"
	[ -w "$prefix/share/permesso" ] || die "cannot write to $prefix; nothing was removed" "$owner"
	unit=/etc/systemd/system/permesso.service
	[ "$scope" = system ] || unit=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user/permesso.service
	if [ -x "$prefix/bin/permesso" ] && [ -f "$unit" ]; then
		"$prefix/bin/permesso" service uninstall "--$scope" | sed 's/^/install: /' || true
	fi
	remove
	say "removed permesso from $prefix"
	if [ "$scope" = user ]; then
		say "kept: ${XDG_CONFIG_HOME:-$HOME/.config}/permesso (configuration), ${XDG_STATE_HOME:-$HOME/.local/state}/permesso (state, keys, log)"
	else
		say 'kept: /etc/permesso (configuration), /var/lib/permesso (state, keys, log), the user permesso if there is one'
	fi
}

main() {
	scope='' version='' from='' do=install_it
	while [ $# -gt 0 ]; do
		case $1 in
		--user | --system) scope=${1#--} ;;
		--uninstall) do=uninstall_it ;;
		--version | --from)
			value=${2-}
			case ${value%/} in '' | -*) die "$1 needs a value" 'sh install.sh --help' ;; esac
			case $1 in --version) version=$value ;; *) from=${value%/} ;; esac
			shift
			;;
		-h | --help)
			usage
			exit
			;;
		*) die "unknown option $1" 'sh install.sh --help' ;;
		esac
		shift
	done
	if [ -z "$scope" ]; then
		case $(cd "$(dirname -- "$0")" && pwd) in
		"${HOME-}"/.local/share/permesso) scope=user ;; # the copy that it has installed
		/usr/local/share/permesso) scope=system ;;
		*) if [ "$(id -u)" -eq 0 ]; then scope=system; else scope=user; fi ;;
		esac
	fi
	if [ "$scope" = system ]; then
		prefix=/usr/local owner='as root, or for this user alone: --user'
	else
		case ${HOME-} in
		/*) prefix=$HOME/.local owner="does it belong to another user? ls -ld $HOME/.local" ;;
		*) die "HOME is '${HOME-}', not the path of a folder" 'set it, or as root: --system' ;;
		esac
	fi
	list=$prefix/share/permesso/files
	[ -z "$version" ] || [ -z "$from" ] || die '--version and --from: give one of them' 'a mirror or a folder has the files of one release'
	if [ -z "$from" ]; then
		from=$releases/latest/download
		[ -z "$version" ] || from=$releases/download/$version
	fi
	$do
}

# The last line: a script that was cut off in the download does nothing.
main "$@"
