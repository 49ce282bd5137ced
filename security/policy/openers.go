package policy

import "strings"

func names(lists ...string) map[string]bool {
	m := map[string]bool{}
	for _, l := range lists {
		for _, n := range strings.Fields(l) {
			m[n] = true
		}
	}
	return m
}

const shellNames = `sh bash dash ash zsh fish ksh mksh pdksh csh tcsh rbash sash busybox toybox elvish nu pwsh powershell
	xonsh slsh wish tclsh tasksh jjs jshell`

// shells may not be any word of a command that a grant covers.
var shells = names(shellNames)

// openers are programs that run other programs, read a script, or open an editor or
// a pager. A version suffix (python3.11) is cut before the lookup. If a name is
// missing, a grant can cover one exact command line that an approver approved. If a
// name is superfluous, an approver is asked once more.
var openers = names(
	shellNames,
	// run their arguments
	`env nice nohup setsid setarch linux32 linux64 i386 x86_64 uname26 taskset timeout time stdbuf unbuffer xargs parallel watch
	sudo sudoedit doas su run0 pkexec runuser setpriv gosu su-exec sg newgrp chroot nsenter unshare bwrap firejail proot
	capsh chpst softlimit setuidgid setlock daemonize start-stop-daemon systemd-run machinectl systemd-nspawn lxc lxc-attach
	docker podman nerdctl docker-compose kubectl vagrant flock ionice chrt numactl cgexec choom cpulimit prlimit faketime fakeroot
	dbus-run-session xvfb-run torsocks torify sshpass rlwrap find fd fdfind entr at batch crontab run-parts
	eval exec source command builtin coproc trap . strace ltrace perf rr gdb lldb valgrind trace-cmd bpftrace
	ssh scp sftp rsync rsh rlogin mosh telnet ftp lftp socat nc ncat netcat openssl openvpn expect script screen tmux tmate dtach
	xterm rxvt urxvt kitty alacritty konsole gnome-terminal foot wezterm x-terminal-emulator`,
	// interpreters
	`python pypy ipython bpython perl ruby irb pry node nodejs deno bun tsx ts-node php lua luajit R Rscript julia octave
	awk gawk mawk nawk original-awk sed ed ex m4 dc bc guile racket sbcl clisp ecl emacs emacsclient gforth swipl yap erl erlc
	elixir iex mix ghc ghci runghc runhaskell ocaml ocamlrun scala groovy kotlin clojure lein jrunscript java javac julia nim
	crystal fennel hy janet tcl rexx regina gnuplot sqlite3 mysql psql mongo mongosh redis-cli gp maxima sage pike pdb jupyter
	scilab wolframscript dotnet go cargo rustc swift zig nix nix-shell osascript`,
	// build and package tools: they run what files say
	`make gmake cmake ninja meson scons bazel buck just rake gradle mvn ant sbt npm npx pnpm yarn corepack pip pipx pipenv poetry
	uv uvx conda gem bundle bundler composer easy_install cpan apt apt-get aptitude dnf yum zypper rpm dpkg apk pacman pkg brew snap
	opkg opam stack cabal raco rebar tox nox pytest autoconf automake autoreconf aclocal libtool gcc g++ cc c++ clang c89 c99
	ansible ansible-playbook ansible-console puppet salt terraform packer helm direnv asdf mise tex latex pdftex pdflatex lualatex
	luatex xetex xelatex latexmk pandoc`,
	// editors and pagers
	`vi vim vimdiff nvim gvim mvim view rview rvim rvi vipw vigr visudo nano pico micro hx helix kak joe jed mcedit mc ne editor
	sensible-editor edit red code codium subl atom gedit kate mousepad pluma nedit zed less more most pg man info bat batcat
	w3m lynx links elinks mutt mail mailx ranger nnn vifm fzf git gh svn hg fossil tig gitk`,
	// agents and dialogs
	`codex claude aider opencode gemini goose cursor-agent zenity yad kdialog dialog whiptail xdg-open open xdotool`,
	// known to open a shell by an option or a key
	`zip tar cpio rpmquery rpmdb tcpdump wireshark tshark nmap byebug gtester tic dmsetup loginctl systemctl journalctl service
	busctl timedatectl ip aria2c wget borg restic rclone 7z nroff troff mount logrotate wall crash asterisk aspell ispell aa-exec
	as ld ldconfig setfacl split sshfs multitime ginsh genie`,
)
