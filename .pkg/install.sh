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
	https://* | http://127.0.0.1[:/]* | http://localhost[:/]*)
		if command -v curl >/dev/null; then
			curl -fsSL "$from/$1" -o "$2"
		elif command -v wget >/dev/null; then
			wget -q "$from/$1" -O "$2"
		else
			die 'neither curl nor wget is here' 'install one of them, or copy the files of a release here and give --from FOLDER'
		fi
		;;
	*) die "--from $from: neither https:// nor a folder" 'give the URL of a mirror, or the absolute path of a folder' ;;
	esac || die "cannot get $from/$1" 'check the connection and --version; --from FOLDER installs what you copied there'
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
	tar -xzf "$work/archive" -C "$work/root"
}

# parents FILE: the folders above it that are missing in $prefix, deepest first; ./ is $prefix.
parents() {
	dir=$(dirname "$1")
	while [ ! -d "$prefix/$dir" ]; do
		echo "$dir/"
		[ "$dir" != . ] || break
		dir=$(dirname "$dir")
	done
}

# put FILE: copy one file of $work/root into $prefix, whole or not at all.
put() {
	mkdir -p "$prefix/$(dirname "$1")"
	cp "$work/root/$1" "$prefix/$1.new"
	mv -f "$prefix/$1.new" "$prefix/$1"
}

# forget: remove the files, and the empty folders, that standard input lists.
forget() {
	LC_ALL=C sort -r | while read -r name; do
		case $name in
		./) rmdir "$prefix" 2>/dev/null || true ;;
		*/) rmdir "$prefix/$name" 2>/dev/null || true ;;
		*) rm -f "$prefix/$name" ;;
		esac
	done
}

# write_list FILE: make it the list of what is installed.
write_list() {
	cp "$1" "$list.new"
	mv -f "$list.new" "$list"
}

install_it() {
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' INT TERM HUP
	fetch
	(cd "$work/root" && find . -type f | sed 's,^\./,,') >"$work/files"
	{ cat "$list" 2>/dev/null || true; } >"$work/old"
	{
		cat "$work/files"
		grep '/$' "$work/old" || true # folders that an earlier version made
		{ cat "$work/files"; echo share/permesso/files; } | while read -r file; do parents "$file"; done
	} | LC_ALL=C sort -u >"$work/new"
	mkdir -p "$prefix/share/permesso" 2>/dev/null || true
	[ -w "$prefix/share/permesso" ] || die "cannot write to $prefix" 'as root, or for this user alone: --user'
	# Until all are in place the list has the files of both versions: --uninstall finds everything.
	LC_ALL=C sort -u "$work/old" "$work/new" >"$work/both"
	write_list "$work/both"
	while read -r file; do
		put "$file"
	done <"$work/files"
	grep -Fxv -f "$work/new" "$work/both" | forget || true
	write_list "$work/new"
	say "installed $("$prefix/bin/permesso" --version) in $prefix"
	case :$PATH: in
	*":$prefix/bin:"*)
		found=$(command -v permesso)
		[ "$found" = "$prefix/bin/permesso" ] || say "note: the shell finds $found first"
		;;
	*) say "add it to the PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
	esac
	"$prefix/bin/permesso" version | sed -n "s/^Restart /install: restart /p"
	say 'next: permesso init --yes, then permesso serve'
}

uninstall_it() {
	[ -f "$list" ] || die "nothing to remove: $list is not there" "it may be installed elsewhere: --user or --system"
	unit=/etc/systemd/system/permesso.service
	[ "$scope" = system ] || unit=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user/permesso.service
	if [ -x "$prefix/bin/permesso" ] && [ -f "$unit" ]; then
		"$prefix/bin/permesso" service uninstall "--$scope" | sed 's/^/install: /' || true
	fi
	names=$(cat "$list")
	printf '%s\n' "$names" | forget
	rm -f "$list" # last: a removal that was interrupted can be repeated
	printf '%s\n' "$names" | grep '/$' | forget || true
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
			[ $# -gt 1 ] || die "$1 needs a value" 'sh install.sh --help'
			case $1 in --version) version=$2 ;; *) from=${2%/} ;; esac
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
		if [ "$(id -u)" -eq 0 ]; then scope=system; else scope=user; fi
	fi
	if [ "$scope" = system ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi
	list=$prefix/share/permesso/files
	if [ -z "$from" ]; then
		from=$releases/latest/download
		[ -z "$version" ] || from=$releases/download/$version
	fi
	$do
}

# The last line: a script that was cut off in the download does nothing.
main "$@"
